/* galley.kernel/1: how a device does an op for given dtypes. Anyone may register kernels for anyone's op; those of a plugin that the recipe does not
 * use are taken for ops of that plugin, and otherwise only when the recipe names the plugin in `kernels`.
 *
 * A kernel never allocates and never waits: what it needs besides its operands it declares in `query`, and `enqueue` only puts work on a queue.
 *
 * One launch may serve several nodes:
 *   group   nodes of one op that do not depend on each other (all parameters' steps): query, prepare and enqueue get n of them.
 *   chain   a kernel whose `op` is "add>rms_norm" does an add and the rms_norm that reads its output: it gets both nodes, in this order. An operand
 *           between them that nobody else reads has no memory: its `data` is NULL after planning too. A group of chains comes chain by chain, so
 *           that n is a multiple of the chain's length.
 * A kernel that does neither answers n != 1 with GALLEY_UNSUPPORTED. */
#ifndef GALLEY_KERNEL_H
#define GALLEY_KERNEL_H

#include "galley/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The matrix peak of one arithmetic: "f32", "tf32", "bf16", "f16", "i8", "f8". */
typedef struct galley_peak {
  uint32_t size;
  uint32_t revision;
  const char* name;
  double flops;   /* operations a second */
  uint64_t flags; /* none yet */
} galley_peak;
#define GALLEY_PEAK_MIN_SIZE 24u

/* A memory class of the target, in the device's order. */
typedef struct galley_target_memory {
  uint32_t size;
  uint32_t revision;
  const char* name;
  int64_t capacity;     /* bytes; 0: not known */
  double in_bandwidth;  /* bytes a second from here to class 0; of class 0: its own bandwidth */
  double out_bandwidth; /* bytes a second from class 0 to here */
  uint64_t flags;       /* none yet */
} galley_target_memory;
#define GALLEY_TARGET_MEMORY_MIN_SIZE 40u

/* A library that kernels may call: "cublaslt" "13.0.2". */
typedef struct galley_library {
  uint32_t size;
  uint32_t revision;
  const char* name;
  const char* version;
  uint64_t flags; /* none yet */
} galley_library;
#define GALLEY_LIBRARY_MIN_SIZE 24u

/* The machine that a plan is made for. */
typedef struct galley_target {
  uint32_t size;
  uint32_t revision;
  const char* device;       /* "cpu", "cuda" */
  const char* isa;          /* "x86-64-v4", "sm_90" */
  int64_t threads;          /* compute threads, or multiprocessors */
  int64_t workspace_budget; /* bytes that one kernel may ask for */
  const galley_peak* const* peaks;
  const galley_target_memory* const* memories;
  const galley_library* const* libraries;
  uint32_t n_peaks;
  uint32_t n_memories;
  uint32_t n_libraries;
  uint32_t reserved;
  uint64_t flags; /* none yet */
} galley_target;
#define GALLEY_TARGET_MIN_SIZE 80u

/* Flags of a plan. */
#define GALLEY_PLAN_NOT_CAPTURABLE 1ull /* `enqueue` makes calls that a captured run cannot hold */

#define GALLEY_PLAN_KNOWN 1ull /* all of them */

/* What a kernel answers in `query`. Comes in as zeros. */
typedef struct galley_kernel_plan {
  uint32_t size;
  uint32_t revision;
  int64_t workspace_bytes; /* >= 0; lives during the node only */
  int64_t priority;        /* the highest of those that support a node is taken; ties go to the first by name */
  int64_t constants_bytes; /* >= 0; lives for the whole run; `prepare` fills it */
  uint64_t flags;
} galley_kernel_plan;
#define GALLEY_KERNEL_PLAN_MIN_SIZE 24u

typedef struct galley_queue galley_queue; /* a device's own: a cudaStream_t, a list of jobs */

/* What `prepare` is given. Valid for the call; what it points to, until `release`. */
typedef struct galley_kernel_setup {
  uint32_t size;
  uint32_t revision;
  const galley_target* target;
  void* workspace; /* NULL where `query` asked for none, as `constants` is */
  int64_t workspace_bytes;
  void* constants;
  int64_t constants_bytes;
  void* device;        /* the device's handle, as its `open` returned it */
  galley_queue* queue; /* to fill the constants with; NULL where the device has no queues of its own */
} galley_kernel_setup;
#define GALLEY_KERNEL_SETUP_MIN_SIZE 48u

/* Flags of a kernel. */
#define GALLEY_KERNEL_FORMATS 1ull /* reads galley_operand.format: it is offered operands whose storage is a format, as they are stored */

#define GALLEY_KERNEL_KNOWN 1ull /* all of them */

typedef struct galley_kernel {
  uint32_t size;
  uint32_t revision;
  const char* name; /* "linear.onednn" */
  const char* op;   /* or a chain: "add>rms_norm" */
  const char* device;
  /* GALLEY_UNSUPPORTED: not for these dtypes, shapes, this target. [thread-safe] [plan-time] */
  galley_status (*query)(const galley_node_view* const* nodes, uint32_t n, const galley_target*, galley_kernel_plan* out, galley_error*);
  /* Addresses are final; the views stay valid until `release`. Builds primitives, loads modules, fills the constants. May allocate its own small
   * objects. [main-thread] */
  galley_status (*prepare)(const galley_node_view* const* nodes, uint32_t n, const galley_kernel_setup*, void** state, galley_error*);
  /* Allocates nothing. Called by the device's `launch`, possibly from a thread of the device. [stream-ordered] [capture-safe] unless its plan says
   * GALLEY_PLAN_NOT_CAPTURABLE */
  galley_status (*enqueue)(void* state, galley_queue*, galley_error*);
  /* [main-thread] */
  void (*release)(void* state);
  uint64_t flags;
} galley_kernel;
#define GALLEY_KERNEL_MIN_SIZE 64u

/* End of draft 0.2. */

#ifdef __cplusplus
}
#endif
#endif
