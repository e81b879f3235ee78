// Caches of keys and values in 8 bit beside those in which attention computes: the logits of a text that is read in pieces and by single
// positions, at each position, and the memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <numeric>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "galley/cpp/philox.hpp"
#include "host/tools/inference/folder_study.hpp"
#include "host/tools/inference/generate.hpp"
#include "tests/session/built.hpp"

namespace galley {
namespace {

/// A copy of a model among the fixtures that has so many positions, where these are no parameters.
std::filesystem::path with_positions(const std::string& model, size_t positions) {
  const auto from = std::filesystem::path(std::getenv("GALLEY_SOURCE")) / "tests/fixtures/models" / model;
  const std::filesystem::path to = std::filesystem::absolute(model);
  std::filesystem::remove_all(to);
  std::filesystem::copy(from, to);
  std::ostringstream text;
  text << std::ifstream(from / "config.json").rdbuf();
  std::ofstream(to / "config.json") << std::regex_replace(text.str(), std::regex("(\"max_position_embeddings\": *)[0-9]+"),
                                                          "$01" + std::to_string(positions));
  return to;
}

struct Made {
  std::vector<std::vector<float>> logits;  ///< after the prompt, and after each token more
  int64_t caches = 0, values = 0;          ///< bytes; numbers that are kept, without scales
  bool as_planned = false;
};

Result<Made> made_by(const std::string& model, int64_t rows, bool int8_cache) {
  StudyOptions options = options_of_build();
  options.purpose = Purpose::Sample;
  options.caches = true;
  options.int8_cache = int8_cache;
  options.sample_rows = rows;
  const size_t positions = model.starts_with("gpt2") ? 64 : 100;
  FolderStudy studied = TRY(study_folder(with_positions(model, positions), {{}, static_cast<int64_t>(positions)}, options));
  const auto session = TRY(studied.open());
  Made out;
  const Program& program = studied.study->program;
  for (const ProgramTensor& t : program.tensors)
    if (t.owner == Owner::Caches) {
      out.caches += t.bytes;
      if (!t.name.ends_with(".scales")) out.values += std::accumulate(t.shape.begin(), t.shape.end(), int64_t{1}, std::multiplies<>());
    }
  out.as_planned = session->executor().allocated(0) == studied.study->plan.classes[0].planned;
  Generator generator(*session);
  std::vector<std::vector<int32_t>> texts(static_cast<size_t>(rows));
  const size_t longest = generator.has_source() ? 30 : positions;
  for (size_t n = generator.has_source() ? 1 : positions - 30; n <= longest; ++n) {
    std::vector<std::span<const int32_t>> read;
    for (size_t r = 0; r < texts.size(); ++r) {  // each row shorter than the one before
      while (texts[r].size() + 7 * std::min(r, n / 8) < n)
        texts[r].push_back(
            static_cast<int32_t>(galley_philox(1, texts[r].size(), r).word[0] % static_cast<uint64_t>(generator.vocabulary())));
      read.emplace_back(texts[r]);
    }
    if (out.logits.empty() && generator.has_source())
      for (size_t r = 0; r < texts.size(); ++r) generator.read_source(std::vector<int32_t>{5, 9, 33, 7}, static_cast<int64_t>(r));
    const std::span<const float> logits = TRY(generator.logits(read));
    out.logits.emplace_back(logits.begin(), logits.end());
  }
  return out;
}

double norm(const std::vector<float>& x) {
  return std::sqrt(
      std::inner_product(x.begin(), x.end(), x.begin(), 0.0, std::plus<>(), [](float a, float b) { return double{a} * double{b}; }));
}

class Int8Cache : public testing::TestWithParam<std::string> {};

TEST_P(Int8Cache, GivesLogitsThatAreNear) {
  for (const int64_t rows : {1, 3}) {
    const auto wanted = made_by(GetParam(), rows, false), found = made_by(GetParam(), rows, true);
    ASSERT_TRUE(wanted && found) << (wanted ? found : wanted).error().cause;
    EXPECT_TRUE(wanted->as_planned && found->as_planned);
    ASSERT_EQ(wanted->logits.size(), found->logits.size());
    double most = 0;
    for (size_t n = 0; n < wanted->logits.size(); ++n) {
      std::vector<float> difference(wanted->logits[n].size());
      std::ranges::transform(wanted->logits[n], found->logits[n], difference.begin(), std::minus<>());
      most = std::max(most, norm(difference) / norm(wanted->logits[n]));
    }
    std::printf("%s, %lld rows: logits are apart by %.5f at most; caches of %lld and %lld bytes\n", GetParam().c_str(),
                static_cast<long long>(rows), most, static_cast<long long>(wanted->caches), static_cast<long long>(found->caches));
    EXPECT_GT(most, 0) << "nothing is rounded";
    EXPECT_LT(most, 0.02);
    EXPECT_EQ(wanted->values, found->values);
    // A quarter and 2 bytes for 32 numbers; where a row has fewer, as here, for what there is. A source's are kept as they are.
    if (GetParam().starts_with("t5")) EXPECT_LT(found->caches, wanted->caches);
    else EXPECT_LE(found->caches, wanted->caches * 9 / 32);
  }
}

// Grouped queries and norms of queries and keys; windows; ALiBi, all in one product head by head; a cap and windows in turns; a source.
INSTANTIATE_TEST_SUITE_P(Models, Int8Cache,
                         testing::Values("qwen3-qknorm", "mistral-window", "bloom-six-heads", "gemma2-softcap", "gpt2-packed",
                                         "t5-gated-untied"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace galley
