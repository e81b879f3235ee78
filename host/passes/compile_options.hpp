// Options of the compiler: the purpose of a program, and what a recipe and the command line say of it.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "galley/graph.h"
#include "host/plan/plan.hpp"
#include "host/plugins/loader.hpp"

namespace galley {

/// What a program is for, by its segments. Strategies know the purpose by the same number.
enum class Purpose : uint32_t {
  Train = GALLEY_PURPOSE_TRAIN,          ///< load, micro, update, eval, export
  Gradients = GALLEY_PURPOSE_GRADIENTS,  ///< load, micro with every gradient kept and without dropout
  Evaluate = GALLEY_PURPOSE_EVAL,        ///< load, eval
  Sample = GALLEY_PURPOSE_SAMPLE,        ///< load, sample
  Embed = GALLEY_PURPOSE_EMBED,          ///< load, sample: the hidden state of each position instead of the logits of one
  Predict = GALLEY_PURPOSE_PREDICT,      ///< load, sample: what the head of a model with labels or values makes of each row
  Export = GALLEY_PURPOSE_EXPORT,        ///< load, export: of the tensors that export reads
};

/// What a pass leaves: how it can be verified and printed.
enum class Leaves : uint8_t {
  Graph,
  Orders,    ///< the graph's nodes in the order of execution
  Operands,  ///< a program whose nodes have the operands that they are to have
  Program,
  Choices,  ///< a program, and what backward keeps
};

struct PassInfo {
  const char* name;
  const char* does;
  Leaves leaves = Leaves::Program;
  bool only_faster = false;  ///< a program without this pass computes the same bytes, slower or in more memory
};

struct Compilation;

/// The checks of a program while it is made, all of which must be given (proofs/checks.hpp). The compiler and study() know no more of them.
struct Checks {
  /// Checks what a pass has left. The error says who is to blame.
  std::function<Status(Compilation&, const PassInfo&)> pass;
  /// Proves a plan by executing the program without data.
  std::function<Status(const Program&, const Plan&, const Target&)> plan;
};

struct CompileOptions {
  Purpose purpose = Purpose::Train;
  bool keep_logits = false;      ///< Gradients: keeps the logits of the whole micro-batch, and the head is not chunked
  int64_t prompt_positions = 0;  ///< Sample: positions of a prompt that are taken at once, with caches if the model allows; 0: no caches
  bool int8_cache = false;       ///< these caches keep keys and values in 8 bit
  bool keep_scores = false;      ///< Train, Evaluate: keeps the head's output for each row after eval
  bool counts_hits = false;      ///< Train, Evaluate: counts the labels that the head's output predicts in eval
  bool evaluates = true;         ///< Train: makes a validation segment
  bool exports = true;           ///< Train: makes an export segment
  bool merges = false;           ///< saves what strategies have added to the model as part of its weights
  /// Evaluate: only these of the parameters that are claimed to be trained are; not given: all of them.
  std::optional<std::set<std::string>> trainable = {};
  uint32_t export_dtype = 0;  ///< the dtype of numbers in exported files; 0: that in which they are kept
  /// Returns the dtype of the model's files, in which a merged model is saved; 0: it is none of F32, BF16, F16.
  std::function<uint32_t()> base_dtype = [] { return uint32_t{0}; };
  int64_t head_rows = 0;                                       ///< rows of a chunk of the head and loss; 0: `order` chooses
  bool least_head = false;                                     ///< `order` chooses as few rows as products can do with
  uint64_t seed = 1;                                           ///< for initializers
  int64_t steps = 0;                                           ///< steps of the run; 0: epochs decide
  int64_t micro_batches = 0;                                   ///< > 0 overrides what strategies claim
  Lanes lanes = {};                                            ///< Train: who computes what of a window
  int64_t memory_limit = 0;                                    ///< the most bytes in the memory that computes; 0: not limited
  int64_t corpus_bytes = 0;                                    ///< bytes that the data source keeps in memory
  std::function<int64_t(int64_t micro_batches)> window_bytes;  ///< returns the bytes of the loader's buffers
  /// Returns whether a plugin came with the program. If not given, all plugins count as foreign.
  std::function<bool(const Plugin&)> built_in;
  std::string exchanges;                                           ///< the plugin that joins the processes, by id; "": any may exchange
  std::set<std::string> kernels;                                   ///< plugins whose kernels the recipe asks for, by id
  std::set<std::string> without;                                   ///< passes that are left out; each is `only_faster`
  std::function<Status(Compilation&, const PassInfo&)> check;      ///< Checks::pass; must be given
  std::function<void(const PassInfo&, const Compilation&)> watch;  ///< is called after every pass, if it is given
};

}  // namespace galley
