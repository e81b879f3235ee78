/* galley.op/1: what a node does, independent of any device: shapes, gradient, cost, and a reference in double precision that all kernels
 * are tested against. */
#ifndef GALLEY_OP_H
#define GALLEY_OP_H

#include "galley/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How an operand relates to rows (all extents except the last, flattened). A promise: computed for any contiguous rows of its ROWS
 * operands, with WHOLE ones given whole and REDUCED ones added up over the parts, an op gives the numbers that it gives for all rows at
 * once. Whatever cuts a node relies on it: chunks of head and loss, pieces of an update, shards. Roles say which operands are cut alike;
 * the grain of an update op says how finely. */
#define GALLEY_ROLE_WHOLE 0u   /* not split: a weight, a scalar, or any operand of an op that mixes rows */
#define GALLEY_ROLE_ROWS 1u    /* row i of this operand belongs to row i of all others with this role */
#define GALLEY_ROLE_REDUCED 2u /* an output that is a sum over rows: chunks accumulate into it */

/* Flags of an operand rule. */
#define GALLEY_OPERAND_OPTIONAL 1ull
#define GALLEY_OPERAND_INOUT 2ull        /* an input that the node updates in place: a parameter, a state */
#define GALLEY_OPERAND_ACCUMULATES 4ull  /* an output that kernels can accumulate into */
#define GALLEY_OPERAND_VARIADIC 8ull     /* the last input may occur any number of times */
#define GALLEY_OPERAND_NO_GRADIENT 16ull /* never differentiated: ids, scalars */
#define GALLEY_OPERAND_SAME_ROWS 32ull   /* all extents count as rows, the last one too: one value per row (labels, loss weights) */

/* Which dtype an operand that holds floating-point numbers has; see "Dtypes" below. */
#define GALLEY_OPERAND_COMPUTE 64ull    /* an input that is read in the node's compute dtype */
#define GALLEY_OPERAND_ANY_DTYPE 128ull /* an input that is read, or an output that is written, in F32, BF16 or F16 */

#define GALLEY_OPERAND_KNOWN 255ull /* all of them */

/* Dtypes. Every node computes in a dtype: what the claim on its facet COMPUTE says, or F32; a node of backward in that of the forward node
 * it belongs to. In a 16-bit dtype, sums are F32 all the same. The host puts casts where it is needed:
 *   COMPUTE     inputs with this flag are all in the compute dtype of their node.
 *   ANY_DTYPE   an input has the dtype that it happens to have, each such input its own. An output has the dtype that the node's attribute
 *               "dtype" names ("f32", "bf16", "f16"); without the attribute, that of the first input with COMPUTE or ANY_DTYPE, unless the
 *               shape rule says otherwise. The attribute holds for all outputs with this flag. Kernels convert: so a cast after the node
 *               costs nothing.
 *   neither     the dtype that the shape rule asks for: F32, mostly.
 * The shape rule checks inputs and follows the attribute.
 * A claim of "tf32" is F32 with the attribute "tf32" = 1: a kernel may round the operands of its products to TF32, 10 bits of mantissa.
 * One that does not know the attribute computes in F32. */

typedef struct galley_operand_rule {
  uint32_t size;
  uint32_t revision;
  const char* name;
  uint32_t role;
  int32_t alias; /* of an output: the input, counted from 0, whose buffer it may reuse if that input is no longer needed; -1: none */
  uint64_t flags;
  const char* summary; /* describes the operand and its shape: "x (…, K)"; may be NULL */
} galley_operand_rule;
#define GALLEY_OPERAND_RULE_MIN_SIZE 32u

/* Flags of an attribute rule. */
#define GALLEY_ATTR_REQUIRED 1ull
#define GALLEY_ATTR_LIST 2ull /* any number of values; without it, there is one */

/* A hint: for a node with this attribute, the gradient rule leaves out a part of the derivative, as the attribute says. So finite
 * differences of the reference do not measure its gradient. */
#define GALLEY_ATTR_STOPS (1ull << 32)

/* A hint: a kernel that does not know the attribute may leave it out of account. Others are offered to kernels that know them only, see
 * galley_known_op in kernel.h. */
#define GALLEY_ATTR_ADVICE (1ull << 33)

#define GALLEY_ATTR_RULE_KNOWN 3ull /* all that have to be understood */

