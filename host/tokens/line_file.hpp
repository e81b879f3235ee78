// Reads files of documents as JSON lines: JSON lines as they are, a JSON array entry by entry, CSV with a header row by row.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "host/base/file.hpp"
#include "host/base/result.hpp"

namespace galley {

/// Reads one file from begin to end, in bounded memory; each document is on a line of its own. One thread at a time.
class LineFile {
 public:
  enum class Form : uint8_t { Lines, Array, Csv };

  /// Opens a file. An error if it cannot be read, or has another form; the error names the form (Parquet, zip, …) and says what to do.
  static Result<LineFile> open(const std::filesystem::path& path);
  /// Reads up to bytes.size() bytes of lines and returns how many; 0 at the end. Errors have exit code Recipe.
  Result<size_t> read(std::span<std::byte> bytes);
  Form form() const { return form_; }
  /// Returns how many bytes of the file have been read.
  uint64_t offset() const { return offset_; }
  /// Returns the origin of line `number`, from 1 on: "a.jsonl:3", "a.json, entry 3", "a.csv, row 3".
  std::string place(int64_t number) const;

 private:
  explicit LineFile(File file) : file_(std::move(file)) {}
  Status fill();
  Status take_array(std::string_view bytes);
  Status take_table(std::string_view bytes);
  void end_field();
  Status end_row();
  Error wrong(const std::string& what, std::string hint = {}) const;

  File file_;
  Form form_ = Form::Lines;
  uint64_t offset_ = 0;
  bool ended_ = false;
  std::string out_;   // lines that were not given out
  size_t given_ = 0;  // of it
  // An array:
  int64_t depth_ = 0;
  bool in_text_ = false, escaped_ = false, closed_ = false;
  // A table:
  char separator_ = ',';
  enum class At : uint8_t { Begin, Plain, Quoted, QuoteIn } at_ = At::Begin;
  std::string field_;
  std::vector<std::string> row_, names_;
  int64_t rows_ = 0;
};

}  // namespace galley
