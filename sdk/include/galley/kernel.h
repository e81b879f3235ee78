/* galley.kernel/1: how a device computes an op for given dtypes. A plugin may register kernels for any op. If the recipe does not use the
 * plugin, its kernels are chosen for the plugin's own ops only, unless the recipe names the plugin in `kernels`.
 *
 * A kernel never allocates and never waits. It declares in `query` what it needs besides its operands; `enqueue` only puts work on a queue.
 * On a device without queues it does the work: there is none of it that goes on after `enqueue` has come back.
 *
 * A kernel whose plan lacks GALLEY_PLAN_VARIES leaves the same bytes for the same operands: in another run, at other addresses, with other
 * threads, in any order of blocks.
 *
 * One launch may serve several nodes:
 *   group   n nodes of one op that do not depend on each other (the steps of all parameters). query and prepare get all of them. Only
 *           kernels with GALLEY_KERNEL_GROUPS are offered groups; they also take a single node.
 *   chain   a kernel whose `op` is "add>rms_norm" computes an add and the rms_norm that reads its output. It gets both nodes, in this
 *           order. An operand between them that no other node reads has no memory: its `data` is NULL, also after planning, and it has the
 *           flag GALLEY_OPERAND_NO_MEMORY. What lies between
 *           has the same name in both nodes: a kernel has to check which operand that is. An output may lie where an input lies if the
 *           rules of the ops say so from link to link. A group of chains is passed chain by chain, so n is a multiple of the chain's
 *           length.
 * Several nodes are one launch only if the kernel that takes them together has at least the priority of each kernel that its nodes have
 * alone: of equal ones, the launch of several is chosen.
 * A kernel returns GALLEY_UNSUPPORTED for nodes that it does not take together: it is then offered each half of them, and so on. Nodes
 * that read the same operand by rows are offered together before others join them. In `query`, operands of several nodes have the same
 * name where they are the same bytes, and only there; in `prepare`, `data` says which are the same. */
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
  double flops;   /* operations per second */
  uint64_t flags; /* none yet */
} galley_peak;
#define GALLEY_PEAK_MIN_SIZE 32u

/* A memory class of the target, in the device's order. */
typedef struct galley_target_memory {
  uint32_t size;
  uint32_t revision;
  const char* name;
  int64_t capacity;     /* bytes; 0: not known */
  double in_bandwidth;  /* bytes per second from here to class 0; for class 0, its own bandwidth */
  double out_bandwidth; /* bytes per second from class 0 to here */
  uint64_t flags;       /* none yet */
} galley_target_memory;
#define GALLEY_TARGET_MEMORY_MIN_SIZE 48u

/* A library that kernels may call, with its version: "cublaslt" "13.0.2". */
typedef struct galley_library {
  uint32_t size;
  uint32_t revision;
  const char* name;
  const char* version;
  uint64_t flags; /* none yet */
} galley_library;
#define GALLEY_LIBRARY_MIN_SIZE 32u

/* What connects the processes of a run. */
typedef struct galley_link {
  uint32_t size;
  uint32_t revision;
  const char* name; /* "nvlink", "network" */
  int64_t ranks;    /* how many processes it connects; 0: all */
  double bandwidth; /* bytes per second that one of them sends while it receives as many */
  double latency;   /* seconds of an exchange of no bytes */
  uint64_t flags;   /* none yet */
} galley_link;
#define GALLEY_LINK_MIN_SIZE 48u

/* Flags of a target. */
#define GALLEY_TARGET_MAY_VARY 1ull /* kernels may have other bytes in another run: the recipe says deterministic = false */

#define GALLEY_TARGET_KNOWN 1ull /* all of them */

/* The machine for which a plan is made. */
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
  uint32_t n_links;
  uint64_t flags;
  const galley_link* const* links; /* the nearest first; none: one process */
} galley_target;
#define GALLEY_TARGET_MIN_SIZE 96u

/* Whether all of a target is understood: galley_understood. */
static inline int galley_target_understood(const galley_target* t) {
  if (!galley_understood(t, t->flags, GALLEY_TARGET_KNOWN)) return 0;
  for (uint32_t i = 0; i < t->n_peaks; ++i)
    if (!galley_understood(t->peaks[i], t->peaks[i]->flags, 0)) return 0;
  for (uint32_t i = 0; i < t->n_memories; ++i)
    if (!galley_understood(t->memories[i], t->memories[i]->flags, 0)) return 0;
  for (uint32_t i = 0; i < t->n_libraries; ++i)
    if (!galley_understood(t->libraries[i], t->libraries[i]->flags, 0)) return 0;
  for (uint32_t i = 0; i < t->n_links; ++i)
    if (!galley_understood(t->links[i], t->links[i]->flags, 0)) return 0;
  return 1;
}

/* Flags of a plan. */
#define GALLEY_PLAN_NOT_CAPTURABLE 1ull /* `enqueue` makes calls that cannot be captured */
#define GALLEY_PLAN_VARIES 2ull         /* other bytes in another run; taken for targets with GALLEY_TARGET_MAY_VARY only */

#define GALLEY_PLAN_KNOWN 3ull /* all of them */

