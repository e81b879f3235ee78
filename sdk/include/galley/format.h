/* galley.format/1: how a tensor of numbers is stored as components (bf16; int8 with row scales; NF4 with nested absmax). Storage is not compute: a node
 * whose kernel does not take the format reads what the unpack op makes of it. */
#ifndef GALLEY_FORMAT_H
#define GALLEY_FORMAT_H

#include "galley/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One component: its name is the tensor's plus `suffix`, in the run's own files and in files that are already packed. */
typedef struct galley_component {
  uint32_t size;
  uint32_t revision;
  const char* suffix; /* "", ".absmax" */
  uint32_t rank;
  uint32_t dtype;
  int64_t extents[8];
  int64_t
      numbers; /* numbers of the tensor, in order, that one element stands for (two codes in a byte: 2; an absmax a block: its block); 0: the
                      component belongs to the tensor as a whole. A range of the tensor at multiples of all of them can be unpacked by itself */
} galley_component;
#define GALLEY_COMPONENT_MIN_SIZE 88u

#define GALLEY_MAX_COMPONENTS 8u

/* Flags of a format. */
#define GALLEY_FORMAT_STOCHASTIC \
  1ull /* its pack op takes a last, optional input `random` (GALLEY_SCALAR_RANDOM): with it, rounding is stochastic */

#define GALLEY_FORMAT_KNOWN 1ull /* all of them */

typedef struct galley_format {
  uint32_t size;
  uint32_t revision;
  const char* name;
  const char* pack_op; /* inputs: the tensor; outputs: the components in order */
  const char*
      unpack_op; /* inputs: the components; output: the tensor in the dtype that its attribute "dtype" names (GALLEY_F32, GALLEY_BF16 …) */
  uint32_t exact;     /* 1: unpack(pack(x)) is x rounded once, and packing that again changes nothing */
  uint32_t trainable; /* 1: an update may unpack, step and pack; 0: only frozen tensors */
  /* Fills out[0] … out[*n - 1] (there are GALLEY_MAX_COMPONENTS) for a tensor of this shape. `attrs`: the options of the claim (block size, double
   * quantization), which its pack and unpack nodes have as attributes too; one that the format does not know is GALLEY_INVALID.
   * [thread-safe] [plan-time] */
  galley_status (*components)(const int64_t* shape, uint32_t rank, const galley_attr* const* attrs, uint32_t n_attrs,
                              galley_component* const* out, uint32_t* n, galley_error*);
  uint64_t flags;
} galley_format;
#define GALLEY_FORMAT_MIN_SIZE 48u

/* End of draft 0.2. */

#ifdef __cplusplus
}
#endif
#endif
