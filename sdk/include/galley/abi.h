/* Galley's C ABI: versions, status, errors, attributes. Every other header includes this one.
 *
 * Versions. Five numbers change for five reasons. Whoever edits a header raises them:
 *   size       of a struct: its maker's sizeof. It grows when a release appends fields, always by a multiple of 8 bytes.
 *   revision   of a struct, now 1: raised when an existing field changes its meaning. A reader refuses a revision that it does not know.
 *   abi_minor  of the ABI: raised by each release that appends something. A plugin says which version it needs: the lowest that has all
 *              that it uses, whatever SDK has built it (GALLEY_PLUGIN_NEEDS). A host runs plugins that need its own minor version or a lower
 *              one. What a plugin uses only where it is there, it asks for by GALLEY_HAS and galley_host.abi_minor, and does not need.
 *   "/1"       in an interface's id: "/2" is a second interface, with other signatures or another contract. A host may know both.
 *   "_v1"      in the entry's symbol, and abi_major: raised when no older plugin can run any more.
 * While abi_major is 0, the ABI is a draft: abi_minor numbers the drafts, each draft may break with the one before, and a host refuses a
 * plugin that needs another draft by name. Version 1.0 freezes every GALLEY_…_MIN_SIZE; until then it may be less than the struct's size,
 * so that tests can build plugins that lack fields. At 1.0 each becomes the sizeof of that day.
 *
 * Rules for all headers here:
 *   - Structs begin with `size` and `revision`. Reader and writer use the smaller of their two sizes (galley_assign); fields that the other
 *     side lacks read as 0. GALLEY_…_MIN_SIZE is the smallest size that a reader accepts. Fields after it may be missing: in a struct that
 *     it does not own, a reader asks GALLEY_HAS before it touches such a field.
 *   - Arrays are arrays of pointers, so that their elements can grow. This includes arrays that a plugin fills: the host makes the
 *     elements.
 *   - The lower half of a field `flags`, of 64 bits, must be understood: a reader that finds an unknown flag there refuses the whole struct.
 *     The upper half is for hints, which may be ignored. Host and plugin both keep this rule and that of revisions, each for what the other
 *     made: galley_understood. A kernel's `query` returns GALLEY_UNSUPPORTED then, so that another kernel is tried; everything else
 *     GALLEY_INVALID.
 *   - A function comes back in seconds, and one that is [plan-time] at once: it is asked hundreds of times for a plan.
 *   - A plugin leaves the process as it finds it: the current folder, the locale, what signals do and which are blocked, the standard
 *     streams, the rights of new files, and how the processor rounds. It neither forks nor ends the process.
 *   - No exception crosses the ABI. Functions return galley_status and fill a galley_error of the caller. On error, outputs stay unchanged.
 *   - Strings are UTF-8 and NUL-terminated, those that are paths too, on every platform. They belong to whoever made them.
 *   - A table of functions that a plugin makes, but for its entry, has a pointer `self` of the plugin's own. It is the first argument of
 *     each function that has no other object of the plugin's. So a plugin can make its tables when it is opened, and a bridge to another
 *     language has a place for its objects.
 *   - Functions have the platform's C calling convention, of which 64-bit platforms have one.
 * Tags:
 *   [main-thread]     called from the host's main thread only
 *   [thread-safe]     called from any thread, also by several at a time
 *   [session-thread]  called by the thread of a session, which opens it, trains and closes it, and never for two of its objects at a time.
 *                     Several sessions may be there at once, each on a thread of its own, over the same tables: what their calls share is
 *                     the plugin's to guard
 *   [plan-time]       called before a device is open; the function is pure, but for files that it reads by galley.files/1. Without
 *                     [thread-safe]: by one thread at a time for a graph, but perhaps for several graphs at once
 *   [stream-ordered]  only enqueues work on a device's queue
 *   [capture-safe]    makes no call that a CUDA graph cannot capture */
#ifndef GALLEY_ABI_H
#define GALLEY_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GALLEY_ABI_MAJOR 0u
#define GALLEY_ABI_MINOR 4u

/* Whether the struct *p, as its maker knew it, includes the whole of `field`. */
#define GALLEY_HAS(p, T, field) ((p)->size >= offsetof(T, field) + sizeof((p)->field))

/* The bits of a flags field that must be understood. */
#define GALLEY_MUST_UNDERSTAND 0xFFFFFFFFull

/* The layouts here are those of 64-bit, little-endian machines. */
#ifdef __cplusplus
static_assert(sizeof(void*) == 8, "the ABI is for 64-bit machines");
#else
_Static_assert(sizeof(void*) == 8, "the ABI is for 64-bit machines");
#endif
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the ABI is for little-endian machines"
#endif

/* What a library exports: galley_entry_v1 alone. */
#if defined(_WIN32)
#define GALLEY_PUBLIC __declspec(dllexport)
#else
#define GALLEY_PUBLIC __attribute__((visibility("default")))
#endif

/* Copies one struct of this ABI to another of the same type, as far as the smaller of their sizes. `to` keeps its size and revision; fields
 * that `from` lacks become 0. Use it to read a struct of another maker into your own, and to fill another maker's struct from your own. */
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

/* No struct has more bytes than this: a larger `size` was never set. */
#define GALLEY_MAX_SIZE 65536u

/* Whether a reader can take a struct of another maker as this header describes it: the struct has a size and revision 1, and of `flags`,
 * its own, none that must be understood is missing in `known`. What is not understood must not be used: a newer maker says by it that the
 * struct means something else. */
static inline int galley_understood(const void* p, uint64_t flags, uint64_t known) {
  uint32_t head[2] = {0, 0};
  memcpy(head, p, sizeof head);
  return head[0] >= sizeof head && head[0] <= GALLEY_MAX_SIZE && head[1] == 1 && !(flags & GALLEY_MUST_UNDERSTAND & ~known);
}

/* A reader takes a status that it does not know for GALLEY_FAILED. */
typedef int32_t galley_status;
#define GALLEY_OK 0
#define GALLEY_INVALID 1     /* the request is wrong: an option, a shape, a name */
#define GALLEY_UNSUPPORTED 2 /* legal, but not implemented here (a kernel's query returns it so that another kernel is tried) */
#define GALLEY_FAILED 3      /* the machine or a library failed */
#define GALLEY_LOST 4        /* the device, or another process of the run, is gone: nothing of this run can go on in this process */
#define GALLEY_NO_MEMORY 5   /* the machine's memory, or the device's, is not enough */

/* Owned by the caller. `text` is one line: place, value, cause. `hint` says what to do next, or is empty. Both end with NUL; text that is
 * too long is cut between two characters. */
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

/* A named constant of a node, or an option: `count` values of `type` at `data` (for GALLEY_ATTR_STRING: `count` characters, and a NUL
 * after them). `data` may be NULL only if `count` is 0, and not of a string. */
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
#define GALLEY_ATTR_MIN_SIZE 40u

/* End of draft 0.4. */

#ifdef __cplusplus
}
#endif
#endif
