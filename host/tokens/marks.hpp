// Marks of tokens in a store: which do not count in the loss, and what else than text a document holds.
//
// A document that is more than text lies in its store as one run of tokens: the text, whose tokens do not count, and then what counts.
//   masked_tokens  the text, and one token that is never seen: a row has all tokens of its text, and not one less
//   token_labels   the text, and a label for each of its tokens
//   row_labels     the text, and the label of the row, or each one that it has
//   row_values     the text, and two halves of each value
//   target_labels  the source, and the target
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "host/base/fill.hpp"

namespace galley {

/// The bits of a token on disk beside its id. kUncounted: it does not count in the loss. kSecond, with that: it is of the second of two
/// texts.
inline constexpr uint32_t kUncounted = uint32_t{1} << 31, kSecond = uint32_t{1} << 30, kTokenBits = kSecond - 1;
/// Without kUncounted it is no token, but 16 bits of a value.
inline constexpr uint32_t kHalf = kSecond;

/// Returns whether documents are more than text under these labels: a row then holds one document.
inline bool has_parts(Fill labels) { return labels == Fill::TokenLabels || of_rows(labels) || labels == Fill::TargetLabels; }

/// Split a value into the two halves that a store keeps, and join its bits again.
inline std::array<uint32_t, 2> halves_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return {kHalf | bits >> 16, kHalf | (bits & 0xffff)};
}
inline int32_t bits_of(uint32_t high, uint32_t low) { return std::bit_cast<int32_t>((high & 0xffff) << 16 | (low & 0xffff)); }

}  // namespace galley
