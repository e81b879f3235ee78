/* Tensors as kernels and ops see them: dense, row-major, at an address that the plan fixed (after DLPack's tensor). */
#ifndef GALLEY_TENSOR_H
#define GALLEY_TENSOR_H

#include "galley/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GALLEY_F64 1u
#define GALLEY_F32 2u
#define GALLEY_F16 3u
#define GALLEY_BF16 4u
#define GALLEY_I64 5u
#define GALLEY_I32 6u
#define GALLEY_I16 7u
#define GALLEY_I8 8u
#define GALLEY_U8 9u
#define GALLEY_U16 10u
#define GALLEY_U32 11u

/* Bytes of one element, 0 for an unknown dtype. */
static inline int64_t galley_dtype_bytes(uint32_t dtype) {
  switch (dtype) {
    case GALLEY_F64:
    case GALLEY_I64: return 8;
    case GALLEY_F32:
    case GALLEY_I32:
    case GALLEY_U32: return 4;
    case GALLEY_F16:
    case GALLEY_BF16:
    case GALLEY_I16:
    case GALLEY_U16: return 2;
    case GALLEY_I8:
    case GALLEY_U8: return 1;
    default: return 0;
  }
}

/* How an instruction touches an operand. ACCUMULATE: the node adds to what is there instead of writing. */
#define GALLEY_READ 1u
#define GALLEY_WRITE 2u
#define GALLEY_READ_WRITE 3u
#define GALLEY_ACCUMULATE 7u

#define GALLEY_MAX_RANK 8u

/* One operand. `data` is NULL at plan time. `shape` has `rank` extents, the last one contiguous; rank 0 is one element. */
typedef struct galley_operand {
  uint32_t size;
  uint32_t revision;
  const char* name;
  void* data;
  const int64_t* shape;
  uint32_t rank;
  uint32_t dtype;
  uint32_t access;
  uint32_t n_components;
  /* A tensor in a format (format.h): `shape` and `dtype` are those of the numbers, `data` is NULL, and the bytes are the components', in the
   * format's order. Only kernels that say GALLEY_KERNEL_FORMATS are shown such an operand; the others get the numbers unpacked. */
  const char* format; /* NULL: plain */
  const struct galley_operand* const* components;
  const galley_attr* const* attrs; /* the format's options */
  uint32_t n_attrs;
  uint32_t reserved;
  uint64_t flags; /* none yet */
} galley_operand;
#define GALLEY_OPERAND_MIN_SIZE 80u

/* A node with its operands. An optional operand that is absent is a NULL pointer. Owned by the host: valid for the call, or, where it is handed
 * to a kernel's `prepare`, until `release`. */
typedef struct galley_node_view {
  uint32_t size;
  uint32_t revision;
  const char* op;
  const char* name; /* stable: recomputation and chunking keep it */
  const galley_operand* const* inputs;
  const galley_operand* const* outputs;
  const galley_attr* const* attrs;
  uint32_t n_inputs;
  uint32_t n_outputs;
  uint32_t n_attrs;
  uint32_t flags;
  int64_t first_row; /* of a row-wise chunk: its first row in the whole tensor; else 0 */
  int64_t length;    /* positions of a sequence: row r of a flattened (B, S) belongs to sequence r / length */
  int64_t block;     /* of the model's repeated blocks the one that the node belongs to; -1: none */
} galley_node_view;
#define GALLEY_NODE_VIEW_MIN_SIZE 80u

/* The node belongs to a forward pass that trains: ops that only act in training (dropout) act. */
#define GALLEY_NODE_TRAINING 1u

/* End of draft 0.2. */

static inline int64_t galley_operand_count(const galley_operand* t) {
  int64_t n = 1;
  for (uint32_t i = 0; i < t->rank; ++i) n *= t->shape[i];
  return n;
}

/* The last extent (1 for rank 0): the length of a row. */
static inline int64_t galley_operand_columns(const galley_operand* t) { return t->rank ? t->shape[t->rank - 1] : 1; }

/* The product of all extents but the last. */
static inline int64_t galley_operand_rows(const galley_operand* t) {
  int64_t n = 1;
  for (uint32_t i = 0; i + 1 < t->rank; ++i) n *= t->shape[i];
  return n;
}

static inline int64_t galley_operand_bytes(const galley_operand* t) { return galley_operand_count(t) * galley_dtype_bytes(t->dtype); }

static inline int galley_same_text(const char* a, const char* b) {
  while (*a && *a == *b) {
    ++a;
    ++b;
  }
  return *a == *b;
}

/* NULL when the node has no such attribute. */
static inline const galley_attr* galley_attr_find(const galley_node_view* node, const char* name) {
  for (uint32_t i = 0; i < node->n_attrs; ++i)
    if (galley_same_text(node->attrs[i]->name, name)) return node->attrs[i];
  return NULL;
}

static inline int64_t galley_attr_i64(const galley_node_view* node, const char* name, int64_t otherwise) {
  const galley_attr* a = galley_attr_find(node, name);
  if (!a || !a->count) return otherwise;
  if (a->type == GALLEY_ATTR_I64) return *(const int64_t*)a->data;
  if (a->type == GALLEY_ATTR_F64) return (int64_t) * (const double*)a->data;
  return otherwise;
}

static inline double galley_attr_f64(const galley_node_view* node, const char* name, double otherwise) {
  const galley_attr* a = galley_attr_find(node, name);
  if (!a || !a->count) return otherwise;
  if (a->type == GALLEY_ATTR_F64) return *(const double*)a->data;
  if (a->type == GALLEY_ATTR_I64) return (double)*(const int64_t*)a->data;
  return otherwise;
}

static inline const char* galley_attr_string(const galley_node_view* node, const char* name, const char* otherwise) {
  const galley_attr* a = galley_attr_find(node, name);
  return a && a->type == GALLEY_ATTR_STRING ? (const char*)a->data : otherwise;
}

#ifdef __cplusplus
}
#endif
#endif
