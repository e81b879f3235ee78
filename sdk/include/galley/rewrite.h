/* galley.rewrite/1: a strategy that changes the model's graph (LoRA adds B·A·x to the output of a linear node) or what is exported
 * (merging). */
#ifndef GALLEY_REWRITE_H
#define GALLEY_REWRITE_H

#include "galley/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GALLEY_REWRITE "galley.rewrite/1"

typedef struct galley_rewrite {
  uint32_t size;
  uint32_t revision;
  /* Called once for each segment (GALLEY_SEGMENT_…); strategies are called in the order of the recipe. A plugin must ignore segments that
   * it does not know. [plan-time] */
  galley_status (*rewrite)(void* instance, const galley_graph_verbs*, galley_graph*, uint32_t segment, galley_error*);
  uint64_t flags; /* none yet */
} galley_rewrite;
#define GALLEY_REWRITE_MIN_SIZE 16u

/* End of draft 0.3. */

#ifdef __cplusplus
}
#endif
#endif
