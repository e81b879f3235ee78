#include "host/tokens/pieces.hpp"

#include <algorithm>
#include <span>
#include <string_view>

#include "host/tokens/tokenizer/unicode.hpp"

namespace galley {
namespace {

constexpr size_t kRead = size_t{1} << 20;
constexpr size_t kSeen = 512;    // bytes on each side of a place to cut, by which it is judged
constexpr size_t kTries = 1000;  // places that are judged, lines and characters each: some tenths of a second

/// Where the character that ends at `end` begins; not more than three bytes further back where there is none.
size_t begin_of_last(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && end - at < 4 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

}  // namespace

/// Where a text that goes on is cut: at or before its end, in its second half if that can be.
Result<size_t> TextPieces::cut_of(std::string_view text) const {
  size_t tries = 0;
  const auto good = [&](size_t at) -> Result<bool> {
    if (!separate_) return true;
    ++tries;
    return separate_(text.substr(at - std::min(at, kSeen), std::min(at, kSeen)), text.substr(at, kSeen));
  };
  const size_t end = text.size() - kSeen;
  size_t line = 0;  // the last of them
  for (size_t at = text.rfind('\n', end); at != std::string_view::npos && at > text.size() / 2; at = text.rfind('\n', at - 1)) {
    const size_t before = begin_of_last(text, at);
    if (is_space(next_code_point(text.substr(before)).value) || is_space(next_code_point(text.substr(at + 1)).value)) continue;
    if (TRY(good(at + 1))) return at + 1;
    // Where a line's end is the white space before the next word, as in SentencePiece's tokenizers, it belongs to that.
    if (separate_ && TRY(good(at))) return at;
    if (line == 0) line = at + 1;
    if (tries == kTries) break;
  }
  size_t character = begin_of_last(text, end);
  for (tries = 0; separate_ && tries < kTries; character = begin_of_last(text, character))
    if (TRY(good(character))) return character;
  return line > 0 ? line : begin_of_last(text, end);
}

/// More of the file at hand; false at its end.
Result<bool> TextPieces::fill() {
  if (open_.empty()) open_.push_back(TRY(File::open_read(documents_.files[file_].path)));
  rest_.erase(0, begin_);  // here and not with each piece, of which a file may have a million
  begin_ = 0;
  const size_t had = rest_.size();
  rest_.resize(had + kRead);
  const size_t n = TRY(open_[0].read_some(std::as_writable_bytes(std::span(rest_)).subspan(had), offset_));
  rest_.resize(had + n);
  offset_ += n;
  bytes_ += n;
  return n > 0;
}

void TextPieces::give(size_t bytes, size_t skip, bool ends, TextPiece* out) {
  out->text.assign(rest_, begin_, bytes);
  out->begins = !begun_;
  out->ends = ends;
  out->file = file_;
  out->number = number_;
  begin_ += bytes + skip;
  begun_ = !ends;
  if (ends) ++number_;
}

Result<bool> TextPieces::next(TextPiece* out) {
  size_t searched = 0;  // from begin_ on
  while (file_ < documents_.files.size()) {
    if (!separator_.empty()) {
      const size_t from = searched < separator_.size() ? 0 : searched - separator_.size() + 1;
      if (const size_t at = rest_.find(separator_, begin_ + from); at != std::string::npos) {
        give(at - begin_, separator_.size(), true, out);
        return true;
      }
    }
    const std::string_view there = std::string_view(rest_).substr(begin_);
    searched = there.size();
    if (there.size() > kMost + separator_.size()) {
      // What may be the beginning of a separator stays.
      give(TRY(cut_of(there.substr(0, there.size() - separator_.size()))), 0, false, out);
      return true;
    }
    const bool something = !there.empty() || begun_;
    if (TRY(fill())) continue;
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
