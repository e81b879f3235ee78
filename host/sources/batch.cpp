#include "host/sources/batch.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "host/base/nearest.hpp"
#include "host/base/safetensors.hpp"
#include "host/sources/layout.hpp"
#include "host/sources/shape.hpp"
#include "host/tokens/spec.hpp"

namespace galley {
namespace {

using safetensors::Dtype;
using tensor_files::Entry;

enum InFile : size_t { InputIds, Labels, PositionIds, DocumentIds, AttentionMask, TokenTypeIds, DecoderInputIds };
constexpr size_t kTensors = 7;
constexpr const char* kTensorNames[kTensors] = {"input_ids",      "labels",         "position_ids",     "document_ids",
                                                "attention_mask", "token_type_ids", "decoder_input_ids"};

// The open file, and its tensors by their role (null: absent).
struct BatchFile {
  tensor_files::Reader reader;
  std::string path;
  std::array<const Entry*, kTensors> entries = {};
  int64_t rows = 0, length = 0;  // of the file
  int64_t labels = 0;            // numbers of a row of them

  const Entry* operator[](InFile role) const { return entries[role]; }
};

std::string describe(const Entry& entry) { return "is " + tensor_files::describe(entry.dtype, entry.shape); }

/// What is wrong with the shape of a tensor, or "".
std::string shape_problem(const BatchFile& file, InFile role, Fill learns) {
  const Entry& entry = *file[role];
  const bool target = learns == Fill::TargetLabels && (role == Labels || role == DecoderInputIds);
  const bool by_row = of_rows(learns) && role == Labels;
  if (by_row && entry.shape.size() == 1 && entry.shape[0] == file[InputIds]->shape[0]) return "";
  if (entry.shape.size() != 2)
    return by_row ? "; it must have one number a row, or one for each label" : "; it must have two dimensions, rows and positions";
  const std::string beside = ", but ";
  if (target && entry.shape[0] == file[InputIds]->shape[0]) {
    if (entry.shape == file[Labels]->shape && entry.shape[1] > 0) return "";
    return beside + "labels " + describe(*file[Labels]);
  }
  if (by_row && entry.shape[0] == file[InputIds]->shape[0] && entry.shape[1] > 0) return "";
  return entry.shape == file[InputIds]->shape ? "" : beside + "input_ids " + describe(*file[InputIds]);
}

Result<BatchFile> open_file(const DataSpec& spec, const Recipe& recipe) {
  TRY_STATUS(options_of(spec).only({"path"}));
  const std::string path = TRY(options_of(spec).text("path")).value_or("");
  if (path.empty()) return options_of(spec).missing("path", "name a safetensors file with input_ids and labels");
  Result<tensor_files::Reader> opened = tensor_files::Reader::open(path);
  if (!opened.ok()) return data_error(spec, opened.error().cause, opened.error().hint);
  BatchFile file{std::move(*opened), path};

  const std::vector<std::string> names(std::begin(kTensorNames), std::end(kTensorNames));
  for (size_t r = 0; r < kTensors; ++r) file.entries[r] = file.reader.find(kTensorNames[r]);
  for (const InFile needed : {InputIds, Labels})
    if (!file[needed]) return data_error(spec, path + ": has no tensor '" + kTensorNames[needed] + "'");
  const Fill learns = recipe.learning.labels;
  for (const Entry& entry : file.reader.entries()) {
    const std::string what = path + ": tensor '" + entry.name + "' ";
    const auto role = static_cast<InFile>(std::ranges::find(names, entry.name) - names.begin());
    if (role == kTensors) return data_error(spec, what + "has no meaning in a batch", did_you_mean(entry.name, names));
    if (role == DecoderInputIds && learns != Fill::TargetLabels)
      return data_error(spec, what + "belongs to models with an encoder and a decoder", "take it out of the file");
    if (role == Labels && learns == Fill::RowValues) {
      if (entry.dtype != Dtype::F32) return data_error(spec, what + describe(entry) + "; values must be F32");
    } else if (entry.dtype != Dtype::I32 && entry.dtype != Dtype::I64) {
      return data_error(spec, what + describe(entry) + "; it must be I32 or I64");
    }
    if (const std::string problem = shape_problem(file, role, learns); !problem.empty())
      return data_error(spec, what + describe(entry) + problem);
  }
  const Entry& ids = *file[InputIds];
  file.rows = ids.shape[0];
  file.length = ids.shape[1];
  file.labels = file[Labels]->shape.size() == 2 ? file[Labels]->shape[1] : 1;
  if (file.rows == 0 || file.length == 0) return data_error(spec, path + ": input_ids " + describe(ids) + ": there is no token");
  return file;
}

// Says whether the file tells of neither documents nor padding.
bool one_document(const BatchFile& file) { return !file[DocumentIds] && !file[AttentionMask]; }

Result<BatchLayout> layout_of(const DataSpec& spec, const Recipe& recipe, const BatchFile& file) {
  BatchLayout layout{recipe.batch.value_or(file.rows), recipe.length.value_or(file.length)};
  if (recipe.learning.labels == Fill::TargetLabels) layout.target_length = recipe.target_length.value_or(file.labels);
  TRY_STATUS(check_layout(spec, layout));
  BatchLayout whole = layout;
  whole.rows = file.rows;
  TRY_STATUS(check_layout(spec, whole));
  const auto shorter = [&](const char* what, int64_t has, int64_t needs) {
    return data_error(spec, std::string("the recipe's ") + what + " is " + std::to_string(has) + ", but the rows of " + file.path +
                                " have " + std::to_string(needs) + " positions");
  };
  if (layout.length < file.length) return shorter("length", layout.length, file.length);
  if (layout.target_length > 0 && layout.target_length < file.labels) return shorter("target_length", layout.target_length, file.labels);
  return layout;
}

// One row of the file as it is read, of F32 the bits; empty where the tensor is absent.
using RawRow = std::array<std::vector<int64_t>, kTensors>;

Status read_row(const BatchFile& file, const Entry* entry, int64_t row, std::vector<int64_t>* out) {
  out->clear();
  if (entry == nullptr) return ok();
  const auto length = static_cast<size_t>(entry->shape.size() == 2 ? entry->shape[1] : 1);
  const auto offset = [&](size_t element) { return static_cast<uint64_t>(row) * length * element; };
  if (entry->dtype == Dtype::I64) {
    out->resize(length);
    return file.reader.read_bytes(*entry, offset(sizeof(int64_t)), std::as_writable_bytes(std::span(*out)));
  }
  std::vector<int32_t> narrow(length);
  TRY_STATUS(file.reader.read_bytes(*entry, offset(sizeof(int32_t)), std::as_writable_bytes(std::span(narrow))));
  out->assign(narrow.begin(), narrow.end());
  return ok();
}

class BatchSource final : public Source {
 public:
  BatchSource(DataSpec spec, BatchFile file, BatchLayout layout, const Windows& windows, int64_t vocabulary, Learning learning)
      : spec_(std::move(spec)),
        file_(std::move(file)),
        layout_(layout),
        windows_(windows),
        vocabulary_(vocabulary),
        learning_(std::move(learning)) {}