/* What a kernel returns from `query`. On entry, all fields are 0. */
typedef struct galley_kernel_plan {
  uint32_t size;
  uint32_t revision;
  int64_t workspace_bytes; /* >= 0; available only while the node runs */
  /* Of the kernels that support a node, or the same nodes together, the one with the highest priority is chosen; of equal ones, the first
   * by name. A launch of several nodes does not replace a kernel of one of them that has a higher priority. */
  int64_t priority;
  int64_t constants_bytes; /* >= 0; available for the whole run; `prepare` fills them */
  uint64_t flags;
} galley_kernel_plan;
#define GALLEY_KERNEL_PLAN_MIN_SIZE 24u

typedef struct galley_queue galley_queue; /* a device's own: a cudaStream_t, a list of jobs */

/* Choices between ways to do the same that a kernel has measured: texts of its own under keys of its own, which name the kernel and all
 * that the choice depends on, but not the machine and its libraries. The host keeps them for later runs on such a machine, and with the
 * run, so that it is resumed with the same ones. */
typedef struct galley_choices {
  uint32_t size;
  uint32_t revision;
  void* self;
  const char* (*find)(void* self, const char* key); /* NULL: there is none; valid until the next call */
  void (*keep)(void* self, const char* key, const char* choice);
} galley_choices;
#define GALLEY_CHOICES_MIN_SIZE 32u

/* What `prepare` is given. Valid during the call; what it points to is valid until `release`. */
typedef struct galley_kernel_setup {
  uint32_t size;
  uint32_t revision;
  const galley_target* target;
  void* workspace; /* NULL if `query` asked for none; so is `constants` */
  int64_t workspace_bytes;
  void* constants;
  int64_t constants_bytes;
  galley_queue* queue; /* for filling the constants; NULL if the device has no queues of its own */
  /* NULL unless the recipe says tune = true. Then a kernel may measure: until `prepare` returns, its operands hold nothing yet. */
  const galley_choices* choices;
  void* ranks; /* what galley_ranks.open has made (ranks.h), for kernels of exchanges; NULL: the run has one process */
} galley_kernel_setup;
#define GALLEY_KERNEL_SETUP_MIN_SIZE 48u

/* What a kernel knows of an op: of each input and output up to these numbers, and of these attributes, what they mean. The host offers it
 * no node that has more: an input or an output after them, or another attribute, but one that is what its rule says for a node without it,
 * or that a rule with GALLEY_ATTR_ADVICE declares, or whose meaning is the host's ("dtype", "stream", "seed", "axis"). So an op may grow without kernels that
 * would compute something else. */
typedef struct galley_known_op {
  uint32_t size;
  uint32_t revision;
  const char* op; /* a link of the kernel's `op` */
  const char* const* attrs;
  uint32_t n_attrs;
  uint32_t n_inputs;
  uint32_t n_outputs;
  uint32_t reserved;
  uint64_t flags; /* none yet */
} galley_known_op;
#define GALLEY_KNOWN_OP_MIN_SIZE 48u

/* Flags of a kernel. */
#define GALLEY_KERNEL_FORMATS 1ull /* reads galley_operand.format: operands in a format are passed as they are stored */

#define GALLEY_KERNEL_KNOWN 1ull /* all of them */

#define GALLEY_KERNEL_GROUPS (1ull << 32) /* a hint: takes groups of nodes, or of chains */

typedef struct galley_kernel {
  uint32_t size;
  uint32_t revision;
  void* self;       /* the plugin's own */
  const char* name; /* "linear.onednn" */
  const char* op;   /* or a chain: "add>rms_norm" */
  const char* device;
  /* Returns GALLEY_UNSUPPORTED if it does not support these dtypes or shapes or this target. A plan asks hundreds of times.
   * [thread-safe] [plan-time] */
  galley_status (*query)(void* self, const galley_node_view* const* nodes, uint32_t n, const galley_target*, galley_kernel_plan* out,
                         galley_error*);
  /* A node that writes in the first micro-batch of a window and adds in later ones is prepared twice, with the same workspace and
   * constants. Builds primitives, loads modules, fills the constants. Addresses are final; the views stay valid until `release`. May
   * allocate small objects of its own. [session-thread] */
  galley_status (*prepare)(void* self, const galley_node_view* const* nodes, uint32_t n, const galley_kernel_setup*, void** state,
                           galley_error*);
  /* Enqueues the work. Allocates nothing. Called by the device's `launch`, possibly on a thread of the device. [stream-ordered]
   * [capture-safe], unless its plan has GALLEY_PLAN_NOT_CAPTURABLE */
  galley_status (*enqueue)(void* state, galley_queue*, galley_error*);
  /* Frees `state`. [session-thread] */
  void (*release)(void* state);
  uint64_t flags;
  /* What it knows of each op that it computes and that is not its own plugin's: without it, it is refused. Its own plugin's ops it knows,
   * as it is built with them. The C++ wrapper fills this in for the ops that come with Galley (galley/cpp/known.hpp). */
  const galley_known_op* const* knows;
  uint32_t n_knows;
  uint32_t reserved;
} galley_kernel;
#define GALLEY_KERNEL_MIN_SIZE 72u /* up to `release` */

/* End of draft 0.4. */

#ifdef __cplusplus
}
#endif
#endif
