// Reads text by lines, many at a time, in bounded memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host/base/result.hpp"

namespace galley {

/// A block of whole lines, without the last one's end.
struct LineBlock {
  std::string text;
  int64_t first_line = 1;  ///< counted from 1
  bool too_long = false;   ///< one line of more than LineBlocks::kLongest bytes; text is empty then
};

/// Cuts what `read` gives into blocks. One thread at a time.
class LineBlocks {
 public:
  static constexpr size_t kBlock = size_t{1} << 18;     ///< bytes of a block, unless a line is longer
  static constexpr size_t kLongest = size_t{16} << 20;  ///< bytes of a line: reading one as JSON takes some 14 times as many
  /// Reads up to bytes.size() bytes and says how many; 0 at the end.
  using Read = std::function<Result<size_t>(std::span<std::byte> bytes)>;

  explicit LineBlocks(Read read) : read_(std::move(read)) {}
  /// false: there is no further one.
  Result<bool> next(LineBlock* out);

 private:
  Status fill();

  Read read_;
  std::vector<char> buffer_;  // what is read into
  std::string rest_;          // what was read and not given out
  size_t begin_ = 0;          // of it
  bool end_ = false;
  int64_t line_ = 1;
};

/// Calls `line(std::string_view, int64_t number) -> Status` for each line of the block.
template <class Line>
Status for_each_line(const LineBlock& block, const Line& line) {
  const std::string_view text = block.text;
  int64_t number = block.first_line;
  for (size_t at = 0; at <= text.size(); ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    TRY_STATUS(line(text.substr(at, end - at), number));
    at = end + 1;
  }
  return ok();
}

/// Returns "a line of more than 16 MiB", for errors.
std::string too_long_line();

/// stdin.
Result<size_t> read_stdin(std::span<std::byte> bytes);

/// The lines of stdin, one at a time: what is there is not waited for. One of more than LineBlocks::kLongest bytes is an error.
class StdinLines {
 public:
  /// false: there is no further one. `*line` is valid until the next call.
  Result<bool> next(std::string_view* line);
  /// Returns "stdin:12" for the line that next() gave last.
  std::string place() const { return "stdin:" + std::to_string(number_); }

 private:
  LineBlocks blocks_{read_stdin};
  LineBlock block_;
  size_t at_ = std::string::npos;  // in the block; npos: after it
  int64_t number_ = 0;
};

}  // namespace galley
