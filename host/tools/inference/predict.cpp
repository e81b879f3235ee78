#include "host/tools/inference/predict.hpp"

#include <algorithm>

#include "host/sources/shape.hpp"

namespace galley {

Result<std::span<const float>> Predictor::logits(std::span<const int32_t> tokens, size_t second) {
  const BatchRow row = row_.row();
  row.pad(tokens.size(), row.length());
  for (size_t i = 0; i < tokens.size(); ++i) {
    row.tokens()[i] = tokens[i];
    row.next()[i] = kNoLabel;
    row.positions()[i] = static_cast<int32_t>(i);
    row.first_key()[i] = 0;
  }
  complete_row(row, 0, tokens.size(), nullptr, {});
  if (const std::span<int32_t> types = row[Fill::TokenTypes]; !types.empty() && second < tokens.size())
    std::fill(types.begin() + static_cast<std::ptrdiff_t>(second), types.begin() + static_cast<std::ptrdiff_t>(tokens.size()), 1);
  return row_.run();
}

}  // namespace galley