  Status load(std::span<std::byte> memory) override {
    const BatchFile& file = *file_;
    BatchLayout whole = layout_;
    whole.rows = file.rows;
    if (const uint64_t needed = window_bytes(whole, 1); needed > memory.size()) {
      return data_error(spec_, file.path + " has grown since the run was planned: " + std::to_string(needed) + " bytes instead of " +
                                   std::to_string(memory.size()));
    }
    rows_ = {.layout = whole, .memory = memory, .window = 0, .micro_batches = 1};
    RawRow raw;
    for (int64_t row = 0; row < file.rows; ++row) {
      for (size_t r = 0; r < kTensors; ++r) TRY_STATUS(read_row(file, file.entries[r], row, &raw[r]));
      if (Status made = make_row(raw, rows_.row(row)); !made.ok()) {
        return data_error(spec_, file.path + ": row " + std::to_string(row) + ": " + made.error().cause, made.error().hint);
      }
    }
    if (rows_.count_valid() == 0) {
      return data_error(spec_, file.path + ": nothing would train: every label is -100, or belongs to the first position of a document",
                        "labels are the ids of input_ids where they count, not shifted, and -100 elsewhere");
    }
    for (size_t f = 0; f < kFills; ++f) {
      const std::span<const int32_t> tensor = rows_.tensor(0, static_cast<Fill>(f));
      if (tensor.empty()) continue;
      fingerprint_ = XXH3_64bits_withSeed(tensor.data(), tensor.size_bytes(), fingerprint_);
    }
    file_.reset();
    return ok();
  }

  Status fill(int64_t window, WindowBuffer& buffer) const override {
    buffer.window = window;
    // A window takes the whole batch, whatever number of tokens is aimed at.
    buffer.micro_batches = windows_.tokens > 0 ? (rows_.rows() + buffer.layout.rows - 1) / buffer.layout.rows : windows_.micro_batches;
    for (int64_t r = 0; r < buffer.rows(); ++r) {
      const BatchRow row = buffer.row(r);
      if (r >= rows_.rows()) {
        pad_row(row);
        continue;
      }
      const BatchRow from = rows_.row(r);
      for (size_t f = 0; f < kFills; ++f) std::ranges::copy(from.fills[f], row.fills[f].begin());
      // Rows are counted within their micro-batch.
      for (const Fill token : {Fill::FirstToken, Fill::LastToken})
        for (int32_t& at : row[token]) at += row.first - from.first;
    }
    buffer.valid_tokens = buffer.count_valid();
    pad_lanes(buffer, windows_);
    return ok();
  }

