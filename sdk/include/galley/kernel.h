/* galley.kernel/1: how a device does an op for given dtypes. Anyone may register kernels for anyone's op.
 *
 * A kernel never allocates and never waits: what it needs beyond its operands it declares in `query`, and `enqueue` only puts work on a queue. */
#ifndef GALLEY_KERNEL_H
#define GALLEY_KERNEL_H

#include "galley/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The machine that a plan is made for. */
typedef struct galley_target {
  uint32_t size;
  uint32_t revision;
  const char* device;       /* "cpu", "cuda" */
  const char* isa;          /* "x86-64-v4", "sm_90" */
  int64_t threads;          /* compute threads, or multiprocessors */
  int64_t workspace_budget; /* bytes that one kernel may ask for */
  double peak_flops;        /* of matrix products, F32 on a CPU */
  double bandwidth;         /* bytes a second, memory */
  double link_bandwidth;    /* bytes a second, between memory classes */
} galley_target;

typedef struct galley_kernel_plan {
  uint32_t size;
  uint32_t revision;
  int64_t workspace_bytes; /* lives during the node only */
  int64_t priority;        /* the highest of those that support a node is taken; ties go to the first by name */
} galley_kernel_plan;

/* Flags of a kernel. */
#define GALLEY_KERNEL_FORMATS 1ull /* reads galley_operand.format: it is offered operands whose storage is a format, as they are stored */

#define GALLEY_KERNEL_KNOWN 1ull /* all of them */

typedef struct galley_queue galley_queue; /* a device's own: a cudaStream_t, a list of jobs */

typedef struct galley_kernel {
  uint32_t size;
  uint32_t revision;
  const char* name; /* "linear.onednn" */
  const char* op;
  const char* device;
  /* GALLEY_UNSUPPORTED: not for these dtypes, shapes, this target. `nodes` are n nodes of the same op that one launch would serve. [plan-time] */
  galley_status (*query)(const galley_node_view* const* nodes, uint32_t n, const galley_target*, galley_kernel_plan* out, galley_error*);
  /* Addresses are final; the views stay valid until `release`. Builds primitives, loads modules. May allocate its own small objects. [main-thread] */
  galley_status (*prepare)(const galley_node_view* const* nodes, uint32_t n, const galley_target*, void* workspace, void** state,
                           galley_error*);
  /* [stream-ordered] [capture-safe] no allocation. */
  galley_status (*enqueue)(void* state, galley_queue*, galley_error*);
  void (*release)(void* state);
  uint64_t flags;
} galley_kernel;

/* End of the draft of 1.0. */

#ifdef __cplusplus
}
#endif
#endif
