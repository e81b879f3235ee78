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
 * `initializer_inputs`: parameters, states and constants made before this tensor, with the values that they begin
 * with; NULL: zeros. `galley plugins models` lists the ops. With `source` the bytes come from that safetensors file (or folder of shards) under `source_name`, and the initializer is not used.
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
  galley_tensor parameter; /* of a state: whose it is; 0: the parameter whose update is being built */
} galley_tensor_desc;
#define GALLEY_TENSOR_DESC_MIN_SIZE 112u

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
  galley_node producer;    /* 0: none (a parameter, an input) */
  galley_tensor parameter; /* of a gradient or a state: whose it is; else 0 */
  int64_t block; /* of the model's repeated blocks: the one that reads it first, for a parameter; the producer's, for others; -1: none */
} galley_tensor_info;
#define GALLEY_TENSOR_INFO_MIN_SIZE 56u

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
  uint64_t flags; /* none yet */
} galley_node_desc;
#define GALLEY_NODE_DESC_MIN_SIZE 56u

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
  int64_t block;     /* of the model's repeated blocks the one that the node belongs to; -1: none */
  uint64_t op_flags; /* GALLEY_OP_… of its op */
} galley_node_info;
#define GALLEY_NODE_INFO_MIN_SIZE 72u

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

/* The parts of a run that strategies may change. */
#define GALLEY_SEGMENT_MODEL 1u  /* the forward graph, before anything is claimed */
#define GALLEY_SEGMENT_EXPORT 2u /* runs when the model is saved at the end; its inputs are parameters */
#define GALLEY_SEGMENT_WINDOW 3u /* runs once before the first micro-batch of a window */
#define GALLEY_SEGMENT_EVAL 4u   /* the forward graph of validation, which may see other weights (eval_as) */

/* What saving at the end writes. */
#define GALLEY_EXPORT_OWN 0u   /* tensors with a file of their own (an adapter), not the model */
#define GALLEY_EXPORT_BOTH 1u  /* both */
#define GALLEY_EXPORT_MODEL 2u /* the model alone: everything else has been merged into it */

/* What can be asked of a graph. */
typedef struct galley_graph_reader {
  uint32_t size;
  uint32_t revision;
  galley_status (*tensor_get)(galley_graph*, galley_tensor, galley_tensor_info* out, galley_error*);
  /* 0 when there is none of that name. The gradient of parameter P is called "grad.P". */
  galley_status (*tensor_find)(galley_graph*, const char* name, galley_tensor* out, galley_error*);
  galley_status (*node_get)(galley_graph*, galley_node, galley_node_info* out, galley_error*);
  /* Tensors in order of making: next(0) is the first; after the last comes 0. */
  galley_tensor (*tensor_next)(galley_graph*, galley_tensor);
  /* Nodes in order, likewise: of GALLEY_SEGMENT_MODEL, or of what is being built (`segment` 0). */
  galley_node (*node_next)(galley_graph*, uint32_t segment, galley_node);
} galley_graph_reader;
#define GALLEY_GRAPH_READER_MIN_SIZE 40u

/* What can be done to a graph. A verb that the host does not have, or cannot do, is GALLEY_UNSUPPORTED. */
typedef struct galley_graph_verbs {
  uint32_t size;
  uint32_t revision;
  const galley_graph_reader* reader;
  galley_status (*tensor_make)(galley_graph*, const galley_tensor_desc*, galley_tensor* out, galley_error*);
  /* `outputs` has desc->n_outputs entries: in, what to write to (0: make one); out, what was written. */
  galley_status (*node_make)(galley_graph*, const galley_node_desc*, galley_tensor* outputs, galley_error*);
  /* Every reader of `from` that comes before this call reads `to` instead, except nodes that `to` itself is made from. */
  galley_status (*replace)(galley_graph*, galley_tensor from, galley_tensor to, galley_error*);
  /* One of the step scalars. */
  galley_status (*scalar)(galley_graph*, uint32_t which, galley_tensor* out, galley_error*);
  /* The calling strategy's option as an F32 scalar that follows its schedule by applied step; also for options that are plain numbers. */
  galley_status (*option)(galley_graph*, const char* name, galley_tensor* out, galley_error*);
  /* The same for an option that is the learning rate of `parameter`: multiplied by everything that `scale_rate` said of it. */
  galley_status (*rate)(galley_graph*, const char* name, galley_tensor parameter, galley_tensor* out, galley_error*);
  /* Multiplies the learning rate of a parameter by a finite `factor` >= 0, whatever optimizer it has (layer-wise decay). Factors of several
   * strategies multiply. While rewriting GALLEY_SEGMENT_MODEL, or before GALLEY_STAGE_STEP. */
  galley_status (*scale_rate)(galley_graph*, galley_tensor parameter, double factor, galley_error*);
  /* A metric of the step: `tensor` is F32 or F64, one element, as it is when the update is over. `name` is its key in metrics.jsonl. */
  galley_status (*report)(galley_graph*, galley_tensor tensor, const char* name, galley_error*);
  /* While building GALLEY_STAGE_AFTER: validation and sampling read `value`, a state of the parameter's shape, instead of the parameter. */
  galley_status (*eval_as)(galley_graph*, galley_tensor parameter, galley_tensor value, galley_error*);
  /* While exporting. A text file that is written beside the tensors: adapter_config.json. */
  galley_status (*document)(galley_graph*, const char* file, const char* text, galley_error*);
  /* While exporting. Saves `value` under the parameter's name instead of the parameter itself (merging). */
  galley_status (*export_as)(galley_graph*, galley_tensor parameter, galley_tensor value, galley_error*);
  /* While exporting. Saves the components of the parameter as they are stored instead of its numbers. */
  galley_status (*export_stored)(galley_graph*, galley_tensor parameter, galley_error*);
  /* While exporting. One of GALLEY_EXPORT_…; if never called, GALLEY_EXPORT_BOTH. */
  galley_status (*export_model)(galley_graph*, uint32_t what, galley_error*);
  /* While exporting. Sets a key of config.json; `json` is its value as JSON text. */
  galley_status (*config)(galley_graph*, const char* key, const char* json, galley_error*);
  /* Tensors of source files whose names match the pattern ('*': any characters) are passed over; others that nobody reads are an error. */
  galley_status (*ignore)(galley_graph*, const char* pattern, galley_error*);
} galley_graph_verbs;
#define GALLEY_GRAPH_VERBS_MIN_SIZE 128u

/* End of draft 0.2. */

#ifdef __cplusplus
}
#endif
#endif
