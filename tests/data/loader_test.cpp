#include "host/data/loader.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <new>
#include <thread>

#include "tests/data/support.hpp"

namespace galley {
namespace {

constexpr BatchLayout kLayout{2, 8};

/// Windows whose every number is the window's; counts what it is asked for, and can fail or be slow.
class Counting final : public Source {
 public:
  explicit Counting(std::vector<int64_t> micro_batches) : micro_batches_(std::move(micro_batches)) {}

  Status fill(int64_t window, WindowBuffer& buffer) const override {
    filled = window;
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(window % 3));
    if (window == throws_at) throw std::bad_alloc();
    if (window == fails_at) return run_error("window " + std::to_string(window) + " is broken");
    buffer.window = window;
    buffer.micro_batches = micro_batches_[static_cast<size_t>(window) % micro_batches_.size()];
    for (int64_t m = 0; m < buffer.micro_batches; ++m) {
      for (size_t f = 0; f < kPlainFills; ++f) {
        for (int32_t& number : buffer.tensor(m, static_cast<Fill>(f))) number = static_cast<int32_t>(window);
      }
    }
    buffer.valid_tokens = buffer.count_valid();
    return ok();
  }

  int64_t fails_at = -1, throws_at = -1;
  bool slow = false;
  mutable std::atomic<int64_t> filled = -1;

 private:
  std::vector<int64_t> micro_batches_;
};

void expect_window(const WindowBuffer& buffer, int64_t window, int64_t micro_batches) {
  EXPECT_EQ(buffer.window, window);
  EXPECT_EQ(buffer.micro_batches, micro_batches);
  EXPECT_EQ(buffer.valid_tokens, micro_batches * 16);
  for (int64_t m = 0; m < micro_batches; ++m) {
    for (size_t f = 0; f < kPlainFills; ++f) {
      for (const int32_t number : buffer.tensor(m, static_cast<Fill>(f))) ASSERT_EQ(number, window);
    }
  }
}

TEST(Loader, HandsWindowsOutInOrder) {
  const std::vector<int64_t> micro_batches = {1, 4, 2, 3};
  for (const bool slow : {false, true}) {
    Counting source(micro_batches);
    source.slow = slow;
    const Memory memory(Loader::bytes(kLayout, 4));
    Result<std::unique_ptr<Loader>> loader = Loader::start(source, kLayout, 4, 5, 60, memory.span());
    ASSERT_TRUE(loader.ok());
    for (int64_t window = 5; window < 60; ++window) {
      const Result<const WindowBuffer*> buffer = (*loader)->next();
      ASSERT_TRUE(buffer.ok());
      expect_window(**buffer, window, micro_batches[static_cast<size_t>(window) % 4]);
      if (slow) std::this_thread::sleep_for(std::chrono::milliseconds((window + 1) % 3));
      expect_window(**buffer, window, micro_batches[static_cast<size_t>(window) % 4]);  // while the next one is being filled
    }
    const Result<const WindowBuffer*> beyond = (*loader)->next();
    ASSERT_FALSE(beyond.ok());
    EXPECT_EQ(beyond.error().cause, "the loader was asked for window 60, but the last is 59");
    EXPECT_EQ(source.filled, 59);
  }
}

TEST(Loader, IsAtMostOneWindowAhead) {
  Counting source({1});
  const Memory memory(Loader::bytes(kLayout, 1));
  const auto loader = Loader::start(source, kLayout, 1, 0, 100, memory.span()).value();
  const auto settle = [&](int64_t expected) {
    for (int i = 0; i < 2000 && source.filled < expected; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(source.filled, expected);
  };
  settle(1);  // both buffers
  ASSERT_TRUE(loader->next().ok());
  settle(1);  // one in hand, one waiting
  ASSERT_TRUE(loader->next().ok());
  settle(2);
}

TEST(Loader, PassesErrorsOnInTheirPlace) {
  Counting source({1});
  source.fails_at = 3;
  const Memory memory(Loader::bytes(kLayout, 1));
  const auto loader = Loader::start(source, kLayout, 1, 0, 100, memory.span()).value();
  for (int64_t window = 0; window < 3; ++window) expect_window(*loader->next().value(), window, 1);
  for (int again = 0; again < 3; ++again) {
    const Result<const WindowBuffer*> buffer = loader->next();
    ASSERT_FALSE(buffer.ok());
    EXPECT_EQ(buffer.error().cause, "window 3 is broken");
  }
}

TEST(Loader, AnExceptionIsAnErrorOfItsWindow) {
  Counting source({1});
  source.throws_at = 1;
  const Memory memory(Loader::bytes(kLayout, 1));
  const auto loader = Loader::start(source, kLayout, 1, 0, 100, memory.span()).value();
  expect_window(*loader->next().value(), 0, 1);
  EXPECT_EQ(loader->next().error().cause, "there is not enough memory");
}

TEST(Loader, StopsAnywhere) {
  for (int64_t taken = 0; taken < 5; ++taken) {
    Counting source({2});
    source.slow = true;
    const Memory memory(Loader::bytes(kLayout, 2));
    auto loader = Loader::start(source, kLayout, 2, 0, 1'000'000, memory.span()).value();
    for (int64_t i = 0; i < taken; ++i) ASSERT_TRUE(loader->next().ok());
    loader.reset();
    EXPECT_LE(source.filled, taken + 1);
  }
  Counting source({1});
  const Memory memory(Loader::bytes(kLayout, 1));
  const auto none = Loader::start(source, kLayout, 1, 7, 7, memory.span()).value();
  EXPECT_FALSE(none->next().ok());
  EXPECT_EQ(source.filled, -1);
}

TEST(Loader, AllocatesNothingAfterItsStart) {
  const Folder folder;
  folder.put("t/a", std::string(500, 'a'));
  folder.put("t/b", std::string(90, 'b'));
  const Opened text = try_open(text_of({(folder / "t").string()}), recipe_of(2, 16), 256, {3}).value();
  const Opened random = try_open(spec_of("random", {}), recipe_of(2, 16), 256, {3}).value();
  for (const Opened* opened : {&text, &random}) {
    const Memory memory(Loader::bytes(opened->info.layout, 3));
    const auto loader = Loader::start(*opened->source, opened->info.layout, 3, 0, 200, memory.span()).value();
    ASSERT_TRUE(loader->next().ok());  // the thread runs
    const int64_t before = allocations();
    int64_t valid = 0;
    for (int64_t window = 1; window < 200; ++window) valid += loader->next().value()->valid_tokens;
    EXPECT_EQ(allocations(), before);
    EXPECT_GT(valid, 0);
  }
}

TEST(Loader, GivesTheWindowsOfTheSource) {
  const Folder folder;
  for (int i = 0; i < 9; ++i)
    folder.put("t/" + std::to_string(i), std::string(static_cast<size_t>(20 + 13 * i), static_cast<char>('a' + i)));
  const Opened text = try_open(text_of({(folder / "t").string()}), recipe_of(2, 16), 256, {3}).value();
  const Memory memory(Loader::bytes(text.info.layout, 3));
  const auto loader = Loader::start(*text.source, text.info.layout, 3, 0, 40, memory.span()).value();
  for (int64_t window = 0; window < 40; ++window) {
    EXPECT_EQ(copy_rows(*loader->next().value()), text.window(window, 3));
  }
}

}  // namespace
}  // namespace galley
