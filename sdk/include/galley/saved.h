/* galley.saved/1: a strategy that decides, for every tensor saved for backward: keep it, recompute it, or offload it. */
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
/* A choice: to memory class `memory` of the device, which is not 0. */
#define GALLEY_OFFLOAD_TO(memory) (GALLEY_OFFLOAD | (uint32_t)(memory) << 8)

#define GALLEY_SAVED_BLOCK_INPUT 1u  /* the hidden state that enters a block */
#define GALLEY_SAVED_RECOMPUTABLE 2u /* its producers can run again */
#define GALLEY_SAVED_OFFLOADABLE 4u  /* the device has a memory that it can wait in, and the host can bring it back */

/* One saved tensor, in the order in which forward makes them. */
typedef struct galley_saved_item {
  uint32_t size;
  uint32_t revision;
  const char* name;
  int64_t bytes;
  int64_t block; /* of its producer; -1: none */
  /* The price of making it again from its parents: of the nodes between, on the target, the larger of FLOPs over peak and bytes over bandwidth. A
   * parent that is itself recomputed costs its own price once more, unless another item has brought it back by then. */
  double flops;
  double recompute_seconds;
  double offload_seconds; /* out and back */
  uint32_t flags;
  uint32_t n_parents;
  const uint64_t* parents; /* indices of the saved items that recomputing this one reads, ascending; all smaller than its own */
} galley_saved_item;
#define GALLEY_SAVED_ITEM_MIN_SIZE 64u

typedef struct galley_saved_set {
  uint32_t size;
  uint32_t revision;
  const galley_saved_item* const* items;
  uint64_t n_items;
  int64_t blocks; /* of the model */
  void* context;
  /* The peak of a memory class, in bytes, that the real planner reaches with these n_items choices. [main-thread] */
  galley_status (*peak)(void* context, const uint32_t* choices, uint32_t memory, int64_t* out, galley_error*);
  const galley_target* target;
} galley_saved_set;
#define GALLEY_SAVED_SET_MIN_SIZE 48u

typedef struct galley_saved {
  uint32_t size;
  uint32_t revision;
  /* Pure: fills n_items choices, which come in as GALLEY_KEEP. [main-thread] [plan-time] */
  galley_status (*decide)(void* instance, const galley_saved_set*, uint32_t* choices, galley_error*);
  uint64_t flags; /* none yet */
} galley_saved;
#define GALLEY_SAVED_MIN_SIZE 16u

/* End of draft 0.2. */

#ifdef __cplusplus
}
#endif
#endif
