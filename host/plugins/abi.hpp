// How the host reads structs that plugins made, and fills structs that plugins own: by the smaller of both sizes (galley/abi.h).
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include "galley/galley.h"

namespace galley {

/// The smallest size of a struct that is read.
template <class T>
inline constexpr uint32_t min_struct_size = [] {
  static_assert(!std::is_same_v<T, T>, "name its GALLEY_…_MIN_SIZE here");
  return 0u;
}();
template <>
inline constexpr uint32_t min_struct_size<galley_attr> = GALLEY_ATTR_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_tensor_desc> = GALLEY_TENSOR_DESC_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_tensor_info> = GALLEY_TENSOR_INFO_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_node_desc> = GALLEY_NODE_DESC_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_node_info> = GALLEY_NODE_INFO_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_run_info> = GALLEY_RUN_INFO_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_rewrite> = GALLEY_REWRITE_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_claim> = GALLEY_CLAIM_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_claim_value> = GALLEY_CLAIM_VALUE_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_update> = GALLEY_UPDATE_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_saved> = GALLEY_SAVED_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_saved_format> = GALLEY_SAVED_FORMAT_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_observer> = GALLEY_OBSERVER_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_operand_rule> = GALLEY_OPERAND_RULE_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_attr_rule> = GALLEY_ATTR_RULE_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_op_case> = GALLEY_OP_CASE_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_op> = GALLEY_OP_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_known_op> = GALLEY_KNOWN_OP_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_kernel> = GALLEY_KERNEL_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_format> = GALLEY_FORMAT_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_codec> = GALLEY_CODEC_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_source> = GALLEY_SOURCE_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_source_tensor> = GALLEY_SOURCE_TENSOR_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_memory_class> = GALLEY_MEMORY_CLASS_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_queue_info> = GALLEY_QUEUE_INFO_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_device> = GALLEY_DEVICE_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_peak> = GALLEY_PEAK_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_choices> = GALLEY_CHOICES_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_target_memory> = GALLEY_TARGET_MEMORY_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_library> = GALLEY_LIBRARY_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_link> = GALLEY_LINK_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_strategy> = GALLEY_STRATEGY_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_ranks> = GALLEY_RANKS_MIN_SIZE;
template <>
inline constexpr uint32_t min_struct_size<galley_entry> = GALLEY_ENTRY_MIN_SIZE;

/// Of a struct's `flags`: those that must be understood and are not.
template <class T>
uint64_t unknown_flags(const T& t) {
  const auto unknown = [&](uint64_t known) {
    if constexpr (requires { t.flags; }) return uint64_t{t.flags} & GALLEY_MUST_UNDERSTAND & ~known;
    else return uint64_t{0};
  };
  if constexpr (std::is_same_v<T, galley_op>) return unknown(GALLEY_OP_KNOWN);
  else if constexpr (std::is_same_v<T, galley_kernel>) return unknown(GALLEY_KERNEL_KNOWN);
  else if constexpr (std::is_same_v<T, galley_format>) return unknown(GALLEY_FORMAT_KNOWN);
  else if constexpr (std::is_same_v<T, galley_memory_class>) return unknown(GALLEY_MEMORY_KNOWN);
  else if constexpr (std::is_same_v<T, galley_attr_rule>) return unknown(GALLEY_ATTR_RULE_KNOWN);
  else if constexpr (std::is_same_v<T, galley_tensor_desc>) return unknown(GALLEY_TENSOR_KNOWN);
  else if constexpr (std::is_same_v<T, galley_source_tensor>) return unknown(GALLEY_SOURCE_COUNTS);
  else if constexpr (std::is_same_v<T, galley_observer>) return unknown(GALLEY_OBSERVER_KNOWN);
  else if constexpr (std::is_same_v<T, galley_operand_rule>) return unknown(GALLEY_OPERAND_KNOWN);
  else return unknown(0);
}

/// A struct as this version knows it, whatever its maker knew. `from` has been checked.
template <class T>
T read_struct(const T& from) {
  T out = {};
  out.size = static_cast<uint32_t>(sizeof(T));
  out.revision = 1;
  galley_assign(&out, &from);
  return out;
}

/// What is wrong with a struct before its fields are looked at ("its table has 8 bytes, 64 is the least"), or "".
template <class T>
std::string struct_problem(const T* p) {
  if (!p) return "is null";
  if (p->size < min_struct_size<T>)
    return "has " + std::to_string(p->size) + " bytes; the least that this version reads is " + std::to_string(min_struct_size<T>);
  if (p->size > GALLEY_MAX_SIZE)
    return "has " + std::to_string(p->size) + " bytes; no struct has more than " + std::to_string(GALLEY_MAX_SIZE);
  if (p->revision != 1) return "has revision " + std::to_string(p->revision) + "; this version knows revision 1";
  if (const uint64_t unknown = unknown_flags(read_struct(*p)))
    return "has flags that this version does not know: " + std::to_string(unknown);
  return {};
}

/// Fills a struct that a plugin owns.
template <class T>
void fill_struct(T* out, T value) {
  value.size = static_cast<uint32_t>(sizeof(T));
  galley_assign(out, &value);
}

/// A struct of the host's, for a plugin to fill or read.
template <class T>
T new_struct() {
  T out = {};
  out.size = static_cast<uint32_t>(sizeof(T));
  out.revision = 1;
  return out;
}

/// Copies text into an array of `room` bytes that ends in NUL; cut between two UTF-8 characters.
void put_text(char* out, size_t room, std::string_view text);
/// Fills an error that a plugin owns.
void fill_error(galley_error* out, galley_status status, std::string_view text, std::string_view hint);

}  // namespace galley
