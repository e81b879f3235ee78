// Fills in what a row has beside the four plain fills: bounds, masks, labels and targets.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "host/base/result.hpp"
#include "host/data/window.hpp"
#include "host/recipe/recipe.hpp"
#include "host/tokens/marks.hpp"

namespace galley {

class TokenStore;

/// Says how tokens are masked (Devlin et al. 2019, arXiv:1810.04805): a share of the tokens that are not special is chosen; of these, 80 %
/// become the mask, 10 % a token drawn among all, and 10 % stay.
struct Masking {
  int32_t mask = -1;
  double share = 0.15;
  int64_t vocabulary = 0;     ///< tokens are drawn from [0, vocabulary)
  std::vector<bool> special;  ///< by id: never chosen
  uint64_t seed = 0;
  uint64_t split = 0;  ///< the seed for rows that are held out
};

/// Identifies a row of the data. What is drawn for it depends on nothing else.
struct RowNumber {
  uint64_t number = 0;
  bool validation = false;
};

/// Fills in the bounds of a row whose content is [begin, end), and of its documents, by the plain fills. Allocates nothing.
void bound_row(const BatchRow& row, size_t begin, size_t end);

/// Fills in all that follows from the plain fills: bounds, masks, token types. Allocates nothing.
void complete_row(const BatchRow& row, size_t begin, size_t end, const Masking* masking, RowNumber number);

/// Writes the document of tokens [begin, begin + tokens) as a row. `start` is the token that begins a target. Allocates nothing unless it
/// fails.
Status write_document(const TokenStore& store, uint64_t begin, uint64_t tokens, Fill labels, int32_t start, const BatchRow& row);

/// Writes a row without a document: padding.
void pad_row(const BatchRow& row);
/// Writes the micro-batches of padding that follow those of a window (Windows::lanes).
void pad_lanes(WindowBuffer& buffer, const Windows& windows);

}  // namespace galley
