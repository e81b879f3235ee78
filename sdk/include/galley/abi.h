/* Galley's C ABI: versions, status, errors, attributes. Every other header includes this one.
 *
 * Rules, for all headers here:
 *   - Tables and descriptions begin with `size` and `revision`; a minor version only appends, in multiples of 8 bytes. A reader asks
 *     GALLEY_HAS before it touches a field that its own version did not begin with.
 *   - Arrays are arrays of pointers, so that what they point to may grow; also those that a plugin fills: the host makes the elements.
 *   - Of a field `flags` the lower half must be understood: a reader that meets a flag there which it does not know refuses the whole table.
 *     The upper half are hints, which may be ignored.
 *   - No exception crosses; functions return galley_status and fill a caller-owned galley_error. Outputs stay untouched on error.
 *   - Strings are UTF-8, NUL-terminated, and belong to whoever made them.
 * Tags: [main-thread] called from the host's main thread only; [thread-safe]; [plan-time] no device is open yet, the function is pure;
 * [stream-ordered] only enqueues on a device's queue; [capture-safe] makes no call that a CUDA graph cannot capture.
 *
 * This is a draft of version 1: it is fenced when every strategy of the project runs on it. */
#ifndef GALLEY_ABI_H
#define GALLEY_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GALLEY_ABI_MAJOR 1u
#define GALLEY_ABI_MINOR 0u

/* The size of T up to and including `field` lies within what the maker of *p knew. */
#define GALLEY_HAS(p, T, field) ((p)->size >= offsetof(T, field) + sizeof((p)->field))

/* The flags of a field that must be understood. */
#define GALLEY_MUST_UNDERSTAND_64 0xFFFFFFFFull
#define GALLEY_MUST_UNDERSTAND_32 0xFFFFu

#if defined(_WIN32)
#define GALLEY_EXPORT __declspec(dllexport)
#else
#define GALLEY_EXPORT __attribute__((visibility("default")))
#endif

typedef int32_t galley_status;
#define GALLEY_OK 0
#define GALLEY_INVALID 1     /* what was asked for is wrong: an option, a shape, a name */
#define GALLEY_UNSUPPORTED 2 /* legal, but not done here (a kernel's query says so to be passed over) */
#define GALLEY_FAILED 3      /* the machine or a library failed */

/* Caller-owned; `text` is one line: place, value, what to do. */
typedef struct galley_error {
  uint32_t size;
  uint32_t revision;
  int32_t code;
  uint32_t reserved;
  char text[512];
} galley_error;

#define GALLEY_ERROR_INIT                            \
  {                                                  \
    (uint32_t)sizeof(galley_error), 1u, 0, 0u, { 0 } \
  }

/* A named constant of a node or an option: `count` values of `type` at `data` (for GALLEY_ATTR_STRING: the characters). */
#define GALLEY_ATTR_I64 1u
#define GALLEY_ATTR_F64 2u
#define GALLEY_ATTR_STRING 3u
typedef struct galley_attr {
  uint32_t size;
  uint32_t revision;
  const char* name;
  const void* data;
  uint32_t type;
  uint32_t count;
} galley_attr;

/* End of the draft of 1.0. */

#ifdef __cplusplus
}
#endif
#endif
