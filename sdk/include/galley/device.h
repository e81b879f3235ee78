/* galley.device/1: memory classes, queues and events of a machine. */
#ifndef GALLEY_DEVICE_H
#define GALLEY_DEVICE_H

#include "galley/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A kind of memory. Class 0 is where kernels compute; the host may be unable to touch it. */
typedef struct galley_memory_class {
  uint32_t size;
  uint32_t revision;
  const char* name;     /* "host", "device", "pinned" */
  int64_t alignment;    /* of each tensor's first byte, a power of two. A range of rows begins wherever its first row does */
  uint32_t host_access; /* 1: the CPU may read and write it directly */
  uint32_t computes;    /* 1: kernels may have operands here */
  uint64_t flags;       /* none yet */
} galley_memory_class;
#define GALLEY_MEMORY_CLASS_MIN_SIZE 32u

/* Roles of a queue. */
#define GALLEY_QUEUE_COMPUTE 1u /* launches and copies */
#define GALLEY_QUEUE_IN 2u      /* copies towards class 0 */
#define GALLEY_QUEUE_OUT 3u     /* copies away from class 0 */

/* A queue: work on it runs in order. Queue 0 computes. */
typedef struct galley_queue_info {
  uint32_t size;
  uint32_t revision;
  uint32_t role;
  uint32_t reserved;
  uint64_t flags; /* none yet */
} galley_queue_info;
#define GALLEY_QUEUE_INFO_MIN_SIZE 16u

/* The side of a copy that is no memory class: ordinary memory of this process, at to_address or from_address. */
#define GALLEY_MEMORY_PROCESS 0xFFFFFFFFu

/* Bytes from one place to another. A side names a memory class and an offset in the allocation that it got (a file has no addresses), or
 * GALLEY_MEMORY_PROCESS and an address, whose bytes stay as they are until the copy is over. */
typedef struct galley_copy {
  uint32_t size;
  uint32_t revision;
  uint32_t to_memory;
  uint32_t from_memory;
  int64_t to_offset;
  int64_t from_offset;
  int64_t bytes;
  void* to_address;
  const void* from_address;
  uint64_t flags; /* none yet */
} galley_copy;
#define GALLEY_COPY_MIN_SIZE 56u

/* What `open` is told of the run. */
typedef struct galley_device_options {
  uint32_t size;
  uint32_t revision;
  const galley_target* target;
  uint32_t n_events; /* `record`, `wait` and `await` name events 1 … n_events */
  uint32_t reserved;
  uint64_t flags; /* none yet */
} galley_device_options;
#define GALLEY_DEVICE_OPTIONS_MIN_SIZE 24u

/* A run of launches and copies that was captured; a device's own. */
typedef struct galley_run galley_run;

/* One thread at a time calls the functions that take a `device`; all of them are [main-thread] unless they say otherwise. */
typedef struct galley_device {
  uint32_t size;
  uint32_t revision;
  const char* kind; /* "cpu": what --device and kernels name */
  const galley_memory_class* const* memories;
  const galley_queue_info* const* queues;
  uint32_t n_memories;
  uint32_t n_queues;
  /* This machine as a target. `out` comes in filled with defaults; what it points to lives as long as the library. Opens nothing.
   * [main-thread] [plan-time] */
  galley_status (*describe)(galley_target* out, galley_error*);
  galley_status (*open)(const galley_device_options*, void** device, galley_error*);
  void (*close)(void* device);
  /* The one allocation that a class gets. `out` may be an address that the host cannot use. Its pages need not have been touched. */
  galley_status (*allocate)(void* device, uint32_t memory, int64_t bytes, void** out, galley_error*);
  void (*release)(void* device, uint32_t memory, void* data, int64_t bytes);
  /* `state` is the kernel's, prepared. [stream-ordered] [capture-safe] */
  galley_status (*launch)(void* device, uint32_t queue, const galley_kernel* kernel, void* state, galley_error*);
  /* [stream-ordered] [capture-safe] */
  galley_status (*copy)(void* device, uint32_t queue, const galley_copy*, galley_error*);
  /* `record` puts an event behind all work on its queue so far. After `wait`, later work on that queue runs after the event as it was last
   * recorded. [stream-ordered] [capture-safe] */
  galley_status (*record)(void* device, uint32_t queue, uint32_t event, galley_error*);
  galley_status (*wait)(void* device, uint32_t queue, uint32_t event, galley_error*);
  /* The host waits: `await` for an event as it was last recorded, `synchronize` until all queues are empty. An error of earlier work comes out
   * here at the latest. */
  galley_status (*await)(void* device, uint32_t event, galley_error*);
  galley_status (*synchronize)(void* device, galley_error*);
  /* Capture, all four or none (NULL). Between `capture` and `end_capture` work on the queues is remembered instead of run; `replay` enqueues
   * it on queue 0 as often as wanted, with the same operands; `discard` forgets it. */
  galley_status (*capture)(void* device, galley_error*);
  galley_status (*end_capture)(void* device, galley_run** out, galley_error*);
  galley_status (*replay)(void* device, galley_run*, galley_error*);
  void (*discard)(void* device, galley_run*);
  uint64_t flags; /* none yet */
} galley_device;
#define GALLEY_DEVICE_MIN_SIZE 128u /* up to `synchronize` */

/* End of draft 0.2. */

#ifdef __cplusplus
}
#endif
#endif
