#include "host/data/pieces.hpp"

#include <algorithm>
#include <span>

namespace galley {
namespace {

constexpr size_t kRead = size_t{1} << 20;

bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// Where a text that goes on may be cut: at or before its end.
size_t cut_of(const std::string& text) {
  for (size_t at = text.size() - 1; at > text.size() / 2; --at) {
    const bool ascii = static_cast<uint8_t>(text[at]) < 0x80 && static_cast<uint8_t>(text[at - 2]) < 0x80;
    if (text[at - 1] == '\n' && ascii && !is_ascii_space(text[at]) && !is_ascii_space(text[at - 2])) return at;
  }
  size_t at = text.size();
  while (at > text.size() - 4 && (static_cast<uint8_t>(text[at - 1]) & 0xC0) == 0x80) --at;
  return (static_cast<uint8_t>(text[at - 1]) & 0x80) ? at - 1 : at;
}

}  // namespace

/// More of the file at hand; false at its end.
Result<bool> TextPieces::fill() {
  if (open_.empty()) open_.push_back(TRY(File::open_read(documents_.files[file_].path)));
  const size_t had = rest_.size();
  rest_.resize(had + kRead);
  const size_t n = TRY(open_[0].read_some(std::as_writable_bytes(std::span(rest_)).subspan(had), offset_));
  rest_.resize(had + n);
  offset_ += n;
  bytes_ += n;
  return n > 0;
}

void TextPieces::give(size_t bytes, size_t skip, bool ends, TextPiece* out) {
  out->text.assign(rest_, 0, bytes);
  out->begins = !begun_;
  out->ends = ends;
  out->file = file_;
  out->number = number_;
  rest_.erase(0, bytes + skip);
  begun_ = !ends;
  if (ends) ++number_;
}

Result<bool> TextPieces::next(TextPiece* out) {
  size_t searched = 0;
  while (file_ < documents_.files.size()) {
    if (!separator_.empty()) {
      const size_t from = searched < separator_.size() ? 0 : searched - separator_.size() + 1;
      if (const size_t at = rest_.find(separator_, from); at != std::string::npos) {
        give(at, separator_.size(), true, out);
        return true;
      }
    }
    searched = rest_.size();
    if (rest_.size() > kMost + separator_.size()) {
      // What may be the beginning of a separator stays.
      const std::string head = rest_.substr(0, rest_.size() - separator_.size());
      give(cut_of(head), 0, false, out);
      return true;
    }
    if (TRY(fill())) continue;
    const bool something = !rest_.empty() || begun_;
    if (something) give(rest_.size(), 0, true, out);
    open_.clear();
    ++file_;
    offset_ = number_ = 0;
    searched = 0;
    if (something) {
      out->file = file_ - 1;
      return true;
    }
  }
  return false;
}

}  // namespace galley
