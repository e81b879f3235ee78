/* galley.update/1: a strategy that appends nodes to the update graph. An update is a graph, not a callback:
 * what it keeps between steps are tensors of kind STATE, and what it computes are nodes. */
#ifndef GALLEY_UPDATE_H
#define GALLEY_UPDATE_H

#include "galley/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GALLEY_UPDATE "galley.update/1"

/* Stages run in this order. */
#define GALLEY_STAGE_CHECK 1u /* loss scaling: inspects the gradients and decides `apply` */
#define GALLEY_STAGE_CLIP 2u  /* writes the gradient factor */
#define GALLEY_STAGE_GRADIENT \
  3u /* changes gradients in place, for every trainable parameter: noise, centralization. The optimizer multiplies gradients by the
        gradient factor later, so whatever this stage adds must be divided by it */
#define GALLEY_STAGE_STEP 4u  /* the optimizer: for every parameter whose UPDATE facet it won */
#define GALLEY_STAGE_AFTER 5u /* EMA: for every trainable parameter */

typedef struct galley_update {
  uint32_t size;
  uint32_t revision;
  uint32_t stage;
  uint32_t reserved;
  /* For CHECK and CLIP, called once, with parameter and gradient 0. For GRADIENT, STEP and AFTER, called once per parameter. `gradient` is
   * the parameter's gradient in F32 (or in the claimed dtype), not yet multiplied by GALLEY_SCALAR_GRADIENT_FACTOR. [main-thread]
   * [plan-time] */
  galley_status (*build)(void* instance, const galley_graph_verbs*, galley_graph*, galley_tensor parameter, galley_tensor gradient,
                         galley_error*);
  uint64_t flags; /* none yet */
} galley_update;
#define GALLEY_UPDATE_MIN_SIZE 24u

/* End of draft 0.2. */

#ifdef __cplusplus
}
#endif
#endif