  uint64_t fingerprint() const override { return fingerprint_; }

 private:
  static Error wrong(const char* tensor, size_t position, int64_t value, const std::string& why) {
    return recipe_error(std::string(tensor) + "[" + std::to_string(position) + "] is " + std::to_string(value) + "; " + why);
  }

  bool is_id(int64_t id) const { return id >= 0 && id < vocabulary_; }
  std::string ids() const { return "the model's ids are 0 to " + std::to_string(vocabulary_ - 1); }

  /// The tokens are positions [first, last); what is around them is padding.
  struct Tokens {
    size_t first = 0, last = 0;
  };
  static Result<Tokens> tokens_in(const std::vector<int64_t>& mask, size_t length) {
    Tokens out = {0, length};
    if (mask.empty()) return out;
    for (size_t s = 0; s < length; ++s) {
      if (mask[s] != 0 && mask[s] != 1) return wrong("attention_mask", s, mask[s], "it must be 1, or 0 for padding");
    }
    out.first = static_cast<size_t>(std::find(mask.begin(), mask.end(), 1) - mask.begin());
    out.last = length - static_cast<size_t>(std::find(mask.rbegin(), mask.rend(), 1) - mask.rbegin());
    if (out.first == length) out.last = length;  // no token at all
    const auto end = mask.begin() + static_cast<std::ptrdiff_t>(out.last);
    const auto hole = std::find(mask.begin() + static_cast<std::ptrdiff_t>(out.first), end, 0);
    if (hole != end)
      return wrong("attention_mask", static_cast<size_t>(hole - mask.begin()), 0,
                   "padding between tokens is not possible, only before and after them");
    return out;
  }

  // Errors begin after "row 3: ".
  Status make_row(const RawRow& raw, const BatchRow& row) const {
    const size_t length = raw[InputIds].size();
    const auto [first, last] = TRY(tokens_in(raw[AttentionMask], length));
    const bool next = learning_.labels == Fill::NextTokens;
    const std::vector<int64_t>&documents_of = raw[DocumentIds], &positions = raw[PositionIds];
    size_t start = first;  // of the document
    std::set<int64_t> documents;
    for (size_t s = 0; s < length; ++s) {
      const bool token = s >= first && s < last;
      const bool begins = !documents_of.empty() && (s == 0 || documents_of[s] != documents_of[s - 1]);
      if (begins && !documents.insert(documents_of[s]).second)
        return wrong("document_ids", s, documents_of[s], "that document ended earlier in the row");
      if (begins) start = std::max(first, s);

      const bool last_of_document = s + 1 == length || (!documents_of.empty() && documents_of[s + 1] != documents_of[s]);
      const int64_t label = !next || last_of_document ? kNoLabel : raw[Labels][s + 1];
      if (label != kNoLabel && !is_id(label)) return wrong("labels", s + 1, label, "it must be -100, or an id: " + ids());
      if (!token) {
        if (label != kNoLabel)
          return wrong("labels", s + 1, label, "it counts for position " + std::to_string(s) + ", which is padding; -100 belongs there");
        row.pad(s, s + 1);
        continue;
      }
      if (!is_id(raw[InputIds][s])) return wrong("input_ids", s, raw[InputIds][s], ids());
      const int64_t position = positions.empty() ? static_cast<int64_t>(learning_.counts_tokens ? s - first : s) : positions[s];
      if (position < 0 || position >= layout_.length) {
        return wrong("position_ids", s, position,
                     "positions of a row of " + std::to_string(layout_.length) + " are 0 to " + std::to_string(layout_.length - 1));
      }
      row.tokens()[s] = static_cast<int32_t>(raw[InputIds][s]);
      row.next()[s] = static_cast<int32_t>(label);
      row.positions()[s] = static_cast<int32_t>(position);
      row.first_key()[s] = static_cast<int32_t>(start);
    }
    row.pad(length, row.length());
    complete_row(row, first, last, nullptr, {});
    for (size_t s = 0; s < std::min(raw[TokenTypeIds].size(), row[Fill::TokenTypes].size()); ++s) {
      if (raw[TokenTypeIds][s] < 0 || raw[TokenTypeIds][s] > INT32_MAX)
        return wrong("token_type_ids", s, raw[TokenTypeIds][s], "it must be the number of a type, from 0 on");
      row[Fill::TokenTypes][s] = static_cast<int32_t>(raw[TokenTypeIds][s]);
    }
    return next ? ok() : make_labels(raw, first, last, row);
  }

