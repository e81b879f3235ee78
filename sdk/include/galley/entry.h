/* The one symbol that a plugin exports, the host's services, strategies and their options. */
#ifndef GALLEY_ENTRY_H
#define GALLEY_ENTRY_H

#include "galley/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Levels of galley_host.log. */
#define GALLEY_LOG_DEBUG 0u
#define GALLEY_LOG_INFO 1u
#define GALLEY_LOG_WARNING 2u

/* What the host offers. Lives as long as the process. */
typedef struct galley_host {
  uint32_t size;
  uint32_t revision;
  uint32_t abi_major;
  uint32_t abi_minor;
  /* [thread-safe] One line. */
  void (*log)(uint32_t level, const char* text);
  /* Runs fn(context, i) for i in [0, blocks) on the compute threads and returns when all are done: fixed partition, block i always the same work;
   * which thread runs it must not matter. fn must not throw. From a kernel only; a call inside a call runs on the calling thread. */
  void (*parallel)(int64_t blocks, void (*fn)(void* context, int64_t block), void* context);
  /* Further services by id ("com.acme.thing/1"), NULL when there is none. */
  const void* (*service)(const char* id);
} galley_host;

/* The recipe's options for one use, already checked against the manifest (names, types, ranges; defaults filled in). Valid during `create`. Each getter:
 * [main-thread]; GALLEY_INVALID when the option was not given and has no default, so that "absent" can be told. */
typedef struct galley_options {
  uint32_t size;
  uint32_t revision;
  const void* handle;
  galley_status (*integer)(const void* handle, const char* name, int64_t* out);
  galley_status (*number)(const void* handle, const char* name, double* out); /* a scheduled option: its value at step 1 */
  galley_status (*boolean)(const void* handle, const char* name, int32_t* out);
  galley_status (*string)(const void* handle, const char* name, const char** out); /* lives as long as the instance */
  galley_status (*count)(const void* handle, const char* name, uint64_t* out);     /* of a list; a single value counts as a list of one */
  galley_status (*string_at)(const void* handle, const char* name, uint64_t index, const char** out);
  galley_status (*number_at)(const void* handle, const char* name, uint64_t index, double* out);
} galley_options;

/* A strategy: what `use "name" { … }` instantiates. Instances are immutable after `create`. */
typedef struct galley_strategy {
  uint32_t size;
  uint32_t revision;
  const char* name;
  galley_status (*create)(const galley_options*, void** instance, galley_error*); /* [main-thread] [plan-time] */
  void (*destroy)(void* instance);
  /* "galley.rewrite/1", "galley.claim/1", "galley.update/1", "galley.saved/1"; NULL for what it does not do. [thread-safe] */
  const void* (*interface)(const char* id);
} galley_strategy;

/* `galley_entry_v1`, exported as data. All pointers live as long as the library, which is never unloaded. */
typedef struct galley_entry {
  uint32_t size;
  uint32_t revision;
  uint32_t abi_major;
  uint32_t abi_minor;
  const char* id; /* the manifest's */
  const char* version;
  /* [main-thread] Once, before the tables below are read: it may fill them. May be NULL. */
  galley_status (*open)(const galley_host*, galley_error*);
  const galley_strategy* const* strategies;
  /* Tables of ops, kernels, formats and devices (op.h, kernel.h, format.h, device.h). */
  const struct galley_op* const* ops;
  const struct galley_kernel* const* kernels;
  const struct galley_format* const* formats;
  const struct galley_device* const* devices;
  uint32_t n_strategies;
  uint32_t n_ops;
  uint32_t n_kernels;
  uint32_t n_formats;
  uint32_t n_devices;
  uint32_t reserved;
} galley_entry;

#define GALLEY_ENTRY_SYMBOL "galley_entry_v1"

/* End of the draft of 1.0. */

#ifdef __cplusplus
}
#endif
#endif
