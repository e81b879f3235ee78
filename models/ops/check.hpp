// What shape rules share: checks whose messages name the node, the op, the operands and their shapes.
#pragma once

#include <string>

#include "galley/cpp/plugin.hpp"

namespace galley::models {

using sdk::shape_text;

[[noreturn]] inline void wrong(const sdk::Node& node, const std::string& what) {
  sdk::invalid(std::string(node.name()) + ": " + node.view()->op + ": " + what);
}

/// Inputs `i` and `k` have one shape; the names are those of the op's rules.
inline void same_shape(const sdk::Node& node, uint32_t i, const char* name, uint32_t k, const char* other) {
  const galley_operand &a = node.in(i), &b = node.in(k);
  bool same = a.rank == b.rank;
  for (uint32_t axis = 0; same && axis < a.rank; ++axis) same = a.shape[axis] == b.shape[axis];
  if (!same) wrong(node, std::string(name) + " is " + shape_text(a) + ", but " + other + " is " + shape_text(b));
}

/// Input `i` has one value for each row of input `k`.
inline void one_a_row(const sdk::Node& node, uint32_t i, const char* name, uint32_t k, const char* other) {
  const galley_operand &a = node.in(i), &b = node.in(k);
  if (sdk::count(a) != sdk::rows(b))
    wrong(node, std::string(name) + " is " + shape_text(a) + "; it needs one value for each of the " + std::to_string(sdk::rows(b)) +
                    " rows of " + other + " " + shape_text(b));
}

/// Input `i` is a vector of `n` elements, if it is there at all.
inline void vector_of(const sdk::Node& node, uint32_t i, const char* name, int64_t n) {
  if (node.has(i) && (node.in(i).rank != 1 || node.in(i).shape[0] != n))
    wrong(node, std::string(name) + " is " + shape_text(node.in(i)) + "; it has to be (" + std::to_string(n) + ")");
}

inline void single(const sdk::Node& node, uint32_t i, const char* name) {
  if (sdk::count(node.in(i)) != 1) wrong(node, std::string(name) + " is " + shape_text(node.in(i)) + "; it has to be one element");
}

inline void has_rows(const sdk::Node& node, uint32_t i, const char* name) {
  if (node.in(i).rank == 0) wrong(node, std::string(name) + " has no rows: it is one number");
}

inline void integers(const sdk::Node& node, uint32_t i, const char* name) {
  if (node.in(i).dtype != GALLEY_I32) wrong(node, std::string(name) + " has to be I32");
}

/// Input `i`, where it is there, holds numbers in F32, BF16 or F16.
inline void numbers(const sdk::Node& node, uint32_t i, const char* name) {
  if (!node.has(i)) return;
  const uint32_t dtype = node.in(i).dtype;
  if (dtype != GALLEY_F32 && dtype != GALLEY_BF16 && dtype != GALLEY_F16) wrong(node, std::string(name) + " has to be F32, BF16 or F16");
}

/// Input `i`, where it is there, is F32.
inline void in_f32(const sdk::Node& node, uint32_t i, const char* name) {
  if (node.has(i) && node.in(i).dtype != GALLEY_F32) wrong(node, std::string(name) + " has to be F32");
}

/// Inputs `i` and `k` are in the dtype in which the node computes: one of F32, BF16 and F16.
inline void one_dtype(const sdk::Node& node, uint32_t i, const char* name, uint32_t k, const char* other) {
  numbers(node, i, name);
  numbers(node, k, other);
  const auto text = [&](uint32_t input) {
    const uint32_t dtype = node.in(input).dtype;
    return dtype == GALLEY_F32 ? " is F32" : dtype == GALLEY_BF16 ? " is BF16" : " is F16";
  };
  if (node.in(i).dtype != node.in(k).dtype) wrong(node, std::string(name) + text(i) + ", but " + other + text(k));
}

/// The output has the shape of `t`, and the dtype that the node's attribute asks for, or else t's.
inline void like_in_dtype(sdk::Shapes& shapes, uint32_t output, const sdk::Node& node, const galley_operand& t) {
  shapes.set(output, node.dtype(t.dtype), t.shape, t.rank);
}

/// The same with another last extent.
inline void like_in_dtype(sdk::Shapes& shapes, uint32_t output, const sdk::Node& node, const galley_operand& t, int64_t last) {
  galley_operand in_dtype = t;
  in_dtype.dtype = node.dtype(t.dtype);
  shapes.like(output, in_dtype, last);
}

/// A value for each row of `t`: its shape without the last extent.
inline void like_rows(sdk::Shapes& shapes, uint32_t output, uint32_t dtype, const galley_operand& t) {
  shapes.set(output, dtype, t.shape, t.rank ? t.rank - 1 : 0);
}

/// Positions of a row of the batch, where random draws belong to rows and positions: the attribute, else what x (B, positions, C) says, else
/// the recipe's.
inline int64_t row_length(const sdk::Node& n) {
  const galley_operand& x = n.in(0);
  return n.i("length", x.rank == 3 ? x.shape[1] : n.view()->length);
}

}  // namespace galley::models
