/* Galley's C ABI: versions, status, errors, attributes. Every other header includes this one.
 *
 * Versions. Five numbers change for five reasons, each raised by whoever edits a header:
 *   size       of a struct: its maker's sizeof. It grows when a release appends fields, always by multiples of 8 bytes.
 *   revision   of a struct: 1. It is raised when a field that exists changes its meaning. A reader refuses a revision that it does not know.
 *   abi_minor  of the ABI: raised by each release that appended anything. A host runs plugins of its own minor version and of lower ones.
 *   "/1"       of an interface's id: "/2" is a second interface, with other signatures or another contract. A host may know both.
 *   "_v1"      of the entry's symbol, and abi_major: raised when nothing older can be run any more.
 * While abi_major is 0 the ABI is a draft: abi_minor numbers the drafts, each may break with the one before, and a plugin of another draft
 * is refused by name. Version 1.0 freezes every GALLEY_…_MIN_SIZE.
 *
 * Rules for all headers here:
 *   - Structs begin with `size` and `revision`. Reader and writer go by the smaller of their two sizes (galley_assign); what the other side
 *     does not have reads as 0. GALLEY_…_MIN_SIZE is the smallest size that a reader accepts; fields behind it may be missing, and a reader
 *     asks GALLEY_HAS before it touches one in a struct that it does not own.
 *   - Arrays are arrays of pointers, so that what they point to may grow; also those that a plugin fills: the host makes the elements.
 *   - Of a field `flags` the lower half must be understood: a reader that meets a flag there which it does not know refuses the whole struct.
 *     The upper half are hints, which may be ignored.
 *   - No exception crosses. Functions return galley_status and fill a caller-owned galley_error. Outputs stay untouched on error.
 *   - Strings are UTF-8, NUL-terminated, and belong to whoever made them.
 * Tags: [main-thread] called from the host's main thread only; [thread-safe] called from any thread; [plan-time] no device is open yet, the
 * function is pure; [stream-ordered] only enqueues on a device's queue; [capture-safe] makes no call that a CUDA graph cannot capture. */
#ifndef GALLEY_ABI_H
#define GALLEY_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GALLEY_ABI_MAJOR 0u
#define GALLEY_ABI_MINOR 2u

/* Whether the struct of *p, as its maker knew it, reaches to the end of `field`. */
#define GALLEY_HAS(p, T, field) ((p)->size >= offsetof(T, field) + sizeof((p)->field))

/* The flags of a field that must be understood. */
#define GALLEY_MUST_UNDERSTAND_64 0xFFFFFFFFull
#define GALLEY_MUST_UNDERSTAND_32 0xFFFFu

#if defined(_WIN32)
#define GALLEY_EXPORT __declspec(dllexport)
#else
#define GALLEY_EXPORT __attribute__((visibility("default")))
#endif

/* Copies one struct of this ABI to another of the same type by the smaller of their sizes. `to` keeps its size and revision; what `from` does
 * not have becomes 0. Reads a struct of another maker into one's own, and fills another's from one's own. */
static inline void galley_assign(void* to, const void* from) {
  uint32_t to_size = 0, from_size = 0;
  memcpy(&to_size, to, sizeof to_size);
  memcpy(&from_size, from, sizeof from_size);
  const uint32_t head = 2 * (uint32_t)sizeof(uint32_t);
  const uint32_t common = from_size < to_size ? from_size : to_size;
  if (common > head) memcpy((char*)to + head, (const char*)from + head, common - head);
  const uint32_t end = common > head ? common : head;
  if (to_size > end) memset((char*)to + end, 0, to_size - end);
}

typedef int32_t galley_status;
#define GALLEY_OK 0
#define GALLEY_INVALID 1     /* what was asked for is wrong: an option, a shape, a name */
#define GALLEY_UNSUPPORTED 2 /* legal, but not done here (a kernel's query says so to be passed over) */
#define GALLEY_FAILED 3      /* the machine or a library failed */

/* Owned by the caller. `text` is one line: place, value, cause; `hint` is what to do next, or empty. Both end in NUL and are cut between characters. */
typedef struct galley_error {
  uint32_t size;
  uint32_t revision;
  int32_t code;
  uint32_t reserved;
  char text[512];
  char hint[256];
} galley_error;
#define GALLEY_ERROR_MIN_SIZE 528u

#define GALLEY_ERROR_INIT                                 \
  {                                                       \
    (uint32_t)sizeof(galley_error), 1u, 0, 0u, {0}, { 0 } \
  }

/* A named constant of a node or an option: `count` values of `type` at `data` (of GALLEY_ATTR_STRING: so many characters). `data` may be NULL
 * only where `count` is 0. */
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
  uint64_t flags; /* none yet */
} galley_attr;
#define GALLEY_ATTR_MIN_SIZE 32u

/* End of draft 0.2. */

#ifdef __cplusplus
}
#endif
#endif
