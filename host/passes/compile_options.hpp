// What a program is to be for, and what a recipe and the command line say of it.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "host/plugins/loader.hpp"

namespace galley {

enum class Purpose : uint8_t {
  Train,      ///< load, micro, update, eval, export
  Gradients,  ///< load, micro with every gradient kept and without dropout
  Evaluate,   ///< load, eval
  Sample,     ///< load, sample
  Embed,      ///< load, sample: the hidden state of each position instead of the logits of one
  Predict,    ///< load, sample: what the head of a model with labels or values makes of each row
  Export,     ///< load, export: of the tensors that export reads
};

struct PassInfo {
  const char* name;
  const char* does;
  bool only_faster = false;  ///< without it a program computes the same, slower or in more memory
};

struct CompileOptions {
  Purpose purpose = Purpose::Train;
  bool keep_logits = false;  ///< Gradients: logits of the whole micro-batch stay, and the head is not chunked
  bool keep_scores = false;  ///< Train, Evaluate: what the head makes of each row is left after eval
  bool evaluates = true;     ///< Train: a validation segment is wanted
  bool exports = true;       ///< Train: an export segment is wanted
  bool merges = false;       ///< what strategies have added to the model is saved as part of its weights
  /// Evaluate: of all parameters that are claimed to be trained, only these are; none given: all of them.
  std::optional<std::set<std::string>> trainable = {};
  uint32_t export_dtype = 0;  ///< of the numbers in the files that it writes; 0: that in which they are kept
  /// The dtype of the files from which the model comes, in which one is saved that something is merged into; 0: it is none of F32, BF16, F16.
  std::function<uint32_t()> base_dtype = [] { return uint32_t{0}; };
  int64_t head_rows = 0;                                       ///< rows of a chunk of the head and loss; 0: chosen
  bool least_head = false;                                     ///< chosen: as few as products can do with
  uint64_t seed = 1;                                           ///< for initializers
  double loss_factor = 1;                                      ///< by which the loss scale is multiplied, whoever chose it
  int64_t steps = 0;                                           ///< of the run; 0: by epochs
  int64_t micro_batches = 0;                                   ///< > 0 overrides what strategies claim
  int64_t memory_limit = 0;                                    ///< bytes that the memory which computes may take; 0: not limited
  int64_t corpus_bytes = 0;                                    ///< what the data source keeps in memory
  std::function<int64_t(int64_t micro_batches)> window_bytes;  ///< the loader's buffers
  /// Whether a plugin came with the program. All are taken for foreign without it.
  std::function<bool(const Plugin&)> built_in;
  std::set<std::string> kernels;  ///< plugins whose kernels the recipe asks for, by id
  std::set<std::string> without;  ///< passes that are left out, of those that are `only_faster`
  /// Is told of every pass when it is over; `text` prints what it made.
  std::function<void(const PassInfo& pass, const std::function<std::string()>& text)> watch;
};

}  // namespace galley
