#include "host/data/text.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "host/base/file.hpp"
#include "host/base/random.hpp"
#include "host/data/documents.hpp"
#include "host/data/pack.hpp"
#include "host/data/spec.hpp"

namespace galley {
namespace {

struct TextOptions {
  std::vector<std::string> files;
  double validation = 0;
  BatchLayout layout;
};

Result<TextOptions> read_options(const DataSpec& spec, const Recipe& recipe) {
  TRY_STATUS(check_options(spec, {"files", "tokenizer", "validation"}));
  TextOptions options;
  options.files = TRY(strings_option(spec, "files"));
  const std::string tokenizer = TRY(string_option(spec, "tokenizer", "model"));
  if (tokenizer == "model") {
    return data_error(spec, "tokenizer = \"model\", the default, is not there yet; there is \"bytes\"", "write tokenizer = \"bytes\"");
  }
  if (tokenizer != "bytes") return data_error(spec, "unknown tokenizer '" + tokenizer + "'; there is \"bytes\"");
  options.validation = TRY(fraction_option(spec, "validation", recipe.validate_every > 0 ? 0.05 : 0.0));
  options.layout = TRY(recipe_layout(spec, recipe));
  return options;
}

// What lies where in the source's memory: the text, the pieces, the rows' first pieces (of training, then of validation).
struct Regions {
  uint64_t pieces = 0, rows = 0, bytes = 0;  // offsets of the second and third; all of it
  uint64_t most_pieces = 0;

  Regions(const Documents& documents, const BatchLayout& layout) {
    uint64_t text = 0;
    for (const TextDocument& document : documents.files) {
      text += document.size;
      most_pieces += count_pieces(document.size, static_cast<uint64_t>(layout.length));
    }
    ++most_pieces;  // a lone document that is cut for validation may have one more
    pieces = (text + BatchLayout::kAlignment - 1) / BatchLayout::kAlignment * BatchLayout::kAlignment;
    rows = pieces + most_pieces * sizeof(Piece);
    bytes = rows + (most_pieces + 2) * sizeof(uint64_t);
  }
};

Status check_documents(const DataSpec& spec, const Documents& documents) {
  if (!documents.files.empty()) return ok();
  return data_error(spec, "there is no text: no file of two bytes or more (" + std::to_string(documents.small) + " are smaller, " +
                              std::to_string(documents.binary) + " are binary)");
}

// What a document that is cut keeps for training; 0: it is too small to be cut.
uint64_t kept_of_lone(uint64_t size, double validation) {
  if (size < 4) return 0;
  const auto held = static_cast<uint64_t>(std::llround(static_cast<double>(size) * validation));
  return size - std::clamp<uint64_t>(held, 2, size - 2);
}

// true for the documents that are held out: the share with the smallest hashes of seed and name. A document that joins the corpus moves at
// most one other across the line for each that it adds to the count.
std::vector<bool> hold_out(const std::vector<TextDocument>& documents, double validation, uint64_t seed) {
  std::vector<bool> held(documents.size(), false);
  if (validation <= 0 || documents.size() < 2) return held;
  std::vector<std::pair<uint64_t, size_t>> order;
  for (size_t i = 0; i < documents.size(); ++i) {
    order.emplace_back(XXH3_64bits_withSeed(documents[i].identity.data(), documents[i].identity.size(), seed), i);
  }
  std::sort(order.begin(), order.end());
  const auto wanted = static_cast<size_t>(std::llround(static_cast<double>(documents.size()) * validation));
  const size_t count = std::clamp<size_t>(wanted, 1, documents.size() - 1);
  for (size_t i = 0; i < count; ++i) held[order[i].second] = true;
  return held;
}

class TextSource final : public Source {
 public:
  TextSource(BatchLayout layout, Accumulation micro_batches, uint64_t seed)
      : layout_(layout), micro_batches_(std::move(micro_batches)), seed_(seed) {}

  Status load(const DataSpec& spec, const TextOptions& options, Documents documents, std::span<std::byte> memory);

  Status fill(int64_t window, WindowBuffer& buffer) const override {
    buffer.window = window;
    buffer.micro_batches = micro_batches_.at(window);
    const auto first = static_cast<uint64_t>(micro_batches_.before(window) * layout_.rows);
    std::optional<Permutation> order;
    for (int64_t r = 0; r < buffer.rows(); ++r) {
      const uint64_t at = first + static_cast<uint64_t>(r);
      const uint64_t epoch = at / train_.count(), index = at % train_.count();
      if (!order || index == 0) order.emplace(train_.count(), bits64(galley_philox(seed_, galley_name_hash("data.text"), epoch), 0));
      write_row(train_.row((*order)(index)), buffer.row(r));
    }
    buffer.valid_tokens = buffer.count_valid();
    return ok();
  }

  int64_t validation_batches() const override {
    const auto rows = static_cast<int64_t>(validation_.count());
    return (rows + layout_.rows - 1) / layout_.rows;
  }

  Status fill_validation(int64_t batch, WindowBuffer& buffer) const override {
    buffer.window = batch;
    buffer.micro_batches = 1;
    for (int64_t r = 0; r < layout_.rows; ++r) {
      const auto at = static_cast<uint64_t>(batch * layout_.rows + r);
      write_row(at < validation_.count() ? validation_.row(at) : std::span<const Piece>(), buffer.row(r));
    }
    buffer.valid_tokens = buffer.count_valid();
    return ok();
  }

  uint64_t fingerprint() const override { return fingerprint_; }

