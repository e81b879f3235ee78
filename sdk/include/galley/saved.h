/* galley.saved/1: a strategy that decides for each tensor saved for backward whether to keep it, recompute it or offload it. */
#ifndef GALLEY_SAVED_H
#define GALLEY_SAVED_H

#include "galley/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GALLEY_SAVED "galley.saved/1"

#define GALLEY_KEEP 0u
#define GALLEY_RECOMPUTE 1u
#define GALLEY_OFFLOAD 2u
/* A choice: offload to memory class `memory` of the device, which must not be 0. */
#define GALLEY_OFFLOAD_TO(memory) (GALLEY_OFFLOAD | (uint32_t)(memory) << 8)

#define GALLEY_SAVED_BLOCK_INPUT 1u  /* the hidden state that enters a block */
#define GALLEY_SAVED_RECOMPUTABLE 2u /* it can be recomputed */
#define GALLEY_SAVED_OFFLOADABLE 4u  /* it can be offloaded to another memory class of the device and brought back */

/* A saved tensor. Items are in the order in which forward makes them. */
typedef struct galley_saved_item {
  uint32_t size;
  uint32_t revision;
  const char* name;
  int64_t bytes;
  int64_t block; /* index of its producer's repeated block; -1: none */
  /* The cost of recomputing it from its parents. `recompute_seconds` is the sum over the nodes between: for each, the larger of FLOPs /
   * peak and bytes / bandwidth of the target. If a parent is itself recomputed, its own cost is added, unless it has already been
   * recomputed for another item. */
  double flops;
  double recompute_seconds;
  double offload_seconds; /* for both directions */
  uint32_t flags;
  uint32_t n_parents;
  const uint64_t* parents; /* indices of the saved items that recomputation of this one reads; ascending, all smaller than its own */
} galley_saved_item;
#define GALLEY_SAVED_ITEM_MIN_SIZE 64u

typedef struct galley_saved_set {
  uint32_t size;
  uint32_t revision;
  const galley_saved_item* const* items;
  uint64_t n_items;
  int64_t blocks; /* number of repeated blocks of the model */
  void* context;
  /* Returns the peak of a memory class, in bytes, with these n_items choices, as computed by the real planner. [main-thread] */
  galley_status (*peak)(void* context, const uint32_t* choices, uint32_t memory, int64_t* out, galley_error*);
  const galley_target* target;
} galley_saved_set;
#define GALLEY_SAVED_SET_MIN_SIZE 48u

typedef struct galley_saved {
  uint32_t size;
  uint32_t revision;
  /* Fills n_items choices; on entry, each is GALLEY_KEEP. A pure function. [main-thread] [plan-time] */
  galley_status (*decide)(void* instance, const galley_saved_set*, uint32_t* choices, galley_error*);
  uint64_t flags; /* none yet */
} galley_saved;
#define GALLEY_SAVED_MIN_SIZE 16u

/* End of draft 0.2. */

#ifdef __cplusplus
}
#endif
#endif
