// What a row has beside the four fills that data comes as: bounds, masks, labels and targets.
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

/// How tokens are masked (Devlin et al. 2019, arXiv:1810.04805): of those that are no special ones a share is chosen; of the chosen, 80 %
/// become the mask, 10 % a token drawn among all, and 10 % stay.
struct Masking {
  int32_t mask = -1;
  double share = 0.15;
  int64_t vocabulary = 0;     ///< tokens are drawn from [0, vocabulary)
  std::vector<bool> special;  ///< by id: never chosen
  uint64_t seed = 0;
  uint64_t split = 0;  ///< the seed of rows that are held out
};

/// Which row of the data it is: what is drawn depends on that alone.
struct RowNumber {
  uint64_t number = 0;
  bool validation = false;
};

/// Fills in what follows from the plain fills of a row whose content is [begin, end): bounds, masks, the type of one text. Allocates
/// nothing.
void complete_row(const BatchRow& row, size_t begin, size_t end, const Masking* masking, RowNumber number);

/// Writes the document of tokens [begin, begin + tokens) as a row. `start`: the token that begins a target. Allocates nothing unless it fails.
Status write_document(const TokenStore& store, uint64_t begin, uint64_t tokens, Fill labels, int32_t start, const BatchRow& row);

/// A row without a document.
void pad_row(const BatchRow& row);

}  // namespace galley
