/* galley.ranks/1: how the processes (ranks) of a run find each other and tell when one is gone. A plugin has at most one, which
 * galley_entry.get hands out and [provides] of its manifest names: ranks = ["mpi"]. Its kernels of ops with GALLEY_OP_EXCHANGE move the data;
 * they find in galley_kernel_setup.ranks what `open` has made.
 *
 * The host opens it where a launcher has started several processes, before it opens a device: `device` is NULL then, and there are no
 * arenas. `galley check` opens it for one rank. */
#ifndef GALLEY_RANKS_H
#define GALLEY_RANKS_H

#include "galley/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GALLEY_RANKS "galley.ranks/1"

/* What `open` is told. Valid during the call, but for arenas, which live until `close`. */
typedef struct galley_ranks_options {
  uint32_t size;
  uint32_t revision;
  const galley_target* target;
  int64_t rank;       /* as the launcher said it, from 0 */
  int64_t ranks;      /* of the run, at least 1 */
  int64_t local_rank; /* among those on this machine */
  int64_t local_ranks;
  const char* job;     /* one text for all processes of this start, and no other start's */
  const char* meeting; /* a folder that all ranks see, for finding each other; the host removes it. NULL: there is one rank */
  void* device;        /* as galley_device.open returned it; NULL: there is none */
  void* const* arenas; /* the allocations of the device's memory classes, for registration; an entry is NULL where there is none */
  const int64_t* arena_bytes;
  const galley_axis* const* axes;
  uint32_t n_arenas;
  uint32_t n_axes;
  uint64_t flags; /* none yet */
} galley_ranks_options;
#define GALLEY_RANKS_OPTIONS_MIN_SIZE 112u

typedef struct galley_ranks {
  uint32_t size;
  uint32_t revision;
  void* self;         /* the plugin's own */
  const char* name;   /* as in the manifest: "mpi", "nccl" */
  const char* device; /* the kind of device that its kernels of exchanges are for */
  /* Returns when all ranks have called it. INVALID, with both numbers, if its own count of ranks is another. [session-thread] */
  galley_status (*open)(void* self, const galley_ranks_options*, void** handle, galley_error*);
  /* Gives `mine` to all ranks: all[r * bytes] … is what rank r gave. Blocks; nothing is on the device's queues meanwhile. `bytes` is the
   * same on all ranks. [session-thread] */
  galley_status (*exchange)(void* handle, const void* mine, int64_t bytes, void* all, galley_error*);
  /* GALLEY_LOST once a rank is known to be gone, and its number, or -1, in `culprit`. Does not block. [thread-safe] */
  galley_status (*check)(void* handle, int64_t* culprit, galley_error*);
  /* Ends all waiting for other ranks, on the queues of this process too. [thread-safe] */
  void (*abort)(void* handle);
  /* All ranks call it, but after `abort`. [session-thread] */
  void (*close)(void* handle);
  uint64_t flags; /* none yet */
} galley_ranks;
#define GALLEY_RANKS_MIN_SIZE 80u

/* End of draft 0.4. */

#ifdef __cplusplus
}
#endif
#endif
