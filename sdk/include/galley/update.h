/* galley.update/1: a strategy that appends nodes to the update graph. An update is a graph, not a callback:
 * what it keeps between steps are tensors of kind STATE, and what it computes are nodes. */
#ifndef GALLEY_UPDATE_H
#define GALLEY_UPDATE_H

#include "galley/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GALLEY_UPDATE "galley.update/1"

/* Stages of an update, one bit each. They run in the order of this list; numbers do not say the order. Within a stage, strategies are
 * called by their GALLEY_ORDER_…, then in the order of their names, and one that a recipe uses several times in that of its options. The
 * order in the recipe decides nothing. */
#define GALLEY_STAGE_CHECK 1u /* loss scaling: inspects the gradients and decides `apply` */
#define GALLEY_STAGE_CLIP 2u  /* writes the gradient factor */
#define GALLEY_STAGE_GRADIENT \
  4u /* changes gradients in place: noise, centralization. The optimizer multiplies gradients by the gradient factor later, so whatever
        this stage adds must be divided by it */
#define GALLEY_STAGE_STEP 8u   /* the optimizer: about the parameters whose UPDATE facet it won */
#define GALLEY_STAGE_AFTER 16u /* averages of weights (EMA) */

/* When a strategy is called within a stage, the lower number first: the numbers leave room. */
#define GALLEY_ORDER_FIRST 10u /* what others of the stage then read: it writes the norm that is checked */
#define GALLEY_ORDER_USUAL 20u
#define GALLEY_ORDER_LAST 30u /* reads what others of the stage have written */

/* What a call is for, of the purposes in graph.h.
 *   TRAIN   the nodes made run in every step, after the last micro-batch.
 *   EVAL    says by `eval_as` what validation, `galley eval`, sampling and export read in the place of parameters. A program that also
 *           trains makes these calls after all calls for TRAIN, and `tensor_make` then hands out a state of a name that the strategy made
 *           there; a program that only evaluates or exports makes no calls for TRAIN. The nodes made read parameters, states, constants
 *           and each other. They run in front of whatever reads them, each time that a batch is evaluated, and only those that an
 *           `eval_as` value is made from: others are dropped, as states are that nobody reads. Gradients are 0, and `report`, `stop_if`
 *           and `end_if` do nothing. */
/* What `build` is called for. Owned by the host, valid during the call. */
typedef struct galley_update_call {
  uint32_t size;
  uint32_t revision;
  uint32_t stage;   /* one of the strategy's: GALLEY_STAGE_… */
  uint32_t purpose; /* GALLEY_PURPOSE_TRAIN or GALLEY_PURPOSE_EVAL; a plugin ignores calls for another one */
  /* The parameters that the stage is about: in STEP those whose UPDATE facet this strategy won, else all that are trained. */
  const galley_tensor* parameters;
  /* Their gradients, in F32 (or in the claimed dtype), not yet multiplied by GALLEY_SCALAR_GRADIENT_FACTOR. */
  const galley_tensor* gradients;
  uint64_t n;     /* parameters; 0 only outside STEP, where nothing is trained */
  uint64_t flags; /* none yet */
} galley_update_call;
#define GALLEY_UPDATE_CALL_MIN_SIZE 40u

/* What only an update may do. `graph`: see graph.h. */
typedef struct galley_update_verbs {
  uint32_t size;
  uint32_t revision;
  const galley_graph_verbs* graph;
  /* Returns the option as `option` does, but one that is the learning rate of `parameter`, multiplied by all factors that `scale_rate` set
   * for it. */
  galley_status (*rate)(galley_graph*, const char* name, galley_tensor parameter, galley_tensor* out, galley_error*);
  /* As in galley_model_verbs (rewrite.h), until the parameter's optimizer asks for its rate. */
  galley_status (*scale_rate)(galley_graph*, galley_tensor parameter, double factor, galley_error*);
  /* Reports a metric of each step. `tensor` is F32 or F64 and has one element; its value after the update is reported. `name` is the key in
   * metrics.jsonl. */
  galley_status (*report)(galley_graph*, galley_tensor tensor, const char* name, galley_error*);
  /* With GALLEY_PURPOSE_EVAL (with GALLEY_PURPOSE_TRAIN it changes nothing). Validation, `galley eval`, sampling and export read `value`
   * instead of the parameter: a state, or the output of a node that was made for GALLEY_PURPOSE_EVAL, of the parameter's shape and dtype.
   * `export_as` goes before it. */
  galley_status (*eval_as)(galley_graph*, galley_tensor parameter, galley_tensor value, galley_error*);
  /* Ends the run after a step in which `flag`, an I32 tensor of one element, is not 0 after the update. The run's error says "step N: " and
   * `cause`, and then `hint`, which may be NULL. */
  galley_status (*stop_if)(galley_graph*, galley_tensor flag, const char* cause, const char* hint, galley_error*);
  /* Ends the run as done after a step in which `flag`, an I32 tensor of one element, is not 0 after the update: as after the last step of
   * the recipe it is validated, saved and exported, and the exit code is 0. `reason` is shown. Beside it steps do not overlap. `stop_if`
   * says that something has failed, this that nothing is left to do. */
  galley_status (*end_if)(galley_graph*, galley_tensor flag, const char* reason, galley_error*);
} galley_update_verbs;
#define GALLEY_UPDATE_VERBS_MIN_SIZE 64u

typedef struct galley_update {
  uint32_t size;
  uint32_t revision;
  uint32_t stages; /* those in which it builds: a sum of GALLEY_STAGE_…, not 0 */
  uint32_t order;  /* GALLEY_ORDER_…; 0: GALLEY_ORDER_USUAL */
  /* Called once for each of its stages and each purpose. In STEP it is not called if it won no parameter. [plan-time] */
  galley_status (*build)(void* instance, const galley_update_verbs*, galley_graph*, const galley_update_call*, galley_error*);
  uint64_t flags; /* none yet */
} galley_update;
#define GALLEY_UPDATE_MIN_SIZE 24u

/* End of draft 0.4. */

#ifdef __cplusplus
}
#endif
#endif
