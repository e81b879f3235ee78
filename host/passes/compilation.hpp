// What the passes hand on. Each reads what earlier ones have made and adds one thing of its own.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "galley/saved.h"
#include "host/passes/compile_options.hpp"
#include "host/passes/items.hpp"
#include "host/passes/kernels.hpp"
#include "host/passes/roles.hpp"
#include "host/passes/strategies.hpp"
#include "host/plan/program.hpp"

namespace galley {

/// By the claims on parameters and the run.
struct Decisions {
  std::vector<galley_tensor> trainable;  ///< parameters, in order of making
  int64_t micro_batches = 1;
  int64_t window_tokens = 0;  ///< > 0: as many micro-batches as come closest to it, micro_batches at most
};

/// Which instructions of micro an item became, before anything is recomputed: item i has [begin[i], begin[i + 1]).
struct MicroItems {
  size_t forward = 0;  ///< so many items are forward's, then come the head's, then backward's
  size_t head = 0;
  std::vector<uint32_t> begin;
  std::vector<TensorId> tensors;  ///< by graph tensor, the transients of micro; no_tensor: not there
};

/// What forward leaves for head and backward, and what enters blocks.
struct SavedSet {
  std::vector<galley_tensor> tensors;
  std::deque<std::vector<uint64_t>> parents;
  std::deque<std::vector<double>> offload_seconds;
  std::vector<galley_saved_item> items;
  int64_t blocks = 0;
};

struct Compilation {
  Graph& graph;
  Strategies strategies;
  Plugins& plugins;
  const Target& target;
  const CompileOptions& options;
  Roles roles;
  Kernels kernels;

  Decisions decisions = {};                 ///< claim
  std::vector<galley_tensor> squares = {};  ///< update: of each trainable parameter's gradient the sum of squares, in the block
  galley_tensor applied = 0;                ///< window: how many steps have been applied
  Orders orders = {};                       ///< order
  galley_tensor sample_logits = 0;          ///< order
  Program program = {};                     ///< place, bind; clone and fuse change its code
  MicroItems micro = {};                    ///< place
  SavedSet saved = {};                      ///< decide
  std::vector<uint32_t> choices = {};       ///< decide: one a saved tensor
  int64_t budget = 0;                       ///< decide: bytes of class 0 that a strategy allows; 0: none does
  /// verify: by node, the inputs that its shape rule has seen.
  std::vector<std::vector<galley_tensor>> inferred = {};

  bool backward() const { return options.purpose == Purpose::Train || options.purpose == Purpose::Gradients; }
  bool trains() const { return options.purpose == Purpose::Train; }
  /// Whether there is a window part, and with it numbers that host and device exchange.
  bool steps() const { return !graph.section(Section::Window).empty(); }
  bool saves() const { return options.purpose == Purpose::Export || (trains() && options.exports); }
  /// To evaluate, to sample or to export, by weights that only an update has (eval_as, export_as).
  bool averages() const;
  Tensors tensors() const { return {graph, orders}; }
  /// Whether no memory class has grown, from peaks `before` to peaks `after`, beyond its capacity, nor all that counts beyond --memory.
  bool within_limits(const std::vector<int64_t>& before, const std::vector<int64_t>& after) const;
};

/// Of what is decided on a saved tensor: GALLEY_KEEP, …
inline uint32_t choice_how(uint32_t choice) { return choice & 0xFFu; }
/// The memory class to which it is offloaded.
inline uint32_t choice_memory(uint32_t choice) { return choice >> 8; }
/// "keep"; "offload to pinned".
std::string choice_text(const Compilation& c, uint32_t choice);

/// "STEP" of GALLEY_STAGE_STEP.
const char* stage_name(uint32_t stage);

}  // namespace galley
