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

typedef struct galley_rewrite {
  uint32_t size;
  uint32_t revision;
  /* Called once for each segment (GALLEY_SEGMENT_…), in the order of the phases. A plugin must ignore segments that it does not know. A run
   * has one graph of the model today; one that has several, of different lengths, calls this for each, and parameters and states of one
   * name are then one tensor. [plan-time] */
  galley_status (*rewrite)(void* instance, const galley_graph_verbs*, galley_graph*, uint32_t segment, galley_error*);
  uint64_t flags; /* none yet */
  uint32_t phase; /* GALLEY_PHASE_… */
  uint32_t reserved;
} galley_rewrite;
#define GALLEY_REWRITE_MIN_SIZE 16u

/* End of draft 0.3. */

#ifdef __cplusplus
}
#endif
#endif
