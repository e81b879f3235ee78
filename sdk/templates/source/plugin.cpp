// A kind of data as a Galley plugin: token ids in a text file, a row a line. A recipe says data.ids { path = "rows.txt" }.
//
// A source has items, which it knows by their numbers, and writes each as a row. Galley does the rest: it shuffles the items of each epoch,
// deals them out to windows, pads them, remembers how far a run has come, and refuses to go on with other data. Models learn the next token
// of each row; that label is Galley's work, too, unless a source says GALLEY_SOURCE_LABELS.
#include <galley/cpp/files.hpp>
#include <galley/cpp/source.hpp>

#include <algorithm>
#include <charconv>

namespace {

using namespace galley::sdk;

class Ids {
 public:
  explicit Ids(const Options& options) : path_(options.string("path")), held_out_(options.integer("validation")) {}

  // Called for plans, too, also where nobody waits for a large file to be read: so it says what is known without that.
  SourceInfo describe(const galley_source_call&) const {
    SourceInfo out;
    out.summary = "token ids of " + path_.substr(path_.rfind('/') + 1);
    out.flags = held_out_ > 0 ? GALLEY_SOURCE_VALIDATES : 0;
    return out;
  }

  // Called once, before the run. `run` says which tokens the model has. A mistake in the file is found here and not after an hour.
  galley_source_contents open(const galley_source_contents& run) {
    const std::string text = read_text(path_, kMostBytes);
    galley_source_contents out = fresh<galley_source_contents>();
    out.fingerprint = 14695981039346656037ull;  // FNV-1a, of all that was read: a run goes on with the same bytes only
    for (const char c : text) out.fingerprint = (out.fingerprint ^ static_cast<uint8_t>(c)) * 1099511628211ull;
    int64_t line = 1;
    for (size_t begin = 0; begin < text.size(); ++line) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      add_row(text.data() + begin, text.data() + end, line, run.vocabulary);
      begin = end + 1;
    }
    const auto rows = static_cast<int64_t>(ends_.size());
    if (rows <= held_out_)
      invalid(path_ + " has " + std::to_string(rows) + " rows: validation = " + std::to_string(held_out_) + " leaves none to train on");
    out.items = rows - held_out_;
    out.validation_items = held_out_;
    return out;
  }

  // Several threads call it at once, in any order, and perhaps twice for one item: it reads members and writes to the row alone. Tokens are
  // 0 on entry, so that the rest of a short row is padding; of a long one there is the beginning.
  void read(galley_source_row& row) const {
    const auto item = static_cast<size_t>(row.validation ? static_cast<int64_t>(ends_.size()) - held_out_ + row.item : row.item);
    const int64_t begin = item > 0 ? ends_[item - 1] : 0;
    row.length = std::min(ends_[item] - begin, row.room);
    std::copy_n(tokens_.data() + begin, row.length, row.tokens);
  }

 private:
  static constexpr uint64_t kMostBytes = uint64_t{4} << 30;

  /// The ids of a line, which may end as Windows ends lines. One without any is no row.
  void add_row(const char* at, const char* end, int64_t line, int64_t vocabulary) {
    const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
    const size_t before = tokens_.size();
    while ((at = std::find_if_not(at, end, blank)) != end) {
      const char* const word_end = std::find_if(at, end, blank);
      int32_t id = 0;
      const auto [rest, error] = std::from_chars(at, word_end, id);
      if (error != std::errc() || rest != word_end || id < 0)
        refuse(line, at, word_end, "is no token id", "token ids are whole numbers from 0 on");
      if (id >= vocabulary)
        refuse(line, at, word_end, "is no token of the model", "its vocabulary ends at " + std::to_string(vocabulary - 1));
      tokens_.push_back(id);
      at = word_end;
    }
    if (tokens_.size() > before) ends_.push_back(static_cast<int64_t>(tokens_.size()));
  }
  [[noreturn]] void refuse(int64_t line, const char* word, const char* end, const char* why, const std::string& hint) const {
    const std::string shown = std::string(word, end).substr(0, 40);
    invalid(path_ + ", line " + std::to_string(line) + ": '" + shown + "' " + why, hint);
  }

  std::string path_;
  int64_t held_out_;
  std::vector<int32_t> tokens_;  // of all rows, one after the other
  std::vector<int64_t> ends_;    // where each row ends in them
};

const bool added = add(source<Ids>("ids"));

}  // namespace

GALLEY_PLUGIN("ids", "1.0.0");
