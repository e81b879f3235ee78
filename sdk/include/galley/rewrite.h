/* galley.rewrite/1: a strategy that changes the model's graph (LoRA adds B·A·x to the output of a linear node), what it begins with (PiSSA
 * splits a weight) or what is exported (merging). */
#ifndef GALLEY_REWRITE_H
#define GALLEY_REWRITE_H

#include "galley/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GALLEY_REWRITE "galley.rewrite/1"

/* When strategies of a recipe are called, the lower number first: the numbers leave room. Within a phase, the order is that of the
 * strategies' names, and for one that a recipe uses several times that of its options. The order in the recipe decides nothing. */
#define GALLEY_PHASE_REPLACE 10u /* takes nodes away and puts others in their place, which compute the same in another way */
#define GALLEY_PHASE_ADD 20u     /* adds to what is there */
#define GALLEY_PHASE_READ 30u    /* makes no nodes: says something of parameters, also of those that others have added */

/* What only a rewrite of the model may do. `graph`: see graph.h. */
typedef struct galley_model_verbs {
  uint32_t size;
  uint32_t revision;
  const galley_graph_verbs* graph;
  /* Makes every existing reader of `from` read `to` instead, except the nodes that compute `to`. Nodes that nobody reads any more are gone
   * when the strategy's rewrite returns. A parameter that only they have read is not trained, has no memory while the
   * run trains, and is saved with the model as it was. */
  galley_status (*replace)(galley_graph*, galley_tensor from, galley_tensor to, galley_error*);
  /* Makes one input of a node read `to`, of the same shape and dtype, which must not be made from what the node writes. What nobody reads
   * any more is gone, as after `replace`. */
  galley_status (*set_input)(galley_graph*, galley_node, uint32_t input, galley_tensor to, galley_error*);
  /* Multiplies the learning rate of a parameter by a finite `factor` >= 0, whatever optimizer it has (layer-wise decay). Factors of several
   * strategies multiply. */
  galley_status (*scale_rate)(galley_graph*, galley_tensor parameter, double factor, galley_error*);
  /* Ignores tensors of source files whose names match the pattern ('*' matches any characters). Any other tensor that nobody reads is an
   * error. */
  galley_status (*ignore)(galley_graph*, const char* pattern, galley_error*);
  /* Writes a text file beside the tensors: adapter_config.json. It lies in a folder into which tensors are saved. A second text for the
   * same file by the same strategy, then or while exporting, takes the place of the first. */
  galley_status (*document)(galley_graph*, const char* file, const char* text, galley_error*);
  /* Hands out an input of the model: one that it reads, or a tensor of this name that the run's data brings (source.h). There is data for
   * the purposes TRAIN, EVAL and GRADIENTS. */
  galley_status (*input)(galley_graph*, const char* name, galley_tensor* out, galley_error*);
  /* Takes away a node with GALLEY_OP_LOSS: the strategy makes another loss, a node of an op with that flag whose output is
   * GALLEY_SCALAR_LOSS, to which it adds. */
  galley_status (*take_loss)(galley_graph*, galley_node, galley_error*);
  /* Divides a parameter of the model among the processes of an axis that the recipe names: from now on the tensor is this process's part
   * (galley_tensor_info.part), an equal share of its rows (dimension 0) or, of a matrix, of its columns (1). The strategy puts others in the
   * place of all nodes that read it whole. On an axis of one rank nothing happens.
   *
   * What is made from parts differs between the processes of the axis, until an exchange along it makes it the same again: "all_reduce",
   * with the attributes "axis", "ranks" and "stride" (galley_axis), of what each has made of its part. Nothing else has to be said for
   * backward: where nodes that work on parts read a tensor that is the same on all, the host adds their gradients up along the axis, and the
   * gradient of a sum is the same on all. The loss has to be the same on all; random numbers are not drawn for what differs. */
  galley_status (*divide)(galley_graph*, galley_tensor parameter, const char* axis, uint32_t dimension, galley_error*);
} galley_model_verbs;
#define GALLEY_MODEL_VERBS_MIN_SIZE 72u

#define GALLEY_BEGIN_NUMBERS 0xFFFFFFFFu /* see begin_as */

