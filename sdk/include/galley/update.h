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
#define GALLEY_STAGE_STEP 3u  /* the optimizer: for every parameter whose UPDATE facet it won */
#define GALLEY_STAGE_AFTER 4u /* EMA: for every trainable parameter */

typedef struct galley_update {
  uint32_t size;
  uint32_t revision;
  uint32_t stage;
  uint32_t reserved;
  /* CHECK and CLIP: once, parameter and gradient 0. STEP and AFTER: once a parameter; `gradient` is its F32 (or claimed) gradient, not yet
   * multiplied by GALLEY_SCALAR_GRADIENT_FACTOR. [main-thread] [plan-time] */
  galley_status (*build)(void* instance, const galley_graph_verbs*, galley_graph*, galley_tensor parameter, galley_tensor gradient,
                         galley_error*);
} galley_update;

/* End of the draft of 1.0. */

#ifdef __cplusplus
}
#endif
#endif
