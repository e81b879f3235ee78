// Fills: the kinds of numbers that a source of data can put into the inputs of a model. A family names one for each of its inputs. Which
// there are depends on the data and on the labels that the model learns from.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "galley/source.h"

namespace galley {

/// The fills in their order in a micro-batch's memory. All are I32, except RowValues, which is F32.
enum class Fill : uint8_t {
  Tokens,
  NextTokens,
  Positions,
  FirstKey,
  LastKey,
  TokenTypes,
  MaskedTokens,
  TokenLabels,
  FirstToken,
  LastToken,
  RowLabels,
  RowValues,
  TargetTokens,
  TargetLabels,
  TargetPositions,
  SourceFirst,
  SourceLast,
};
inline constexpr size_t kFills = 17;
/// The first ones are always there, whether the model reads them or not.
inline constexpr size_t kPlainFills = 4;

/// The number of a fill's numbers in a row: S, T, one, or as many as a row has labels.
enum class FillExtent : uint8_t { Row, Target, One, Labels };

struct FillInfo {
  const char* name;   ///< the name in families
  const char* input;  ///< the model's input that gets it unless the family says otherwise; "": none
  FillExtent extent;
  const char* unit;  ///< of a loss on them, if they are labels; else null. All count but −100; in F32, all that are numbers
};
inline constexpr std::array<FillInfo, kFills> kFillInfo = {{
    {"tokens", "input_ids", FillExtent::Row, nullptr},                    // the tokens; with masked_tokens, some of them masked
    {"next_tokens", "", FillExtent::Row, "nats a token"},                 // the token that follows in its document
    {"positions", "position_ids", FillExtent::Row, nullptr},              // counted from the begin of the document
    {"first_key", "first_key", FillExtent::Row, nullptr},                 // where the document begins in the row
    {"last_key", "last_key", FillExtent::Row, nullptr},                   // where the document ends in the row
    {"token_types", "token_type_ids", FillExtent::Row, nullptr},          // which of two texts a token belongs to: 0 or 1
    {"masked_tokens", "", FillExtent::Row, "nats a token"},               // of a token that is masked, what it was
    {"token_labels", "", FillExtent::Row, "nats a label"},                // the label of each token
    {"first_token", "first_token", FillExtent::One, nullptr},             // the row's first token, counted in the micro-batch
    {"last_token", "last_token", FillExtent::One, nullptr},               // the row's last token, counted in the micro-batch
    {"row_labels", "", FillExtent::Labels, "nats a label"},               // the label of the row; of several, 1 for each that it has, and 0
    {"row_values", "", FillExtent::Labels, "mean squared error"},         // the number of the row, or several
    {"target_tokens", "decoder_input_ids", FillExtent::Target, nullptr},  // the target, after the token that begins one
    {"target_labels", "", FillExtent::Target, "nats a token"},            // the target
    {"target_positions", "decoder_position_ids", FillExtent::Target, nullptr},  // 0, 1, 2 …
    {"source_first", "source_first", FillExtent::Target, nullptr},              // where the source begins in its row
    {"source_last", "source_last", FillExtent::Target, nullptr},                // where the source ends in its row
}};
/// What a source of a plugin brings besides, by a name of its own (galley/source.h). The fills of these follow kFills, in their order.
struct OwnInput {
  std::string name;
  std::string unit;    ///< what a label is of; "": they do not count
  int64_t extent = 0;  ///< numbers of a row; 0: one a position
  uint32_t dtype = 0;  ///< I32 or F32
  friend bool operator==(const OwnInput&, const OwnInput&) = default;
};
inline constexpr size_t kMostOwnInputs = GALLEY_SOURCE_MOST_TENSORS;
inline constexpr Fill own_fill(size_t index) { return static_cast<Fill>(kFills + index); }
inline constexpr bool is_own(Fill fill) { return static_cast<size_t>(fill) >= kFills; }

inline constexpr const FillInfo& info_of(Fill fill) { return kFillInfo[static_cast<size_t>(fill)]; }
/// Returns whether these labels belong to a row, and not to its tokens.
inline constexpr bool of_rows(Fill labels) { return labels == Fill::RowLabels || labels == Fill::RowValues; }

/// Returns the fill of that name, as a number; kFills if there is none.
inline constexpr size_t fill_named(std::string_view name) {
  size_t i = 0;
  while (i < kFills && name != kFillInfo[i].name) ++i;
  return i;
}

/// A set of fills, which always has the plain ones.
class Fills {
 public:
  constexpr Fills() = default;
  constexpr bool has(Fill fill) const { return bits_ >> static_cast<unsigned>(fill) & 1u; }
  constexpr void add(Fill fill) { bits_ |= 1u << static_cast<unsigned>(fill); }
  friend constexpr bool operator==(const Fills&, const Fills&) = default;

 private:
  uint32_t bits_ = (1u << kPlainFills) - 1;
};

/// A label that does not count in the loss. As F32, which RowValues are, it is no number.
inline constexpr int32_t kNoLabel = -100;

}  // namespace galley
