/* The graph, through handles and verbs. Strategies and the gradient rules of ops build graphs with them and never see the host's structs.
 *
 * A graph handle is valid during the call that it was passed to, on the thread of that call. Tensor and node ids live as long as the graph;
 * 0 means "none". All verbs are [plan-time]. All memory of a plugin is tensors made here: there is no other way to get memory, and these
 * tensors are all that resume needs to save. */
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
#define GALLEY_KIND_STATE 2u     /* lives for the whole run, saved for resume; starts from its initializer. Updates write it */
#define GALLEY_KIND_GRADIENT 3u  /* lives from its first contribution in a window to its update */
#define GALLEY_KIND_CONSTANT 4u  /* made by its initializer, and made again whenever what that one reads has changed; not saved */
#define GALLEY_KIND_TRANSIENT 5u /* lives from its producer to its last reader */
#define GALLEY_KIND_INPUT 6u     /* filled by the loader for each micro-batch */
#define GALLEY_KIND_SCALAR 7u    /* part of the block of step scalars */
#define GALLEY_KIND_FILE 8u      /* while loading: what a file holds; lives from its read to its last reader */
#define GALLEY_KIND_CACHE 9u     /* lives as long as the process works with the graph, zeros at first, never saved; see "Forward" below */

/* Flags of a tensor. */
#define GALLEY_TENSOR_NO_DECAY 1ull      /* a norm's weight or a bias: not decayed by default */
#define GALLEY_TENSOR_ZERO_GRADIENT 2ull /* an exactly zero gradient is legal here (a key's bias) */
#define GALLEY_TENSOR_LATE_GRADIENT 4ull /* zero in the first applied step only (LoRA's A while B is zero) */
#define GALLEY_TENSOR_BLOCK_INPUT 8ull   /* the hidden state that enters a block: where recomputation may begin */
#define GALLEY_TENSOR_EMBEDDING 16ull    /* a table of rows looked up by id */
#define GALLEY_TENSOR_TRAINABLE 32ull    /* set by the host after the claims */
#define GALLEY_TENSOR_NON_NEGATIVE 64ull /* has no negative numbers (a running mean of squares): a format may use unsigned codes */
#define GALLEY_TENSOR_HEAD 128ull        /* the weight that makes the logits; a tied one is an EMBEDDING too */
#define GALLEY_TENSOR_WRITTEN 256ull     /* set by the host after the claims: GALLEY_TRAINABLE_WRITTEN */

#define GALLEY_TENSOR_WRITTEN_FORWARD 512ull /* of a state: nodes of the model's forward graph write it; see "Forward" below */

#define GALLEY_TENSOR_KNOWN 1023ull /* all of them */

/* Forward. Nodes of the model's forward graph write transients, and two kinds of tensor that outlive a micro-batch:
 *
 *   A state with GALLEY_TENSOR_WRITTEN_FORWARD (a running statistic, the largest numbers of the last steps, counts of experts): a node
 *   updates it in place once a micro-batch, in their order. No strategy claims anything about it, and it belongs to no parameter.
 *     - The node's op has GALLEY_OP_TRAINING_ONLY: evaluation and sampling read the state and leave it as it is.
 *     - One node writes it, before every other node that reads it: forward, backward and recomputation then read the same numbers. What
 *       depends on the value before is an output of the node that writes.
 *     - Nodes that read or write it are not computed again for backward: what they made is kept.
 *     - A step that is skipped leaves it as it was before the step.
 *   A cache (keys and values of earlier positions): nodes of forward update it, in their order. A graph with a backward part writes none: a
 *   run that is resumed would compute other numbers.
 *
 * To generate, the host keeps keys and values by itself: it makes forward again, of some positions of each row and of one, and gives
 * attention caches. It does so where every other node works row by row: all of its operands that differ from position to position have
 * GALLEY_ROLE_ROWS. A model in which a strategy's node does not is generated from by whole rows, which takes longer. */

/* Describes a tensor to make.
 *
 * `initializer` names an op with one output ("fill", "random_normal", "copy", …), which runs once while the run is loaded, with the
 * attributes `attrs`. Its inputs are `initializer_inputs`: parameters, states and constants that were made before this tensor, with their
 * initial values. NULL: zeros. `galley plugins models` lists the ops.
 *
 * With `source`, the numbers come from that safetensors file (or folder of shards), under the name `source_name`; the initializer is not
 * used. GALLEY_KIND_FILE has a `source_name`, and with `source` NULL lies in the model's own files; floating-point numbers may have
 * another dtype there.
 *
 * Where neither says enough, nodes of the load part make the first value: see begin_as in rewrite.h.
 *
 * `file` and `file_name` say where the tensor is saved, relative to the run directory ("adapter/adapter_model.safetensors"). The file lies
 * in "model", in "adapter" or in a folder of the plugin's own and ends in ".safetensors"; a name occurs once in it. NULL: a parameter is
 * saved in the model's own file under `name`, a state in the resume state. */
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
  galley_tensor parameter; /* of a state: the parameter it belongs to; 0: none */
} galley_tensor_desc;
#define GALLEY_TENSOR_DESC_MIN_SIZE 112u

