/* galley.update/1: a strategy that appends nodes to the update graph. An update is graph, not a callback: what it keeps between steps are tensors of
 * kind STATE, what it computes are nodes. */
#ifndef GALLEY_UPDATE_H
#define GALLEY_UPDATE_H

#include "galley/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GALLEY_UPDATE "galley.update/1"

/* Stages run in this order. */
#define GALLEY_STAGE_CHECK 1u /* loss scaling: looks at the gradients, decides `apply` */
#define GALLEY_STAGE_CLIP 2u  /* writes the gradient factor */
#define GALLEY_STAGE_GRADIENT \
  3u /* changes gradients in place, for every trainable parameter: noise, centralization. What it adds is divided by the gradient factor,
        by which the optimizer multiplies */
#define GALLEY_STAGE_STEP 4u  /* the optimizer: for every parameter whose UPDATE facet it won */
#define GALLEY_STAGE_AFTER 5u /* EMA: for every trainable parameter */

typedef struct galley_update {
  uint32_t size;
  uint32_t revision;
  uint32_t stage;
  uint32_t reserved;
  /* CHECK and CLIP: once, parameter and gradient are 0. GRADIENT, STEP and AFTER: once for each parameter. `gradient` is the parameter's gradient in
   * F32 (or as claimed), not yet multiplied by GALLEY_SCALAR_GRADIENT_FACTOR. [main-thread] [plan-time] */
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
