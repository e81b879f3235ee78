/* galley.files/1: a service of the host. It reads a model's and an adapter's files as the host does: with the same checks and messages. Get
 * it by `host->service(host->context, GALLEY_FILES)`. */
#ifndef GALLEY_FILES_H
#define GALLEY_FILES_H

#include "galley/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GALLEY_FILES "galley.files/1"

/* What the header of a safetensors file says about one tensor. Valid during the call that shows it. */
typedef struct galley_file_tensor {
  uint32_t size;
  uint32_t revision;
  const char* name;
  const char* dtype; /* in the file's words: "F32", "BF16", "U8" */
  const int64_t* extents;
  uint64_t bytes;
  uint32_t rank;
  uint32_t reserved;
  uint64_t flags; /* none yet */
} galley_file_tensor;
#define GALLEY_FILE_TENSOR_MIN_SIZE 48u

/* Paths are absolute, or relative to the current directory. `see` is called before the function returns, with `see_context` as its first
 * argument, and must not throw. Where it does not return GALLEY_OK, the function ends and returns that. `context` is the host's.
 * [thread-safe] [plan-time] */
typedef struct galley_files {
  uint32_t size;
  uint32_t revision;
  /* Calls see(see_context, text, bytes) once with the contents of a file of at most `limit` bytes. A NUL follows the text. A file whose
   * name ends in ".json" has to be JSON as the host reads it: no key twice in an object, at most 200 levels and 32,768 values. So a
   * plugin's own parser, and what it does with the result, may recurse by levels and search by turns, whoever has written the file. */
  galley_status (*text)(void* context, const char* path, uint64_t limit,
                        galley_status (*see)(void* see_context, const char* text, uint64_t bytes), void* see_context, galley_error*);
  /* Calls see(see_context, tensor) for each tensor, by name, of a safetensors file, of an index (*.index.json), or of a folder that has
   * model.safetensors or its index. Reads headers only. */
  galley_status (*tensors)(void* context, const char* path, galley_status (*see)(void* see_context, const galley_file_tensor*),
                           void* see_context, galley_error*);
  uint64_t flags; /* none yet */
  /* Calls see(see_context, name, data, bytes) with what each tensor holds, by name, whose name matches the pattern ('*' matches any
   * characters), in files as `tensors` takes them. One of more than `limit` bytes is an error. */
  galley_status (*contents)(void* context, const char* path, const char* pattern, uint64_t limit,
                            galley_status (*see)(void* see_context, const char* name, const void* data, uint64_t bytes), void* see_context,
                            galley_error*);
} galley_files;
#define GALLEY_FILES_MIN_SIZE 24u

/* End of draft 0.4. */

#ifdef __cplusplus
}
#endif
#endif
