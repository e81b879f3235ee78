/* galley.format/1: how a tensor of numbers is stored as components (bf16; int8 with row scales; NF4 with nested absmax). A format is about
 * storage, not about arithmetic: if a node's kernel does not take the format, it reads the output of the unpack op. Whatever is rounded,
 * zeros come back as zeros. */
#ifndef GALLEY_FORMAT_H
#define GALLEY_FORMAT_H

#include "galley/graph.h"
#include "galley/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One component. Its name is the tensor's name plus `suffix`. */
typedef struct galley_component {
  uint32_t size;
  uint32_t revision;
  const char* suffix; /* "", ".absmax"; no two of a tensor's components have the same. Lives as long as the library */
  uint32_t rank;
  uint32_t dtype;
  int64_t extents[8];
  /* How many consecutive numbers of the tensor one element represents (two codes in a byte: 2; one absmax per block: the block size); 0:
   * the component belongs to the tensor as a whole. A range of the tensor that begins and ends at multiples of all of them can be unpacked
   * and packed by itself, as a tensor of rank 1 or of whole rows, if for such a shape the components have as many elements as they have for
   * the range. */
  int64_t numbers;
  /* Its name in files that are already packed and in those that are saved as they are stored; lives as long as the library. A '*' in it
   * stands for the tensor's name there without its last part: "*.SCB" of "layers.0.q_proj.weight" is "layers.0.q_proj.SCB". NULL: the
   * tensor's name plus `suffix`. "": files do not have it: what is saved lacks it, and a strategy that reads such files says by begin_as
   * what it begins as. */
  const char* file_name;
} galley_component;
#define GALLEY_COMPONENT_MIN_SIZE 96u

#define GALLEY_MAX_COMPONENTS 8u

/* Flags of a format. */
/* Its pack op has a last, optional input `random` (GALLEY_SCALAR_RANDOM); with it, rounding is stochastic. If the role of its first input
 * is GALLEY_ROLE_ROWS, it also packs ranges by themselves, and a number draws by its index in the whole tensor: see first_row
 * in tensor.h. */
#define GALLEY_FORMAT_STOCHASTIC 1ull

#define GALLEY_FORMAT_PLAIN \
  2ull /* the only component holds the tensor's numbers, each in the component's dtype: what reads that dtype reads the component itself */

/* The first component holds the tensor's numbers, rounded to the component's dtype: what reads that dtype reads the component itself. With
 * that dtype, the unpack op gives the component. */
#define GALLEY_FORMAT_ROUNDED 4ull

#define GALLEY_FORMAT_EXACT 8ull      /* unpack(pack(x)) is x rounded once, and packing it again changes nothing */
#define GALLEY_FORMAT_TRAINABLE 16ull /* an update may unpack, step and pack; without it, the format is for frozen tensors only */

#define GALLEY_FORMAT_KNOWN 31ull /* all of them */

typedef struct galley_format {
  uint32_t size;
  uint32_t revision;
  void* self; /* the plugin's own */
  const char* name;
  /* Inputs: the tensor; outputs: the components, in order, with the shapes and dtypes that `components` says; the last ones may be
   * optional, where other options make fewer. The role of the input says whether a tensor can be packed in parts with random bits, see
   * GALLEY_FORMAT_STOCHASTIC; the host looks at no other role of the two ops: what can be unpacked and packed by parts follows from
   * galley_component.numbers. NULL: nothing is packed, and a tensor in this format lies in its file so. */
  const char* pack_op;
  /* Inputs: the components; output: the tensor, with GALLEY_OPERAND_ANY_DTYPE, in the dtype that the attribute "dtype" names. */
  const char* unpack_op;
  /* Fills out[0] … out[*n - 1] for a tensor of this shape; there is room for GALLEY_MAX_COMPONENTS. `attrs` are the options of the claim
   * (block size, double quantization); the pack and unpack nodes have the same attributes, so both ops declare them. Returns
   * GALLEY_INVALID for an option that it does not know. [thread-safe] [plan-time] */
  galley_status (*components)(void* self, const int64_t* shape, uint32_t rank, const galley_attr* const* attrs, uint32_t n_attrs,
                              galley_component* const* out, uint32_t* n, galley_error*);
  uint64_t flags;
} galley_format;
#define GALLEY_FORMAT_MIN_SIZE 56u

#define GALLEY_CODEC_STATE 128u /* bytes */

/* Makes numbers of a format, and codes of numbers, a run at a time: for kernels with GALLEY_KERNEL_FORMATS, which find it at their operands
 * and need not know the format. A library of kernels has the codecs of its plugin's formats for its device and instruction set; a format
 * without a codec works too: its tensors are unpacked before such kernels. Every number is the one that the unpack op gives. */
typedef struct galley_codec {
  uint32_t size;
  uint32_t revision;
  void* self;         /* the plugin's own */
  const char* format; /* one of its plugin's */
  const char* device;
  /* Fills `state`, GALLEY_CODEC_STATE bytes aligned to 16, with what the other functions need of an operand: its options, and the addresses
   * of its components, which are NULL at plan time. The caller may copy the state, and does not release it. *unit: see encode. Returns
   * GALLEY_UNSUPPORTED for an operand that it does not read. [thread-safe] */
  galley_status (*open)(void* self, const galley_operand*, void* state, int64_t* unit, galley_error*);
  /* Writes the operand's numbers with the indices first to first + n - 1, each rounded once to `dtype` (F32, BF16 or F16), to to[0] to
   * to[n - 1]. On a device with queues it puts this on the queue, and the range is the whole operand; on the CPU the queue is NULL, and the
   * range is any. [thread-safe] on the CPU */
  galley_status (*decode)(const void* state, int64_t first, int64_t n, uint32_t dtype, void* to, galley_queue*, galley_error*);
  /* The way back, of numbers in F32. The range begins at a multiple of *unit numbers and ends at one, or at the end of the operand. NULL:
   * kernels do not write this format. [thread-safe] on the CPU */
  galley_status (*encode)(const void* state, int64_t first, int64_t n, const float* from, galley_queue*, galley_error*);
  uint64_t flags; /* none yet */
} galley_codec;
#define GALLEY_CODEC_MIN_SIZE 64u

/* End of draft 0.4. */

#ifdef __cplusplus
}
#endif
#endif
