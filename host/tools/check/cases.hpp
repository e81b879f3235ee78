// Nodes that tests make of an op's test cases: as plugins see them, with other sizes, and of some of their rows.
#pragma once

#include <deque>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "host/plugins/loader.hpp"
#include "host/proofs/lone_kernel.hpp"

namespace galley {

/// A lone node as a plugin sees it, in structs of its own, which tests may change.
class NodeParts {
 public:
  /// Floating operands as shape rules and kernels see them, in their dtypes, or as references do, in F64. The node outlives this.
  enum class As : uint8_t { Given, Doubles };
  NodeParts(const LoneNode& node, const Values& outputs, As as = As::Given);
  NodeParts(const NodeParts&) = delete;
  NodeParts& operator=(const NodeParts&) = delete;

  const galley_node_view& view() const { return view_; }
  /// Gives each operand an address.
  void place(const std::function<void*(const Numbers&)>& address);

  /// Sets a flag that no version of the ABI knows yet, of one that has to be understood. Returns whether there is such a struct.
  enum class Flag : uint8_t { Node, Operand, Attribute };
  bool set(Flag flag);
  static const char* name(Flag flag);

 private:
  void add(const Values& operands, uint32_t access, As as, std::vector<const galley_operand*>& to);
  const LoneNode& node_;
  Values outputs_;
  std::deque<galley_operand> operands_;
  std::vector<const Numbers*> numbers_;
  std::vector<const galley_operand*> in_, out_;
  std::vector<const galley_attr*> attrs_;
  galley_attr attr_ = {};
  galley_node_view view_ = {};
};

/// Whether the op's shape rule takes a node.
bool takes(const LoneNode& node);

/// The node with what it reads in the dtype that it computes in, or in any, in BF16 and in F16; none if it reads nothing of that kind in F32.
std::vector<LoneNode> in_16_bit(const LoneNode& node);

/// The options of a format among the attributes of a node that packs or unpacks.
std::vector<const galley_attr*> options_of(const AttrList& attrs);

/// Numbers in each format that can hold them and has references for both ways: with the options of one of its cases, rounded to the nearest,
/// and with its codec for the device and its instructions, if there is one. Without, kernels take it that know the format by its name.
std::vector<LoneFormat> in_formats(Plugins& plugins, const Numbers& numbers, const std::string& device, const std::string& isa);

/// The node in other sizes, each with what it is: one row, more rows, and an operand that no longer fits the others. Numbers are drawn from
/// the case's ranges. None of a node that reads whole numbers, which may be places in another operand.
struct OtherSize {
  LoneNode node;
  std::string what;
  bool fits = true;  ///< all operands have changed alike
};
std::vector<OtherSize> other_sizes(const LoneNode& node, const galley_op_case& example, std::mt19937_64& random);

/// A node that packs numbers into a format, with such as lie halfway between two codes, for formats of several largest codes: kernels round
/// them as the reference does. None of another op's node.
std::vector<OtherSize> with_ties(Plugins& plugins, const LoneNode& node, const galley_op_case& example, std::mt19937_64& random);

/// The node with matrices of no rows, which no graph has: shape rules are asked about them alone.
LoneNode empty(const LoneNode& node);

/// The node with rows [first, first + n) of its `rows` alone, as those of a micro-batch that begins `later` rows of the window after the
/// node's. `random`: the input that says so.
LoneNode of_rows(const LoneNode& node, int64_t rows, int64_t first, int64_t n, size_t random, int64_t later);

}  // namespace galley