/* An attribute that nodes of an op may have. A node with one that its op does not declare, or of another type, is refused; an I64 may stand
 * where an F64 is declared. Declared without a rule, because their meaning is the host's:
 *   "dtype"   string  of an op with an output with GALLEY_OPERAND_ANY_DTYPE: see "Dtypes" above
 *   "tf32"    I64     of an op with GALLEY_OP_LOW: likewise
 *   "stream"  string  of an op with an input "random", and of one without inputs: keys random numbers in the place of the node's name
 *   "seed"    I64     of an op without inputs: the run's
 *   "axis"    string  of an op with GALLEY_OP_EXCHANGE, which must have it: see there */
typedef struct galley_attr_rule {
  uint32_t size;
  uint32_t revision;
  const char* name;
  uint32_t type; /* GALLEY_ATTR_… */
  uint32_t reserved;
  uint64_t flags;
  const galley_attr* otherwise; /* what holds for a node without it; NULL: it is required, or the summary says what holds */
  const char* summary;          /* one line: meaning and unit; may be NULL */
} galley_attr_rule;
#define GALLEY_ATTR_RULE_MIN_SIZE 40u

/* Flags of an op. */
#define GALLEY_OP_RANDOM 1ull /* uses random numbers keyed by the node's name: its input "random" is GALLEY_SCALAR_RANDOM */
/* Outside training, output 0 equals input 0, and the host removes the node (dropout). Where it runs all the same, without
 * GALLEY_NODE_TRAINING, it updates nothing in place. */
#define GALLEY_OP_TRAINING_ONLY 2ull
#define GALLEY_OP_LOSS 4ull   /* adds to GALLEY_SCALAR_LOSS; differentiation starts here */
#define GALLEY_OP_LINEAR 8ull /* multiplies input 0 by input 1, a weight; adapters and quantizers look for this flag */

#define GALLEY_OP_LOW 16ull  /* pays in 16 bit: matrix products, attention, look-ups in a table */
#define GALLEY_OP_FULL 32ull /* computes in F32 whatever its operands are: norms, losses. With neither: it follows its inputs */

/* A hint: it rounds its inputs to few values, and its gradient takes the rounding for the identity. So finite differences of the reference
 * do not measure the gradient. */
#define GALLEY_OP_ROUNDS (1ull << 32)

/* A hint: while a run loads, the host computes it by its kernel for "cpu", whatever the device is: for what is made once and is no work for
 * a device, such as a decomposition. That kernel is called without a queue; its operands lie where the host reaches them, in no format. The
 * plan has their memory, and the copies from the device and to it. The op's plugin needs no kernels for other devices, unless nodes of it
 * are in other parts of a run, where it is as any other op. */
#define GALLEY_OP_LOAD_ON_HOST (1ull << 33)

/* No contract: only its own plugin and the host make nodes of it, and only its own plugin has kernels for it. It may change with each
 * version, as nobody else relies on it. */
#define GALLEY_OP_PRIVATE 64ull

/* An exchange: its value depends on other ranks of the axis that its attribute "axis" names. All ranks run the exchanges of an axis in the
 * same order: so the host never runs one twice for one value (recomputation), nor joins it with other nodes in a launch.
 * Its reference is given what all ranks have: in each input, the numbers of rank r begin at r times the operand's elements. What it writes
 * or updates is this rank's. */
#define GALLEY_OP_EXCHANGE 128ull

#define GALLEY_OP_KNOWN 255ull /* all that have to be understood */

/* Grain of an update op: the smallest part of its ROWS operands that can be computed by itself. With ELEMENT and BLOCK a part is a range of
 * the numbers in a row, whatever their shape. NONE: the op says nothing, and is not cut. TENSOR: it needs all numbers of the tensor at
 * once, so that one owner computes it. */
#define GALLEY_GRAIN_NONE 0u
#define GALLEY_GRAIN_ELEMENT 1u
#define GALLEY_GRAIN_BLOCK 2u /* of `grain_block` elements */
#define GALLEY_GRAIN_ROW 3u
#define GALLEY_GRAIN_TENSOR 4u

typedef struct galley_shape {
  uint32_t size;
  uint32_t revision;
  uint32_t rank;
  uint32_t dtype;
  int64_t extents[8];
  uint64_t flags; /* none yet */
} galley_shape;
#define GALLEY_SHAPE_MIN_SIZE 80u

