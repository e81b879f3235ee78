/* galley.saved/1: a strategy that decides for each tensor saved for backward whether to keep it, recompute it, offload it or compress it.
 *
 * Several strategies of a recipe may decide. They are asked in the recipe's order, each about what those before it keep.
 *
 * If one of them holds a budget, it is asked last and decides alone. The others are then asked first, each as if it were the only one;
 * what they answer decides nothing: it is what they accept (`accepted` of an item). */
#ifndef GALLEY_SAVED_H
#define GALLEY_SAVED_H

#include "galley/kernel.h"
#include "galley/op.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GALLEY_SAVED "galley.saved/1"

/* Choices. What is not kept, and what lies between it and kept or offloaded tensors, is recomputed from these. */
#define GALLEY_KEEP 0u
/* Backward recomputes it once, before the first node that reads it, and holds it until the last one has. */
#define GALLEY_RECOMPUTE 1u
/* Backward recomputes it for each block that needs it, and drops it where the block ends. Where n blocks lie between two kept tensors, this
 * holds one block's tensors at a time instead of n blocks', and recomputes the first of these blocks n times. */
#define GALLEY_RECOMPUTE_EACH 3u
/* Offload to memory class `memory` of the device, which must not be 0. Forward copies it out when it is made. Backward copies it back for
 * each block that needs it, and drops it where the block ends. */
#define GALLEY_OFFLOAD_TO(memory) (2u | (uint32_t)(memory) << 8)
/* Compress into format `format` of the set. Forward packs it when it is made; its own nodes still read the numbers as they were. Backward
 * unpacks it for each block that needs it, and drops that where the block ends: it computes with what the format makes of the numbers,
 * rounded to nearest. */
#define GALLEY_COMPRESS_TO(format) (4u | (uint32_t)(format) << 8)

#define GALLEY_SAVED_BLOCK_INPUT 1ull  /* the hidden state that enters a block */
#define GALLEY_SAVED_RECOMPUTABLE 2ull /* it can be recomputed */
#define GALLEY_SAVED_OFFLOADABLE 4ull  /* it can be offloaded to another memory class of the device and brought back */

#define GALLEY_SAVED_COMPRESSIBLE 8ull /* it can be compressed into a format of the set */

#define GALLEY_SAVED_KNOWN 15ull /* all of them */

/* A format into which saved tensors can be compressed, with its options. */
typedef struct galley_saved_format {
  uint32_t size;
  uint32_t revision;
  const char* name; /* of a format of any plugin that packs */
  const galley_attr* const* attrs;
  uint32_t n_attrs;
  uint32_t reserved;
  uint64_t flags; /* none yet */
} galley_saved_format;
#define GALLEY_SAVED_FORMAT_MIN_SIZE 40u

/* A saved tensor: one that backward reads, or the input of a block. An input that backward does not read is there to recompute from; if
 * nothing is recomputed from it, keeping it takes no memory. Items are in the order in which forward makes them. */
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
  uint64_t flags;          /* GALLEY_SAVED_… */
  const uint64_t* parents; /* indices of the saved items that recomputation of this one reads; ascending, all smaller than its own */
  /* By memory class of the target, n_memories entries: seconds to offload it there, for both directions; 0: it cannot be offloaded. */
  const double* offload_seconds_to;
  /* For a strategy that holds a budget: the choices that the other strategies have made for it, without GALLEY_KEEP and each once. */
  const uint32_t* accepted;
  uint32_t n_memories;
  uint32_t n_accepted;
  uint32_t n_parents;
  uint32_t n_formats;
  const char* op;    /* of the node that makes it; "": it is an input */
  uint64_t op_flags; /* GALLEY_OP_… of that op */
  /* By format of the set, n_formats entries: the bytes that it has there, and the seconds to pack it and unpack it once; 0 bytes: it cannot
   * be compressed so. */
  const int64_t* format_bytes;
  const double* format_seconds;
} galley_saved_item;
#define GALLEY_SAVED_ITEM_MIN_SIZE 112u

typedef struct galley_saved_set {
  uint32_t size;
  uint32_t revision;
  const galley_saved_item* const* items;
  uint64_t n_items;
  int64_t blocks; /* number of repeated blocks of the model */
  void* context;
  /* Returns the peak of a memory class, in bytes, with these n_items choices, as computed by the real planner. [plan-time] */
  galley_status (*peak)(void* context, const uint32_t* choices, uint32_t memory, int64_t* out, galley_error*);
  const galley_target* target;
  /* What the recipe's strategies compress into, each once: GALLEY_COMPRESS_TO counts these from 0. */
  const galley_saved_format* const* formats;
  uint32_t n_formats;
  uint32_t reserved;
  /* Returns the least seconds of a micro-batch with these n_items choices: of its launches, one by one, each at the target's peak or
   * bandwidth, or of the copies in either direction where these take longer. [plan-time] */
  galley_status (*seconds)(void* context, const uint32_t* choices, double* out, galley_error*);
} galley_saved_set;
#define GALLEY_SAVED_SET_MIN_SIZE 80u

/* Whether all of a set is understood: galley_understood. */
static inline int galley_saved_set_understood(const galley_saved_set* set) {
  if (!galley_understood(set, 0, 0)) return 0;
  for (uint64_t i = 0; i < set->n_items; ++i)
    if (!galley_understood(set->items[i], set->items[i]->flags, GALLEY_SAVED_KNOWN) ||
        !galley_understood(set->items[i], set->items[i]->op_flags, GALLEY_OP_KNOWN))
      return 0;
  for (uint32_t i = 0; GALLEY_HAS(set, galley_saved_set, n_formats) && i < set->n_formats; ++i)
    if (!galley_understood(set->formats[i], set->formats[i]->flags, 0)) return 0;
  return !set->target || galley_target_understood(set->target);
}

typedef struct galley_saved {
  uint32_t size;
  uint32_t revision;
  /* Changes n_items choices, of those that are GALLEY_KEEP on entry. The others are the choices of strategies before it in the recipe. A
   * pure function. [plan-time] */
  galley_status (*decide)(void* instance, const galley_saved_set*, uint32_t* choices, galley_error*);
  uint64_t flags; /* none yet */
  /* Says how many bytes of memory class 0 a plan may take by this strategy's options; 0: it holds no budget. NULL: it never does. One
   * strategy of a recipe may hold a budget. [plan-time] */
  galley_status (*budget)(void* instance, int64_t* out, galley_error*);
  /* Says into which formats it may compress. They live as long as the instance. NULL: into none. [plan-time] */
  galley_status (*formats)(void* instance, const galley_saved_format* const** out, uint32_t* n, galley_error*);
} galley_saved;
#define GALLEY_SAVED_MIN_SIZE 16u

/* End of draft 0.4. */

#ifdef __cplusplus
}
#endif
#endif
