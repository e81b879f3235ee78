#include "host/tokens/lines.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace galley {

Status LineBlocks::fill() {
  rest_.erase(0, begin_);
  begin_ = 0;
  if (buffer_.empty()) buffer_.resize(kBlock);
  const size_t n = TRY(read_(std::as_writable_bytes(std::span(buffer_))));
  rest_.append(buffer_.data(), n);
  end_ = n == 0;
  return ok();
}

Result<bool> LineBlocks::next(LineBlock* out) {
  out->text.clear();
  out->first_line = line_;
  out->too_long = false;
  size_t searched = 0;  // from begin_ on, without a line's end
  while (true) {
    const size_t there = rest_.size() - begin_;
    // The last line's end that is there: all before it are whole lines.
    const void* last = there > searched ? ::memrchr(rest_.data() + begin_ + searched, '\n', there - searched) : nullptr;
    if (last || (end_ && there > 0)) {
      const size_t end = last ? static_cast<size_t>(static_cast<const char*>(last) - rest_.data()) : rest_.size();
      if (!out->too_long) {
        out->text.assign(rest_, begin_, end - begin_);
        line_ += std::count(out->text.begin(), out->text.end(), '\n');
        begin_ = std::min(end + 1, rest_.size());
      } else {
        begin_ = std::min(rest_.find('\n', begin_), rest_.size());
        if (begin_ < rest_.size()) ++begin_;
      }
      ++line_;
      return true;
    }
    if (end_) {
      if (!out->too_long) return false;
      ++line_;
      return true;
    }
    searched = there;
    if (there > kLongest || out->too_long) {  // its content is dropped as it comes
      out->too_long = true;
      begin_ = rest_.size();
      searched = 0;
    }
    TRY_STATUS(fill());
  }
}

std::string too_long_line() { return "a line of more than " + std::to_string(LineBlocks::kLongest >> 20) + " MiB"; }

Result<size_t> read_stdin(std::span<std::byte> bytes) {
  while (true) {
    const ssize_t n = ::read(STDIN_FILENO, bytes.data(), bytes.size());
    if (n >= 0) return static_cast<size_t>(n);
    if (errno != EINTR) return run_error(std::string("cannot read stdin: ") + std::strerror(errno));
  }
}

Result<bool> StdinLines::next(std::string_view* line) {
  if (at_ == std::string::npos) {
    if (!TRY(blocks_.next(&block_))) return false;
    at_ = 0;
    number_ = block_.first_line - 1;
  }
  ++number_;
  if (block_.too_long) return recipe_error(place() + ": " + too_long_line());
  const size_t end = std::min(block_.text.find('\n', at_), block_.text.size());
  *line = std::string_view(block_.text).substr(at_, end - at_);
  at_ = end < block_.text.size() ? end + 1 : std::string::npos;
  return true;
}

}  // namespace galley