/* What only the load part may do. */
typedef struct galley_load_verbs {
  uint32_t size;
  uint32_t revision;
  const galley_graph_verbs* graph;
  /* The parameter or state begins as `value`: a GALLEY_KIND_FILE, or the output of a node. `component` is GALLEY_BEGIN_NUMBERS, and `value`
   * has the shape and dtype of the tensor; or the index of a component of its format, and `value` has the shape and dtype of that, and
   * every component gets a value in this way. Nodes that read the tensor itself in this part read what its file or initializer says; where
   * nothing does, its file is not read. */
  galley_status (*begin_as)(galley_graph*, galley_tensor tensor, uint32_t component, galley_tensor value, galley_error*);
  /* Hands out what is left of `value` when it is stored in the format of a parameter of its shape and dtype: packed, and unpacked again
   * (LoftQ). What the parameter begins as in numbers is packed in the same way. */
  galley_status (*pack_and_unpack)(galley_graph*, galley_tensor parameter, galley_tensor value, galley_tensor* out, galley_error*);
  /* As in galley_model_verbs. */
  galley_status (*ignore)(galley_graph*, const char* pattern, galley_error*);
} galley_load_verbs;
#define GALLEY_LOAD_VERBS_MIN_SIZE 40u

/* What saving at the end writes. */
#define GALLEY_EXPORT_OWN 0u   /* tensors with a file of their own (an adapter), without the model */
#define GALLEY_EXPORT_BOTH 1u  /* both */
#define GALLEY_EXPORT_MODEL 2u /* the model only: everything else has been merged into it */

/* What only exporting may do. */
typedef struct galley_export_verbs {
  uint32_t size;
  uint32_t revision;
  const galley_graph_verbs* graph;
  /* As in galley_model_verbs. */
  galley_status (*document)(galley_graph*, const char* file, const char* text, galley_error*);
  /* Saves `value` under the parameter's name instead of the parameter itself (merging). It has the parameter's shape, unless the parameter
   * is saved in a file of its own, of which only the strategy knows what it holds. */
  galley_status (*export_as)(galley_graph*, galley_tensor parameter, galley_tensor value, galley_error*);
  /* Saves the stored components of the parameter instead of its numbers, unless something has been merged into the model
   * (GALLEY_EXPORT_MODEL): a merged model is saved as numbers, without what export_tensor adds by a plain name, and without the keys of
   * config.json that the strategy's manifest lists. */
  galley_status (*export_stored)(galley_graph*, galley_tensor parameter, galley_error*);
  /* One of GALLEY_EXPORT_…; if never called, GALLEY_EXPORT_BOTH. Of what several strategies say, the highest holds. */
  galley_status (*export_model)(galley_graph*, uint32_t what, galley_error*);
  /* Sets a key of config.json; `json` is its value as JSON text. */
  galley_status (*config_set)(galley_graph*, const char* key, const char* json, galley_error*);
  /* Hands out component `index` of the format in which a parameter is stored, as a tensor that nodes can read. */
  galley_status (*component)(galley_graph*, galley_tensor parameter, uint32_t index, galley_tensor* out, galley_error*);
  /* Saves a tensor beside the model's, in their file, where the model is saved: what others need to read a format. It keeps its dtype. A
   * name "FILE:NAME", of a file into which parameters are saved ("model/model.safetensors:lm_head.weight"), puts it there where that file
   * is written, also of a merged model, and in the dtype of its numbers. */
  galley_status (*export_tensor)(galley_graph*, const char* name, galley_tensor value, galley_error*);
} galley_export_verbs;
#define GALLEY_EXPORT_VERBS_MIN_SIZE 72u

/* The parts of a run that a strategy may change, a function each; NULL: it leaves that part alone. Each is called once, in the order of the
 * phases. [plan-time] */
typedef struct galley_rewrite {
  uint32_t size;
  uint32_t revision;
  /* The forward graph, before anything is claimed. A run has one graph of the model today; one that has several, of different lengths,
   * calls this for each, and parameters and states of one name are then one tensor. */
  galley_status (*model)(void* instance, const galley_model_verbs*, galley_graph*, galley_error*);
  /* What runs once before the first micro-batch of a window. */
  galley_status (*window)(void* instance, const galley_graph_verbs*, galley_graph*, galley_error*);
  /* What runs when the run begins: what it is made from are files and first values. */
  galley_status (*load)(void* instance, const galley_load_verbs*, galley_graph*, galley_error*);
  /* What runs when the model is saved at the end; its inputs are parameters. */
  galley_status (*save)(void* instance, const galley_export_verbs*, galley_graph*, galley_error*);
  /* After `save`, where the user wants one model (`galley export --merge`): a strategy that has tensors of its own merges them into the
   * model's by export_as, and calls export_model(GALLEY_EXPORT_MODEL). */
  galley_status (*merge)(void* instance, const galley_export_verbs*, galley_graph*, galley_error*);
  uint64_t flags; /* none yet */
  uint32_t phase; /* GALLEY_PHASE_… */
  uint32_t reserved;
} galley_rewrite;
#define GALLEY_REWRITE_MIN_SIZE 64u

/* End of draft 0.4. */

#ifdef __cplusplus
}
#endif
#endif
