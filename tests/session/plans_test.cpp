// Plans of different graphs on several threads at once are those that one thread makes. `make test-all` runs this under ThreadSanitizer.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "host/proofs/dump.hpp"
#include "host/session/several.hpp"
#include "host/session/study.hpp"
#include "tests/base/folder.hpp"
#include "tests/session/built.hpp"

namespace galley {
namespace {

class Plans : public testing::Test {
 protected:
  Plans() { options_.runs = false; }
  std::filesystem::path recipe(const std::string& name, const std::string& family, const std::string& config, const std::string& uses) {
    const std::filesystem::path path = folder_.path() / name;
    std::ofstream(path) << "return recipe {\n  model = model { family = \"" << family << "\", config = { " << config
                        << " } },\n  data = data.random {}, batch = 2, length = 16, steps = 2, seed = 1,\n  " << uses << "\n}\n";
    return path;
  }
  /// The program and where each tensor lies, or what is wrong.
  std::string plan(const std::filesystem::path& recipe) const {
    const auto made = study(recipe, options_);
    if (!made) return "error: " + made.error().cause;
    const Study& s = **made;
    return dump_plan(s.program, s.plan);
  }

  Folder folder_;
  StudyOptions options_ = options_of_build();
};

TEST(Several, ProcessesThatSpeakForAll) {
  EXPECT_EQ(planned_ranks(1), (std::set<int64_t>{0}));
  EXPECT_EQ(planned_ranks(2), (std::set<int64_t>{0, 1}));
  EXPECT_EQ(planned_ranks(8), (std::set<int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(planned_ranks(9), (std::set<int64_t>{0, 1, 4, 8}));
  EXPECT_EQ(planned_ranks(512), (std::set<int64_t>{0, 1, 256, 511}));
}

TEST_F(Plans, OnTwoThreadsAtOnce) {
  const std::vector<std::filesystem::path> recipes = {
      recipe("gpt2.lua", "gpt2", "vocab_size = 61, n_positions = 32, n_embd = 32, n_layer = 3, n_head = 4",
             "use \"recompute\" { every = 1 }, use \"clip\" { norm = 1.0 }, use \"adamw\" { lr = 1e-3 },"),
      recipe("llama.lua", "llama",
             "vocab_size = 61, hidden_size = 32, intermediate_size = 48, num_hidden_layers = 3, num_attention_heads = 4, "
             "num_key_value_heads = 2, max_position_embeddings = 32",
             "use \"amp\" { compute = \"bf16\" }, use \"lora\" { rank = 4 }, use \"accumulate\" { steps = 2 }, use \"sgd\" { lr = 0.1 },"),
  };
  std::vector<std::string> alone;
  for (const auto& recipe : recipes) alone.push_back(plan(recipe));  // opens the plugins
  for (const std::string& text : alone) ASSERT_NE(text.rfind("error: ", 0), 0u) << text;
  EXPECT_NE(alone[0], alone[1]);
  constexpr size_t kThreads = 2, kTimes = 4;
  std::vector<std::string> together[kThreads];
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < kTimes; ++i) together[t].push_back(plan(recipes[(t + i) % recipes.size()]));
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < kThreads; ++t)
    for (size_t i = 0; i < kTimes; ++i) EXPECT_TRUE(together[t][i] == alone[(t + i) % recipes.size()]) << "thread " << t << ", plan " << i;
}

}  // namespace
}  // namespace galley
