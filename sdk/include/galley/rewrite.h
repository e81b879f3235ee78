/* galley.rewrite/1: a strategy that changes the model's graph (LoRA puts B·A·x beside a linear node), or what is exported (merging). */
#ifndef GALLEY_REWRITE_H
#define GALLEY_REWRITE_H

#include "galley/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GALLEY_REWRITE "galley.rewrite/1"

#define GALLEY_SEGMENT_MODEL 1u  /* the forward graph, before anything is claimed */
#define GALLEY_SEGMENT_EXPORT 2u /* the graph that runs when the model is saved at the end; its inputs are parameters */

typedef struct galley_rewrite {
  uint32_t size;
  uint32_t revision;
  /* Called once for each segment, in the order of the recipe. [main-thread] [plan-time] */
  galley_status (*rewrite)(void* instance, const galley_graph_verbs*, galley_graph*, uint32_t segment, galley_error*);
} galley_rewrite;

/* End of the draft of 1.0. */

#ifdef __cplusplus
}
#endif
#endif