 private:
  void write_row(std::span<const Piece> pieces, const BatchRow& row) const {
    size_t at = 0;
    for (const Piece& piece : pieces) {
      const uint8_t* text = text_ + piece.begin;
      for (size_t i = 0; i < piece.length; ++i) {
        row.input_ids[at + i] = text[i];
        row.labels[at + i] = text[i + 1];
        row.position_ids[at + i] = static_cast<int32_t>(i);
        row.first_key[at + i] = static_cast<int32_t>(at);
      }
      at += piece.length;
    }
    row.pad(at, row.input_ids.size());
  }

  BatchLayout layout_;
  Accumulation micro_batches_;
  uint64_t seed_;
  const uint8_t* text_ = nullptr;
  Rows train_, validation_;
  uint64_t fingerprint_ = 0;
};

// Reads one document to `at`. false: it is binary after all, and is to be left out.
Result<bool> read_document(const DataSpec& spec, const TextDocument& document, std::span<std::byte> at) {
  Result<File> file = File::open_read(document.path);
  if (!file.ok()) return data_error(spec, file.error().cause);
  const uint64_t size = TRY(file->size());
  if (size != document.size) {
    return data_error(spec, "'" + document.path.string() + "' changed while it was being read: " + std::to_string(document.size) +
                                " bytes, then " + std::to_string(size));
  }
  TRY_STATUS(file->read_at(at, 0));
  const void* nul = std::memchr(at.data(), 0, at.size());
  if (nul == nullptr) return true;
  if (!document.named) return false;
  return data_error(spec, "'" + document.path.string() + "' is not a text: byte " +
                              std::to_string(static_cast<const std::byte*>(nul) - at.data()) + " is a NUL");
}

Status TextSource::load(const DataSpec& spec, const TextOptions& options, Documents documents, std::span<std::byte> memory) {
  const Regions regions(documents, layout_);
  if (regions.bytes > memory.size()) {
    return data_error(spec, "the files have grown since the run was planned: " + std::to_string(regions.bytes) + " bytes instead of " +
                                std::to_string(memory.size()));
  }
  std::vector<TextDocument> kept;
  std::vector<Extent> extents;
  uint64_t end = 0;
  for (TextDocument& document : documents.files) {
    const std::span<std::byte> at = memory.subspan(end, document.size);
    if (!TRY(read_document(spec, document, at))) {
      ++documents.binary;
      continue;
    }
    fingerprint_ = XXH3_64bits_withSeed(document.identity.data(), document.identity.size(), fingerprint_);
    fingerprint_ = XXH3_64bits_withSeed(at.data(), at.size(), fingerprint_);
    extents.push_back({end, document.size});
    end += document.size;
    kept.push_back(std::move(document));
  }
  documents.files = std::move(kept);
  TRY_STATUS(check_documents(spec, documents));

  std::vector<Extent> train, validation;
  const std::vector<bool> held = hold_out(documents.files, options.validation, seed_);
  for (size_t i = 0; i < extents.size(); ++i) (held[i] ? validation : train).push_back(extents[i]);
  if (options.validation > 0 && extents.size() == 1) {
    if (const uint64_t cut = kept_of_lone(extents[0].tokens, options.validation); cut > 0) {
      train[0].tokens = cut;
      validation.push_back({extents[0].begin + cut, extents[0].tokens - cut});
    }
  }

  text_ = reinterpret_cast<const uint8_t*>(memory.data());
  const std::span<Piece> pieces(reinterpret_cast<Piece*>(memory.data() + regions.pieces), regions.most_pieces);
  const std::span<uint64_t> rows(reinterpret_cast<uint64_t*>(memory.data() + regions.rows), regions.most_pieces + 2);
  const auto length = static_cast<uint64_t>(layout_.length);
  train_ = pack_rows(train, length, pieces, rows);
  validation_ = pack_rows(validation, length, pieces.subspan(train_.pieces.size()), rows.subspan(train_.row_begin.size()));
  return ok();
}

}  // namespace

Result<DataInfo> describe_text(const DataSpec& spec, const Recipe& recipe) {
  const TextOptions options = TRY(read_options(spec, recipe));
  const Documents documents = TRY(find_documents(spec, options.files));
  TRY_STATUS(check_documents(spec, documents));
  uint64_t text = 0;
  for (const TextDocument& document : documents.files) text += document.size;

  DataInfo info;
  info.layout = options.layout;
  info.vocabulary = 256;
  info.bytes = Regions(documents, options.layout).bytes;
  const size_t count = documents.files.size();
  info.validation = options.validation > 0 && (count > 1 || kept_of_lone(documents.files[0].size, options.validation) > 0);
  info.summary = std::to_string(count) + (count == 1 ? " document, " : " documents, ") + std::to_string(text) + " bytes";
  if (info.validation) {
    char percent[32];
    std::snprintf(percent, sizeof percent, "%g", options.validation * 100);
    info.summary += std::string("; ") + percent + (count == 1 ? "% of it, its end, held out" : "% of them held out");
  }
  if (documents.binary > 0) info.summary += "; binary files left out: " + std::to_string(documents.binary);
  return info;
}

Result<std::unique_ptr<Source>> open_text(const DataSpec& spec, const Recipe& recipe, const Accumulation& micro_batches,
                                          std::span<std::byte> memory) {
  const TextOptions options = TRY(read_options(spec, recipe));
  Documents documents = TRY(find_documents(spec, options.files));
  TRY_STATUS(check_documents(spec, documents));
  auto source = std::make_unique<TextSource>(options.layout, micro_batches, recipe.seed);
  TRY_STATUS(source->load(spec, options, std::move(documents), memory));
  return std::unique_ptr<Source>(std::move(source));
}

}  // namespace galley
