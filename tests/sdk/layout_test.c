/* The layout of the C ABI on LP64, written down a second time: each size, offset, type and constant of sdk/include/galley/. Compiling
 * this file, as C11 and as C++17, is the test. A line here changes only with a deliberate change of the ABI; once a version is fenced,
 * lines are only added. */
#include "galley/galley.h"

#if UINTPTR_MAX != UINT64_MAX
#error "the layout is fixed for 64-bit pointers only"
#endif

#ifdef __cplusplus
#include <type_traits>
constexpr bool same_text(const char* a, const char* b) { return *a == *b && (!*a || same_text(a + 1, b + 1)); }
#define CHECK(condition, what) static_assert(condition, what)
#define HAS_TYPE(T, field, type) std::is_same<decltype(T::field), type>::value
#define TEXT(name, value) CHECK(same_text(name, value), #name)
#else
#define CHECK(condition, what) _Static_assert(condition, what)
#define HAS_TYPE(T, field, type) _Generic(&((T*)0)->field, type * : 1, default : 0)
#define TEXT(name, value) CHECK(sizeof(name) == sizeof(value), #name) /* C cannot compare the letters here; C++ does */
#endif
#define CONSTANT(name, value) CHECK((name) == (value) && sizeof(name) == sizeof(value), #name)
#define SIZE(T, bytes) CHECK(sizeof(T) == (bytes), #T)
#define FIELD(T, field, offset, bytes, type) \
  CHECK(offsetof(T, field) == (offset) && sizeof(((T*)0)->field) == (bytes) && HAS_TYPE(T, field, type), #T "." #field)

/* --- abi.h -------------------------------------------------------------------------------------------------- */
CONSTANT(GALLEY_ABI_MAJOR, 0u);
CONSTANT(GALLEY_ABI_MINOR, 4u);
CONSTANT(GALLEY_MUST_UNDERSTAND, 0xFFFFFFFFull);
CONSTANT(GALLEY_MAX_SIZE, 65536u);
SIZE(galley_status, 4);
CONSTANT(GALLEY_OK, 0);
CONSTANT(GALLEY_INVALID, 1);
CONSTANT(GALLEY_UNSUPPORTED, 2);
CONSTANT(GALLEY_FAILED, 3);
CONSTANT(GALLEY_LOST, 4);
CONSTANT(GALLEY_NO_MEMORY, 5);

typedef char galley_error_text_array[512];
typedef char galley_error_hint_array[256];
SIZE(galley_error, 784);
FIELD(galley_error, size, 0, 4, uint32_t);
FIELD(galley_error, revision, 4, 4, uint32_t);
FIELD(galley_error, code, 8, 4, int32_t);
FIELD(galley_error, reserved, 12, 4, uint32_t);
FIELD(galley_error, text, 16, 512, galley_error_text_array);
FIELD(galley_error, hint, 528, 256, galley_error_hint_array);
CONSTANT(GALLEY_ERROR_MIN_SIZE, 528u);
CONSTANT(GALLEY_ATTR_I64, 1u);
CONSTANT(GALLEY_ATTR_F64, 2u);
CONSTANT(GALLEY_ATTR_STRING, 3u);

SIZE(galley_attr, 40);
FIELD(galley_attr, size, 0, 4, uint32_t);
FIELD(galley_attr, revision, 4, 4, uint32_t);
FIELD(galley_attr, name, 8, 8, const char*);
FIELD(galley_attr, data, 16, 8, const void*);
FIELD(galley_attr, type, 24, 4, uint32_t);
FIELD(galley_attr, count, 28, 4, uint32_t);
FIELD(galley_attr, flags, 32, 8, uint64_t);
CONSTANT(GALLEY_ATTR_MIN_SIZE, 40u);

/* --- tensor.h ----------------------------------------------------------------------------------------------- */
CONSTANT(GALLEY_F64, 1u);
CONSTANT(GALLEY_F32, 2u);
CONSTANT(GALLEY_F16, 3u);
CONSTANT(GALLEY_BF16, 4u);
CONSTANT(GALLEY_I64, 5u);
CONSTANT(GALLEY_I32, 6u);
CONSTANT(GALLEY_I16, 7u);
CONSTANT(GALLEY_I8, 8u);
CONSTANT(GALLEY_U8, 9u);
CONSTANT(GALLEY_U16, 10u);
CONSTANT(GALLEY_U32, 11u);
CONSTANT(GALLEY_U64, 12u);
CONSTANT(GALLEY_READ, 1u);
CONSTANT(GALLEY_WRITE, 2u);
CONSTANT(GALLEY_READ_WRITE, 3u);
CONSTANT(GALLEY_ACCUMULATE, 7u);
CONSTANT(GALLEY_MAX_RANK, 8u);

SIZE(galley_operand, 96);
FIELD(galley_operand, size, 0, 4, uint32_t);
FIELD(galley_operand, revision, 4, 4, uint32_t);
FIELD(galley_operand, name, 8, 8, const char*);
FIELD(galley_operand, data, 16, 8, void*);
FIELD(galley_operand, shape, 24, 8, const int64_t*);
FIELD(galley_operand, rank, 32, 4, uint32_t);
FIELD(galley_operand, dtype, 36, 4, uint32_t);
FIELD(galley_operand, access, 40, 4, uint32_t);
FIELD(galley_operand, n_components, 44, 4, uint32_t);
FIELD(galley_operand, format, 48, 8, const char*);
FIELD(galley_operand, components, 56, 8, const struct galley_operand* const*);
FIELD(galley_operand, attrs, 64, 8, const galley_attr* const*);
FIELD(galley_operand, codec, 72, 8, const struct galley_codec*);
FIELD(galley_operand, n_attrs, 80, 4, uint32_t);
FIELD(galley_operand, reserved, 84, 4, uint32_t);
FIELD(galley_operand, flags, 88, 8, uint64_t);
CONSTANT(GALLEY_OPERAND_MIN_SIZE, 96u);
CONSTANT(GALLEY_OPERAND_NO_MEMORY, (1ull << 32));
CONSTANT(GALLEY_OPERAND_FLAGS_KNOWN, 0ull);

SIZE(galley_node_view, 96);
FIELD(galley_node_view, size, 0, 4, uint32_t);
FIELD(galley_node_view, revision, 4, 4, uint32_t);
FIELD(galley_node_view, op, 8, 8, const char*);
FIELD(galley_node_view, name, 16, 8, const char*);
FIELD(galley_node_view, inputs, 24, 8, const galley_operand* const*);
FIELD(galley_node_view, outputs, 32, 8, const galley_operand* const*);
FIELD(galley_node_view, attrs, 40, 8, const galley_attr* const*);
FIELD(galley_node_view, n_inputs, 48, 4, uint32_t);
FIELD(galley_node_view, n_outputs, 52, 4, uint32_t);
FIELD(galley_node_view, n_attrs, 56, 4, uint32_t);
FIELD(galley_node_view, reserved, 60, 4, uint32_t);
FIELD(galley_node_view, flags, 64, 8, uint64_t);
FIELD(galley_node_view, first_row, 72, 8, int64_t);
FIELD(galley_node_view, length, 80, 8, int64_t);
FIELD(galley_node_view, block, 88, 8, int64_t);
CONSTANT(GALLEY_NODE_VIEW_MIN_SIZE, 88u);
CONSTANT(GALLEY_NODE_TRAINING, 1ull);
CONSTANT(GALLEY_NODE_KNOWN, 1ull);

/* --- graph.h ------------------------------------------------------------------------------------------------ */
SIZE(galley_tensor, 8);
SIZE(galley_node, 8);
CONSTANT(GALLEY_KIND_PARAMETER, 1u);
CONSTANT(GALLEY_KIND_STATE, 2u);
CONSTANT(GALLEY_KIND_GRADIENT, 3u);
CONSTANT(GALLEY_KIND_CONSTANT, 4u);
CONSTANT(GALLEY_KIND_TRANSIENT, 5u);
CONSTANT(GALLEY_KIND_INPUT, 6u);
CONSTANT(GALLEY_KIND_SCALAR, 7u);
CONSTANT(GALLEY_KIND_FILE, 8u);
CONSTANT(GALLEY_KIND_CACHE, 9u);
CONSTANT(GALLEY_TENSOR_NO_DECAY, 1ull);
CONSTANT(GALLEY_TENSOR_ZERO_GRADIENT, 2ull);
CONSTANT(GALLEY_TENSOR_LATE_GRADIENT, 4ull);
CONSTANT(GALLEY_TENSOR_BLOCK_INPUT, 8ull);
CONSTANT(GALLEY_TENSOR_EMBEDDING, 16ull);
CONSTANT(GALLEY_TENSOR_TRAINABLE, 32ull);
CONSTANT(GALLEY_TENSOR_NON_NEGATIVE, 64ull);
CONSTANT(GALLEY_TENSOR_HEAD, 128ull);
CONSTANT(GALLEY_TENSOR_WRITTEN, 256ull);
CONSTANT(GALLEY_TENSOR_WRITTEN_FORWARD, 512ull);
CONSTANT(GALLEY_TENSOR_KNOWN, 1023ull);

SIZE(galley_tensor_desc, 120);
FIELD(galley_tensor_desc, size, 0, 4, uint32_t);
FIELD(galley_tensor_desc, revision, 4, 4, uint32_t);
FIELD(galley_tensor_desc, name, 8, 8, const char*);
FIELD(galley_tensor_desc, shape, 16, 8, const int64_t*);
FIELD(galley_tensor_desc, rank, 24, 4, uint32_t);
FIELD(galley_tensor_desc, dtype, 28, 4, uint32_t);
FIELD(galley_tensor_desc, kind, 32, 4, uint32_t);
FIELD(galley_tensor_desc, n_attrs, 36, 4, uint32_t);
FIELD(galley_tensor_desc, flags, 40, 8, uint64_t);
FIELD(galley_tensor_desc, initializer, 48, 8, const char*);
FIELD(galley_tensor_desc, attrs, 56, 8, const galley_attr* const*);
FIELD(galley_tensor_desc, source, 64, 8, const char*);
FIELD(galley_tensor_desc, source_name, 72, 8, const char*);
FIELD(galley_tensor_desc, file, 80, 8, const char*);
FIELD(galley_tensor_desc, file_name, 88, 8, const char*);
FIELD(galley_tensor_desc, initializer_inputs, 96, 8, const galley_tensor*);
FIELD(galley_tensor_desc, n_initializer_inputs, 104, 4, uint32_t);
FIELD(galley_tensor_desc, reserved, 108, 4, uint32_t);
FIELD(galley_tensor_desc, parameter, 112, 8, galley_tensor);
CONSTANT(GALLEY_TENSOR_DESC_MIN_SIZE, 112u);

SIZE(galley_part, 40);
FIELD(galley_part, size, 0, 4, uint32_t);
FIELD(galley_part, revision, 4, 4, uint32_t);
FIELD(galley_part, axis, 8, 8, const char*);
FIELD(galley_part, dimension, 16, 4, uint32_t);
FIELD(galley_part, reserved, 20, 4, uint32_t);
FIELD(galley_part, whole, 24, 8, int64_t);
FIELD(galley_part, first, 32, 8, int64_t);
CONSTANT(GALLEY_PART_MIN_SIZE, 40u);

SIZE(galley_tensor_info, 96);
FIELD(galley_tensor_info, size, 0, 4, uint32_t);
FIELD(galley_tensor_info, revision, 4, 4, uint32_t);
FIELD(galley_tensor_info, name, 8, 8, const char*);
FIELD(galley_tensor_info, shape, 16, 8, const int64_t*);
FIELD(galley_tensor_info, rank, 24, 4, uint32_t);
FIELD(galley_tensor_info, dtype, 28, 4, uint32_t);
FIELD(galley_tensor_info, kind, 32, 4, uint32_t);
FIELD(galley_tensor_info, reserved, 36, 4, uint32_t);
FIELD(galley_tensor_info, flags, 40, 8, uint64_t);
FIELD(galley_tensor_info, producer, 48, 8, galley_node);
FIELD(galley_tensor_info, parameter, 56, 8, galley_tensor);
FIELD(galley_tensor_info, block, 64, 8, int64_t);
FIELD(galley_tensor_info, format, 72, 8, const char*);
FIELD(galley_tensor_info, source_name, 80, 8, const char*);
FIELD(galley_tensor_info, part, 88, 8, const galley_part*);
CONSTANT(GALLEY_TENSOR_INFO_MIN_SIZE, 56u);

SIZE(galley_node_desc, 72);
FIELD(galley_node_desc, size, 0, 4, uint32_t);
FIELD(galley_node_desc, revision, 4, 4, uint32_t);
FIELD(galley_node_desc, op, 8, 8, const char*);
FIELD(galley_node_desc, name, 16, 8, const char*);
FIELD(galley_node_desc, inputs, 24, 8, const galley_tensor*);
FIELD(galley_node_desc, attrs, 32, 8, const galley_attr* const*);
FIELD(galley_node_desc, n_inputs, 40, 4, uint32_t);
FIELD(galley_node_desc, n_attrs, 44, 4, uint32_t);
FIELD(galley_node_desc, n_outputs, 48, 4, uint32_t);
FIELD(galley_node_desc, reserved, 52, 4, uint32_t);
FIELD(galley_node_desc, accumulate, 56, 8, const uint8_t*);
FIELD(galley_node_desc, flags, 64, 8, uint64_t);
CONSTANT(GALLEY_NODE_DESC_MIN_SIZE, 64u);

SIZE(galley_node_info, 80);
FIELD(galley_node_info, size, 0, 4, uint32_t);
FIELD(galley_node_info, revision, 4, 4, uint32_t);
FIELD(galley_node_info, op, 8, 8, const char*);
FIELD(galley_node_info, name, 16, 8, const char*);
FIELD(galley_node_info, inputs, 24, 8, const galley_tensor*);
FIELD(galley_node_info, outputs, 32, 8, const galley_tensor*);
FIELD(galley_node_info, attrs, 40, 8, const galley_attr* const*);
FIELD(galley_node_info, n_inputs, 48, 4, uint32_t);
FIELD(galley_node_info, n_outputs, 52, 4, uint32_t);
FIELD(galley_node_info, n_attrs, 56, 4, uint32_t);
FIELD(galley_node_info, reserved, 60, 4, uint32_t);
FIELD(galley_node_info, block, 64, 8, int64_t);
FIELD(galley_node_info, op_flags, 72, 8, uint64_t);
CONSTANT(GALLEY_NODE_INFO_MIN_SIZE, 72u);
CONSTANT(GALLEY_SCALAR_ATTEMPTED_STEP, 1u);
CONSTANT(GALLEY_SCALAR_APPLIED_STEP, 2u);
CONSTANT(GALLEY_SCALAR_APPLY, 3u);
CONSTANT(GALLEY_SCALAR_LOSS_SCALE, 4u);
CONSTANT(GALLEY_SCALAR_WINDOW_TOKENS, 5u);
CONSTANT(GALLEY_SCALAR_LOSS_SEED, 6u);
CONSTANT(GALLEY_SCALAR_GRADIENT_NORM, 7u);
CONSTANT(GALLEY_SCALAR_GRADIENT_FACTOR, 8u);
CONSTANT(GALLEY_SCALAR_FOUND_INF, 9u);
CONSTANT(GALLEY_SCALAR_RANDOM, 10u);
CONSTANT(GALLEY_SCALAR_LOSS, 11u);
CONSTANT(GALLEY_BEGIN_NUMBERS, 0xFFFFFFFFu);
CONSTANT(GALLEY_EXPORT_OWN, 0u);
CONSTANT(GALLEY_EXPORT_BOTH, 1u);
CONSTANT(GALLEY_EXPORT_MODEL, 2u);

CONSTANT(GALLEY_NODES_BUILT, 0u);
CONSTANT(GALLEY_NODES_MODEL, 1u);
CONSTANT(GALLEY_RUN_KNOWN, 0ull);
SIZE(galley_axis, 48);
FIELD(galley_axis, size, 0, 4, uint32_t);
FIELD(galley_axis, revision, 4, 4, uint32_t);
FIELD(galley_axis, name, 8, 8, const char*);
FIELD(galley_axis, ranks, 16, 8, int64_t);
FIELD(galley_axis, rank, 24, 8, int64_t);
FIELD(galley_axis, stride, 32, 8, int64_t);
FIELD(galley_axis, flags, 40, 8, uint64_t);
CONSTANT(GALLEY_AXIS_MIN_SIZE, 48u);
SIZE(galley_run_info, 96);
FIELD(galley_run_info, size, 0, 4, uint32_t);
FIELD(galley_run_info, revision, 4, 4, uint32_t);
FIELD(galley_run_info, rows, 8, 8, int64_t);
FIELD(galley_run_info, length, 16, 8, int64_t);
FIELD(galley_run_info, steps, 24, 8, int64_t);
FIELD(galley_run_info, micro_batches, 32, 8, int64_t);
FIELD(galley_run_info, target, 40, 8, const galley_target*);
FIELD(galley_run_info, flags, 48, 8, uint64_t);
FIELD(galley_run_info, model, 56, 8, const char*);
FIELD(galley_run_info, purpose, 64, 4, uint32_t);
FIELD(galley_run_info, n_axes, 68, 4, uint32_t);
FIELD(galley_run_info, axes, 72, 8, const galley_axis* const*);
FIELD(galley_run_info, rank, 80, 8, int64_t);
FIELD(galley_run_info, ranks, 88, 8, int64_t);
CONSTANT(GALLEY_RUN_INFO_MIN_SIZE, 56u);
typedef galley_status galley_graph_reader_tensor_get_fn(galley_graph*, galley_tensor, galley_tensor_info* out, galley_error*);
typedef galley_status galley_graph_reader_tensor_find_fn(galley_graph*, const char* name, galley_tensor* out, galley_error*);
typedef galley_status galley_graph_reader_node_get_fn(galley_graph*, galley_node, galley_node_info* out, galley_error*);
typedef galley_tensor galley_graph_reader_tensor_next_fn(galley_graph*, galley_tensor);
typedef galley_node galley_graph_reader_node_next_fn(galley_graph*, uint32_t of, galley_node);
typedef galley_status galley_graph_reader_run_fn(galley_graph*, galley_run_info* out, galley_error*);
typedef galley_status galley_graph_reader_config_get_fn(galley_graph*, const char* key, const char** json, galley_error*);
typedef galley_status galley_graph_reader_document_get_fn(galley_graph*, const char* file, const char** text, galley_error*);
SIZE(galley_graph_reader, 72);
FIELD(galley_graph_reader, size, 0, 4, uint32_t);
FIELD(galley_graph_reader, revision, 4, 4, uint32_t);
FIELD(galley_graph_reader, tensor_get, 8, 8, galley_graph_reader_tensor_get_fn*);
FIELD(galley_graph_reader, tensor_find, 16, 8, galley_graph_reader_tensor_find_fn*);
FIELD(galley_graph_reader, node_get, 24, 8, galley_graph_reader_node_get_fn*);
FIELD(galley_graph_reader, tensor_next, 32, 8, galley_graph_reader_tensor_next_fn*);
FIELD(galley_graph_reader, node_next, 40, 8, galley_graph_reader_node_next_fn*);
FIELD(galley_graph_reader, run, 48, 8, galley_graph_reader_run_fn*);
FIELD(galley_graph_reader, config_get, 56, 8, galley_graph_reader_config_get_fn*);
FIELD(galley_graph_reader, document_get, 64, 8, galley_graph_reader_document_get_fn*);
CONSTANT(GALLEY_GRAPH_READER_MIN_SIZE, 40u);

typedef galley_status galley_graph_verbs_tensor_make_fn(galley_graph*, const galley_tensor_desc*, galley_tensor* out, galley_error*);
typedef galley_status galley_graph_verbs_node_make_fn(galley_graph*, const galley_node_desc*, galley_tensor* outputs, galley_error*);
typedef galley_status galley_graph_verbs_scalar_fn(galley_graph*, uint32_t which, galley_tensor* out, galley_error*);
typedef galley_status galley_graph_verbs_option_fn(galley_graph*, const char* name, galley_tensor* out, galley_error*);
SIZE(galley_graph_verbs, 48);
FIELD(galley_graph_verbs, size, 0, 4, uint32_t);
FIELD(galley_graph_verbs, revision, 4, 4, uint32_t);
FIELD(galley_graph_verbs, reader, 8, 8, const galley_graph_reader*);
FIELD(galley_graph_verbs, tensor_make, 16, 8, galley_graph_verbs_tensor_make_fn*);
FIELD(galley_graph_verbs, node_make, 24, 8, galley_graph_verbs_node_make_fn*);
FIELD(galley_graph_verbs, scalar, 32, 8, galley_graph_verbs_scalar_fn*);
FIELD(galley_graph_verbs, option, 40, 8, galley_graph_verbs_option_fn*);
CONSTANT(GALLEY_GRAPH_VERBS_MIN_SIZE, 48u);

/* --- claim.h ------------------------------------------------------------------------------------------------ */
TEXT(GALLEY_CLAIM, "galley.claim/1");
CONSTANT(GALLEY_FACET_TRAINABLE, 10u);
CONSTANT(GALLEY_FACET_STORAGE, 20u);
CONSTANT(GALLEY_FACET_COMPUTE, 30u);
CONSTANT(GALLEY_FACET_GRADIENT_DTYPE, 40u);
CONSTANT(GALLEY_FACET_GRADIENT_LIFETIME, 50u);
CONSTANT(GALLEY_FACET_UPDATE, 60u);
CONSTANT(GALLEY_FACET_PLACEMENT, 70u);
CONSTANT(GALLEY_FACET_SHARD, 80u);
CONSTANT(GALLEY_SHARD_NO, 0);
CONSTANT(GALLEY_SHARD_YES, 1);
CONSTANT(GALLEY_SHARD_MASTER, 2);
CONSTANT(GALLEY_FACET_WINDOW, 90u);
CONSTANT(GALLEY_TRAINABLE_WRITTEN, 2);
CONSTANT(GALLEY_WEIGHTS_DERIVED, 0);
CONSTANT(GALLEY_WEIGHTS_CAST_ON_USE, 1);
CONSTANT(GALLEY_GRADIENT_WINDOW, 0);
CONSTANT(GALLEY_GRADIENT_IMMEDIATE, 1);
CONSTANT(GALLEY_SUBJECT_PARAMETER, 1u);
CONSTANT(GALLEY_SUBJECT_GRADIENT, 2u);
CONSTANT(GALLEY_SUBJECT_STATE, 3u);
CONSTANT(GALLEY_SUBJECT_NODE, 4u);
CONSTANT(GALLEY_SUBJECT_RUN, 5u);
CONSTANT(GALLEY_WEAK, 1u);
CONSTANT(GALLEY_STRONG, 2u);

SIZE(galley_subject, 80);
FIELD(galley_subject, size, 0, 4, uint32_t);
FIELD(galley_subject, revision, 4, 4, uint32_t);
FIELD(galley_subject, kind, 8, 4, uint32_t);
FIELD(galley_subject, reserved, 12, 4, uint32_t);
FIELD(galley_subject, name, 16, 8, const char*);
FIELD(galley_subject, owner, 24, 8, const char*);
FIELD(galley_subject, tensor, 32, 8, galley_tensor);
FIELD(galley_subject, parameter, 40, 8, galley_tensor);
FIELD(galley_subject, node, 48, 8, galley_node);
FIELD(galley_subject, trainable, 56, 8, uint64_t);
FIELD(galley_subject, tensor_flags, 64, 8, uint64_t);
FIELD(galley_subject, op_flags, 72, 8, uint64_t);
CONSTANT(GALLEY_SUBJECT_MIN_SIZE, 64u);

SIZE(galley_claim_value, 40);
FIELD(galley_claim_value, size, 0, 4, uint32_t);
FIELD(galley_claim_value, revision, 4, 4, uint32_t);
FIELD(galley_claim_value, strength, 8, 4, uint32_t);
FIELD(galley_claim_value, n_attrs, 12, 4, uint32_t);
FIELD(galley_claim_value, number, 16, 8, int64_t);
FIELD(galley_claim_value, text, 24, 8, const char*);
FIELD(galley_claim_value, attrs, 32, 8, const galley_attr* const*);
CONSTANT(GALLEY_CLAIM_VALUE_MIN_SIZE, 32u);
typedef galley_status galley_claim_call_claim_fn(void* context, uint64_t subject, const galley_claim_value*, galley_error*);
SIZE(galley_claim_call, 56);
FIELD(galley_claim_call, size, 0, 4, uint32_t);
FIELD(galley_claim_call, revision, 4, 4, uint32_t);
FIELD(galley_claim_call, facet, 8, 4, uint32_t);
FIELD(galley_claim_call, reserved, 12, 4, uint32_t);
FIELD(galley_claim_call, subjects, 16, 8, const galley_subject* const*);
FIELD(galley_claim_call, n_subjects, 24, 8, uint64_t);
FIELD(galley_claim_call, context, 32, 8, void*);
FIELD(galley_claim_call, claim, 40, 8, galley_claim_call_claim_fn*);
FIELD(galley_claim_call, flags, 48, 8, uint64_t);
CONSTANT(GALLEY_CLAIM_CALL_MIN_SIZE, 48u);

typedef galley_status galley_claim_claim_fn(void* instance, const galley_graph_reader*, galley_graph*, const galley_claim_call*,
                                            galley_error*);
SIZE(galley_claim, 24);
FIELD(galley_claim, size, 0, 4, uint32_t);
FIELD(galley_claim, revision, 4, 4, uint32_t);
FIELD(galley_claim, claim, 8, 8, galley_claim_claim_fn*);
FIELD(galley_claim, flags, 16, 8, uint64_t);
CONSTANT(GALLEY_CLAIM_MIN_SIZE, 16u);

/* --- rewrite.h ---------------------------------------------------------------------------------------------- */
TEXT(GALLEY_REWRITE, "galley.rewrite/1");

typedef galley_status galley_rewrite_model_fn(void* instance, const galley_model_verbs*, galley_graph*, galley_error*);
typedef galley_status galley_rewrite_window_fn(void* instance, const galley_graph_verbs*, galley_graph*, galley_error*);
typedef galley_status galley_rewrite_load_fn(void* instance, const galley_load_verbs*, galley_graph*, galley_error*);
typedef galley_status galley_rewrite_save_fn(void* instance, const galley_export_verbs*, galley_graph*, galley_error*);
typedef galley_status galley_rewrite_merge_fn(void* instance, const galley_export_verbs*, galley_graph*, galley_error*);
SIZE(galley_rewrite, 64);
FIELD(galley_rewrite, size, 0, 4, uint32_t);
FIELD(galley_rewrite, revision, 4, 4, uint32_t);
FIELD(galley_rewrite, model, 8, 8, galley_rewrite_model_fn*);
FIELD(galley_rewrite, window, 16, 8, galley_rewrite_window_fn*);
FIELD(galley_rewrite, load, 24, 8, galley_rewrite_load_fn*);
FIELD(galley_rewrite, save, 32, 8, galley_rewrite_save_fn*);
FIELD(galley_rewrite, merge, 40, 8, galley_rewrite_merge_fn*);
FIELD(galley_rewrite, flags, 48, 8, uint64_t);
FIELD(galley_rewrite, phase, 56, 4, uint32_t);
FIELD(galley_rewrite, reserved, 60, 4, uint32_t);
CONSTANT(GALLEY_PHASE_REPLACE, 10u);
CONSTANT(GALLEY_PHASE_ADD, 20u);
CONSTANT(GALLEY_PHASE_READ, 30u);
typedef galley_status galley_model_verbs_replace_fn(galley_graph*, galley_tensor from, galley_tensor to, galley_error*);
typedef galley_status galley_model_verbs_set_input_fn(galley_graph*, galley_node, uint32_t input, galley_tensor to, galley_error*);
typedef galley_status galley_model_verbs_scale_rate_fn(galley_graph*, galley_tensor parameter, double factor, galley_error*);
typedef galley_status galley_model_verbs_ignore_fn(galley_graph*, const char* pattern, galley_error*);
typedef galley_status galley_model_verbs_document_fn(galley_graph*, const char* file, const char* text, galley_error*);
typedef galley_status galley_model_verbs_input_fn(galley_graph*, const char* name, galley_tensor* out, galley_error*);
typedef galley_status galley_model_verbs_take_loss_fn(galley_graph*, galley_node, galley_error*);
typedef galley_status galley_model_verbs_divide_fn(galley_graph*, galley_tensor parameter, const char* axis, uint32_t dimension, galley_error*);
SIZE(galley_model_verbs, 80);
FIELD(galley_model_verbs, size, 0, 4, uint32_t);
FIELD(galley_model_verbs, revision, 4, 4, uint32_t);
FIELD(galley_model_verbs, graph, 8, 8, const galley_graph_verbs*);
FIELD(galley_model_verbs, replace, 16, 8, galley_model_verbs_replace_fn*);
FIELD(galley_model_verbs, set_input, 24, 8, galley_model_verbs_set_input_fn*);
FIELD(galley_model_verbs, scale_rate, 32, 8, galley_model_verbs_scale_rate_fn*);
FIELD(galley_model_verbs, ignore, 40, 8, galley_model_verbs_ignore_fn*);
FIELD(galley_model_verbs, document, 48, 8, galley_model_verbs_document_fn*);
FIELD(galley_model_verbs, input, 56, 8, galley_model_verbs_input_fn*);
FIELD(galley_model_verbs, take_loss, 64, 8, galley_model_verbs_take_loss_fn*);
FIELD(galley_model_verbs, divide, 72, 8, galley_model_verbs_divide_fn*);
CONSTANT(GALLEY_MODEL_VERBS_MIN_SIZE, 72u);
typedef galley_status galley_load_verbs_begin_as_fn(galley_graph*, galley_tensor tensor, uint32_t component, galley_tensor value,
                                                    galley_error*);
typedef galley_status galley_load_verbs_pack_and_unpack_fn(galley_graph*, galley_tensor parameter, galley_tensor value, galley_tensor* out,
                                                           galley_error*);
typedef galley_status galley_load_verbs_ignore_fn(galley_graph*, const char* pattern, galley_error*);
SIZE(galley_load_verbs, 40);
FIELD(galley_load_verbs, size, 0, 4, uint32_t);
FIELD(galley_load_verbs, revision, 4, 4, uint32_t);
FIELD(galley_load_verbs, graph, 8, 8, const galley_graph_verbs*);
FIELD(galley_load_verbs, begin_as, 16, 8, galley_load_verbs_begin_as_fn*);
FIELD(galley_load_verbs, pack_and_unpack, 24, 8, galley_load_verbs_pack_and_unpack_fn*);
FIELD(galley_load_verbs, ignore, 32, 8, galley_load_verbs_ignore_fn*);
CONSTANT(GALLEY_LOAD_VERBS_MIN_SIZE, 40u);
typedef galley_status galley_export_verbs_document_fn(galley_graph*, const char* file, const char* text, galley_error*);
typedef galley_status galley_export_verbs_export_as_fn(galley_graph*, galley_tensor parameter, galley_tensor value, galley_error*);
typedef galley_status galley_export_verbs_export_stored_fn(galley_graph*, galley_tensor parameter, galley_error*);
typedef galley_status galley_export_verbs_export_model_fn(galley_graph*, uint32_t what, galley_error*);
typedef galley_status galley_export_verbs_config_set_fn(galley_graph*, const char* key, const char* json, galley_error*);
typedef galley_status galley_export_verbs_component_fn(galley_graph*, galley_tensor parameter, uint32_t index, galley_tensor* out,
                                                       galley_error*);
typedef galley_status galley_export_verbs_export_tensor_fn(galley_graph*, const char* name, galley_tensor value, galley_error*);
SIZE(galley_export_verbs, 72);
FIELD(galley_export_verbs, size, 0, 4, uint32_t);
FIELD(galley_export_verbs, revision, 4, 4, uint32_t);
FIELD(galley_export_verbs, graph, 8, 8, const galley_graph_verbs*);
FIELD(galley_export_verbs, document, 16, 8, galley_export_verbs_document_fn*);
FIELD(galley_export_verbs, export_as, 24, 8, galley_export_verbs_export_as_fn*);
FIELD(galley_export_verbs, export_stored, 32, 8, galley_export_verbs_export_stored_fn*);
FIELD(galley_export_verbs, export_model, 40, 8, galley_export_verbs_export_model_fn*);
FIELD(galley_export_verbs, config_set, 48, 8, galley_export_verbs_config_set_fn*);
FIELD(galley_export_verbs, component, 56, 8, galley_export_verbs_component_fn*);
FIELD(galley_export_verbs, export_tensor, 64, 8, galley_export_verbs_export_tensor_fn*);
CONSTANT(GALLEY_EXPORT_VERBS_MIN_SIZE, 72u);
CONSTANT(GALLEY_REWRITE_MIN_SIZE, 64u);

/* --- update.h ----------------------------------------------------------------------------------------------- */
TEXT(GALLEY_UPDATE, "galley.update/1");
CONSTANT(GALLEY_STAGE_CHECK, 1u);
CONSTANT(GALLEY_STAGE_CLIP, 2u);
CONSTANT(GALLEY_STAGE_GRADIENT, 4u);
CONSTANT(GALLEY_STAGE_STEP, 8u);
CONSTANT(GALLEY_STAGE_AFTER, 16u);
CONSTANT(GALLEY_ORDER_FIRST, 10u);
CONSTANT(GALLEY_ORDER_USUAL, 20u);
CONSTANT(GALLEY_ORDER_LAST, 30u);
CONSTANT(GALLEY_PURPOSE_TRAIN, 1u);
CONSTANT(GALLEY_PURPOSE_EVAL, 2u);
CONSTANT(GALLEY_PURPOSE_GRADIENTS, 3u);
CONSTANT(GALLEY_PURPOSE_SAMPLE, 4u);
CONSTANT(GALLEY_PURPOSE_EMBED, 5u);
CONSTANT(GALLEY_PURPOSE_PREDICT, 6u);
CONSTANT(GALLEY_PURPOSE_EXPORT, 7u);

SIZE(galley_update_call, 48);
FIELD(galley_update_call, size, 0, 4, uint32_t);
FIELD(galley_update_call, revision, 4, 4, uint32_t);
FIELD(galley_update_call, stage, 8, 4, uint32_t);
FIELD(galley_update_call, purpose, 12, 4, uint32_t);
FIELD(galley_update_call, parameters, 16, 8, const galley_tensor*);
FIELD(galley_update_call, gradients, 24, 8, const galley_tensor*);
FIELD(galley_update_call, n, 32, 8, uint64_t);
FIELD(galley_update_call, flags, 40, 8, uint64_t);
CONSTANT(GALLEY_UPDATE_CALL_MIN_SIZE, 40u);
typedef galley_status galley_update_verbs_rate_fn(galley_graph*, const char* name, galley_tensor parameter, galley_tensor* out,
                                                  galley_error*);
typedef galley_status galley_update_verbs_scale_rate_fn(galley_graph*, galley_tensor parameter, double factor, galley_error*);
typedef galley_status galley_update_verbs_report_fn(galley_graph*, galley_tensor tensor, const char* name, galley_error*);
typedef galley_status galley_update_verbs_eval_as_fn(galley_graph*, galley_tensor parameter, galley_tensor value, galley_error*);
typedef galley_status galley_update_verbs_stop_if_fn(galley_graph*, galley_tensor flag, const char* cause, const char* hint, galley_error*);
typedef galley_status galley_update_verbs_end_if_fn(galley_graph*, galley_tensor flag, const char* reason, galley_error*);
SIZE(galley_update_verbs, 64);
FIELD(galley_update_verbs, size, 0, 4, uint32_t);
FIELD(galley_update_verbs, revision, 4, 4, uint32_t);
FIELD(galley_update_verbs, graph, 8, 8, const galley_graph_verbs*);
FIELD(galley_update_verbs, rate, 16, 8, galley_update_verbs_rate_fn*);
FIELD(galley_update_verbs, scale_rate, 24, 8, galley_update_verbs_scale_rate_fn*);
FIELD(galley_update_verbs, report, 32, 8, galley_update_verbs_report_fn*);
FIELD(galley_update_verbs, eval_as, 40, 8, galley_update_verbs_eval_as_fn*);
FIELD(galley_update_verbs, stop_if, 48, 8, galley_update_verbs_stop_if_fn*);
FIELD(galley_update_verbs, end_if, 56, 8, galley_update_verbs_end_if_fn*);
CONSTANT(GALLEY_UPDATE_VERBS_MIN_SIZE, 64u);

typedef galley_status galley_update_build_fn(void* instance, const galley_update_verbs*, galley_graph*, const galley_update_call*,
                                             galley_error*);
SIZE(galley_update, 32);
FIELD(galley_update, size, 0, 4, uint32_t);
FIELD(galley_update, revision, 4, 4, uint32_t);
FIELD(galley_update, stages, 8, 4, uint32_t);
FIELD(galley_update, order, 12, 4, uint32_t);
FIELD(galley_update, build, 16, 8, galley_update_build_fn*);
FIELD(galley_update, flags, 24, 8, uint64_t);
CONSTANT(GALLEY_UPDATE_MIN_SIZE, 24u);

/* --- kernel.h ----------------------------------------------------------------------------------------------- */

SIZE(galley_peak, 32);
FIELD(galley_peak, size, 0, 4, uint32_t);
FIELD(galley_peak, revision, 4, 4, uint32_t);
FIELD(galley_peak, name, 8, 8, const char*);
FIELD(galley_peak, flops, 16, 8, double);
FIELD(galley_peak, flags, 24, 8, uint64_t);
CONSTANT(GALLEY_PEAK_MIN_SIZE, 32u);

SIZE(galley_target_memory, 48);
FIELD(galley_target_memory, size, 0, 4, uint32_t);
FIELD(galley_target_memory, revision, 4, 4, uint32_t);
FIELD(galley_target_memory, name, 8, 8, const char*);
FIELD(galley_target_memory, capacity, 16, 8, int64_t);
FIELD(galley_target_memory, in_bandwidth, 24, 8, double);
FIELD(galley_target_memory, out_bandwidth, 32, 8, double);
FIELD(galley_target_memory, flags, 40, 8, uint64_t);
CONSTANT(GALLEY_TARGET_MEMORY_MIN_SIZE, 48u);

SIZE(galley_library, 32);
FIELD(galley_library, size, 0, 4, uint32_t);
FIELD(galley_library, revision, 4, 4, uint32_t);
FIELD(galley_library, name, 8, 8, const char*);
FIELD(galley_library, version, 16, 8, const char*);
FIELD(galley_library, flags, 24, 8, uint64_t);
CONSTANT(GALLEY_LIBRARY_MIN_SIZE, 32u);

SIZE(galley_link, 48);
FIELD(galley_link, size, 0, 4, uint32_t);
FIELD(galley_link, revision, 4, 4, uint32_t);
FIELD(galley_link, name, 8, 8, const char*);
FIELD(galley_link, ranks, 16, 8, int64_t);
FIELD(galley_link, bandwidth, 24, 8, double);
FIELD(galley_link, latency, 32, 8, double);
FIELD(galley_link, flags, 40, 8, uint64_t);
CONSTANT(GALLEY_LINK_MIN_SIZE, 48u);
SIZE(galley_target, 96);
FIELD(galley_target, size, 0, 4, uint32_t);
FIELD(galley_target, revision, 4, 4, uint32_t);
FIELD(galley_target, device, 8, 8, const char*);
FIELD(galley_target, isa, 16, 8, const char*);
FIELD(galley_target, threads, 24, 8, int64_t);
FIELD(galley_target, workspace_budget, 32, 8, int64_t);
FIELD(galley_target, peaks, 40, 8, const galley_peak* const*);
FIELD(galley_target, memories, 48, 8, const galley_target_memory* const*);
FIELD(galley_target, libraries, 56, 8, const galley_library* const*);
FIELD(galley_target, n_peaks, 64, 4, uint32_t);
FIELD(galley_target, n_memories, 68, 4, uint32_t);
FIELD(galley_target, n_libraries, 72, 4, uint32_t);
FIELD(galley_target, n_links, 76, 4, uint32_t);
FIELD(galley_target, flags, 80, 8, uint64_t);
FIELD(galley_target, links, 88, 8, const galley_link* const*);
CONSTANT(GALLEY_TARGET_MIN_SIZE, 96u);
CONSTANT(GALLEY_TARGET_MAY_VARY, 1ull);
CONSTANT(GALLEY_TARGET_KNOWN, 1ull);
CONSTANT(GALLEY_PLAN_NOT_CAPTURABLE, 1ull);
CONSTANT(GALLEY_PLAN_VARIES, 2ull);
CONSTANT(GALLEY_PLAN_KNOWN, 3ull);

SIZE(galley_kernel_plan, 40);
FIELD(galley_kernel_plan, size, 0, 4, uint32_t);
FIELD(galley_kernel_plan, revision, 4, 4, uint32_t);
FIELD(galley_kernel_plan, workspace_bytes, 8, 8, int64_t);
FIELD(galley_kernel_plan, priority, 16, 8, int64_t);
FIELD(galley_kernel_plan, constants_bytes, 24, 8, int64_t);
FIELD(galley_kernel_plan, flags, 32, 8, uint64_t);
CONSTANT(GALLEY_KERNEL_PLAN_MIN_SIZE, 24u);

typedef const char* galley_choices_find_fn(void* self, const char* key);
typedef void galley_choices_keep_fn(void* self, const char* key, const char* choice);
SIZE(galley_choices, 32);
FIELD(galley_choices, size, 0, 4, uint32_t);
FIELD(galley_choices, revision, 4, 4, uint32_t);
FIELD(galley_choices, self, 8, 8, void*);
FIELD(galley_choices, find, 16, 8, galley_choices_find_fn*);
FIELD(galley_choices, keep, 24, 8, galley_choices_keep_fn*);
CONSTANT(GALLEY_CHOICES_MIN_SIZE, 32u);

SIZE(galley_kernel_setup, 72);
FIELD(galley_kernel_setup, size, 0, 4, uint32_t);
FIELD(galley_kernel_setup, revision, 4, 4, uint32_t);
FIELD(galley_kernel_setup, target, 8, 8, const galley_target*);
FIELD(galley_kernel_setup, workspace, 16, 8, void*);
FIELD(galley_kernel_setup, workspace_bytes, 24, 8, int64_t);
FIELD(galley_kernel_setup, constants, 32, 8, void*);
FIELD(galley_kernel_setup, constants_bytes, 40, 8, int64_t);
FIELD(galley_kernel_setup, queue, 48, 8, galley_queue*);
FIELD(galley_kernel_setup, choices, 56, 8, const galley_choices*);
FIELD(galley_kernel_setup, ranks, 64, 8, void*);
CONSTANT(GALLEY_KERNEL_SETUP_MIN_SIZE, 48u);
SIZE(galley_known_op, 48);
FIELD(galley_known_op, size, 0, 4, uint32_t);
FIELD(galley_known_op, revision, 4, 4, uint32_t);
FIELD(galley_known_op, op, 8, 8, const char*);
FIELD(galley_known_op, attrs, 16, 8, const char* const*);
FIELD(galley_known_op, n_attrs, 24, 4, uint32_t);
FIELD(galley_known_op, n_inputs, 28, 4, uint32_t);
FIELD(galley_known_op, n_outputs, 32, 4, uint32_t);
FIELD(galley_known_op, reserved, 36, 4, uint32_t);
FIELD(galley_known_op, flags, 40, 8, uint64_t);
CONSTANT(GALLEY_KNOWN_OP_MIN_SIZE, 48u);
CONSTANT(GALLEY_KERNEL_FORMATS, 1ull);
CONSTANT(GALLEY_KERNEL_KNOWN, 1ull);
CONSTANT(GALLEY_KERNEL_GROUPS, (1ull << 32));

typedef galley_status galley_kernel_query_fn(void* self, const galley_node_view* const* nodes, uint32_t n, const galley_target*,
                                             galley_kernel_plan* out, galley_error*);
typedef galley_status galley_kernel_prepare_fn(void* self, const galley_node_view* const* nodes, uint32_t n, const galley_kernel_setup*,
                                               void** state, galley_error*);
typedef galley_status galley_kernel_enqueue_fn(void* state, galley_queue*, galley_error*);
typedef void galley_kernel_release_fn(void* state);
SIZE(galley_kernel, 96);
FIELD(galley_kernel, size, 0, 4, uint32_t);
FIELD(galley_kernel, revision, 4, 4, uint32_t);
FIELD(galley_kernel, self, 8, 8, void*);
FIELD(galley_kernel, name, 16, 8, const char*);
FIELD(galley_kernel, op, 24, 8, const char*);
FIELD(galley_kernel, device, 32, 8, const char*);
FIELD(galley_kernel, query, 40, 8, galley_kernel_query_fn*);
FIELD(galley_kernel, prepare, 48, 8, galley_kernel_prepare_fn*);
FIELD(galley_kernel, enqueue, 56, 8, galley_kernel_enqueue_fn*);
FIELD(galley_kernel, release, 64, 8, galley_kernel_release_fn*);
FIELD(galley_kernel, flags, 72, 8, uint64_t);
FIELD(galley_kernel, knows, 80, 8, const galley_known_op* const*);
FIELD(galley_kernel, n_knows, 88, 4, uint32_t);
FIELD(galley_kernel, reserved, 92, 4, uint32_t);
CONSTANT(GALLEY_KERNEL_MIN_SIZE, 72u);

/* --- saved.h ------------------------------------------------------------------------------------------------ */
TEXT(GALLEY_SAVED, "galley.saved/1");
CONSTANT(GALLEY_KEEP, 0u);
CONSTANT(GALLEY_RECOMPUTE, 1u);
CONSTANT(GALLEY_RECOMPUTE_EACH, 3u);
CONSTANT(GALLEY_SAVED_BLOCK_INPUT, 1ull);
CONSTANT(GALLEY_SAVED_RECOMPUTABLE, 2ull);
CONSTANT(GALLEY_SAVED_OFFLOADABLE, 4ull);
CONSTANT(GALLEY_SAVED_KNOWN, 15ull);

SIZE(galley_saved_format, 40);
FIELD(galley_saved_format, size, 0, 4, uint32_t);
FIELD(galley_saved_format, revision, 4, 4, uint32_t);
FIELD(galley_saved_format, name, 8, 8, const char*);
FIELD(galley_saved_format, attrs, 16, 8, const galley_attr* const*);
FIELD(galley_saved_format, n_attrs, 24, 4, uint32_t);
FIELD(galley_saved_format, reserved, 28, 4, uint32_t);
FIELD(galley_saved_format, flags, 32, 8, uint64_t);
SIZE(galley_saved_item, 128);
FIELD(galley_saved_item, size, 0, 4, uint32_t);
FIELD(galley_saved_item, revision, 4, 4, uint32_t);
FIELD(galley_saved_item, name, 8, 8, const char*);
FIELD(galley_saved_item, bytes, 16, 8, int64_t);
FIELD(galley_saved_item, block, 24, 8, int64_t);
FIELD(galley_saved_item, flops, 32, 8, double);
FIELD(galley_saved_item, recompute_seconds, 40, 8, double);
FIELD(galley_saved_item, flags, 48, 8, uint64_t);
FIELD(galley_saved_item, parents, 56, 8, const uint64_t*);
FIELD(galley_saved_item, offload_seconds_to, 64, 8, const double*);
FIELD(galley_saved_item, accepted, 72, 8, const uint32_t*);
FIELD(galley_saved_item, n_memories, 80, 4, uint32_t);
FIELD(galley_saved_item, n_accepted, 84, 4, uint32_t);
FIELD(galley_saved_item, n_parents, 88, 4, uint32_t);
FIELD(galley_saved_item, n_formats, 92, 4, uint32_t);
FIELD(galley_saved_item, op, 96, 8, const char*);
FIELD(galley_saved_item, op_flags, 104, 8, uint64_t);
FIELD(galley_saved_item, format_bytes, 112, 8, const int64_t*);
FIELD(galley_saved_item, format_seconds, 120, 8, const double*);
CONSTANT(GALLEY_SAVED_FORMAT_MIN_SIZE, 40u);
CONSTANT(GALLEY_SAVED_COMPRESSIBLE, 8ull);
CONSTANT(GALLEY_SAVED_ITEM_MIN_SIZE, 112u);

typedef galley_status galley_saved_set_peak_fn(void* context, const uint32_t* choices, uint32_t memory, int64_t* out, galley_error*);
typedef galley_status galley_saved_set_seconds_fn(void* context, const uint32_t* choices, double* out, galley_error*);
SIZE(galley_saved_set, 80);
FIELD(galley_saved_set, size, 0, 4, uint32_t);
FIELD(galley_saved_set, revision, 4, 4, uint32_t);
FIELD(galley_saved_set, items, 8, 8, const galley_saved_item* const*);
FIELD(galley_saved_set, n_items, 16, 8, uint64_t);
FIELD(galley_saved_set, blocks, 24, 8, int64_t);
FIELD(galley_saved_set, context, 32, 8, void*);
FIELD(galley_saved_set, peak, 40, 8, galley_saved_set_peak_fn*);
FIELD(galley_saved_set, target, 48, 8, const galley_target*);
FIELD(galley_saved_set, formats, 56, 8, const galley_saved_format* const*);
FIELD(galley_saved_set, n_formats, 64, 4, uint32_t);
FIELD(galley_saved_set, reserved, 68, 4, uint32_t);
FIELD(galley_saved_set, seconds, 72, 8, galley_saved_set_seconds_fn*);
CONSTANT(GALLEY_SAVED_SET_MIN_SIZE, 80u);

typedef galley_status galley_saved_decide_fn(void* instance, const galley_saved_set*, uint32_t* choices, galley_error*);
typedef galley_status galley_saved_budget_fn(void* instance, int64_t* out, galley_error*);
typedef galley_status galley_saved_formats_fn(void* instance, const galley_saved_format* const** out, uint32_t* n, galley_error*);
SIZE(galley_saved, 40);
FIELD(galley_saved, size, 0, 4, uint32_t);
FIELD(galley_saved, revision, 4, 4, uint32_t);
FIELD(galley_saved, decide, 8, 8, galley_saved_decide_fn*);
FIELD(galley_saved, flags, 16, 8, uint64_t);
FIELD(galley_saved, budget, 24, 8, galley_saved_budget_fn*);
FIELD(galley_saved, formats, 32, 8, galley_saved_formats_fn*);
CONSTANT(GALLEY_SAVED_MIN_SIZE, 16u);

/* --- observer.h --------------------------------------------------------------------------------------------- */
TEXT(GALLEY_OBSERVER, "galley.observer/1");

SIZE(galley_started_event, 64);
FIELD(galley_started_event, size, 0, 4, uint32_t);
FIELD(galley_started_event, revision, 4, 4, uint32_t);
FIELD(galley_started_event, directory, 8, 8, const char*);
FIELD(galley_started_event, steps_done, 16, 8, int64_t);
FIELD(galley_started_event, steps, 24, 8, int64_t);
FIELD(galley_started_event, parameters, 32, 8, int64_t);
FIELD(galley_started_event, trainable, 40, 8, int64_t);
FIELD(galley_started_event, planned_bytes, 48, 8, int64_t);
FIELD(galley_started_event, flags, 56, 8, uint64_t);
CONSTANT(GALLEY_STARTED_EVENT_MIN_SIZE, 64u);
CONSTANT(GALLEY_STEP_APPLIED, 1ull);
CONSTANT(GALLEY_STEP_KNOWN, 1ull);

SIZE(galley_step_event, 120);
FIELD(galley_step_event, size, 0, 4, uint32_t);
FIELD(galley_step_event, revision, 4, 4, uint32_t);
FIELD(galley_step_event, step, 8, 8, int64_t);
FIELD(galley_step_event, loss, 16, 8, double);
FIELD(galley_step_event, grad_norm, 24, 8, double);
FIELD(galley_step_event, lr, 32, 8, double);
FIELD(galley_step_event, epoch, 40, 8, double);
FIELD(galley_step_event, seconds, 48, 8, double);
FIELD(galley_step_event, aside, 56, 8, double);
FIELD(galley_step_event, tokens, 64, 8, int64_t);
FIELD(galley_step_event, positions, 72, 8, int64_t);
FIELD(galley_step_event, micro_batches, 80, 8, int64_t);
FIELD(galley_step_event, metric_names, 88, 8, const char* const*);
FIELD(galley_step_event, metric_values, 96, 8, const double*);
FIELD(galley_step_event, n_metrics, 104, 8, uint64_t);
FIELD(galley_step_event, flags, 112, 8, uint64_t);
CONSTANT(GALLEY_STEP_EVENT_MIN_SIZE, 120u);
CONSTANT(GALLEY_VALIDATED_BEST, 1ull);
CONSTANT(GALLEY_VALIDATED_KNOWN, 1ull);

SIZE(galley_validated_event, 64);
FIELD(galley_validated_event, size, 0, 4, uint32_t);
FIELD(galley_validated_event, revision, 4, 4, uint32_t);
FIELD(galley_validated_event, step, 8, 8, int64_t);
FIELD(galley_validated_event, loss, 16, 8, double);
FIELD(galley_validated_event, seconds, 24, 8, double);
FIELD(galley_validated_event, metric_names, 32, 8, const char* const*);
FIELD(galley_validated_event, metric_values, 40, 8, const double*);
FIELD(galley_validated_event, n_metrics, 48, 8, uint64_t);
FIELD(galley_validated_event, flags, 56, 8, uint64_t);
CONSTANT(GALLEY_VALIDATED_EVENT_MIN_SIZE, 64u);

SIZE(galley_note_event, 24);
FIELD(galley_note_event, size, 0, 4, uint32_t);
FIELD(galley_note_event, revision, 4, 4, uint32_t);
FIELD(galley_note_event, text, 8, 8, const char*);
FIELD(galley_note_event, flags, 16, 8, uint64_t);
CONSTANT(GALLEY_NOTE_EVENT_MIN_SIZE, 24u);
CONSTANT(GALLEY_ENDED_DONE, 1u);
CONSTANT(GALLEY_ENDED_INTERRUPTED, 2u);
CONSTANT(GALLEY_ENDED_FAILED, 3u);

SIZE(galley_ended_event, 40);
FIELD(galley_ended_event, size, 0, 4, uint32_t);
FIELD(galley_ended_event, revision, 4, 4, uint32_t);
FIELD(galley_ended_event, how, 8, 4, uint32_t);
FIELD(galley_ended_event, reserved, 12, 4, uint32_t);
FIELD(galley_ended_event, steps_done, 16, 8, int64_t);
FIELD(galley_ended_event, error, 24, 8, const char*);
FIELD(galley_ended_event, flags, 32, 8, uint64_t);
CONSTANT(GALLEY_ENDED_EVENT_MIN_SIZE, 40u);
CONSTANT(GALLEY_OBSERVER_ENDS_RUN, 1ull);
CONSTANT(GALLEY_OBSERVER_KNOWN, 1ull);

typedef galley_status galley_observer_started_fn(void* instance, const galley_started_event*, void** listener, galley_error*);
typedef galley_status galley_observer_step_fn(void* listener, const galley_step_event*, galley_error*);
typedef galley_status galley_observer_validated_fn(void* listener, const galley_validated_event*, galley_error*);
typedef galley_status galley_observer_saving_fn(void* listener, galley_error*);
typedef galley_status galley_observer_note_fn(void* listener, const galley_note_event*, galley_error*);
typedef galley_status galley_observer_ended_fn(void* listener, const galley_ended_event*, galley_error*);
SIZE(galley_observer, 64);
FIELD(galley_observer, size, 0, 4, uint32_t);
FIELD(galley_observer, revision, 4, 4, uint32_t);
FIELD(galley_observer, started, 8, 8, galley_observer_started_fn*);
FIELD(galley_observer, step, 16, 8, galley_observer_step_fn*);
FIELD(galley_observer, validated, 24, 8, galley_observer_validated_fn*);
FIELD(galley_observer, saving, 32, 8, galley_observer_saving_fn*);
FIELD(galley_observer, note, 40, 8, galley_observer_note_fn*);
FIELD(galley_observer, ended, 48, 8, galley_observer_ended_fn*);
FIELD(galley_observer, flags, 56, 8, uint64_t);
CONSTANT(GALLEY_OBSERVER_MIN_SIZE, 64u);

/* --- op.h --------------------------------------------------------------------------------------------------- */
CONSTANT(GALLEY_ROLE_WHOLE, 0u);
CONSTANT(GALLEY_ROLE_ROWS, 1u);
CONSTANT(GALLEY_ROLE_REDUCED, 2u);
CONSTANT(GALLEY_OPERAND_OPTIONAL, 1ull);
CONSTANT(GALLEY_OPERAND_INOUT, 2ull);
CONSTANT(GALLEY_OPERAND_ACCUMULATES, 4ull);
CONSTANT(GALLEY_OPERAND_VARIADIC, 8ull);
CONSTANT(GALLEY_OPERAND_NO_GRADIENT, 16ull);
CONSTANT(GALLEY_OPERAND_SAME_ROWS, 32ull);
CONSTANT(GALLEY_OPERAND_COMPUTE, 64ull);
CONSTANT(GALLEY_OPERAND_ANY_DTYPE, 128ull);
CONSTANT(GALLEY_OPERAND_KNOWN, 255ull);

SIZE(galley_operand_rule, 40);
FIELD(galley_operand_rule, size, 0, 4, uint32_t);
FIELD(galley_operand_rule, revision, 4, 4, uint32_t);
FIELD(galley_operand_rule, name, 8, 8, const char*);
FIELD(galley_operand_rule, role, 16, 4, uint32_t);
FIELD(galley_operand_rule, alias, 20, 4, int32_t);
FIELD(galley_operand_rule, flags, 24, 8, uint64_t);
FIELD(galley_operand_rule, summary, 32, 8, const char*);
CONSTANT(GALLEY_OPERAND_RULE_MIN_SIZE, 32u);
CONSTANT(GALLEY_ATTR_REQUIRED, 1ull);
CONSTANT(GALLEY_ATTR_LIST, 2ull);
CONSTANT(GALLEY_ATTR_STOPS, (1ull << 32));
CONSTANT(GALLEY_ATTR_ADVICE, (1ull << 33));
CONSTANT(GALLEY_ATTR_RULE_KNOWN, 3ull);

SIZE(galley_attr_rule, 48);
FIELD(galley_attr_rule, size, 0, 4, uint32_t);
FIELD(galley_attr_rule, revision, 4, 4, uint32_t);
FIELD(galley_attr_rule, name, 8, 8, const char*);
FIELD(galley_attr_rule, type, 16, 4, uint32_t);
FIELD(galley_attr_rule, reserved, 20, 4, uint32_t);
FIELD(galley_attr_rule, flags, 24, 8, uint64_t);
FIELD(galley_attr_rule, otherwise, 32, 8, const galley_attr*);
FIELD(galley_attr_rule, summary, 40, 8, const char*);
CONSTANT(GALLEY_ATTR_RULE_MIN_SIZE, 40u);

CONSTANT(GALLEY_OP_RANDOM, 1ull);
CONSTANT(GALLEY_OP_TRAINING_ONLY, 2ull);
CONSTANT(GALLEY_OP_LOSS, 4ull);
CONSTANT(GALLEY_OP_LINEAR, 8ull);
CONSTANT(GALLEY_OP_LOW, 16ull);
CONSTANT(GALLEY_OP_FULL, 32ull);
CONSTANT(GALLEY_OP_ROUNDS, (1ull << 32));
CONSTANT(GALLEY_OP_PRIVATE, 64ull);
CONSTANT(GALLEY_OP_EXCHANGE, 128ull);
CONSTANT(GALLEY_OP_KNOWN, 255ull);
CONSTANT(GALLEY_OP_LOAD_ON_HOST, (1ull << 33));
CONSTANT(GALLEY_GRAIN_NONE, 0u);
CONSTANT(GALLEY_GRAIN_ELEMENT, 1u);
CONSTANT(GALLEY_GRAIN_BLOCK, 2u);
CONSTANT(GALLEY_GRAIN_ROW, 3u);
CONSTANT(GALLEY_GRAIN_TENSOR, 4u);

typedef int64_t galley_shape_extents_array[8];
SIZE(galley_shape, 88);
FIELD(galley_shape, size, 0, 4, uint32_t);
FIELD(galley_shape, revision, 4, 4, uint32_t);
FIELD(galley_shape, rank, 8, 4, uint32_t);
FIELD(galley_shape, dtype, 12, 4, uint32_t);
FIELD(galley_shape, extents, 16, 64, galley_shape_extents_array);
FIELD(galley_shape, flags, 80, 8, uint64_t);
CONSTANT(GALLEY_SHAPE_MIN_SIZE, 80u);

SIZE(galley_cost, 32);
FIELD(galley_cost, size, 0, 4, uint32_t);
FIELD(galley_cost, revision, 4, 4, uint32_t);
FIELD(galley_cost, flops, 8, 8, double);
FIELD(galley_cost, bytes, 16, 8, double);
FIELD(galley_cost, link_bytes, 24, 8, double);
CONSTANT(GALLEY_COST_MIN_SIZE, 16u);

SIZE(galley_op_case, 40);
FIELD(galley_op_case, size, 0, 4, uint32_t);
FIELD(galley_op_case, revision, 4, 4, uint32_t);
FIELD(galley_op_case, node, 8, 8, const galley_node_view*);
FIELD(galley_op_case, low, 16, 8, const double*);
FIELD(galley_op_case, high, 24, 8, const double*);
FIELD(galley_op_case, flags, 32, 8, uint64_t);
CONSTANT(GALLEY_OP_CASE_MIN_SIZE, 32u);

SIZE(galley_gradient_call, 64);
FIELD(galley_gradient_call, size, 0, 4, uint32_t);
FIELD(galley_gradient_call, revision, 4, 4, uint32_t);
FIELD(galley_gradient_call, node, 8, 8, galley_node);
FIELD(galley_gradient_call, d_outputs, 16, 8, const galley_tensor*);
FIELD(galley_gradient_call, need, 24, 8, const uint8_t*);
FIELD(galley_gradient_call, d_inputs, 32, 8, galley_tensor*);
FIELD(galley_gradient_call, accumulate, 40, 8, const uint8_t*);
FIELD(galley_gradient_call, n_inputs, 48, 4, uint32_t);
FIELD(galley_gradient_call, n_outputs, 52, 4, uint32_t);
FIELD(galley_gradient_call, flags, 56, 8, uint64_t);
CONSTANT(GALLEY_GRADIENT_CALL_MIN_SIZE, 56u);

typedef galley_status galley_op_infer_fn(void* self, const galley_node_view*, galley_shape* const* outputs, galley_error*);
typedef galley_status galley_op_gradient_fn(void* self, const galley_graph_verbs*, galley_graph*, const galley_gradient_call*,
                                            galley_error*);
typedef galley_status galley_op_cost_fn(void* self, const galley_node_view*, galley_cost*, galley_error*);
typedef galley_status galley_op_reference_fn(void* self, const galley_node_view*, galley_error*);
SIZE(galley_op, 136);
FIELD(galley_op, size, 0, 4, uint32_t);
FIELD(galley_op, revision, 4, 4, uint32_t);
FIELD(galley_op, self, 8, 8, void*);
FIELD(galley_op, name, 16, 8, const char*);
FIELD(galley_op, summary, 24, 8, const char*);
FIELD(galley_op, inputs, 32, 8, const galley_operand_rule* const*);
FIELD(galley_op, outputs, 40, 8, const galley_operand_rule* const*);
FIELD(galley_op, cases, 48, 8, const galley_op_case* const*);
FIELD(galley_op, attrs, 56, 8, const galley_attr_rule* const*);
FIELD(galley_op, n_inputs, 64, 4, uint32_t);
FIELD(galley_op, n_outputs, 68, 4, uint32_t);
FIELD(galley_op, n_cases, 72, 4, uint32_t);
FIELD(galley_op, n_attrs, 76, 4, uint32_t);
FIELD(galley_op, grain, 80, 4, uint32_t);
FIELD(galley_op, reserved, 84, 4, uint32_t);
FIELD(galley_op, grain_block, 88, 8, int64_t);
FIELD(galley_op, flags, 96, 8, uint64_t);
FIELD(galley_op, infer, 104, 8, galley_op_infer_fn*);
FIELD(galley_op, gradient, 112, 8, galley_op_gradient_fn*);
FIELD(galley_op, cost, 120, 8, galley_op_cost_fn*);
FIELD(galley_op, reference, 128, 8, galley_op_reference_fn*);
CONSTANT(GALLEY_OP_MIN_SIZE, 112u);

/* --- files.h ------------------------------------------------------------------------------------------------ */
TEXT(GALLEY_FILES, "galley.files/1");

SIZE(galley_file_tensor, 56);
FIELD(galley_file_tensor, size, 0, 4, uint32_t);
FIELD(galley_file_tensor, revision, 4, 4, uint32_t);
FIELD(galley_file_tensor, name, 8, 8, const char*);
FIELD(galley_file_tensor, dtype, 16, 8, const char*);
FIELD(galley_file_tensor, extents, 24, 8, const int64_t*);
FIELD(galley_file_tensor, bytes, 32, 8, uint64_t);
FIELD(galley_file_tensor, rank, 40, 4, uint32_t);
FIELD(galley_file_tensor, reserved, 44, 4, uint32_t);
FIELD(galley_file_tensor, flags, 48, 8, uint64_t);
CONSTANT(GALLEY_FILE_TENSOR_MIN_SIZE, 48u);

typedef galley_status galley_files_text_fn(void* context, const char* path, uint64_t limit,
                                           galley_status (*see)(void* see_context, const char* text, uint64_t bytes), void* see_context,
                                           galley_error*);
typedef galley_status galley_files_tensors_fn(void* context, const char* path,
                                              galley_status (*see)(void* see_context, const galley_file_tensor*), void* see_context,
                                              galley_error*);
typedef galley_status galley_files_contents_fn(void* context, const char* path, const char* pattern, uint64_t limit,
                                               galley_status (*see)(void* see_context, const char* name, const void* data, uint64_t bytes),
                                               void* see_context, galley_error*);
SIZE(galley_files, 40);
FIELD(galley_files, size, 0, 4, uint32_t);
FIELD(galley_files, revision, 4, 4, uint32_t);
FIELD(galley_files, text, 8, 8, galley_files_text_fn*);
FIELD(galley_files, tensors, 16, 8, galley_files_tensors_fn*);
FIELD(galley_files, flags, 24, 8, uint64_t);
FIELD(galley_files, contents, 32, 8, galley_files_contents_fn*);
CONSTANT(GALLEY_FILES_MIN_SIZE, 24u);

/* --- format.h ----------------------------------------------------------------------------------------------- */

typedef int64_t galley_component_extents_array[8];
SIZE(galley_component, 104);
FIELD(galley_component, size, 0, 4, uint32_t);
FIELD(galley_component, revision, 4, 4, uint32_t);
FIELD(galley_component, suffix, 8, 8, const char*);
FIELD(galley_component, rank, 16, 4, uint32_t);
FIELD(galley_component, dtype, 20, 4, uint32_t);
FIELD(galley_component, extents, 24, 64, galley_component_extents_array);
FIELD(galley_component, numbers, 88, 8, int64_t);
FIELD(galley_component, file_name, 96, 8, const char*);
CONSTANT(GALLEY_COMPONENT_MIN_SIZE, 96u);
CONSTANT(GALLEY_MAX_COMPONENTS, 8u);
CONSTANT(GALLEY_FORMAT_STOCHASTIC, 1ull);
CONSTANT(GALLEY_FORMAT_PLAIN, 2ull);
CONSTANT(GALLEY_PLACEMENT_ALWAYS, 0);
CONSTANT(GALLEY_PLACEMENT_MASTER, 1);
CONSTANT(GALLEY_FORMAT_ROUNDED, 4ull);
CONSTANT(GALLEY_FORMAT_EXACT, 8ull);
CONSTANT(GALLEY_FORMAT_TRAINABLE, 16ull);
CONSTANT(GALLEY_FORMAT_KNOWN, 31ull);

typedef galley_status galley_format_components_fn(void* self, const int64_t* shape, uint32_t rank, const galley_attr* const* attrs,
                                                  uint32_t n_attrs, galley_component* const* out, uint32_t* n, galley_error*);
SIZE(galley_format, 56);
FIELD(galley_format, size, 0, 4, uint32_t);
FIELD(galley_format, revision, 4, 4, uint32_t);
FIELD(galley_format, self, 8, 8, void*);
FIELD(galley_format, name, 16, 8, const char*);
FIELD(galley_format, pack_op, 24, 8, const char*);
FIELD(galley_format, unpack_op, 32, 8, const char*);
FIELD(galley_format, components, 40, 8, galley_format_components_fn*);
FIELD(galley_format, flags, 48, 8, uint64_t);
CONSTANT(GALLEY_FORMAT_MIN_SIZE, 56u);

SIZE(galley_source_tensor, 48);
FIELD(galley_source_tensor, size, 0, 4, uint32_t);
FIELD(galley_source_tensor, revision, 4, 4, uint32_t);
FIELD(galley_source_tensor, name, 8, 8, const char*);
FIELD(galley_source_tensor, unit, 16, 8, const char*);
FIELD(galley_source_tensor, extent, 24, 8, int64_t);
FIELD(galley_source_tensor, dtype, 32, 4, uint32_t);
FIELD(galley_source_tensor, reserved, 36, 4, uint32_t);
FIELD(galley_source_tensor, flags, 40, 8, uint64_t);
CONSTANT(GALLEY_SOURCE_TENSOR_MIN_SIZE, 48u);
CONSTANT(GALLEY_SOURCE_PER_POSITION, (-1));
CONSTANT(GALLEY_SOURCE_MOST_TENSORS, 8u);
CONSTANT(GALLEY_SOURCE_COUNTS, 1ull);

SIZE(galley_source_call, 48);
FIELD(galley_source_call, size, 0, 4, uint32_t);
FIELD(galley_source_call, revision, 4, 4, uint32_t);
FIELD(galley_source_call, rows, 8, 8, int64_t);
FIELD(galley_source_call, length, 16, 8, int64_t);
FIELD(galley_source_call, flags, 24, 8, uint64_t);
FIELD(galley_source_call, classes, 32, 8, int64_t);
FIELD(galley_source_call, learns, 40, 4, uint32_t);
FIELD(galley_source_call, reserved, 44, 4, uint32_t);
CONSTANT(GALLEY_SOURCE_CALL_MIN_SIZE, 32u);
CONSTANT(GALLEY_SOURCE_LABELS, 1ull);
CONSTANT(GALLEY_SOURCE_VALIDATES, 2ull);
CONSTANT(GALLEY_SOURCE_LEARNED, 4ull);
CONSTANT(GALLEY_SOURCE_ENDLESS, 8ull);
CONSTANT(GALLEY_SOURCE_INFO_KNOWN, 15ull);
CONSTANT(GALLEY_LEARNS_NEXT_TOKENS, 0u);
CONSTANT(GALLEY_LEARNS_MASKED_TOKENS, 1u);
CONSTANT(GALLEY_LEARNS_TOKEN_LABELS, 2u);
CONSTANT(GALLEY_LEARNS_ROW_LABELS, 3u);
CONSTANT(GALLEY_LEARNS_ROW_VALUES, 4u);
CONSTANT(GALLEY_LEARNS_TARGET, 5u);

SIZE(galley_source_info, 56);
FIELD(galley_source_info, size, 0, 4, uint32_t);
FIELD(galley_source_info, revision, 4, 4, uint32_t);
FIELD(galley_source_info, rows_of_item, 8, 8, int64_t);
FIELD(galley_source_info, vocabulary, 16, 8, int64_t);
FIELD(galley_source_info, tensors, 24, 8, const galley_source_tensor* const*);
FIELD(galley_source_info, n_tensors, 32, 4, uint32_t);
FIELD(galley_source_info, reserved, 36, 4, uint32_t);
FIELD(galley_source_info, summary, 40, 8, const char*);
FIELD(galley_source_info, flags, 48, 8, uint64_t);
CONSTANT(GALLEY_SOURCE_INFO_MIN_SIZE, 56u);

SIZE(galley_source_contents, 56);
FIELD(galley_source_contents, size, 0, 4, uint32_t);
FIELD(galley_source_contents, revision, 4, 4, uint32_t);
FIELD(galley_source_contents, items, 8, 8, int64_t);
FIELD(galley_source_contents, validation_items, 16, 8, int64_t);
FIELD(galley_source_contents, fingerprint, 24, 8, uint64_t);
FIELD(galley_source_contents, vocabulary, 32, 8, int64_t);
FIELD(galley_source_contents, seed, 40, 8, uint64_t);
FIELD(galley_source_contents, length, 48, 8, int64_t);
CONSTANT(GALLEY_SOURCE_CONTENTS_MIN_SIZE, 32u);

SIZE(galley_source_row, 96);
FIELD(galley_source_row, size, 0, 4, uint32_t);
FIELD(galley_source_row, revision, 4, 4, uint32_t);
FIELD(galley_source_row, item, 8, 8, int64_t);
FIELD(galley_source_row, row, 16, 8, int64_t);
FIELD(galley_source_row, room, 24, 8, int64_t);
FIELD(galley_source_row, tokens, 32, 8, int32_t*);
FIELD(galley_source_row, labels, 40, 8, int32_t*);
FIELD(galley_source_row, tensors, 48, 8, void* const*);
FIELD(galley_source_row, length, 56, 8, int64_t);
FIELD(galley_source_row, validation, 64, 4, uint32_t);
FIELD(galley_source_row, reserved, 68, 4, uint32_t);
FIELD(galley_source_row, learned, 72, 8, void*);
FIELD(galley_source_row, n_learned, 80, 8, int64_t);
FIELD(galley_source_row, target, 88, 8, int32_t*);
CONSTANT(GALLEY_SOURCE_ROW_MIN_SIZE, 72u);

typedef galley_status galley_source_create_fn(void* self, const galley_options*, void** instance, galley_error*);
typedef void galley_source_destroy_fn(void* instance);
typedef galley_status galley_source_describe_fn(void* instance, const galley_source_call*, galley_source_info* out, galley_error*);
typedef galley_status galley_source_open_fn(void* instance, galley_source_contents* out, galley_error*);
typedef galley_status galley_source_read_fn(void* instance, galley_source_row*, galley_error*);
SIZE(galley_source, 72);
FIELD(galley_source, size, 0, 4, uint32_t);
FIELD(galley_source, revision, 4, 4, uint32_t);
FIELD(galley_source, self, 8, 8, void*);
FIELD(galley_source, name, 16, 8, const char*);
FIELD(galley_source, create, 24, 8, galley_source_create_fn*);
FIELD(galley_source, destroy, 32, 8, galley_source_destroy_fn*);
FIELD(galley_source, describe, 40, 8, galley_source_describe_fn*);
FIELD(galley_source, open, 48, 8, galley_source_open_fn*);
FIELD(galley_source, read, 56, 8, galley_source_read_fn*);
FIELD(galley_source, flags, 64, 8, uint64_t);
CONSTANT(GALLEY_SOURCE_MIN_SIZE, 72u);

typedef galley_status galley_codec_open_fn(void* self, const galley_operand*, void* state, int64_t* unit, galley_error*);
typedef galley_status galley_codec_decode_fn(const void* state, int64_t first, int64_t n, uint32_t dtype, void* to, galley_queue*,
                                             galley_error*);
typedef galley_status galley_codec_encode_fn(const void* state, int64_t first, int64_t n, const float* from, galley_queue*, galley_error*);
SIZE(galley_codec, 64);
FIELD(galley_codec, size, 0, 4, uint32_t);
FIELD(galley_codec, revision, 4, 4, uint32_t);
FIELD(galley_codec, self, 8, 8, void*);
FIELD(galley_codec, format, 16, 8, const char*);
FIELD(galley_codec, device, 24, 8, const char*);
FIELD(galley_codec, open, 32, 8, galley_codec_open_fn*);
FIELD(galley_codec, decode, 40, 8, galley_codec_decode_fn*);
FIELD(galley_codec, encode, 48, 8, galley_codec_encode_fn*);
FIELD(galley_codec, flags, 56, 8, uint64_t);
CONSTANT(GALLEY_CODEC_MIN_SIZE, 64u);
CONSTANT(GALLEY_CODEC_STATE, 128u);

/* --- device.h ----------------------------------------------------------------------------------------------- */

CONSTANT(GALLEY_MEMORY_HOST_ACCESS, 1ull);
CONSTANT(GALLEY_MEMORY_COMPUTES, 2ull);
CONSTANT(GALLEY_MEMORY_KNOWN, 3ull);
SIZE(galley_memory_class, 32);
FIELD(galley_memory_class, size, 0, 4, uint32_t);
FIELD(galley_memory_class, revision, 4, 4, uint32_t);
FIELD(galley_memory_class, name, 8, 8, const char*);
FIELD(galley_memory_class, alignment, 16, 8, int64_t);
FIELD(galley_memory_class, flags, 24, 8, uint64_t);
CONSTANT(GALLEY_MEMORY_CLASS_MIN_SIZE, 32u);
CONSTANT(GALLEY_QUEUE_COMPUTE, 1u);
CONSTANT(GALLEY_QUEUE_IN, 2u);
CONSTANT(GALLEY_QUEUE_OUT, 3u);
CONSTANT(GALLEY_QUEUE_EXCHANGE, 4u);

SIZE(galley_queue_info, 24);
FIELD(galley_queue_info, size, 0, 4, uint32_t);
FIELD(galley_queue_info, revision, 4, 4, uint32_t);
FIELD(galley_queue_info, role, 8, 4, uint32_t);
FIELD(galley_queue_info, reserved, 12, 4, uint32_t);
FIELD(galley_queue_info, flags, 16, 8, uint64_t);
CONSTANT(GALLEY_QUEUE_INFO_MIN_SIZE, 16u);
CONSTANT(GALLEY_MEMORY_PROCESS, 0xFFFFFFFFu);

SIZE(galley_copy, 64);
FIELD(galley_copy, size, 0, 4, uint32_t);
FIELD(galley_copy, revision, 4, 4, uint32_t);
FIELD(galley_copy, to_memory, 8, 4, uint32_t);
FIELD(galley_copy, from_memory, 12, 4, uint32_t);
FIELD(galley_copy, to_offset, 16, 8, int64_t);
FIELD(galley_copy, from_offset, 24, 8, int64_t);
FIELD(galley_copy, bytes, 32, 8, int64_t);
FIELD(galley_copy, to_address, 40, 8, void*);
FIELD(galley_copy, from_address, 48, 8, const void*);
FIELD(galley_copy, flags, 56, 8, uint64_t);
CONSTANT(GALLEY_COPY_MIN_SIZE, 56u);

SIZE(galley_device_options, 40);
FIELD(galley_device_options, size, 0, 4, uint32_t);
FIELD(galley_device_options, revision, 4, 4, uint32_t);
FIELD(galley_device_options, target, 8, 8, const galley_target*);
FIELD(galley_device_options, n_events, 16, 4, uint32_t);
FIELD(galley_device_options, n_marks, 20, 4, uint32_t);
FIELD(galley_device_options, flags, 24, 8, uint64_t);
FIELD(galley_device_options, index, 32, 4, uint32_t);
FIELD(galley_device_options, reserved, 36, 4, uint32_t);
CONSTANT(GALLEY_DEVICE_OPTIONS_MIN_SIZE, 24u);

typedef galley_status galley_device_describe_fn(void* self, galley_target* out, galley_error*);
typedef galley_status galley_device_open_fn(void* self, const galley_device_options*, void** device, galley_error*);
typedef void galley_device_close_fn(void* device);
typedef galley_status galley_device_allocate_fn(void* device, uint32_t memory, int64_t bytes, void** out, galley_error*);
typedef void galley_device_release_fn(void* device, uint32_t memory, void* data, int64_t bytes);
typedef galley_status galley_device_launch_fn(void* device, uint32_t queue, const galley_kernel* kernel, void* state, galley_error*);
typedef galley_status galley_device_copy_fn(void* device, uint32_t queue, const galley_copy*, galley_error*);
typedef galley_status galley_device_record_fn(void* device, uint32_t queue, uint32_t event, galley_error*);
typedef galley_status galley_device_wait_fn(void* device, uint32_t queue, uint32_t event, galley_error*);
typedef galley_status galley_device_await_fn(void* device, uint32_t event, galley_error*);
typedef galley_status galley_device_synchronize_fn(void* device, galley_error*);
typedef galley_status galley_device_capture_fn(void* device, galley_error*);
typedef galley_status galley_device_end_capture_fn(void* device, galley_capture** out, galley_error*);
typedef galley_status galley_device_replay_fn(void* device, galley_capture*, galley_error*);
typedef void galley_device_discard_fn(void* device, galley_capture*);
typedef galley_queue* galley_device_queue_of_fn(void* device, uint32_t queue);
typedef galley_status galley_device_mark_fn(void* device, uint32_t queue, uint32_t mark, galley_error*);
typedef galley_status galley_device_time_fn(void* device, uint32_t mark, double* seconds, galley_error*);
typedef void galley_device_name_work_fn(void* device, const char* name);
typedef galley_status galley_device_usage_fn(void* device, uint32_t memory, int64_t* taken, int64_t* capacity, galley_error*);
SIZE(galley_device, 216);
FIELD(galley_device, size, 0, 4, uint32_t);
FIELD(galley_device, revision, 4, 4, uint32_t);
FIELD(galley_device, self, 8, 8, void*);
FIELD(galley_device, kind, 16, 8, const char*);
FIELD(galley_device, memories, 24, 8, const galley_memory_class* const*);
FIELD(galley_device, queues, 32, 8, const galley_queue_info* const*);
FIELD(galley_device, n_memories, 40, 4, uint32_t);
FIELD(galley_device, n_queues, 44, 4, uint32_t);
FIELD(galley_device, describe, 48, 8, galley_device_describe_fn*);
FIELD(galley_device, open, 56, 8, galley_device_open_fn*);
FIELD(galley_device, close, 64, 8, galley_device_close_fn*);
FIELD(galley_device, allocate, 72, 8, galley_device_allocate_fn*);
FIELD(galley_device, release, 80, 8, galley_device_release_fn*);
FIELD(galley_device, launch, 88, 8, galley_device_launch_fn*);
FIELD(galley_device, copy, 96, 8, galley_device_copy_fn*);
FIELD(galley_device, record, 104, 8, galley_device_record_fn*);
FIELD(galley_device, wait, 112, 8, galley_device_wait_fn*);
FIELD(galley_device, await, 120, 8, galley_device_await_fn*);
FIELD(galley_device, synchronize, 128, 8, galley_device_synchronize_fn*);
FIELD(galley_device, capture, 136, 8, galley_device_capture_fn*);
FIELD(galley_device, end_capture, 144, 8, galley_device_end_capture_fn*);
FIELD(galley_device, replay, 152, 8, galley_device_replay_fn*);
FIELD(galley_device, discard, 160, 8, galley_device_discard_fn*);
FIELD(galley_device, flags, 168, 8, uint64_t);
FIELD(galley_device, queue_of, 176, 8, galley_device_queue_of_fn*);
FIELD(galley_device, mark, 184, 8, galley_device_mark_fn*);
FIELD(galley_device, time, 192, 8, galley_device_time_fn*);
FIELD(galley_device, name_work, 200, 8, galley_device_name_work_fn*);
FIELD(galley_device, usage, 208, 8, galley_device_usage_fn*);
CONSTANT(GALLEY_DEVICE_MIN_SIZE, 136u);

/* --- ranks.h ------------------------------------------------------------------------------------------------ */

TEXT(GALLEY_RANKS, "galley.ranks/1");
SIZE(galley_ranks_options, 112);
FIELD(galley_ranks_options, size, 0, 4, uint32_t);
FIELD(galley_ranks_options, revision, 4, 4, uint32_t);
FIELD(galley_ranks_options, target, 8, 8, const galley_target*);
FIELD(galley_ranks_options, rank, 16, 8, int64_t);
FIELD(galley_ranks_options, ranks, 24, 8, int64_t);
FIELD(galley_ranks_options, local_rank, 32, 8, int64_t);
FIELD(galley_ranks_options, local_ranks, 40, 8, int64_t);
FIELD(galley_ranks_options, job, 48, 8, const char*);
FIELD(galley_ranks_options, meeting, 56, 8, const char*);
FIELD(galley_ranks_options, device, 64, 8, void*);
FIELD(galley_ranks_options, arenas, 72, 8, void* const*);
FIELD(galley_ranks_options, arena_bytes, 80, 8, const int64_t*);
FIELD(galley_ranks_options, axes, 88, 8, const galley_axis* const*);
FIELD(galley_ranks_options, n_arenas, 96, 4, uint32_t);
FIELD(galley_ranks_options, n_axes, 100, 4, uint32_t);
FIELD(galley_ranks_options, flags, 104, 8, uint64_t);
CONSTANT(GALLEY_RANKS_OPTIONS_MIN_SIZE, 112u);
typedef galley_status galley_ranks_open_fn(void* self, const galley_ranks_options*, void** handle, galley_error*);
typedef galley_status galley_ranks_exchange_fn(void* handle, const void* mine, int64_t bytes, void* all, galley_error*);
typedef galley_status galley_ranks_check_fn(void* handle, int64_t* culprit, galley_error*);
typedef void galley_ranks_abort_fn(void* handle);
typedef void galley_ranks_close_fn(void* handle);
SIZE(galley_ranks, 80);
FIELD(galley_ranks, size, 0, 4, uint32_t);
FIELD(galley_ranks, revision, 4, 4, uint32_t);
FIELD(galley_ranks, self, 8, 8, void*);
FIELD(galley_ranks, name, 16, 8, const char*);
FIELD(galley_ranks, device, 24, 8, const char*);
FIELD(galley_ranks, open, 32, 8, galley_ranks_open_fn*);
FIELD(galley_ranks, exchange, 40, 8, galley_ranks_exchange_fn*);
FIELD(galley_ranks, check, 48, 8, galley_ranks_check_fn*);
FIELD(galley_ranks, abort, 56, 8, galley_ranks_abort_fn*);
FIELD(galley_ranks, close, 64, 8, galley_ranks_close_fn*);
FIELD(galley_ranks, flags, 72, 8, uint64_t);
CONSTANT(GALLEY_RANKS_MIN_SIZE, 80u);

/* --- entry.h ------------------------------------------------------------------------------------------------ */
CONSTANT(GALLEY_LOG_DEBUG, 0u);
CONSTANT(GALLEY_LOG_INFO, 1u);
CONSTANT(GALLEY_LOG_WARNING, 2u);

typedef void galley_host_log_fn(void* context, uint32_t level, const char* text);
typedef void galley_host_parallel_fn(void* context, int64_t blocks, void (*fn)(void* fn_context, int64_t block), void* fn_context);
typedef const void* galley_host_service_fn(void* context, const char* id);
SIZE(galley_host, 48);
FIELD(galley_host, size, 0, 4, uint32_t);
FIELD(galley_host, revision, 4, 4, uint32_t);
FIELD(galley_host, abi_major, 8, 4, uint32_t);
FIELD(galley_host, abi_minor, 12, 4, uint32_t);
FIELD(galley_host, context, 16, 8, void*);
FIELD(galley_host, log, 24, 8, galley_host_log_fn*);
FIELD(galley_host, parallel, 32, 8, galley_host_parallel_fn*);
FIELD(galley_host, service, 40, 8, galley_host_service_fn*);
CONSTANT(GALLEY_HOST_MIN_SIZE, 40u);

typedef galley_status galley_options_integer_fn(const void* handle, const char* name, int64_t* out);
typedef galley_status galley_options_number_fn(const void* handle, const char* name, double* out);
typedef galley_status galley_options_boolean_fn(const void* handle, const char* name, int32_t* out);
typedef galley_status galley_options_string_fn(const void* handle, const char* name, const char** out);
typedef galley_status galley_options_count_fn(const void* handle, const char* name, uint64_t* out);
typedef galley_status galley_options_string_at_fn(const void* handle, const char* name, uint64_t index, const char** out);
typedef galley_status galley_options_number_at_fn(const void* handle, const char* name, uint64_t index, double* out);
typedef const struct galley_options* galley_options_table_at_fn(const void* handle, const char* name, uint64_t index);
SIZE(galley_options, 80);
FIELD(galley_options, size, 0, 4, uint32_t);
FIELD(galley_options, revision, 4, 4, uint32_t);
FIELD(galley_options, handle, 8, 8, const void*);
FIELD(galley_options, integer, 16, 8, galley_options_integer_fn*);
FIELD(galley_options, number, 24, 8, galley_options_number_fn*);
FIELD(galley_options, boolean, 32, 8, galley_options_boolean_fn*);
FIELD(galley_options, string, 40, 8, galley_options_string_fn*);
FIELD(galley_options, count, 48, 8, galley_options_count_fn*);
FIELD(galley_options, string_at, 56, 8, galley_options_string_at_fn*);
FIELD(galley_options, number_at, 64, 8, galley_options_number_at_fn*);
FIELD(galley_options, table_at, 72, 8, galley_options_table_at_fn*);
CONSTANT(GALLEY_OPTIONS_MIN_SIZE, 64u);

typedef galley_status galley_strategy_create_fn(void* self, const galley_options*, void** instance, galley_error*);
typedef void galley_strategy_destroy_fn(void* instance);
typedef const void* galley_strategy_get_fn(void* self, const char* id);
SIZE(galley_strategy, 56);
FIELD(galley_strategy, size, 0, 4, uint32_t);
FIELD(galley_strategy, revision, 4, 4, uint32_t);
FIELD(galley_strategy, self, 8, 8, void*);
FIELD(galley_strategy, name, 16, 8, const char*);
FIELD(galley_strategy, create, 24, 8, galley_strategy_create_fn*);
FIELD(galley_strategy, destroy, 32, 8, galley_strategy_destroy_fn*);
FIELD(galley_strategy, get, 40, 8, galley_strategy_get_fn*);
FIELD(galley_strategy, flags, 48, 8, uint64_t);
CONSTANT(GALLEY_STRATEGY_MIN_SIZE, 48u);

typedef galley_status galley_entry_open_fn(const galley_host*, galley_error*);
typedef const void* galley_entry_get_fn(const char* id);
typedef void galley_entry_close_fn(void);
SIZE(galley_entry, 152);
FIELD(galley_entry, size, 0, 4, uint32_t);
FIELD(galley_entry, revision, 4, 4, uint32_t);
FIELD(galley_entry, abi_major, 8, 4, uint32_t);
FIELD(galley_entry, abi_minor, 12, 4, uint32_t);
FIELD(galley_entry, id, 16, 8, const char*);
FIELD(galley_entry, version, 24, 8, const char*);
FIELD(galley_entry, open, 32, 8, galley_entry_open_fn*);
FIELD(galley_entry, strategies, 40, 8, const galley_strategy* const*);
FIELD(galley_entry, ops, 48, 8, const struct galley_op* const*);
FIELD(galley_entry, kernels, 56, 8, const struct galley_kernel* const*);
FIELD(galley_entry, formats, 64, 8, const struct galley_format* const*);
FIELD(galley_entry, devices, 72, 8, const struct galley_device* const*);
FIELD(galley_entry, codecs, 80, 8, const struct galley_codec* const*);
FIELD(galley_entry, sources, 88, 8, const struct galley_source* const*);
FIELD(galley_entry, n_strategies, 96, 4, uint32_t);
FIELD(galley_entry, n_ops, 100, 4, uint32_t);
FIELD(galley_entry, n_kernels, 104, 4, uint32_t);
FIELD(galley_entry, n_formats, 108, 4, uint32_t);
FIELD(galley_entry, n_devices, 112, 4, uint32_t);
FIELD(galley_entry, n_codecs, 116, 4, uint32_t);
FIELD(galley_entry, n_sources, 120, 4, uint32_t);
FIELD(galley_entry, reserved, 124, 4, uint32_t);
FIELD(galley_entry, flags, 128, 8, uint64_t);
FIELD(galley_entry, get, 136, 8, galley_entry_get_fn*);
FIELD(galley_entry, close, 144, 8, galley_entry_close_fn*);
CONSTANT(GALLEY_ENTRY_MIN_SIZE, 136u);
TEXT(GALLEY_ENTRY_SYMBOL, "galley_entry_v1");
