// Who takes over whose bytes.
#include "host/passes/alias.hpp"

#include <gtest/gtest.h>

namespace galley {
namespace {

using Entries = std::vector<std::vector<TensorId>>;

/// Each entry's first tensor is its output, which may take over any of the others. What the tensors have become.
Entries shared(const Entries& entries) {
  Outline::Code code;
  std::vector<std::vector<TakeOver>> allowed;
  size_t tensors = 0;
  for (const auto& entry : entries) {
    Outline::Entry s;
    s.begin = static_cast<uint32_t>(code.touched.size());
    code.touched.insert(code.touched.end(), entry.begin(), entry.end());
    s.end = static_cast<uint32_t>(code.touched.size());
    code.entries.push_back(s);
    auto& list = allowed.emplace_back();
    for (uint32_t i = 1; i < entry.size(); ++i) list.push_back({0, i});
    for (const TensorId t : entry) tensors = std::max(tensors, static_cast<size_t>(t) + 1);
  }
  std::vector<const std::vector<TakeOver>*> by_step;
  for (const auto& a : allowed) by_step.push_back(&a);
  share(code, by_step, tensors);
  Entries out;
  for (const Outline::Entry& s : code.entries) out.emplace_back(code.of(s).begin(), code.of(s).end());
  return out;
}

TEST(Alias, TheLastReaderTakesOver) { EXPECT_EQ(shared({{0}, {1, 0}, {2, 1}}), (Entries{{0}, {0, 0}, {0, 0}})); }
TEST(Alias, WhatIsReadLaterStays) { EXPECT_EQ(shared({{0}, {1, 0}, {2, 0, 1}}), (Entries{{0}, {1, 0}, {0, 0, 1}})); }
TEST(Alias, WhatIsAlreadyThereHasItsBytes) { EXPECT_EQ(shared({{0}, {1}, {1, 0}}), (Entries{{0}, {1}, {1, 0}})); }
TEST(Alias, AnOutputTakesOneInput) { EXPECT_EQ(shared({{0}, {1}, {2, 0, 1}}), (Entries{{0}, {1}, {0, 0, 1}})); }

}  // namespace
}  // namespace galley
