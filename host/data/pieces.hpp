// Files of text as documents, in parts small enough to be worked on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/base/file.hpp"
#include "host/base/result.hpp"
#include "host/data/documents.hpp"

namespace galley {

/// A part of a document.
struct TextPiece {
  std::string text;
  bool begins = true, ends = true;  ///< the document begins, ends with it
  size_t file = 0;
  uint64_t number = 0;  ///< of the document in its file
};

/// Reads the files from begin to end. A document of more than kMost bytes is given out in parts, cut behind a line's end between two lines that
/// neither end nor begin with white space: there tokenizers cut as well; where there is none, behind some character. One thread at a time.
class TextPieces {
 public:
  static constexpr size_t kMost = size_t{2} << 20;

  /// Refers to `documents`. `separator`: what ends a document within a file; "": nothing does.
  TextPieces(const Documents& documents, std::string separator) : documents_(documents), separator_(std::move(separator)) {}
  /// false: there is no further one.
  Result<bool> next(TextPiece* out);
  uint64_t bytes() const { return bytes_; }

 private:
  Result<bool> fill();
  void give(size_t bytes, size_t skip, bool ends, TextPiece* out);

  const Documents& documents_;
  std::string separator_;
  size_t file_ = 0;
  std::vector<File> open_;  // none or one
  uint64_t offset_ = 0, number_ = 0, bytes_ = 0;
  std::string rest_;
  bool begun_ = false;  // the document at hand
};

}  // namespace galley
