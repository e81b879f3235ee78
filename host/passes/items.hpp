// Items: nodes in the order in which they run, the head and the loss unrolled over chunks of rows. The pass `order` makes them.
#pragma once

#include <deque>
#include <vector>

#include "galley/op.h"
#include "host/graph/graph.hpp"

namespace galley {

/// A tensor that an item reads or writes: all of it, or some of its rows.
struct Ref {
  galley_tensor tensor = 0;  ///< 0: absent
  int64_t row = 0;
  int64_t rows = -1;  ///< -1: all of it
};

/// A node in an order.
struct Item {
  const GraphNode* node = nullptr;
  std::vector<Ref> inputs;
  std::vector<Ref> outputs;
  Mask accumulate;  ///< the outputs that are added to
  int64_t first_row = 0;
  bool training = true;
};

struct Orders {
  /// Tensors that only an order has (a chunk's own logits), numbered after the graph's tensors.
  std::deque<GraphTensor> own;
  std::deque<GraphNode> nodes;                ///< those that only an order has
  std::vector<Item> forward, head, backward;  ///< one after another, they are a micro-batch
  std::vector<Item> window;                   ///< runs once before the micro-batches
  std::vector<Item> update;
  std::vector<Item> inference;     ///< forward without what only training does, to evaluate or to sample one row
  std::vector<Item> prompt, next;  ///< with caches: the same of some positions of each row, or of the source, and of one
};

/// Looks up the graph's tensors and those that only orders have.
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

/// Returns the item that reads and writes all of a node's tensors.
Item whole(const GraphNode& node);

/// Returns whether an item reads or writes a tensor that forward changes: run again for backward, it would compute something else.
bool runs_once(const Tensors& tensors, const Item& item);

/// Returns the FLOPs and bytes of an item, by its op's rule.
Result<galley_cost> item_cost(const Graph& graph, const Tensors& tensors, const Item& item);

}  // namespace galley
