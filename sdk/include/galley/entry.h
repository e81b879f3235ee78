/* The symbol that a plugin exports, the host's services, strategies and their options. */
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

/* The host's services. Lives as long as the process. `context` is the first argument of every service. */
typedef struct galley_host {
  uint32_t size;
  uint32_t revision;
  uint32_t abi_major;
  uint32_t abi_minor;
  void* context;
  /* Logs one line. [thread-safe] */
  void (*log)(void* context, uint32_t level, const char* text);
  /* Runs fn(fn_context, i) for i in [0, blocks) on the compute threads and returns when all are done. The result must not depend on which
   * thread runs which block: threads take blocks as they become free. fn must not throw. Kernels and a device's functions may call it, from
   * any thread; calls of several threads may wait for each other. A nested call runs on the calling thread. [thread-safe] */
  void (*parallel)(void* context, int64_t blocks, void (*fn)(void* fn_context, int64_t block), void* fn_context);
  /* Further services by id: "galley.files/1" (files.h); NULL for an id that this host does not know. [thread-safe] */
  const void* (*service)(void* context, const char* id);
} galley_host;
#define GALLEY_HOST_MIN_SIZE 40u

/* The recipe's options for one use. The host has checked them against the manifest (names, types, ranges) and filled in defaults. Valid
 * during `create`, on its thread. A getter returns GALLEY_INVALID if the option was not given and has no default; it takes no galley_error,
 * since there is nothing else to say. */
typedef struct galley_options {
  uint32_t size;
  uint32_t revision;
  const void* handle;
  galley_status (*integer)(const void* handle, const char* name, int64_t* out);
  galley_status (*number)(const void* handle, const char* name, double* out); /* for a scheduled option, its value at step 1 */
  galley_status (*boolean)(const void* handle, const char* name, int32_t* out);
  galley_status (*string)(const void* handle, const char* name, const char** out); /* lives as long as the instance */
  galley_status (*count)(const void* handle, const char* name, uint64_t* out);     /* length of a list; a single value is a list of one */
  galley_status (*string_at)(const void* handle, const char* name, uint64_t index, const char** out);
  galley_status (*number_at)(const void* handle, const char* name, uint64_t index, double* out);
  /* The options in an entry of a list of tables; NULL: there is no such entry. Valid as long as this table. */
  const struct galley_options* (*table_at)(const void* handle, const char* name, uint64_t index);
} galley_options;
#define GALLEY_OPTIONS_MIN_SIZE 64u

/* A strategy. `use "name" { … }` creates an instance. Instances are immutable after `create`. */
typedef struct galley_strategy {
  uint32_t size;
  uint32_t revision;
  void* self; /* the plugin's own */
  const char* name;
  galley_status (*create)(void* self, const galley_options*, void** instance, galley_error*); /* [plan-time] */
  void (*destroy)(void* instance); /* frees all that `create` has taken. [thread-safe] */
  /* Returns the table for "galley.rewrite/1", "galley.claim/1", "galley.update/1", "galley.saved/1" or "galley.observer/1"; NULL if the
   * strategy does not have it. [thread-safe] */
  const void* (*get)(void* self, const char* id);
  uint64_t flags; /* none yet */
} galley_strategy;
#define GALLEY_STRATEGY_MIN_SIZE 48u

/* `galley_entry_v1`, exported as data. All pointers live as long as the library, which is never unloaded. */
typedef struct galley_entry {
  uint32_t size;
  uint32_t revision;
  uint32_t abi_major; /* the version that it needs, as in the manifest; see abi.h */
  uint32_t abi_minor;
  const char* id; /* as in the manifest */
  const char* version;
  /* Called once, before the tables below are read, and may fill them. May be NULL. [main-thread] */
  galley_status (*open)(const galley_host*, galley_error*);
  const galley_strategy* const* strategies;
  /* Tables of ops, kernels, formats, devices and codecs (op.h, kernel.h, format.h, device.h). */
  const struct galley_op* const* ops;
  const struct galley_kernel* const* kernels;
  const struct galley_format* const* formats;
  const struct galley_device* const* devices;
  const struct galley_codec* const* codecs;   /* format.h */
  const struct galley_source* const* sources; /* source.h */
  uint32_t n_strategies;
  uint32_t n_ops;
  uint32_t n_kernels;
  uint32_t n_formats;
  uint32_t n_devices;
  uint32_t n_codecs;
  uint32_t n_sources;
  uint32_t reserved;
  uint64_t flags; /* none yet */
  /* Returns what else the plugin has, by id; NULL for an id that it does not know. No function: it has nothing else. Ids: "galley.ranks/1"
   * (ranks.h). [thread-safe] */
  const void* (*get)(const char* id);
  /* Called once at the end of the process, after the last device is closed and every kernel released, and not if the process is killed. For
   * a plugin that has threads or files of its own. NULL: none. [main-thread] */
  void (*close)(void);
} galley_entry;
#define GALLEY_ENTRY_MIN_SIZE 136u

#define GALLEY_ENTRY_SYMBOL "galley_entry_v1"

/* End of draft 0.4. */

#ifdef __cplusplus
}
#endif
#endif
