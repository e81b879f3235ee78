// A graph just large enough for gradient rules: they append nodes, the references evaluate them.
#pragma once

#include <deque>
#include <map>

#include "tests/models/harness.hpp"

namespace galley::test {

class Tape {
 public:
  explicit Tape(const Plugin& plugin) : plugin_(plugin) {}
  Tape(const Tape&) = delete;

  galley_tensor tensor(Tensor t);
  /// A node that is there already: the forward one. Its problem has outputs with values.
  galley_node forward(const Problem& problem, std::vector<galley_tensor>* inputs, std::vector<galley_tensor>* outputs);
  Tensor& value(galley_tensor t) { return tensors_.at(t - 1).tensor; }
  void set_scalar(uint32_t which, Tensor t) { scalars_[which] = tensor(std::move(t)); }
  galley_graph* handle() { return reinterpret_cast<galley_graph*>(this); }
  static const galley_graph_verbs* verbs();
  /// Runs the nodes that were appended, in order.
  void evaluate();
  size_t appended() const { return nodes_.size() - 1; }

 private:
  struct Entry {
    Tensor tensor;
    std::string name;
    galley_node producer = 0;
  };
  struct Node {
    const galley_op* op = nullptr;
    std::string name;
    std::vector<galley_tensor> inputs, outputs;
    std::vector<const galley_attr*> attrs;
    uint32_t flags = 0;
    std::vector<uint8_t> accumulate;
    int64_t length = 0;
  };
  Problem problem(const Node& node) const;
  const galley_attr* keep(const galley_attr& a);

  static galley_status tensor_get(galley_graph*, galley_tensor, galley_tensor_info*, galley_error*);
  static galley_status node_make(galley_graph*, const galley_node_desc*, galley_tensor*, galley_error*);
  static galley_status node_get(galley_graph*, galley_node, galley_node_info*, galley_error*);
  static galley_status scalar(galley_graph*, uint32_t, galley_tensor*, galley_error*);

  const Plugin& plugin_;
  std::deque<Entry> tensors_;
  std::deque<Node> nodes_;
  std::map<uint32_t, galley_tensor> scalars_;
  struct Kept {
    std::string name, bytes;
    galley_attr attr;
  };
  std::deque<Kept> attrs_;
};

}  // namespace galley::test
