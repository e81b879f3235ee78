// From a model's graph and the recipe's strategies to a program: the passes, in the order in which `compile` calls them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "host/graph/graph.hpp"
#include "host/plan/target.hpp"

namespace galley {

/// One entry of the recipe's list, created and ready to be asked. Interfaces it does not have are null.
struct Strategy {
  std::string name;   ///< as `use` says it
  std::string label;  ///< "NAME (recipe.lua:9)": for messages and the plan
  void* instance = nullptr;
  const galley_rewrite* rewrite = nullptr;
  const galley_claim* claim = nullptr;
  const galley_update* update = nullptr;
  const galley_saved* saved = nullptr;
  /// The schedule of an option that is a number; an error names the option.
  std::function<Result<Schedule>(const std::string& option)> schedule;
};

/// What plugins provide, looked up by name. Everything lives as long as the process.
struct Provided {
  OpLookup op;
  std::function<std::vector<std::string>()> op_names;
  /// Kernels for (op, device), in a fixed order.
  std::function<std::vector<const galley_kernel*>(std::string_view op, std::string_view device)> kernels;
  std::function<const galley_format*(std::string_view name)> format;
};

enum class Purpose : uint8_t {
  Train,      ///< load, micro, update, eval, export
  Gradients,  ///< load, micro with every gradient kept
  Evaluate,   ///< load, eval
  Sample,     ///< load, sample
};

struct CompileOptions {
  Purpose purpose = Purpose::Train;
  bool keep_logits = false;   ///< Gradients: logits of the whole micro-batch stay, and the head is not chunked
  bool evaluates = true;      ///< Train: a validation segment is wanted
  bool exports = true;        ///< Train: an export segment is wanted
  int64_t head_rows = 0;      ///< rows of a chunk of the head and loss; 0: chosen
  uint64_t seed = 1;          ///< for initializers
  int64_t micro_batches = 0;  ///< > 0 overrides what strategies claim
  int64_t corpus_bytes = 0;   ///< what the data source keeps in memory
  std::function<int64_t(int64_t micro_batches)> window_bytes;  ///< the loader's two buffers
  /// The peak that the real planner reaches, for strategies that decide what to keep.
  std::function<int64_t(const Program&, uint32_t memory)> peak;
};

/// Runs all passes. `graph` holds the forward graph of the family (and is changed). [main-thread] [plan-time]
Result<Program> compile(Graph& graph, std::span<const Strategy> strategies, const Provided& provided, const Target& target,
                        const CompileOptions& options);

// ---- The passes ----------------------------------------------------------------------------------------------------------------

/// Calls into a strategy with the graph set up for it; a bad status or an exception becomes an error naming the strategy.
Status call_strategy(Graph& graph, std::span<const Strategy> strategies, size_t use, const char* doing,
                     const std::function<galley_status(galley_error*)>& call);

/// Strategies' rewrites of the model, in the recipe's order; then nodes back in order.
Status rewrite(Graph& graph, std::span<const Strategy> strategies, uint32_t segment);

struct Claimed {
  bool claimed = false;
  int use = no_use;  ///< who won
  int64_t number = 0;
  std::string text;
  AttrList attrs;  ///< options of what `text` names
};

/// Asks every strategy about one subject. `by_claimant`: values of different strategies are unequal whatever they say (UPDATE).
Result<Claimed> claim(Graph& graph, std::span<const Strategy> strategies, galley_subject subject, bool by_claimant = false);

struct Decisions {
  std::vector<galley_tensor> trainable;  ///< parameters, in order of making
  int64_t micro_batches = 1;
  int64_t window_tokens = 0;  ///< > 0: as many micro-batches as come closest to it, micro_batches at most
};

/// TRAINABLE, STORAGE, PLACEMENT, SHARD and UPDATE of parameters, COMPUTE of the model's nodes, GRADIENT of the run.
Result<Decisions> claim_parameters(Graph& graph, std::span<const Strategy> strategies, const Provided& provided, const Target& target,
                                   Purpose purpose);

/// GRADIENT of gradients; STORAGE (states), PLACEMENT and SHARD of gradients and states made since `from`; COMPUTE of the update's nodes.
Status claim_made(Graph& graph, std::span<const Strategy> strategies, const Provided& provided, const Target& target, galley_tensor from);

/// Appends the backward section. Every trainable parameter gets one gradient buffer; a frozen weight gets none, a frozen prefix no input gradients.
Status differentiate(Graph& graph, const std::vector<galley_tensor>& trainable);

/// Appends the update section: sums of squares, the norm, then CHECK, CLIP, STEP and AFTER. `sums`: one F64 a trainable parameter.
Status build_update(Graph& graph, std::span<const Strategy> strategies, const std::vector<galley_tensor>& trainable, galley_tensor* sums);

/// A part of a tensor as a scheduled node touches it: all of it, or some rows.
struct Ref {
  galley_tensor tensor = 0;  ///< 0: absent
  int64_t row = 0;
  int64_t rows = -1;  ///< -1: all of it
};

/// A node put into a sequence.
struct Item {
  const GraphNode* node = nullptr;
  std::vector<Ref> inputs;
  std::vector<Ref> outputs;
  uint32_t accumulate = 0;
  int64_t first_row = 0;
  bool training = true;
  bool recomputed = false;
};

struct Sequence {
  std::vector<Item> items;
  std::vector<galley_tensor> saved;  ///< what backward reads of forward, kept or made again
};

/// The peak of a memory class that the real planner reaches with a sequence.
using PeakOf = std::function<Result<int64_t>(const Sequence&, uint32_t memory)>;

/// Forward, then backward, with head and loss unrolled over chunks of rows and with what strategies chose to recompute.
Result<Sequence> schedule_micro(Graph& graph, std::span<const Strategy> strategies, const Target& target, const CompileOptions& options,
                                const PeakOf& peak);
/// Forward without what only training does; `position` (Sample): the row whose logits are wanted.
Result<Sequence> schedule_forward(Graph& graph, const CompileOptions& options, galley_tensor position, galley_tensor* logits);
/// Nodes as they stand.
Sequence schedule_plain(const Graph& graph, const std::vector<galley_node>& nodes);

/// FLOPs and bytes of an item by its op's rule.
Result<galley_cost> item_cost(const Graph& graph, const Item& item);

}  // namespace galley
