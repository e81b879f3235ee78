// Finds the nodes that make a tensor. Nodes of evaluation, export and load run only where something needs their outputs.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "host/graph/draft.hpp"

namespace galley {

/// Returns the nodes of the head and the loss: those of forward that depend on the last hidden state, in their order.
std::vector<galley_node> head_nodes(const Graph& graph);

class Makers {
 public:
  /// Looks at these sections, which run in this order. Nodes of export read the values with which parameters are evaluated. The graph must
  /// not change while this lives.
  Makers(const Draft& draft, const std::vector<Section>& sections);

  /// Returns the nodes that make `t` and are not `done`, each after those whose outputs it reads. If `beginnings` is not null, it gets the
  /// tensors that they read and no section writes, or `t` itself if none writes it.
  std::vector<galley_node> of(galley_tensor t, const std::set<galley_node>& done = {},
                              std::vector<galley_tensor>* beginnings = nullptr) const;
  /// Returns the tensor that a node really reads as its input `t`.
  galley_tensor read(const GraphNode& node, galley_tensor t) const;

 private:
  struct Walk {
    const std::set<galley_node>& done;
    std::vector<galley_tensor>* beginnings;
    std::set<galley_node> met = {};
    std::vector<galley_node> nodes = {};
  };
  void visit(galley_tensor t, size_t before, Walk& walk) const;

  const Graph& graph_;
  std::vector<galley_node> order_;
  std::map<galley_tensor, std::vector<size_t>> writers_;  ///< indices into `order_`
  std::map<galley_tensor, galley_tensor> evaluated_;      ///< by the parameter that they replace
};

}  // namespace galley
