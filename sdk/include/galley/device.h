/* galley.device/1: memory classes, queues and events of a machine. */
#ifndef GALLEY_DEVICE_H
#define GALLEY_DEVICE_H

#include "galley/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Class 0 is where kernels compute. */
typedef struct galley_memory_class {
  uint32_t size;
  uint32_t revision;
  const char* name;     /* "host", "device", "pinned" */
  int64_t alignment;    /* of every tensor, bytes; a power of two */
  uint32_t host_access; /* 1: the CPU may read and write it directly */
  uint32_t computes;    /* 1: kernels may have operands here */
} galley_memory_class;

typedef struct galley_device {
  uint32_t size;
  uint32_t revision;
  const char* kind; /* "cpu": what --device and kernels name */
  const galley_memory_class* const* memories;
  uint32_t n_memories;
  uint32_t n_queues; /* queue 0 computes; the others copy */
  /* This machine as a target. Opens nothing. [plan-time] */
  galley_status (*describe)(galley_target* out, galley_error*);
  galley_status (*open)(const galley_target*, void** device, galley_error*);
  void (*close)(void* device);
  /* The one allocation that a class gets, every page touched. */
  galley_status (*allocate)(void* device, uint32_t memory, int64_t bytes, void** out, galley_error*);
  void (*release)(void* device, uint32_t memory, void* data, int64_t bytes);
  /* Work on a queue runs in order. `state` is the kernel's, prepared. [stream-ordered] */
  galley_status (*launch)(void* device, uint32_t queue, const galley_kernel* kernel, void* state, galley_error*);
  galley_status (*copy)(void* device, uint32_t queue, void* to, const void* from, int64_t bytes, galley_error*);
  /* After `wait`, work put on `queue` later runs after everything that was on the recording queue. Events are numbered by the plan. */
  galley_status (*record)(void* device, uint32_t queue, uint32_t event, galley_error*);
  galley_status (*wait)(void* device, uint32_t queue, uint32_t event, galley_error*);
  /* Returns when all queues are empty; an error of earlier work comes out here at the latest. */
  galley_status (*synchronize)(void* device, galley_error*);
} galley_device;

/* End of the draft of 1.0. */

#ifdef __cplusplus
}
#endif
#endif
