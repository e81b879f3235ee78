// Finds the ops that the host itself needs. All of them come from one plugin, whatever other plugin has an op of such a name.
#pragma once

#include "galley/op.h"
#include "host/base/result.hpp"
#include "host/plugins/loader.hpp"

namespace galley {

/// The plugin that ships the standard ops. It is the only one that the host knows by name.
inline constexpr const char* standard_plugin = "models";

struct Roles {
  const galley_op* add = nullptr;               ///< joins two gradients
  const galley_op* copy = nullptr;              ///< brings a gradient into the parameter's buffer
  const galley_op* sum_squares = nullptr;       ///< sums the squares of one gradient
  const galley_op* block_squares = nullptr;     ///< does so for a part of a gradient, block by block,
  const galley_op* sum_blocks = nullptr;        ///< and adds up the blocks of all parts
  const galley_op* norm_finish = nullptr;       ///< makes the norm of the sums of squares
  const galley_op* fill = nullptr;              ///< begins what has no initializer
  const galley_op* take_rows = nullptr;         ///< takes the position to sample from
  const galley_op* step_begin = nullptr;        ///< makes step scalars before the first micro-batch
  const galley_op* loss_begin = nullptr;        ///< sets the loss to 0
  const galley_op* loss_seed = nullptr;         ///< makes the loss seed of loss scale and tokens
  const galley_op* cross_entropy = nullptr;     ///< compares logits with labels; in a validation
  const galley_op* label_hits = nullptr;        ///< counts those that the logits predict
  const galley_op* scheduled = nullptr;         ///< takes an option's value at the applied step
  const galley_op* next_rows = nullptr;         ///< moves the random numbers' row on in each micro-batch
  const galley_op* step_end = nullptr;          ///< counts applied steps
  const galley_op* put_back = nullptr;          ///< undoes in a skipped step what forward has written into a state
  const galley_op* attention = nullptr;         ///< is given caches to generate with,
  const galley_op* cached_attention = nullptr;  ///< and becomes this
  const galley_op* cache_rows = nullptr;        ///< puts keys and values into a cache
  const galley_op* take_columns = nullptr;      ///< takes queries out of a product that has made keys and values too
  const galley_op* all_reduce = nullptr;        ///< adds sums of lanes of all processes to one that is there,
  const galley_op* all_reduce_here = nullptr;   ///< or in their place,
  const galley_op* reduce_scatter = nullptr;    ///< or to the part that this process has of it
  const galley_op* all_gather = nullptr;        ///< makes a tensor of the parts that all processes have
  const galley_op* all_gather_here = nullptr;   ///< brings parts to all processes, each of which has the whole
  const galley_op* transpose = nullptr;         ///< makes columns of rows: parts of a tensor are rows where they are exchanged
  const galley_op* checksum = nullptr;          ///< makes checksums of weights, for the proof of training
};

/// Returns the id of the plugin that an op belongs to, for messages.
std::string owner_of(const galley_op* op);

/// Loads the standard plugin. [plan-time]
Result<Roles> bind_roles(Plugins& plugins);

}  // namespace galley
