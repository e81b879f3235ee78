#include "host/tools/gguf/read_again.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

#include "galley/cpp/philox.hpp"
#include "host/base/random.hpp"
#include "host/tools/inference/folder_study.hpp"
#include "host/tools/inference/generate.hpp"

namespace galley {
namespace {

using Positions = std::vector<std::vector<float>>;

/// Computes the logits after each token. Tokens that are missing up to `length` are what the model finds likeliest.
Result<Positions> logits_of(const std::filesystem::path& folder, size_t length, const StudyOptions& options, std::vector<int32_t>* tokens,
                            size_t drawn) {
  FolderStudy studied = TRY(study_folder(folder, {{}, static_cast<int64_t>(length)}, options));
  const auto session = TRY(studied.open());
  Generator generator(*session);
  const auto draw = [&](size_t i) {
    return static_cast<int32_t>(galley_philox(1, i, 0).word[0] % static_cast<uint64_t>(generator.vocabulary()));
  };
  if (generator.has_source()) {
    // What is drawn is the source; a target begins with one token.
    std::vector<int32_t> source;
    while (source.size() < std::max<size_t>(1, length / 2)) source.push_back(draw(source.size()));
    generator.read_source(source);
    if (tokens->empty()) tokens->push_back(studied.study->recipe.learning.start);
  }
  while (!generator.has_source() && tokens->size() < drawn) tokens->push_back(draw(tokens->size()));
  Positions out;
  for (size_t n = 1; n <= length; ++n) {
    const std::span<const float> logits = TRY(generator.logits(std::span(*tokens).first(n)));
    out.emplace_back(logits.begin(), logits.end());
    if (tokens->size() == n) tokens->push_back(static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin()));
  }
  return out;
}

/// The logarithm of the sum of exp(x).
double log_sum(std::span<const float> x) {
  const auto most = static_cast<double>(*std::ranges::max_element(x));
  double sum = 0;
  for (const float v : x) sum += std::exp(static_cast<double>(v) - most);
  return most + std::log(sum);
}

}  // namespace

std::string apart_text(const LogitsApart& apart) {
  char text[300];
  std::snprintf(text, sizeof text,
                "read again, at %lld positions: logits are apart by %.2g of their size (root mean square), distributions by %.2g nats "
                "(Kullback-Leibler); the likeliest token is the same at %lld",
                static_cast<long long>(apart.positions), apart.apart, apart.divergence, static_cast<long long>(apart.same));
  return text;
}

Result<LogitsApart> read_again(const std::filesystem::path& model, const std::filesystem::path& gguf, int64_t length,
                               const StudyOptions& options) {
  StudyOptions reading;
  reading.checks = options.checks;
  reading.kinds = options.kinds;
  reading.warn = [](const std::string&) {};
  reading.plugin_path = options.plugin_path;
  reading.memory_limit = options.memory_limit;
  reading.installation = options.installation;
  reading.purpose = Purpose::Sample;
  reading.caches = true;
  std::vector<int32_t> tokens;
  const auto positions = static_cast<size_t>(length);
  const Positions ours = TRY(logits_of(model, positions, reading, &tokens, std::max<size_t>(1, positions / 2)));
  const Positions theirs = TRY(logits_of(gguf, positions, reading, &tokens, 0));
  LogitsApart out;
  out.positions = length;
  out.apart = INFINITY;
  if (ours[0].size() != theirs[0].size()) return out;
  double off = 0, all = 0;
  for (size_t n = 0; n < positions; ++n) {
    const std::vector<float>&a = ours[n], &b = theirs[n];
    const double sum_a = log_sum(a), sum_b = log_sum(b);
    for (size_t i = 0; i < a.size(); ++i) {
      const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
      off += (x - y) * (x - y);
      all += x * x;
      out.divergence += std::exp(x - sum_a) * ((x - sum_a) - (y - sum_b));
    }
    out.same += std::ranges::max_element(a) - a.begin() == std::ranges::max_element(b) - b.begin();
  }
  out.divergence /= static_cast<double>(length);
  out.apart = all > 0 ? std::sqrt(off / all) : off > 0 ? INFINITY : 0;
  return out;
}

}  // namespace galley