  /// Labels that are not those of the next tokens, and what a decoder reads.
  Status make_labels(const RawRow& raw, size_t first, size_t last, const BatchRow& row) const {
    const std::span<int32_t> to = row[learning_.labels];
    const bool tokens = learning_.labels == Fill::MaskedTokens || learning_.labels == Fill::TargetLabels;
    const bool of_positions = learning_.labels == Fill::MaskedTokens || learning_.labels == Fill::TokenLabels;
    const bool flags = learning_.labels == Fill::RowLabels && to.size() > 1;
    const int64_t bound = tokens ? vocabulary_ : flags ? 2 : learning_.classes;
    if (raw[Labels].size() > to.size())
      return recipe_error("labels has " + std::to_string(raw[Labels].size()) + " numbers a row; the model takes " +
                          std::to_string(to.size()));
    std::ranges::fill(to, kNoLabel);
    if (learning_.labels == Fill::RowValues) {
      for (size_t s = 0; s < raw[Labels].size(); ++s) {
        to[s] = static_cast<int32_t>(raw[Labels][s]);
        if (!std::isfinite(std::bit_cast<float>(to[s]))) return recipe_error("labels[" + std::to_string(s) + "] is no finite number");
      }
      return ok();
    }
    for (size_t s = 0; s < raw[Labels].size(); ++s) {
      const int64_t label = raw[Labels][s];
      if (label == kNoLabel) continue;
      if (label < 0 || label >= bound) return wrong("labels", s, label, "it must be -100, or a label: 0 to " + std::to_string(bound - 1));
      if (of_positions && (s < first || s >= last)) return wrong("labels", s, label, "that position is padding; -100 belongs there");
      to[s] = static_cast<int32_t>(label);
    }
    const std::span<int32_t> target = row[Fill::TargetTokens];
    if (target.empty()) return ok();
    // As transformers shifts them: where no label counts, the decoder reads the token of padding, which is the one that begins a target.
    std::ranges::fill(target, learning_.padding);
    target[0] = learning_.start;
    for (size_t s = 1; s < std::min(raw[Labels].size(), target.size()); ++s)
      target[s] = to[s - 1] == kNoLabel ? learning_.padding : to[s - 1];
    for (size_t s = 0; s < raw[DecoderInputIds].size(); ++s) {
      if (!is_id(raw[DecoderInputIds][s])) return wrong("decoder_input_ids", s, raw[DecoderInputIds][s], ids());
      target[s] = static_cast<int32_t>(raw[DecoderInputIds][s]);
    }
    return ok();
  }

  DataSpec spec_;
  std::optional<BatchFile> file_;  // until it is loaded
  BatchLayout layout_;
  Windows windows_;
  int64_t vocabulary_;
  Learning learning_;
  WindowBuffer rows_;  // all rows of the file as one micro-batch, ready to be copied
  uint64_t fingerprint_ = 0;
};

}  // namespace

Result<DataInfo> describe_batch(const DataSpec& spec, const Recipe& recipe) {
  const BatchFile file = TRY(open_file(spec, recipe));
  DataInfo info;
  info.layout = TRY(layout_of(spec, recipe, file));
  info.window_rows = file.rows;
  info.kept_rows = file.rows;
  info.one_document = one_document(file);
  info.summary = "one batch of " + std::to_string(file.rows) + " rows of " + std::to_string(file.length) + " positions";
  if (info.layout.target_length > 0) info.summary += ", targets of " + std::to_string(file.labels);
  return info;
}

Result<std::unique_ptr<Source>> open_batch(const DataInfo& info, const DataSpec& spec, const Recipe& recipe, int64_t vocabulary,
                                           const Windows& windows) {
  BatchFile file = TRY(open_file(spec, recipe));
  if (info.one_document && !one_document(file))
    return data_error(spec, file.path + " has changed since the run was planned: it has documents or padding now");
  if (file[TokenTypeIds] && !info.layout.fills.has(Fill::TokenTypes))
    return data_error(spec, file.path + ": tensor 'token_type_ids' belongs to models with token types", "take it out of the file");
  TRY(layout_of(spec, recipe, file));
  return std::unique_ptr<Source>(std::make_unique<BatchSource>(spec, std::move(file), info.layout, windows, vocabulary, recipe.learning));
}

}  // namespace galley
