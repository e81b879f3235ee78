// Sessions on several threads at once, over the same plugins: each trains as one does that is alone, to the byte. `make test-all` runs this
// under ThreadSanitizer. GALLEY_TEST_DEVICE=…/cuda.so: on that GPU (tests/gpu/test) instead of the processor and the emulated one.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "host/session/session.hpp"
#include "host/session/study.hpp"
#include "tests/base/folder.hpp"
#include "tests/session/built.hpp"

namespace galley {
namespace {

constexpr int64_t kSteps = 4;  // the second is captured where a device can, later ones are replayed

std::vector<std::string> devices() {
  if (const char* library = std::getenv("GALLEY_TEST_DEVICE")) return {std::filesystem::path(library).stem()};
  return {"cpu", "cuda-emulated"};
}

class Sessions : public testing::TestWithParam<std::string> {
 protected:
  std::filesystem::path recipe(const std::string& name, const std::string& family, const std::string& config, const std::string& uses) {
    const std::filesystem::path path = folder_.path() / name;
    // cuDNN takes rows of 128 tokens.
    std::ofstream(path) << "return recipe {\n  model = model { family = \"" << family << "\", config = { " << config
                        << " } },\n  data = data.random {}, batch = 2, length = " << (GetParam() == "cuda" ? 128 : 16)
                        << ", steps = " << kSteps << ", seed = 1,\n  " << uses << "\n}\n";
    return path;
  }

  /// What is trained in `place`: the losses, and all bytes of the state that is saved; or what is wrong.
  std::string train(const std::filesystem::path& recipe, const std::filesystem::path& place) const {
    std::ostringstream text;
    const Status status = train(recipe, place, text);
    return status.ok() ? text.str() : "error: " + status.error().cause;
  }
  Status train(const std::filesystem::path& recipe, const std::filesystem::path& place, std::ostream& text) const {
    StudyOptions options = options_of_build();
    options.plugin_path = {build_folder() / "emulated"};
    options.device = GetParam();
    const std::unique_ptr<Study> made = TRY(study(recipe, options));
    const std::unique_ptr<Session> session = TRY(Session::open(*made, TRY(open_source(*made))));
    TRY_STATUS(session->start());
    for (int64_t i = 0; i < kSteps; ++i) {
      TRY_STATUS(session->enqueue());
      text << std::hexfloat << TRY(session->finished()).loss << "\n";
    }
    TRY_STATUS(session->save(place, 1));
    for (const auto& file : std::filesystem::recursive_directory_iterator(place))
      if (file.path().extension() == ".safetensors") text << std::ifstream(file.path(), std::ios::binary).rdbuf();
    return ok();
  }

  Folder folder_;
};

TEST_P(Sessions, OnTwoThreadsAtOnce) {
  const std::vector<std::filesystem::path> recipes = {
      recipe("gpt2.lua", "gpt2", "vocab_size = 61, n_positions = 128, n_embd = 64, n_layer = 2, n_head = 4",
             "use \"clip\" { norm = 1.0 }, use \"adamw8bit\" { lr = 1e-3 },"),
      recipe("llama.lua", "llama",
             "vocab_size = 61, hidden_size = 64, intermediate_size = 128, num_hidden_layers = 2, num_attention_heads = 4, "
             "num_key_value_heads = 2, max_position_embeddings = 128",
             "use \"amp\" { compute = \"bf16\" }, use \"quantize-nf4\" {}, use \"lora\" { rank = 4 }, use \"sgd\" { lr = 0.1 },"),
  };
  std::vector<std::string> alone;
  for (size_t i = 0; i < recipes.size(); ++i) alone.push_back(train(recipes[i], folder_.path() / ("alone" + std::to_string(i))));
  for (const std::string& text : alone) ASSERT_NE(text.rfind("error: ", 0), 0u) << text;
  EXPECT_GT(alone[0].size(), 10'000u) << "a state of no weights";
  constexpr size_t kThreads = 2, kTimes = 3;
  std::vector<std::string> together[kThreads];
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < kTimes; ++i)
        together[t].push_back(
            train(recipes[(t + i) % recipes.size()], folder_.path() / ("thread" + std::to_string(t) + "-" + std::to_string(i))));
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < kThreads; ++t)
    for (size_t i = 0; i < kTimes; ++i) {
      const std::string &text = together[t][i], &same = alone[(t + i) % recipes.size()];
      EXPECT_TRUE(text == same) << "thread " << t << ", session " << i << (text.rfind("error: ", 0) == 0 ? ": " + text : "");
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, Sessions, testing::ValuesIn(devices()),
                         [](const auto& device) { return device.param == "cuda-emulated" ? std::string("emulated") : device.param; });

}  // namespace
}  // namespace galley