typedef struct galley_cost {
  uint32_t size;
  uint32_t revision;
  double flops;      /* multiplications and additions of matrix products and attention; element-wise work may be 0 */
  double bytes;      /* bytes read and written; 0: each operand once */
  double link_bytes; /* of an exchange: bytes that one rank sends */
} galley_cost;
#define GALLEY_COST_MIN_SIZE 16u

/* A test case: a node, and the range from which each of its inputs is drawn (integers: inclusive bounds). Tests use it to check the
 * gradient against finite differences of the reference, and to check every kernel. Inputs have shapes and dtypes; outputs come from
 * `infer`. */
typedef struct galley_op_case {
  uint32_t size;
  uint32_t revision;
  const galley_node_view* node;
  const double* low;
  const double* high;
  uint64_t flags; /* none yet */
} galley_op_case;
#define GALLEY_OP_CASE_MIN_SIZE 32u

/* What a gradient rule gets. Arrays have an entry for each input or output of the node. Owned by the host, valid during the call. */
typedef struct galley_gradient_call {
  uint32_t size;
  uint32_t revision;
  galley_node node;
  const galley_tensor* d_outputs; /* the gradient of each output; 0: there is none */
  const uint8_t* need;            /* whether each input needs a gradient */
  /* On entry, 0, or a tensor to write, or, where `accumulate` is not 0, a tensor to add to. On return, the tensor that holds the gradient
   * of each input that needs one. It may be a different tensor: the host then copies or adds it. */
  galley_tensor* d_inputs;
  const uint8_t* accumulate; /* of each input */
  uint32_t n_inputs;
  uint32_t n_outputs;
  uint64_t flags; /* none yet */
} galley_gradient_call;
#define GALLEY_GRADIENT_CALL_MIN_SIZE 56u

/* An op. All functions are [thread-safe] [plan-time].
 *
 * An op is a contract: nodes of other plugins name it and give it operands in this order, and kernels of other plugins compute it. What is
 * written here changes by appending optional inputs, outputs and attributes that leave the meaning of a node without them as it was, and
 * kernels say up to which of them they know it (galley_known_op). Any other contract is another op: the second one of "linear" is called
 * "linear/2". An op with GALLEY_OP_PRIVATE is none.
 *
 * Names of ops, formats, kernels and devices consist of a-z, 0-9 and "._-/", and no two plugins have one in common: those of plugins other
 * than Galley's begin with the plugin's id, or with a domain and a dot ("signsgd_step" of signsgd, "example.signsgd_step"). */
typedef struct galley_op {
  uint32_t size;
  uint32_t revision;
  void* self; /* the plugin's own: the first argument of each function */
  const char* name;
  const char* summary; /* one line: y = x·Wᵀ + b; x (…, K), W (N, K), b (N), y (…, N) */
  const galley_operand_rule* const* inputs;
  const galley_operand_rule* const* outputs;
  const galley_op_case* const* cases;
  const galley_attr_rule* const* attrs;
  uint32_t n_inputs;
  uint32_t n_outputs;
  uint32_t n_cases;
  uint32_t n_attrs;
  uint32_t grain;
  uint32_t reserved;
  int64_t grain_block;
  uint64_t flags;
  /* Checks inputs and attributes, and fills the shapes of the n_outputs outputs (rank 0 and dtype 0: this optional output is absent). The
   * host calls it for every node, even if there are no outputs or they exist already, and compares the result with the existing tensors.
   * That includes what it makes itself: initializers, casts, packing and unpacking. Of these, `outputs` of the node are the tensors to
   * write, for a rule whose shapes do not follow from the inputs; of other nodes `n_outputs` is 0. It may be asked about an extent of 0,
   * which no tensor has. */
  galley_status (*infer)(void* self, const galley_node_view*, galley_shape* const* outputs, galley_error*);
  /* Appends the backward nodes of a node. NULL: the op is not differentiable. */
  galley_status (*gradient)(void* self, const galley_graph_verbs*, galley_graph*, const galley_gradient_call*, galley_error*);
  galley_status (*cost)(void* self, const galley_node_view*, galley_cost*, galley_error*); /* NULL: no FLOPs, each operand once */
  /* Computes the op as it is defined. Operands of floating-point dtypes are passed as F64, integers unchanged. Outputs are always written:
   * the caller handles ACCUMULATE. */
  galley_status (*reference)(void* self, const galley_node_view*, galley_error*);
} galley_op;
#define GALLEY_OP_MIN_SIZE 112u /* up to `infer` */

/* End of draft 0.4. */

#ifdef __cplusplus
}
#endif
#endif
