// What tests of groups and chains share: nodes that a kernel takes in one launch, beside the bytes that each of them has alone.
#pragma once

#include <functional>

#include "tests/models/harness.hpp"

namespace galley::test {

/// A node's operands, with addresses of their own: `off` bytes after one of 64 where that is a multiple of their elements.
struct Placed {
  explicit Placed(const Problem& problem, const How& how = {}, int64_t off = 0);
  /// All operands from the one called `from` on have the bytes that they have where the node ran alone.
  bool same(const Execution& alone, size_t from = 0) const;
  const Problem& problem;
  How how;
  std::vector<Memory> memory;
  std::vector<void*> inputs, outputs;
};

/// One launch of these nodes; the text is the error's.
galley_status run(const galley_kernel* kernel, const std::string& isa, const std::vector<const galley_node_view*>& nodes,
                  std::string* text);

/// Two nodes as links of a chain: output 0 of the first, or, if it has none, input 0, which it updates, is input `place` of the second.
struct Linked {
  /// What lies between: in memory, where others may read it, or not.
  enum class Between { Kept, NoMemory };
  Linked(const Problem& first, const Problem& second, size_t place, Between between, int64_t off = 0);
  /// One launch, or several. `access`: of the second one's outputs; all written where it is empty.
  Launch run(const galley_kernel* chain, const std::string& isa, const std::vector<uint32_t>& access = {}, int times = 1) const;
  bool intact() const;

  Placed one, two;
  size_t place;
  Between between;
};

/// The kernel that the host chooses for a node, and what it computes.
const galley_kernel* chosen(const Level& level, const Problem& problem, const How& how = {});
Execution alone(const Level& level, const Problem& problem, const How& how = {});

/// body(level, only_bf16) for each set of instructions that this machine has, and for the emulated GPU; where only_bf16, products in BF16
/// alone differ from those of another set.
void on_all_levels(const std::function<void(const Level&, bool only_bf16)>& body);

/// A launch of all problems gives each of them the bytes that it has alone. `how`: one for each; all writing where it is empty.
void expect_same_as_alone(const Level& level, const galley_kernel* kernel, const std::vector<Problem>& problems,
                          const std::vector<How>& how = {}, int64_t off = 0);

}  // namespace galley::test
