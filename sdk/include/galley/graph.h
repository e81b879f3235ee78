/* The graph, through handles and verbs. A strategy and an op's gradient rule build with these; nobody sees the host's structs.
 *
 * A graph handle lives for the call it was given to. Tensor and node ids live as long as the graph; 0 is "none". All verbs: [main-thread]
 * [plan-time]. Every byte that a plugin wants is a tensor made here: there is no other way to get memory, and resume needs no other list. */
#ifndef GALLEY_GRAPH_H
#define GALLEY_GRAPH_H

#include "galley/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct galley_graph galley_graph;
typedef uint64_t galley_tensor;
typedef uint64_t galley_node;

#define GALLEY_KIND_PARAMETER 1u /* loaded or initialized once, lives for the whole run, saved with the model */
#define GALLEY_KIND_STATE 2u     /* lives for the whole run, saved for resume; starts from its initializer */
#define GALLEY_KIND_GRADIENT 3u  /* lives from its first contribution in a window to its update */
#define GALLEY_KIND_CONSTANT 4u  /* made once by its initializer, never written again, not saved */
#define GALLEY_KIND_TRANSIENT 5u /* lives from its producer to its last reader */
#define GALLEY_KIND_INPUT 6u     /* filled by the loader for each micro-batch */
#define GALLEY_KIND_SCALAR 7u    /* part of the block of step scalars, written by the host at each step's begin */

/* Flags of a tensor. */
#define GALLEY_TENSOR_NO_DECAY 1ull      /* a norm's weight or a bias: decay passes it over unless asked */
#define GALLEY_TENSOR_ZERO_GRADIENT 2ull /* an exactly zero gradient is legal here (a key's bias) */
#define GALLEY_TENSOR_LATE_GRADIENT 4ull /* zero in the first applied step only (LoRA's A beside a B of zeros) */
#define GALLEY_TENSOR_BLOCK_INPUT 8ull   /* the hidden state that enters a block: where recomputation may begin */
#define GALLEY_TENSOR_EMBEDDING 16ull    /* a table of rows looked up by id */
#define GALLEY_TENSOR_TRAINABLE 32ull    /* set by the host after the claims */
#define GALLEY_TENSOR_NON_NEGATIVE \
  64ull                           /* holds no negative numbers (a running mean of squares): a format may spend its codes accordingly */
#define GALLEY_TENSOR_HEAD 128ull /* the weight that makes the logits; a tied one is an EMBEDDING too */

#define GALLEY_TENSOR_KNOWN 255ull /* all of them */

/* What a tensor is to be. `initializer` names an op with one output ("fill", "random_normal", "copy", …) run in `load`, with `attrs`, and on
 * `initializer_inputs`: parameters and constants made before this tensor, with the values that they begin with; NULL: zeros. With `source` the bytes come from that safetensors file (or folder of shards) under `source_name`, and the initializer is not used.
 * `file` and `file_name`: where the tensor is saved, below the run directory ("adapter/adapter_model.safetensors"); NULL: the model's own file
 * and `name` for a parameter, the resume state for a state. */
typedef struct galley_tensor_desc {
  uint32_t size;
  uint32_t revision;
  const char* name;
  const int64_t* shape;
  uint32_t rank;
  uint32_t dtype;
  uint32_t kind;
  uint32_t n_attrs;
  uint64_t flags;
  const char* initializer;
  const galley_attr* const* attrs;
  const char* source;
  const char* source_name;
  const char* file;
  const char* file_name;
  const galley_tensor* initializer_inputs;
  uint32_t n_initializer_inputs;
  uint32_t reserved;
} galley_tensor_desc;

/* What a tensor is. Pointers live as long as the graph. */
typedef struct galley_tensor_info {
  uint32_t size;
  uint32_t revision;
  const char* name;
  const int64_t* shape;
  uint32_t rank;
  uint32_t dtype;
  uint32_t kind;
  uint32_t reserved;
  uint64_t flags;
  galley_node producer; /* 0: none (a parameter, an input) */
} galley_tensor_info;

/* A node to append. `name` must be unique among forward nodes and stable: random numbers are keyed by it; NULL: made from the op and its
 * first output. Absent optional inputs are 0. `outputs`: 0 lets the graph make a transient by the op's shape rule; an id writes there.
 * Bit i of `accumulate`: output i adds to what is there. */
typedef struct galley_node_desc {
  uint32_t size;
  uint32_t revision;
  const char* op;
  const char* name;
  const galley_tensor* inputs;
  const galley_attr* const* attrs;
  uint32_t n_inputs;
  uint32_t n_attrs;
  uint32_t n_outputs;
  uint32_t accumulate;
} galley_node_desc;

