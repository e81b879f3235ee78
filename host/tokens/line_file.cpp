#include "host/tokens/line_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "host/base/json.hpp"
#include "host/tokens/lines.hpp"

namespace galley {
namespace {

constexpr size_t kLinesRead = size_t{1} << 18;

/// How a form begins that is no text of documents, and what to do with it.
struct OtherForm {
  std::string_view begin;
  const char *name, *how;
};
constexpr const char* kPandas =
    "convert it: python3 -c \"import pandas as p; p.read_parquet('FILE').to_json('FILE.jsonl', orient='records', lines=True)\"";
constexpr const char* kUnpack = "unpack it, and name the files in it";
constexpr const char* kUtf8 = "convert it: iconv -f UTF-16 -t UTF-8 FILE > FILE.utf8";
constexpr std::array<OtherForm, 15> kOtherForms = {{
    {"PAR1", "a Parquet file", kPandas},
    {"ARROW1", "an Arrow file", "convert it: python3 -c \"import datasets as d; d.Dataset.from_file('FILE').to_json('FILE.jsonl')\""},
    {std::string_view("\xFF\xFF\xFF\xFF", 4), "an Arrow stream",
     "convert it: python3 -c \"import datasets as d; d.Dataset.from_file('FILE').to_json('FILE.jsonl')\""},
    {"PK\x03\x04", "a zip archive (or a table of Excel)", kUnpack},
    {"\x1F\x8B", "compressed by gzip", "unpack it: gunzip FILE"},
    {"\x28\xB5\x2F\xFD", "compressed by zstd", "unpack it: unzstd FILE"},
    {"\xFD"
     "7zXZ",
     "compressed by xz", "unpack it: unxz FILE"},
    {"BZh", "compressed by bzip2", "unpack it: bunzip2 FILE"},
    {"7z\xBC\xAF", "a 7z archive", kUnpack},
    {"SQLite format 3", "an SQLite database", "write its rows as JSON lines, one object a line"},
    {"\x89HDF", "an HDF5 file", "write its rows as JSON lines, one object a line"},
    {"%PDF", "a PDF document", "convert it to text: pdftotext FILE"},
    {"\xFF\xFE", "a text in UTF-16", kUtf8},
    {"\xFE\xFF", "a text in UTF-16", kUtf8},
    {"ORC", "an ORC file", "write its rows as JSON lines, one object a line"},
}};

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// The text before its first line's end.
std::string_view first_line(std::string_view text) { return text.substr(0, std::min(text.find_first_of("\r\n"), text.size())); }

}  // namespace

Error LineFile::wrong(const std::string& what, std::string hint) const {
  const std::string path = file_.path().string();
  for (size_t at = hint.find("FILE"); at != std::string::npos; at = hint.find("FILE", at + path.size())) hint.replace(at, 4, path);
  return recipe_error(path + what, std::move(hint));
}

Result<LineFile> LineFile::open(const std::filesystem::path& path) {
  LineFile out(TRY(File::open_read(path)));
  std::array<std::byte, 4096> bytes;
  const size_t n = TRY(out.file_.read_some(bytes, 0));
  std::string_view begin(reinterpret_cast<const char*>(bytes.data()), n);
  for (const OtherForm& magic : kOtherForms)
    if (begin.starts_with(magic.begin))
      return out.wrong(std::string(" is ") + magic.name + ", and no file of JSON lines, a JSON array or CSV", magic.how);
  if (std::memchr(begin.data(), 0, begin.size()))
    return out.wrong(" is no text: it has a NUL in its first bytes", "give a file of JSON lines, one object a line");
  if (begin.starts_with("\xEF\xBB\xBF")) {
    begin.remove_prefix(3);
    out.offset_ = 3;
  }
  std::string_view text = begin;
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(), [](unsigned char c) { return std::tolower(c); });
  if (text.starts_with('[')) {
    out.form_ = Form::Array;
  } else if (text.starts_with('{')) {
    // An object over several lines: a document of its own, or a whole data set under a key.
    std::string_view line = first_line(text);
    while (!line.empty() && is_blank(line.back())) line.remove_suffix(1);
    if (line == "{")
      return out.wrong(" has one JSON object over several lines, where each line has to be an object",
                       "write each on a line of its own: jq -c . FILE > FILE.jsonl; of a list under a key: jq -c '.KEY[]' FILE");
  } else if (extension == ".csv" || extension == ".tsv") {
    out.form_ = Form::Csv;
    const std::string_view header = first_line(begin);
    const auto count = [&](char c) { return std::count(header.begin(), header.end(), c); };
    out.separator_ = extension == ".tsv" || count('\t') > std::max(count(','), count(';')) ? '\t' : count(';') > count(',') ? ';' : ',';
  }
  return out;
}

