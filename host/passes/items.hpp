// Items: nodes in the order in which they run, with head and loss unrolled over chunks of rows.
#pragma once

#include <deque>
#include <vector>

#include "galley/op.h"
#include "host/graph/graph.hpp"

namespace galley {

/// What an item touches of a tensor: all of it, or some rows.
struct Ref {
  galley_tensor tensor = 0;  ///< 0: absent
  int64_t row = 0;
  int64_t rows = -1;  ///< -1: all of it
};

/// A node put into an order.
struct Item {
  const GraphNode* node = nullptr;
  std::vector<Ref> inputs;
  std::vector<Ref> outputs;
  Mask accumulate;  ///< of outputs: those that are added to
  int64_t first_row = 0;
  bool training = true;
};

struct Orders {
  /// What only an order has (a chunk's own logits): numbered after the graph's tensors.
  std::deque<GraphTensor> own;
  std::deque<GraphNode> casts;                ///< likewise: in the place of nodes that only training has
  std::vector<Item> forward, head, backward;  ///< one after another: a micro-batch
  std::vector<Item> window;                   ///< once before them
  std::vector<Item> update;
  std::vector<Item> inference;  ///< forward without what only training does: to evaluate, or to sample one row
};

/// The graph's tensors and those that orders have of their own.
class Tensors {
 public:
  Tensors(const Graph& graph, const Orders& orders) : graph_(graph), own_(orders.own) {}
  const GraphTensor& operator[](galley_tensor t) const {
    return t <= graph_.tensor_count() ? graph_.tensor(t) : own_[t - graph_.tensor_count() - 1];
  }
  size_t count() const { return graph_.tensor_count() + own_.size(); }

 private:
  const Graph& graph_;
  const std::deque<GraphTensor>& own_;
};

/// The item that is all of a node.
Item whole(const GraphNode& node);

/// FLOPs and bytes of an item by its op's rule.
Result<galley_cost> item_cost(const Graph& graph, const Tensors& tensors, const Item& item);

}  // namespace galley