typedef struct galley_node_info {
  uint32_t size;
  uint32_t revision;
  const char* op;
  const char* name;
  const galley_tensor* inputs;
  const galley_tensor* outputs;
  const galley_attr* const* attrs;
  uint32_t n_inputs;
  uint32_t n_outputs;
  uint32_t n_attrs;
  uint32_t reserved;
  int64_t block; /* index of the model's repeated block the node belongs to; -1: none */
} galley_node_info;

/* Step scalars, one element each; see galley_graph_verbs.scalar. */
#define GALLEY_SCALAR_ATTEMPTED_STEP 1u /* I64, from 1; data and random numbers follow it */
#define GALLEY_SCALAR_APPLIED_STEP 2u   /* I64, from 1: the number that this step gets if it is applied */
#define GALLEY_SCALAR_APPLY 3u          /* I32, 0 skips: every node that writes a parameter or a state takes it */
#define GALLEY_SCALAR_LOSS_SCALE 4u     /* F32 */
#define GALLEY_SCALAR_WINDOW_TOKENS 5u  /* F32, valid tokens of the window */
#define GALLEY_SCALAR_LOSS_SEED 6u      /* F32, loss scale over valid tokens (0 without any) */
#define GALLEY_SCALAR_GRADIENT_NORM 7u  /* F32, global L2 norm of the unscaled gradients, before clipping */
#define GALLEY_SCALAR_GRADIENT_FACTOR \
  8u /* F32, 1 / loss scale at a step's begin; what an optimizer multiplies gradients by: unscaling and clipping */
#define GALLEY_SCALAR_FOUND_INF 9u /* I32, 1 when the norm is not finite */
#define GALLEY_SCALAR_RANDOM 10u   /* I64[4]: seed, window, first row of the micro-batch in the window, 0 */
#define GALLEY_SCALAR_LOSS 11u     /* F64, sum of the window's losses, not yet divided by its tokens */

/* What saving at the end writes. */
#define GALLEY_EXPORT_OWN 0u /* tensors with a file of their own (an adapter), not the model */
#define GALLEY_EXPORT_BOTH 1u
#define GALLEY_EXPORT_MODEL 2u /* the model alone: everything else has been merged into it */

typedef struct galley_graph_verbs {
  uint32_t size;
  uint32_t revision;
  galley_status (*tensor_make)(galley_graph*, const galley_tensor_desc*, galley_tensor* out, galley_error*);
  galley_status (*tensor_get)(galley_graph*, galley_tensor, galley_tensor_info* out, galley_error*);
  /* 0 when there is none of that name. */
  galley_status (*tensor_find)(galley_graph*, const char* name, galley_tensor* out, galley_error*);
  /* `outputs` has desc->n_outputs entries: in, what to write to (0: make one); out, what was written. */
  galley_status (*node_make)(galley_graph*, const galley_node_desc*, galley_tensor* outputs, galley_error*);
  galley_status (*node_get)(galley_graph*, galley_node, galley_node_info* out, galley_error*);
  /* Nodes in order: next(0) is the first; after the last comes 0. */
  galley_node (*node_next)(galley_graph*, galley_node);
  /* Tensors in order of making, likewise. */
  galley_tensor (*tensor_next)(galley_graph*, galley_tensor);
  /* Every reader of `from` that comes before this call reads `to` instead, except nodes that `to` itself is made from. */
  galley_status (*replace)(galley_graph*, galley_tensor from, galley_tensor to, galley_error*);
  /* One of the step scalars. */
  galley_status (*scalar)(galley_graph*, uint32_t which, galley_tensor* out, galley_error*);
  /* The calling strategy's option as an F32 scalar that follows its schedule by applied step; also for options that are plain numbers. */
  galley_status (*option)(galley_graph*, const char* name, galley_tensor* out, galley_error*);
  /* A text file that saving writes beside the tensors: adapter_config.json. */
  galley_status (*document)(galley_graph*, const char* file, const char* text, galley_error*);
  /* While exporting: save `value` under the parameter's name instead of the parameter itself (merging). */
  galley_status (*export_as)(galley_graph*, galley_tensor parameter, galley_tensor value, galley_error*);
  /* While exporting: one of GALLEY_EXPORT_…; without a word GALLEY_EXPORT_BOTH. */
  galley_status (*export_model)(galley_graph*, uint32_t what, galley_error*);
  /* Tensors of source files whose names match the pattern ('*': any characters) are passed over; others that nobody reads are an error. */
  galley_status (*ignore)(galley_graph*, const char* pattern, galley_error*);
} galley_graph_verbs;

/* End of the draft of 1.0. */

#ifdef __cplusplus
}
#endif
#endif
