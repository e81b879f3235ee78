/* galley.claim/1: a strategy that decides one property of a tensor, a node or the run.
 *
 * The host asks every strategy once for every subject as it comes to exist, facet by facet in the order below; each facet sees only earlier ones. Strong beats
 * weak; equal values agree; unequal values of equal strength are an error that names both strategies, both lines and the subject. */
#ifndef GALLEY_CLAIM_H
#define GALLEY_CLAIM_H

#include "galley/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GALLEY_CLAIM "galley.claim/1"

/* Facets. The value is `text`, `number`, or both. What a host cannot do yet it refuses by name, and never passes over:
 *   TRAINABLE  parameter            number 0 or 1
 *   STORAGE    parameter, master, state  text: a format's name ("bf16"), attrs: its options; default: the tensor's own dtype
 *   COMPUTE    node                 text: dtype of its products ("bf16")
 *   GRADIENT   gradient: text: dtype ("f32"), number: GALLEY_GRADIENT_…; run: number: micro-batches in a window,
 *                                   or, with the text "tokens", the tokens that count which a window is to come closest to
 *   UPDATE     parameter            text: the name of the strategy that updates it (the claimant's own)
 *   PLACEMENT  parameter, master, gradient, state  text: a memory class of the device
 *   SHARD      parameter, gradient, state  number: parts */
#define GALLEY_FACET_TRAINABLE 1u
#define GALLEY_FACET_STORAGE 2u
#define GALLEY_FACET_COMPUTE 3u
#define GALLEY_FACET_GRADIENT 4u
#define GALLEY_FACET_UPDATE 5u
#define GALLEY_FACET_PLACEMENT 6u
#define GALLEY_FACET_SHARD 7u

/* How long a gradient lives. */
#define GALLEY_GRADIENT_WINDOW 0 /* until the window's end: its update comes after all micro-batches */
#define GALLEY_GRADIENT_IMMEDIATE \
  1 /* until its last contribution: the host moves its update into backward, or refuses by name what crosses parameters */

#define GALLEY_SUBJECT_PARAMETER 1u
#define GALLEY_SUBJECT_MASTER 2u
#define GALLEY_SUBJECT_GRADIENT 3u
#define GALLEY_SUBJECT_STATE 4u
#define GALLEY_SUBJECT_NODE 5u
#define GALLEY_SUBJECT_RUN 6u

#define GALLEY_ABSTAIN 0u
#define GALLEY_WEAK 1u
#define GALLEY_STRONG 2u

/* Who is asked about. For a gradient and a state `parameter` is the one they belong to. */
typedef struct galley_subject {
  uint32_t size;
  uint32_t revision;
  uint32_t kind;
  uint32_t facet;
  const char* name;
  const char* owner;    /* the strategy that made it; "" for the model's own */
  galley_tensor tensor; /* 0 for nodes and the run */
  galley_tensor parameter;
  galley_node node;
  uint64_t trainable; /* of the parameter, once TRAINABLE is decided */
} galley_subject;

typedef struct galley_claim_value {
  uint32_t size;
  uint32_t revision;
  uint32_t strength;
  uint32_t n_attrs;
  int64_t number;
  const char* text;                /* lives as long as the instance; NULL: none */
  const galley_attr* const* attrs; /* options of what `text` names; likewise */
} galley_claim_value;

typedef struct galley_claim {
  uint32_t size;
  uint32_t revision;
  /* `out` comes in as "abstain". [main-thread] [plan-time] */
  galley_status (*claim)(void* instance, const galley_graph_verbs*, galley_graph*, const galley_subject*, galley_claim_value* out,
                         galley_error*);
} galley_claim;

/* End of the draft of 1.0. */

#ifdef __cplusplus
}
#endif
#endif
