/* galley.claim/1: a strategy that decides properties ("facets") of tensors, nodes or the run.
 *
 * The host asks facet by facet, in the order of the list below, which the numbers do not say; a claim can depend on earlier facets only.
 * For each facet it calls every strategy once, with all subjects that have been made and not been asked about, and then judges: so the
 * order of strategies in the recipe does not matter. A strong claim beats a weak one. Equal values agree. Unequal values of equal strength
 * are an error that names both strategies, both lines of the recipe and the subject. */
#ifndef GALLEY_CLAIM_H
#define GALLEY_CLAIM_H

#include "galley/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GALLEY_CLAIM "galley.claim/1"

/* Facets, in the order in which they are asked. The value is `text`, `number`, or both. If a host cannot do what is claimed, its error
 * names it.
 *   facet              subjects                     value
 *   TRAINABLE          parameter                    number: 0 (frozen), 1, or GALLEY_TRAINABLE_WRITTEN
 *   STORAGE            parameter, state             text: a format's name ("bf16"), attrs: its options. Default: the tensor's own dtype
 *   COMPUTE            node                         text: "f32" (default), "tf32", "bf16", "f16"; see "Dtypes" in op.h. attrs: none yet;
 *                                                   they are for formats, which a later host may compute in. number: how weights that
 *                                                   are trained get there, GALLEY_WEIGHTS_…
 *   GRADIENT_DTYPE     gradient                     text: "f32" (default), "bf16", "f16"
 *   GRADIENT_LIFETIME  gradient                     number: GALLEY_GRADIENT_…
 *   UPDATE             parameter                    text: a label for tables of the plan ("adamw"), which decides nothing: the claimant
 *                                                   updates the parameter, with nodes that it builds in GALLEY_STAGE_STEP. Two claims of
 *                                                   equal strength never agree
 *   PLACEMENT          parameter, gradient, state   text: a memory class of the device; number, of a parameter: GALLEY_PLACEMENT_…
 *   SHARD              parameter, gradient, state   number: GALLEY_SHARD_…; text: the axis (galley_axis) along which it is cut; NULL: "data"
 *   WINDOW             run                          number: micro-batches per window; with text "tokens": tokens per window that count
 *                                                   in the loss; the host takes as many micro-batches as come closest
 * Gradients exist only after the backward graph has been built, states and the update's nodes after the update graph: the host asks about
 * them then, in the same order, by calls of their own. */
#define GALLEY_FACET_TRAINABLE 10u
#define GALLEY_FACET_STORAGE 20u
#define GALLEY_FACET_COMPUTE 30u
#define GALLEY_FACET_GRADIENT_DTYPE 40u
#define GALLEY_FACET_GRADIENT_LIFETIME 50u
#define GALLEY_FACET_UPDATE 60u
#define GALLEY_FACET_PLACEMENT 70u
#define GALLEY_FACET_SHARD 80u
#define GALLEY_FACET_WINDOW 90u

/* The parameter has no gradient and no optimizer, but nodes of an update may write it (merging an adapter into it every n steps). */
#define GALLEY_TRAINABLE_WRITTEN 2

/* COMPUTE is asked about nodes of the window part and of the update too, and mixed precision claims 16 bit for the products among them as
 * for any other: an optimizer whose products (Muon's Newton–Schulz iteration) need more, or whose operands may not fit F16, as gradients
 * that a loss scale has multiplied, claims COMPUTE of its own nodes strongly. */

/* How a node that computes in 16 bit reads an F32 parameter that is trained. A frozen one whose readers all compute in 16 bit is stored so,
 * and nothing else is kept of it. */
#define GALLEY_WEIGHTS_DERIVED 0     /* a copy in 16 bit lives beside the parameter; the host makes it again after each update */
#define GALLEY_WEIGHTS_CAST_ON_USE 1 /* no copy: the parameter is cast before each node that reads it */

