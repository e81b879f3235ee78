/* galley.device/1: a device with its memory classes, queues and events. */
#ifndef GALLEY_DEVICE_H
#define GALLEY_DEVICE_H

#include "galley/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of a memory class. */
#define GALLEY_MEMORY_HOST_ACCESS 1ull /* the CPU may read and write it directly */
#define GALLEY_MEMORY_COMPUTES 2ull    /* kernels may have operands here */

#define GALLEY_MEMORY_KNOWN 3ull /* all of them */

/* A kind of memory. Class 0 is where kernels compute; the host may be unable to touch it. */
typedef struct galley_memory_class {
  uint32_t size;
  uint32_t revision;
  const char* name;  /* "host", "device", "pinned" */
  int64_t alignment; /* of each tensor's first byte, a power of two; a range of rows need not be aligned */
  uint64_t flags;    /* GALLEY_MEMORY_… */
} galley_memory_class;
#define GALLEY_MEMORY_CLASS_MIN_SIZE 32u

/* Roles of a queue. */
#define GALLEY_QUEUE_COMPUTE 1u  /* launches and copies */
#define GALLEY_QUEUE_IN 2u       /* copies towards class 0 */
#define GALLEY_QUEUE_OUT 3u      /* copies away from class 0 */
#define GALLEY_QUEUE_EXCHANGE 4u /* launches of ops with GALLEY_OP_EXCHANGE, in the order of the program, which all ranks have */

/* A queue. Work on a queue runs in order. Queue 0 computes. */
typedef struct galley_queue_info {
  uint32_t size;
  uint32_t revision;
  uint32_t role;
  uint32_t reserved;
  uint64_t flags; /* none yet */
} galley_queue_info;
#define GALLEY_QUEUE_INFO_MIN_SIZE 16u

/* Used in place of a memory class: ordinary memory of this process, at to_address or from_address. */
#define GALLEY_MEMORY_PROCESS 0xFFFFFFFFu

/* A copy of bytes. Each side is either a memory class and an offset in its allocation (a file has no addresses), or GALLEY_MEMORY_PROCESS
 * and an address. The bytes at such an address stay valid and unchanged until the copy has finished. */
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

/* What `open` is told about the run. */
typedef struct galley_device_options {
  uint32_t size;
  uint32_t revision;
  const galley_target* target;
  uint32_t n_events; /* the events of `record`, `wait` and `await` are numbered 1 … n_events */
  uint32_t n_marks;  /* the marks of `mark` and `time` are numbered 0 … n_marks − 1 */
  uint64_t flags;    /* none yet */
  uint32_t index;    /* which of the machine's devices of this kind, from 0 */
  uint32_t reserved;
} galley_device_options;
#define GALLEY_DEVICE_OPTIONS_MIN_SIZE 24u

/* A captured sequence of launches and copies. Each device defines its own. */
typedef struct galley_capture galley_capture;

/* Flags of a device. */
#define GALLEY_DEVICE_SYNCHRONOUS (1ull << 32) /* a hint: a call returns when its work is done */

/* A device, of which addresses are 64-bit and linear. It may be open several times at once, once for each session, and be opened and closed
 * any number of times. All functions are [session-thread] unless they say otherwise. */
typedef struct galley_device {
  uint32_t size;
  uint32_t revision;
  void* self;       /* the plugin's own */
  const char* kind; /* "cpu": the name that --device and kernels use */
  const galley_memory_class* const* memories;
  const galley_queue_info* const* queues;
  uint32_t n_memories;
  uint32_t n_queues;
  /* Describes this machine as a target. On entry, `out` has defaults; what it points to is valid until the next call. Opens no device. By
   * one thread at a time. [plan-time] */
  galley_status (*describe)(void* self, galley_target* out, galley_error*);
  galley_status (*open)(void* self, const galley_device_options*, void** device, galley_error*);
  void (*close)(void* device);
  /* Makes the one allocation of a memory class. `out` may be an address that the host cannot use; it is NULL if the class has no addresses
   * (a file), which the host must not access and where nothing computes. Need not touch the pages. */
  galley_status (*allocate)(void* device, uint32_t memory, int64_t bytes, void** out, galley_error*);
  void (*release)(void* device, uint32_t memory, void* data, int64_t bytes);
  /* Calls the kernel's `enqueue`. `state` comes from its `prepare`. [stream-ordered] [capture-safe] */
  galley_status (*launch)(void* device, uint32_t queue, const galley_kernel* kernel, void* state, galley_error*);
  /* [stream-ordered] [capture-safe] */
  galley_status (*copy)(void* device, uint32_t queue, const galley_copy*, galley_error*);
  /* `record` records an event after all work that is on the queue so far. After `wait`, later work on that queue runs only after the last
   * recorded occurrence of the event. [stream-ordered] [capture-safe] */
  galley_status (*record)(void* device, uint32_t queue, uint32_t event, galley_error*);
  galley_status (*wait)(void* device, uint32_t queue, uint32_t event, galley_error*);
  /* These block the host: `await` until the last recorded occurrence of the event, `synchronize` until all queues are empty. An error of
   * earlier work is returned here at the latest. */
  galley_status (*await)(void* device, uint32_t event, galley_error*);
  galley_status (*synchronize)(void* device, galley_error*);
  /* Capture: a device has all four functions or none (NULL). Between `capture` and `end_capture`, work on the queues is recorded instead of
   * run. `replay` enqueues it on queue 0, any number of times, with the same operands; it begins after the events that the work waits for
   * but does not record itself. An event that was recorded in between is over, for the host and for other work, when the whole replay is.
   * `await` and `synchronize` are not called in between. `end_capture` also ends a capture in which a call failed; it may then fail, too.
   * `discard` releases what was captured. */
  galley_status (*capture)(void* device, galley_error*);
  galley_status (*end_capture)(void* device, galley_capture** out, galley_error*);
  galley_status (*replay)(void* device, galley_capture*, galley_error*);
  void (*discard)(void* device, galley_capture*);
  uint64_t flags;
  /* Returns what kernels get as `queue`, in `prepare` already (queue 0); NULL, or no function: the device has no queues of its own. */
  galley_queue* (*queue_of)(void* device, uint32_t queue);
  /* Time: a device has both functions or none (NULL). `mark` notes the moment when the queue gets to this place; `time` returns the seconds
   * from mark 0 to it, when the work before it is done. Neither is captured. */
  galley_status (*mark)(void* device, uint32_t queue, uint32_t mark, galley_error*);
  galley_status (*time)(void* device, uint32_t mark, double* seconds, galley_error*);
  /* For a profiler that is attached: names the work that is enqueued until the next call; NULL: no name. No function: there are no
   * profilers for the device. The name is valid during the call. */
  void (*name_work)(void* device, const char* name);
  /* What the system says of a memory class now: the bytes that all processes have taken together, and those that there are.
   * GALLEY_UNSUPPORTED, or no function: it does not say. */
  galley_status (*usage)(void* device, uint32_t memory, int64_t* taken, int64_t* capacity, galley_error*);
} galley_device;
#define GALLEY_DEVICE_MIN_SIZE 136u /* up to `synchronize` */

/* End of draft 0.4. */

#ifdef __cplusplus
}
#endif
#endif
