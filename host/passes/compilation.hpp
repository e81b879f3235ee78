// The data that the passes share. Each pass reads what earlier passes have made and adds one thing of its own.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "galley/saved.h"
#include "host/graph/draft.hpp"
#include "host/passes/compile_options.hpp"
#include "host/passes/compression.hpp"
#include "host/passes/cuts.hpp"
#include "host/passes/items.hpp"
#include "host/passes/kernels.hpp"
#include "host/passes/roles.hpp"
#include "host/passes/strategies.hpp"
#include "host/plan/program.hpp"

namespace galley {

/// The decisions that follow from claims on parameters and on the run.
struct Decisions {
  std::vector<galley_tensor> trainable;  ///< the parameters that are trained, in the order in which they were made
  int64_t micro_batches = 1;
  int64_t window_tokens = 0;  ///< > 0: a window takes the number of micro-batches that comes closest to it, micro_batches at most
  int window_use = no_use;    ///< the strategy that decides this
  Lanes lanes = {1};          ///< at most as many as micro-batches; a multiple of the processes
  const galley_axis* divides = nullptr;  ///< the axis along which tensors are divided; null: nothing is
};

/// Maps items to instructions of micro before anything is recomputed: item i became the instructions [begin[i], begin[i + 1]).
struct MicroItems {
  size_t forward = 0;  ///< the number of forward's items; the items of the head and of backward come after them
  size_t head = 0;     ///< the number of the head's items
  std::vector<uint32_t> begin;
  std::vector<TensorId> tensors;  ///< for each graph tensor: its tensor if it is a transient of micro, else no_tensor
};

/// The tensors that forward leaves for the head and backward, and those that enter blocks.
struct SavedSet {
  std::vector<galley_tensor> tensors;
  std::deque<std::vector<uint64_t>> parents;
  std::deque<std::vector<double>> offload_seconds;
  std::vector<SavedFormat> formats;                            ///< into which the recipe's strategies compress
  std::deque<std::vector<std::optional<Compression>>> packed;  ///< by item and format
  std::deque<std::vector<int64_t>> packed_bytes;
  std::deque<std::vector<double>> packed_seconds;
  std::vector<galley_saved_item> items;
  int64_t blocks = 0;
};

/// Everything that passes know. The comment of a field names the pass that makes it.
struct Compilation {
  Draft& draft;
  Graph& graph;  ///< the draft's
  Strategies strategies;
  Plugins& plugins;
  const Target& target;
  const CompileOptions& options;
  Roles roles;
  Kernels kernels;

  Decisions decisions = {};                                         ///< claim
  std::vector<galley_tensor> squares = {};                          ///< update; the sum of squares of each trained parameter's gradient
  std::vector<galley_tensor> prompt_inputs = {}, next_inputs = {};  ///< cache; what the sections prompt and next read of the data
  std::set<galley_tensor> caches_anew = {};  ///< cache; those that begin anew with zeros for other texts: they live for these only
  galley_tensor applied = 0;                 ///< window; the number of steps that have been applied
  galley_tensor lane_loss = 0;               ///< window; the loss of a lane so far; 0: the window has one lane
  galley_tensor lane_random = 0;             ///< window; the random numbers' row of the next lane; 0: nothing draws, or one lane
  Cuts cuts = {};                            ///< shard
  Orders orders = {};                        ///< order
  galley_tensor hits = 0;                    ///< order; how many labels the segment Eval predicts
  galley_tensor sample_logits = 0;           ///< order
  galley_tensor prompt_logits = 0;           ///< order; with caches, of a model without a source
  galley_tensor next_logits = 0;             ///< order; with caches
  Program program = {};                      ///< place; bind, clone, exchanges, fuse, alias and overlap change it
  MicroItems micro = {};                     ///< place
  SavedSet saved = {};                       ///< decide
  std::vector<uint32_t> choices = {};        ///< decide; one for each saved tensor
  int64_t budget = 0;                        ///< decide; the bytes of class 0 that a strategy allows, or 0 if none sets a budget
  /// The verifier after each pass; the inputs of each node that its shape rule has seen.
  std::vector<std::vector<galley_tensor>> inferred = {};

  bool backward() const { return options.purpose == Purpose::Train || options.purpose == Purpose::Gradients; }
  bool trains() const { return options.purpose == Purpose::Train; }
  /// Returns whether there is a window section, and with it numbers that host and device exchange.
  bool steps() const { return !graph.section(Section::Window).empty(); }
  bool saves() const { return options.purpose == Purpose::Export || (trains() && options.exports); }
  /// Returns whether texts are generated, alone or besides what else is done.
  bool generates() const { return options.purpose == Purpose::Sample || options.prompt_positions > 0; }
  bool caches() const { return graph.marks.start != 0; }
  /// Returns whether strategies are asked for values that replace trained parameters when the model is evaluated (eval_as).
  bool asks_for_evaluation() const;
  Tensors tensors() const { return {graph, orders}; }
  /// Returns whether the growth from peaks `before` to peaks `after` leaves each class within its capacity, and all within --memory.
  bool within_limits(const std::vector<int64_t>& before, const std::vector<int64_t>& after) const;
};

/// The choices to offload a saved tensor, to whatever memory class, and to compress it, into whatever format.
inline constexpr uint32_t kOffload = GALLEY_OFFLOAD_TO(0), kCompress = GALLEY_COMPRESS_TO(0);

/// Returns what is done with a saved tensor: GALLEY_KEEP, GALLEY_RECOMPUTE, GALLEY_RECOMPUTE_EACH, kOffload or kCompress.
inline uint32_t choice_how(uint32_t choice) { return choice & 0xFFu; }
/// Returns the memory class to which a saved tensor is offloaded, or the number of the format into which it is compressed.
inline uint32_t choice_where(uint32_t choice) { return choice >> 8; }
/// Returns "keep" or "offload to pinned", for dumps.
std::string choice_text(const Compilation& c, uint32_t choice);

/// Returns "STEP and AFTER" for GALLEY_STAGE_STEP | GALLEY_STAGE_AFTER.
std::string stage_names(uint32_t stages);

}  // namespace galley