std::string LineFile::place(int64_t number) const {
  const std::string path = file_.path().string();
  if (form_ == Form::Lines) return path + ":" + std::to_string(number);
  return path + (form_ == Form::Array ? ", entry " : ", row ") + std::to_string(number);
}

/// Each entry becomes a line: line ends outside of texts become blanks, and the commas between entries line ends.
Status LineFile::take_array(std::string_view bytes) {
  for (const char c : bytes) {
    if (in_text_) {
      out_ += c;
      if (escaped_) escaped_ = false;
      else if (c == '\\') escaped_ = true;
      else if (c == '"') in_text_ = false;
      continue;
    }
    if (is_blank(c)) {
      if (depth_ > 0) out_ += ' ';
      continue;
    }
    if (closed_) return wrong(": something follows the end of the JSON array");
    const bool opens = c == '[' || c == '{', closes = c == ']' || c == '}';
    depth_ += opens ? 1 : closes ? -1 : 0;
    closed_ = closes && depth_ <= 0;
    if (closed_ || (c == ',' && depth_ == 1)) out_ += '\n';
    else if (!(opens && depth_ == 1)) out_ += c;
    in_text_ = c == '"';
  }
  return ok();
}

void LineFile::end_field() {
  row_.push_back(std::move(field_));
  field_.clear();
  at_ = At::Begin;
}

Status LineFile::end_row() {
  end_field();
  const bool blank = row_.size() == 1 && row_[0].empty();
  if (names_.empty() && !blank) {
    names_ = std::move(row_);
    if (std::any_of(names_.begin(), names_.end(), [](const std::string& name) { return name.empty(); }))
      return wrong(": a column has no name in the first line", "the first line of a CSV file has to name its columns");
  } else if (!blank) {
    ++rows_;
    if (row_.size() > names_.size())
      return wrong(", row " + std::to_string(rows_) + ": it has " + std::to_string(row_.size()) + " fields, and the first line names " +
                       std::to_string(names_.size()),
                   "a field with the separator in it stands in double quotes");
    out_ += '{';
    for (size_t i = 0; i < row_.size(); ++i) out_ += (i ? ", " : "") + json_quote(names_[i]) + ": " + json_quote(row_[i]);
    out_ += "}\n";
  }
  row_.clear();
  return ok();
}

/// RFC 4180: fields in double quotes may hold separators, line ends and doubled quotes.
Status LineFile::take_table(std::string_view bytes) {
  for (const char c : bytes) {
    if (at_ == At::Quoted) {
      if (c == '"') at_ = At::QuoteIn;
      else field_ += c;
    } else if (at_ == At::QuoteIn && c == '"') {
      field_ += c;
      at_ = At::Quoted;
    } else if (c == '"' && at_ == At::Begin && field_.empty()) {
      at_ = At::Quoted;
    } else if (c == separator_) {
      end_field();
    } else if (c == '\n') {
      TRY_STATUS(end_row());
    } else if (c != '\r') {
      field_ += c;
      at_ = At::Plain;
    }
    if (field_.size() > LineBlocks::kLongest)
      return wrong(", row " + std::to_string(rows_ + 1) + ": a field of more than " + std::to_string(LineBlocks::kLongest >> 20) + " MiB",
                   "is a double quote missing?");
  }
  return ok();
}

Status LineFile::fill() {
  out_.clear();
  given_ = 0;
  std::string bytes(kLinesRead, '\0');
  while (out_.empty() && !ended_) {
    bytes.resize(kLinesRead);
    const size_t n = TRY(file_.read_some(std::as_writable_bytes(std::span(bytes)), offset_));
    offset_ += n;
    ended_ = n == 0;
    bytes.resize(n);
    TRY_STATUS(form_ == Form::Array ? take_array(bytes) : take_table(bytes));
    if (!ended_) continue;
    if (form_ == Form::Array && !closed_) return wrong(": the JSON array has no end", "the file is cut off, or a bracket is missing");
    if (form_ == Form::Csv && at_ == At::Quoted) return wrong(": a double quote is never closed");
    if (form_ == Form::Csv && (!row_.empty() || !field_.empty())) TRY_STATUS(end_row());
  }
  return ok();
}

Result<size_t> LineFile::read(std::span<std::byte> bytes) {
  if (form_ == Form::Lines) {
    const size_t n = TRY(file_.read_some(bytes, offset_));
    offset_ += n;
    return n;
  }
  if (given_ == out_.size()) TRY_STATUS(fill());
  const size_t n = std::min(bytes.size(), out_.size() - given_);
  std::memcpy(bytes.data(), out_.data() + given_, n);
  given_ += n;
  return n;
}

}  // namespace galley