/* The part of a parameter that this process has: a strategy has divided it (`divide` in rewrite.h), and the other processes of the axis have
 * the others. States of the parameter's shape are parts as it is. Files, resume states and exports have the whole tensor. */
typedef struct galley_part {
  uint32_t size;
  uint32_t revision;
  const char* axis;   /* of the run's */
  uint32_t dimension; /* of the tensor, from 0 */
  uint32_t reserved;
  int64_t whole; /* the whole tensor's extent in that dimension */
  int64_t first; /* where the part begins in it */
} galley_part;
#define GALLEY_PART_MIN_SIZE 40u

/* Describes an existing tensor. Pointers live as long as the graph. */
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
  galley_tensor parameter; /* of a gradient, a state or what an update makes of them: the parameter it belongs to; else 0 */
  int64_t block;           /* index of a repeated block of the model: the first reader's for a parameter, else the producer's; -1: none */
  const char* format;      /* the format in which it is stored, once STORAGE is decided; "": its numbers lie as they are */
  const char* source_name; /* its name in the file that it is read from; "": it is read from none */
  const galley_part* part; /* of a parameter or a state that is divided: `shape` is the part's; NULL: it is whole */
} galley_tensor_info;
#define GALLEY_TENSOR_INFO_MIN_SIZE 56u

/* Describes a node to append. `name` must be unique among forward nodes and stable, because random numbers are keyed by it; NULL: the host
 * makes one from the op and its first output. `attrs` has each name once. Absent optional inputs are 0. `accumulate` has n_outputs entries: where one is not 0, the
 * output is added to its tensor instead of overwriting it; NULL: none is. */
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
  uint32_t reserved;
  const uint8_t* accumulate;
  uint64_t flags; /* none yet */
} galley_node_desc;
#define GALLEY_NODE_DESC_MIN_SIZE 64u

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
  int64_t block;     /* index of the repeated block of the model that the node belongs to; -1: none */
  uint64_t op_flags; /* GALLEY_OP_… of its op */
} galley_node_info;
#define GALLEY_NODE_INFO_MIN_SIZE 72u

/* Step scalars. Each has one element unless it says otherwise; see galley_graph_verbs.scalar. The host writes the first two; the others
 * are written by nodes, the host's own and strategies', in the window part (rewrite.h) and in the update.
 * They are the run's. Where several processes share a run, WINDOW_TOKENS, LOSS, GRADIENT_NORM, FOUND_INF and APPLY are of all of them
 * together, and equal in each; RANDOM counts the rows of the whole window. */
#define GALLEY_SCALAR_ATTEMPTED_STEP 1u /* I64, from 1; data and random numbers follow it */
#define GALLEY_SCALAR_WINDOW_TOKENS 5u  /* F64, number of valid tokens in the window */
#define GALLEY_SCALAR_APPLIED_STEP 2u   /* I64, from 1: the number of this step if it is applied */
/* I32, 1; 0: the step is skipped. Every node that writes a parameter or a state reads it, but for those of GALLEY_STAGE_CHECK, which decide
 * it */
#define GALLEY_SCALAR_APPLY 3u
#define GALLEY_SCALAR_LOSS_SCALE 4u    /* F32, 1 unless a node of the window part writes it */
#define GALLEY_SCALAR_LOSS_SEED 6u     /* F32, loss scale / valid tokens; 0 if there are none */
#define GALLEY_SCALAR_GRADIENT_NORM 7u /* F32, global L2 norm of the unscaled gradients, before clipping */
#define GALLEY_SCALAR_GRADIENT_FACTOR \
  8u /* F32, the factor by which an optimizer multiplies gradients (unscaling and clipping); 1 / loss scale at the beginning of a step */
#define GALLEY_SCALAR_FOUND_INF 9u /* I32, 1 if the norm is not finite */
#define GALLEY_SCALAR_RANDOM 10u   /* I64[4]: seed, window, first row of the micro-batch in the window, 0 */
#define GALLEY_SCALAR_LOSS 11u     /* F64, sum of the window's losses, not yet divided by its tokens */

/* What a graph is for. Who does not know a purpose takes it for GALLEY_PURPOSE_EVAL. */
#define GALLEY_PURPOSE_TRAIN 1u
#define GALLEY_PURPOSE_EVAL 2u
#define GALLEY_PURPOSE_GRADIENTS 3u /* of one micro-batch, without an update */
#define GALLEY_PURPOSE_SAMPLE 4u    /* the head's numbers at one position of each row, the input "sample position", I32 (rows) */
#define GALLEY_PURPOSE_EMBED 5u     /* the last hidden state */
#define GALLEY_PURPOSE_PREDICT 6u   /* what the head makes of each row */
#define GALLEY_PURPOSE_EXPORT 7u    /* files */

/* Whose nodes node_next iterates over. */
#define GALLEY_NODES_BUILT 0u /* of what is being built now */
#define GALLEY_NODES_MODEL 1u /* of the model's forward graph */

