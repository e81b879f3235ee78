// The nodes that a tensor is made by. Nodes of evaluation, export and load run only where something needs what they make.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "host/graph/graph.hpp"

namespace galley {

class Makers {
 public:
  /// Of these sections, which run in this order. Nodes of export read what parameters are evaluated with. The graph does not change while
  /// this lives.
  Makers(const Graph& graph, const std::vector<Section>& sections);

  /// The nodes that make `t`, but for those that are `done`: each after those whose outputs it reads. `beginnings`, if not null, gets what
  /// they read and none of the sections writes, or `t` itself if none writes it.
  std::vector<galley_node> of(galley_tensor t, const std::set<galley_node>& done = {},
                              std::vector<galley_tensor>* beginnings = nullptr) const;
  /// What a node reads as its input `t`.
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
  std::map<galley_tensor, std::vector<size_t>> writers_;  ///< places in `order_`
  std::map<galley_tensor, galley_tensor> evaluated_;      ///< by the parameter in whose place they are read
};

}  // namespace galley
