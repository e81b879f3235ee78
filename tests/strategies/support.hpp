// What tests of strategies share: the plugins of this build, strategies made from options, and nodes run by their op's reference or by a
// kernel.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "galley/cpp/plugin.hpp"
#include "host/passes/verbs/handle.hpp"
#include "host/plugins/loader.hpp"
#include "host/plugins/strategy.hpp"

namespace galley::test {

namespace fs = std::filesystem;

/// Built-in plugins and those for tests. A warning is a failure.
Plugins& plugins();

std::unique_ptr<const LoadedStrategy> strategy(const std::string& name, Table options);
/// Why there is no such strategy.
std::string refusal(const std::string& name, Table options);

/// "a", "b": an option that is a list.
Value list(std::initializer_list<const char*> names);
Value list(std::initializer_list<double> numbers);

/// A node with operands of its own. All numbers are held as double; for a kernel they become the operand's dtype.
class NodeRun {
 public:
  NodeRun(const std::string& op, sdk::Attrs attrs = {});
  /// The next input.
  NodeRun& in(uint32_t dtype, std::vector<int64_t> shape, std::vector<double> values);
  NodeRun& scalar(uint32_t dtype, double value) { return in(dtype, {1}, {value}); }
  NodeRun& absent();
  /// The next input is input 0 of the node before this one in a chain, which updates it.
  NodeRun& before(uint32_t dtype, std::vector<int64_t> shape);
  /// Asks the op for the outputs; "" or what it says against the inputs.
  std::string infer();
  /// By the op's definition in double, or by the kernel for this ISA ("": this machine's). The inputs that are updated in place, and the
  /// outputs, change.
  void reference();
  void kernel(const std::string& isa = "");
  /// All of them in one launch of a kernel of groups, or of the chain `op`.
  static void together(const std::string& op, const std::vector<NodeRun*>& nodes);
  std::vector<double>& value(size_t input) { return inputs_[input].values; }
  std::vector<double>& output(size_t i) { return outputs_[i].values; }

 private:
  struct Tensor {
    uint32_t dtype = 0;  // 0: absent
    std::vector<int64_t> shape;
    std::vector<double> values;
    bool before = false;
  };
  struct View;
  enum class Numbers { Double, Own };
  static void run_kernel(const std::string& op, const std::vector<NodeRun*>& nodes, const std::string& isa);
  static void run(const std::vector<NodeRun*>& nodes, Numbers numbers, const galley_kernel* kernel);
  void place(View& v, const View* before, Numbers numbers) const;
  void read_back(const View& v, Numbers numbers);

  const galley_op* op_;
  sdk::Attrs attrs_;
  std::vector<Tensor> inputs_, outputs_;
};

/// What a strategy has claimed of one subject; strength 0: nothing.
struct Claimed {
  uint32_t strength = 0;
  int64_t number = 0;
  std::string text = {};
};

/// A graph of the host's, as passes set it up for strategies.
class GraphFixture : public testing::Test {
 protected:
  GraphFixture();
  galley_tensor parameter(const std::string& name, Shape shape, uint64_t flags = 0);
  /// The node's first output.
  galley_tensor node(const std::string& op, const std::string& name, std::vector<galley_tensor> inputs, AttrList attrs = {});
  /// Calls of a strategy; "" or the error's cause.
  std::string rewrite(const LoadedStrategy& s, Section section = Section::Forward);
  std::string build(const LoadedStrategy& s, galley_tensor parameter, galley_tensor gradient);
  std::string claim(const LoadedStrategy& s, galley_tensor t, uint32_t kind, uint32_t facet, Claimed* out, bool trainable = true);
  /// The node that writes it.
  const GraphNode& producer(galley_tensor t) const { return graph.node(graph.tensor(t).producer); }

  Draft draft;
  Graph& graph = draft.graph;
  std::string owner;  ///< of every tensor made by a strategy
};

}  // namespace galley::test