#define GALLEY_RUN_KNOWN 0ull /* flags of galley_run_info: none yet */

typedef struct galley_target galley_target; /* kernel.h */

/* An axis of the processes (ranks) of a run: these are numbered along it, and exchanges go along one axis. Every run has the axis "data",
 * whose ranks have parts of each window's rows. A recipe may name another one (`ranks = { tensor = 2 }`): neighbours on it compute the same
 * rows together, and strategies divide parameters among them (`divide` in rewrite.h). In a run of one process each has one rank. */
typedef struct galley_axis {
  uint32_t size;
  uint32_t revision;
  const char* name;
  int64_t ranks;  /* along the axis, at least 1 */
  int64_t rank;   /* this process's place on it, from 0 */
  int64_t stride; /* between the numbers of neighbours on it */
  uint64_t flags; /* none yet */
} galley_axis;
#define GALLEY_AXIS_MIN_SIZE 48u

/* Describes the run that a graph is made for. Pointers live as long as the graph. What it says is the run's, and not one process's share
 * of it, but for `rows`: of a micro-batch, which one process computes. */
typedef struct galley_run_info {
  uint32_t size;
  uint32_t revision;
  int64_t rows;          /* of a micro-batch */
  int64_t length;        /* positions of a row */
  int64_t steps;         /* 0: the recipe says epochs, and the plan does not depend on their number of steps */
  int64_t micro_batches; /* of a window, at most; 0: not decided yet, for WINDOW is the last facet that is asked about the model */
  const galley_target* target;
  uint64_t flags;    /* none yet */
  const char* model; /* the file or folder that the model's weights come from; "": it begins with random numbers */
  uint32_t purpose;  /* GALLEY_PURPOSE_…: updates are part of GALLEY_PURPOSE_TRAIN alone */
  uint32_t n_axes;
  const galley_axis* const* axes; /* "data" first */
  int64_t rank;                   /* this process's number, from 0 */
  int64_t ranks;                  /* processes of the run, at least 1 */
} galley_run_info;
#define GALLEY_RUN_INFO_MIN_SIZE 56u

/* Functions that read a graph. */
typedef struct galley_graph_reader {
  uint32_t size;
  uint32_t revision;
  galley_status (*tensor_get)(galley_graph*, galley_tensor, galley_tensor_info* out, galley_error*);
  /* `out` is 0 if there is no tensor of that name. The gradient of parameter P is called "grad.P". Transients may have equal names: the
   * first one is found. */
  galley_status (*tensor_find)(galley_graph*, const char* name, galley_tensor* out, galley_error*);
  galley_status (*node_get)(galley_graph*, galley_node, galley_node_info* out, galley_error*);
  /* Iterates over tensors in the order in which they were made: next(0) is the first; after the last comes 0. */
  galley_tensor (*tensor_next)(galley_graph*, galley_tensor);
  /* Iterates over nodes in order, in the same way. `of`: GALLEY_NODES_…. */
  galley_node (*node_next)(galley_graph*, uint32_t of, galley_node);
  /* Describes the run: a claim may depend on the target's memory classes, a schedule on the number of steps. */
  galley_status (*run)(galley_graph*, galley_run_info* out, galley_error*);
  /* Hands out a key of the model's config.json, as JSON text that lives as long as the graph. `json` is NULL if there is no such key. */
  galley_status (*config_get)(galley_graph*, const char* key, const char** json, galley_error*);
  /* Hands out what the calling strategy has written into a file by `document`, which lives until it writes that again; NULL: nothing. */
  galley_status (*document_get)(galley_graph*, const char* file, const char** text, galley_error*);
} galley_graph_reader;
#define GALLEY_GRAPH_READER_MIN_SIZE 40u

/* Functions that change a graph: what every phase of building has. A phase's own verbs are in a table of its own, beside this one: those of
 * rewrites in rewrite.h, those of updates in update.h. A verb returns GALLEY_UNSUPPORTED if the host does not implement it. */
typedef struct galley_graph_verbs {
  uint32_t size;
  uint32_t revision;
  const galley_graph_reader* reader;
  galley_status (*tensor_make)(galley_graph*, const galley_tensor_desc*, galley_tensor* out, galley_error*);
  /* `outputs` has desc->n_outputs entries. On entry: the tensor to write, or 0 to make a transient by the op's shape rule. On return: the
   * tensors. */
  galley_status (*node_make)(galley_graph*, const galley_node_desc*, galley_tensor* outputs, galley_error*);
  /* Returns one of the step scalars: GALLEY_SCALAR_…. */
  galley_status (*scalar)(galley_graph*, uint32_t which, galley_tensor* out, galley_error*);
  /* Returns an option of the calling strategy as an F32 scalar that follows its schedule by applied step. The option may also be a plain
   * number. */
  galley_status (*option)(galley_graph*, const char* name, galley_tensor* out, galley_error*);
} galley_graph_verbs;
#define GALLEY_GRAPH_VERBS_MIN_SIZE 48u

/* End of draft 0.4. */

#ifdef __cplusplus
}
#endif
#endif