/* How long a gradient lives. */
#define GALLEY_GRADIENT_WINDOW 0 /* until the end of the window: its update comes after all micro-batches */
#define GALLEY_GRADIENT_IMMEDIATE \
  1 /* until its last contribution: the host moves its update into backward, or names the node that crosses parameters in an error */

/* Which parameters lie in the class that PLACEMENT names. */
#define GALLEY_PLACEMENT_ALWAYS 0
#define GALLEY_PLACEMENT_MASTER \
  1 /* only where nodes of the model read a copy in 16 bit (GALLEY_WEIGHTS_DERIVED) and nothing else: others stay where kernels compute. \
       It is an error if none does */

/* Which part of a tensor each rank of an axis keeps. Whoever reads the tensor gets all of it, and whoever updates it this rank's part, so
 * that strategies need not know. With one rank the part is the whole tensor. */
#define GALLEY_SHARD_NO 0     /* all of it */
#define GALLEY_SHARD_YES 1    /* a part, by rows or by the grain of its update (op.h) */
#define GALLEY_SHARD_MASTER 2 /* of a parameter of which the model reads a copy in 16 bit: the copy is whole, the parameter cut */

#define GALLEY_SUBJECT_PARAMETER 1u
#define GALLEY_SUBJECT_GRADIENT 2u
#define GALLEY_SUBJECT_STATE 3u
#define GALLEY_SUBJECT_NODE 4u
#define GALLEY_SUBJECT_RUN 5u

#define GALLEY_WEAK 1u
#define GALLEY_STRONG 2u

/* A tensor, a node or the run. */
typedef struct galley_subject {
  uint32_t size;
  uint32_t revision;
  uint32_t kind;
  uint32_t reserved;
  const char* name;
  const char* owner;       /* the strategy that made it; "" if it is the model's own */
  galley_tensor tensor;    /* 0 for nodes and the run */
  galley_tensor parameter; /* the parameter itself, or the one that a gradient or state belongs to; 0 for nodes and the run */
  galley_node node;
  uint64_t trainable;    /* of the parameter, once TRAINABLE is decided: 1 if it has a gradient */
  uint64_t tensor_flags; /* GALLEY_TENSOR_… of the tensor */
  uint64_t op_flags;     /* GALLEY_OP_… of the node's op */
} galley_subject;
#define GALLEY_SUBJECT_MIN_SIZE 64u

/* What a strategy claims. The host copies what it points to. */
typedef struct galley_claim_value {
  uint32_t size;
  uint32_t revision;
  uint32_t strength; /* GALLEY_WEAK or GALLEY_STRONG */
  uint32_t n_attrs;
  int64_t number;
  const char* text;                /* NULL: none */
  const galley_attr* const* attrs; /* options of what `text` names */
} galley_claim_value;
#define GALLEY_CLAIM_VALUE_MIN_SIZE 32u

/* What a call asks about. Owned by the host, valid during the call. */
typedef struct galley_claim_call {
  uint32_t size;
  uint32_t revision;
  uint32_t facet;
  uint32_t reserved;
  const galley_subject* const* subjects;
  uint64_t n_subjects;
  void* context; /* the host's: the first argument of `claim` */
  /* Claims the facet of one of the subjects, counted from 0. Whom a strategy does not claim, it leaves to others; claiming one twice is an
   * error. */
  galley_status (*claim)(void* context, uint64_t subject, const galley_claim_value*, galley_error*);
  uint64_t flags; /* none yet */
} galley_claim_call;
#define GALLEY_CLAIM_CALL_MIN_SIZE 48u

typedef struct galley_claim {
  uint32_t size;
  uint32_t revision;
  /* The graph can be read but not changed. A plugin leaves facets alone that it does not know. [plan-time] */
  galley_status (*claim)(void* instance, const galley_graph_reader*, galley_graph*, const galley_claim_call*, galley_error*);
  uint64_t flags; /* none yet */
} galley_claim;
#define GALLEY_CLAIM_MIN_SIZE 16u

/* End of draft 0.4. */

#ifdef __cplusplus
}
#endif
#endif
