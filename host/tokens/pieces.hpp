// Cuts files of text into documents, and long documents into pieces that are small enough to work on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "host/base/file.hpp"
#include "host/base/result.hpp"
#include "host/tokens/documents.hpp"

namespace galley {

/// A piece of a document.
struct TextPiece {
  std::string text;
  bool begins = true, ends = true;  ///< the document begins, ends with it
  size_t file = 0;
  uint64_t number = 0;  ///< the document's number in its file
};

/// Reads the files from begin to end. A document of more than kMost bytes comes in pieces. It is cut after a line's end, or before it,
/// between two lines that neither end nor begin with white space, or after some character: at the last such place where the tokenizer makes
/// the same tokens of both sides as of the whole, if there is one. One thread at a time.
class TextPieces {
 public:
  static constexpr size_t kMost = size_t{2} << 20;
  static constexpr uint64_t kRule = 3;  ///< raised with every change of where documents are cut: prepared data depends on it
  /// Returns whether the tokens of two texts, one after the other, are those of both as one.
  using Separate = std::function<Result<bool>(std::string_view before, std::string_view after)>;

  /// Refers to `documents`. `separator` ends a document within a file; "": nothing does. Without `separate` any place will do.
  TextPieces(const Documents& documents, std::string separator, Separate separate = {})
      : documents_(documents), separator_(std::move(separator)), separate_(std::move(separate)) {}
  /// false: there is no further one.
  Result<bool> next(TextPiece* out);
  uint64_t bytes() const { return bytes_; }

 private:
  Result<bool> fill();
  Result<size_t> cut_of(std::string_view text) const;
  void give(size_t bytes, size_t skip, bool ends, TextPiece* out);

  const Documents& documents_;
  std::string separator_;
  Separate separate_;
  size_t file_ = 0;
  std::vector<File> open_;  // none or one
  uint64_t offset_ = 0, number_ = 0, bytes_ = 0;
  std::string rest_;
  size_t begin_ = 0;    // where the text begins that was not given out
  bool begun_ = false;  // the document at hand
};

}  // namespace galley
