/* Tensors as kernels and ops see them: dense, row-major, at an address that the plan has fixed (modelled on DLPack's tensor). */
#ifndef GALLEY_TENSOR_H
#define GALLEY_TENSOR_H

#include "galley/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Dtypes of whole bytes. Numbers of less than a byte are in formats only (format.h): codes in bytes. */
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
#define GALLEY_U64 12u
/* 13 to 16 are kept for a byte of truth and for numbers of 8 bits (E4M3, E5M2, E8M0), which no version has yet. */

/* Returns the bytes of one element; 0 for an unknown dtype. */
static inline int64_t galley_dtype_bytes(uint32_t dtype) {
  switch (dtype) {
    case GALLEY_F64:
    case GALLEY_I64:
    case GALLEY_U64: return 8;
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

/* How a node accesses an operand. ACCUMULATE: it adds to the operand instead of overwriting it. */
#define GALLEY_READ 1u
#define GALLEY_WRITE 2u
#define GALLEY_READ_WRITE 3u
#define GALLEY_ACCUMULATE 7u

/* Structs hold arrays of so many extents: it never changes. */
#define GALLEY_MAX_RANK 8u

/* Flags of an operand. */
#define GALLEY_OPERAND_NO_MEMORY (1ull << 32) /* a hint: lies between the links of a chain, and nobody else reads it; `data` stays NULL */

#define GALLEY_OPERAND_FLAGS_KNOWN 0ull /* all that have to be understood */

/* An operand. `data` is NULL at plan time. `shape` has `rank` extents, of which the last is contiguous; rank 0 means one element. */
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
  /* For a tensor in a format (format.h): `shape` and `dtype` describe its numbers, `data` is NULL, and `components` hold the bytes, in the
   * order of the format. Only kernels with GALLEY_KERNEL_FORMATS get such operands; other kernels get the unpacked numbers. */
  const char* format; /* NULL: none */
  const struct galley_operand* const* components;
  const galley_attr* const* attrs; /* the format's options */
  /* Makes the numbers of the format on this device (format.h), so that a kernel reads formats that it does not know. NULL: there is
   * none. */
  const struct galley_codec* codec;
  uint32_t n_attrs;
  uint32_t reserved;
  uint64_t flags;
} galley_operand;
#define GALLEY_OPERAND_MIN_SIZE 96u

/* A node with its operands. An absent optional operand is a NULL pointer. Owned by the host: valid during the call, or, if it is passed to
 * a kernel's `prepare`, until `release`. */
typedef struct galley_node_view {
  uint32_t size;
  uint32_t revision;
  const char* op;
  const char* name; /* stable: recomputation and chunking do not change it */
  const galley_operand* const* inputs;
  const galley_operand* const* outputs;
  const galley_attr* const* attrs;
  uint32_t n_inputs;
  uint32_t n_outputs;
  uint32_t n_attrs;
  uint32_t reserved;
  uint64_t flags;
  int64_t first_row; /* of a chunk of rows: its first row in the whole tensor, where each number of rank 1 is a row; else 0 */
  int64_t length;    /* positions per sequence: row r of a flattened (B, S) belongs to sequence r / length */
  int64_t block;     /* index of the repeated block of the model that the node belongs to; -1: none */
} galley_node_view;
#define GALLEY_NODE_VIEW_MIN_SIZE 88u

/* The node belongs to training, so ops such as dropout are active. */
#define GALLEY_NODE_TRAINING 1ull

#define GALLEY_NODE_KNOWN 1ull /* all of them */

/* End of draft 0.4. */

static inline int64_t galley_operand_count(const galley_operand* t) {
  int64_t n = 1;
  for (uint32_t i = 0; i < t->rank; ++i) n *= t->shape[i];
  return n;
}

/* The length of a row: the last extent, or 1 for rank 0. */
static inline int64_t galley_operand_columns(const galley_operand* t) { return t->rank ? t->shape[t->rank - 1] : 1; }

/* The number of rows: the product of all extents except the last. */
static inline int64_t galley_operand_rows(const galley_operand* t) {
  int64_t n = 1;
  for (uint32_t i = 0; i + 1 < t->rank; ++i) n *= t->shape[i];
  return n;
}

static inline int64_t galley_operand_bytes(const galley_operand* t) { return galley_operand_count(t) * galley_dtype_bytes(t->dtype); }

/* Whether all of an operand is understood, its components and attributes too: galley_understood. */
static inline int galley_operand_understood(const galley_operand* t) {
  if (!galley_understood(t, t->flags, GALLEY_OPERAND_FLAGS_KNOWN)) return 0;
  for (uint32_t i = 0; i < t->n_components; ++i)
    if (!galley_understood(t->components[i], t->components[i]->flags, GALLEY_OPERAND_FLAGS_KNOWN)) return 0;
  for (uint32_t i = 0; i < t->n_attrs; ++i)
    if (!galley_understood(t->attrs[i], t->attrs[i]->flags, 0)) return 0;
  return 1;
}

/* Whether all of a node is understood, its operands and attributes too. A function that is given a node asks this first. */
static inline int galley_node_understood(const galley_node_view* node) {
  if (!galley_understood(node, node->flags, GALLEY_NODE_KNOWN)) return 0;
  for (uint32_t i = 0; i < node->n_inputs; ++i)
    if (node->inputs[i] && !galley_operand_understood(node->inputs[i])) return 0;
  for (uint32_t i = 0; i < node->n_outputs; ++i)
    if (node->outputs[i] && !galley_operand_understood(node->outputs[i])) return 0;
  for (uint32_t i = 0; i < node->n_attrs; ++i)
    if (!galley_understood(node->attrs[i], node->attrs[i]->flags, 0)) return 0;
  return 1;
}

static inline int galley_same_text(const char* a, const char* b) {
  while (*a && *a == *b) {
    ++a;
    ++b;
  }
  return *a == *b;
}

/* Returns NULL if the node has no such attribute. */
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
