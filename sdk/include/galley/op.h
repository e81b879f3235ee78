/* galley.op/1: what a node does, apart from any device: shapes, gradient, cost, and a plain double-precision reference that every kernel answers to. */
#ifndef GALLEY_OP_H
#define GALLEY_OP_H

#include "galley/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How an operand relates to rows (all extents but the last, flattened). The head and loss are chunked over rows by these roles alone. */
#define GALLEY_ROLE_WHOLE 0u   /* not split: a weight, a scalar, or an op that mixes rows */
#define GALLEY_ROLE_ROWS 1u    /* row i of this operand belongs to row i of all others with this role */
#define GALLEY_ROLE_REDUCED 2u /* an output summed over rows: chunks accumulate into it */

/* Flags of an operand rule. */
#define GALLEY_OPERAND_OPTIONAL 1u
#define GALLEY_OPERAND_INOUT 2u        /* an input that the node updates in place: a parameter, a state */
#define GALLEY_OPERAND_ACCUMULATES 4u  /* an output that kernels can add into */
#define GALLEY_OPERAND_VARIADIC 8u     /* the last input: any number of them */
#define GALLEY_OPERAND_NO_GRADIENT 16u /* ids, scalars: never differentiated */
#define GALLEY_OPERAND_SAME_ROWS 32u   /* rows counted without the last extent dropped: one value a row (labels, loss weights) */

#define GALLEY_OPERAND_KNOWN 63u /* all of them */

typedef struct galley_operand_rule {
  uint32_t size;
  uint32_t revision;
  const char* name;
  uint32_t role;
  uint32_t flags;
  int32_t alias; /* output: the input whose buffer it may take over when that input is not needed any more; -1: none */
  uint32_t reserved;
  const char* summary; /* what it is, with its shape: "x (…, K)"; NULL: not said */
} galley_operand_rule;
#define GALLEY_OPERAND_RULE_MIN_SIZE 32u

/* Flags of an op. */
#define GALLEY_OP_RANDOM 1ull        /* draws random numbers keyed by the node's name: input "random" is GALLEY_SCALAR_RANDOM */
#define GALLEY_OP_TRAINING_ONLY 2ull /* outside training output 0 is input 0: the host removes the node (dropout) */
#define GALLEY_OP_LOSS 4ull          /* adds to GALLEY_SCALAR_LOSS and is where differentiation starts */
#define GALLEY_OP_LINEAR 8ull        /* input 0 times input 1, a weight: what adapters and quantizers look for */

#define GALLEY_OP_KNOWN 15ull /* all of them */

/* Grain of an update op: what of it can be split off and run by itself. */
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
  double flops; /* multiplications and additions; matrix products and attention count, element-wise work may be 0 */
  double bytes; /* read and written; 0: all operands once */
} galley_cost;
#define GALLEY_COST_MIN_SIZE 16u

/* An example of the op with the range that its inputs are drawn from (integers: inclusive bounds). Tests take these for the reference's finite
 * differences and for every kernel; inputs have shapes and dtypes, outputs come from `infer`. */
typedef struct galley_op_case {
  uint32_t size;
  uint32_t revision;
  const galley_node_view* node;
  const double* low;
  const double* high;
  uint64_t flags; /* none yet */
} galley_op_case;
#define GALLEY_OP_CASE_MIN_SIZE 32u

/* [thread-safe] [plan-time], all of them. */
typedef struct galley_op {
  uint32_t size;
  uint32_t revision;
  const char* name;
  const char* summary; /* one line: y = x·Wᵀ + b; x (…, K), W (N, K), b (N), y (…, N) */
  const galley_operand_rule* const* inputs;
  const galley_operand_rule* const* outputs;
  const galley_op_case* const* cases;
  uint32_t n_inputs;
  uint32_t n_outputs;
  uint32_t n_cases;
  uint32_t grain;
  int64_t grain_block;
  uint64_t flags;
  /* Checks inputs and attributes, fills outputs (n_outputs of them; rank 0 and dtype 0: this optional output is not there). The host calls it for every
   * node, also where there are no outputs and where they exist already, and compares what it says with what is there. */
  galley_status (*infer)(const galley_node_view*, galley_shape* const* outputs, galley_error*);
  /* Appends the backward nodes of `node`. d_outputs[i] is 0 where no gradient arrives. need[i] says whether input i needs one; d_inputs[i]
   * comes in as 0, or as a tensor to write or to add to (bit i of `accumulate`, of the first 32 inputs), and goes out as what holds it. A rule may return a
   * different tensor: the host then adds. NULL: not differentiable. */
  galley_status (*gradient)(const galley_graph_verbs*, galley_graph*, galley_node node, const galley_tensor* d_outputs,
                            const uint32_t* need, galley_tensor* d_inputs, uint32_t accumulate, galley_error*);
  galley_status (*cost)(const galley_node_view*, galley_cost*, galley_error*); /* NULL: no FLOPs, all operands once */
  /* The definition: operands of floating dtype arrive as F64, integers as they are; ACCUMULATE is the caller's business (outputs are always
   * written). */
  galley_status (*reference)(const galley_node_view*, galley_error*);
} galley_op;
#define GALLEY_OP_MIN_SIZE 88u /* up to `infer` */

/* End of draft 0.2. */

#ifdef __cplusplus
}
#endif
#endif
