#include "host/data/batch.hpp"

#include <xxhash.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "host/base/nearest.hpp"
#include "host/base/safetensors.hpp"
#include "host/data/spec.hpp"

namespace galley {
namespace {

using safetensors::Dtype;
using tensor_files::Entry;

// The open file, and its tensors by their role (null: absent).
struct BatchFile {
  tensor_files::Reader reader;
  std::string path;
  const Entry* input_ids = nullptr;
  const Entry* labels = nullptr;
  const Entry* position_ids = nullptr;
  const Entry* document_ids = nullptr;
  const Entry* attention_mask = nullptr;
  int64_t rows = 0, length = 0;  // of the file
};

Result<BatchFile> open_file(const DataSpec& spec) {
  TRY_STATUS(options_of(spec).only({"path"}));
  const std::string path = TRY(options_of(spec).text("path")).value_or("");
  if (path.empty()) return options_of(spec).missing("path", "name a safetensors file with input_ids and labels");
  Result<tensor_files::Reader> opened = tensor_files::Reader::open(path);
  if (!opened.ok()) return data_error(spec, opened.error().cause, opened.error().hint);
  BatchFile file{std::move(*opened), path};

  const std::pair<const char*, const Entry**> roles[] = {{"input_ids", &file.input_ids},
                                                         {"labels", &file.labels},
                                                         {"position_ids", &file.position_ids},
                                                         {"document_ids", &file.document_ids},
                                                         {"attention_mask", &file.attention_mask}};
  std::vector<std::string> names;
  for (const auto& [name, entry] : roles) {
    names.emplace_back(name);
    *entry = file.reader.find(name);
  }
  if (!file.input_ids || !file.labels)
    return data_error(spec, path + ": has no tensor '" + (file.input_ids ? "labels" : "input_ids") + "'");
  for (const Entry& entry : file.reader.entries()) {
    const std::string what = path + ": tensor '" + entry.name + "' ";
    if (entry.name == "token_type_ids")
      return data_error(spec, what + "belongs to models with token types, which are not there yet", "take it out of the file");
    if (std::find(names.begin(), names.end(), entry.name) == names.end())
      return data_error(spec, what + "has no meaning in a batch", did_you_mean(entry.name, names));
    const std::string found = "is " + tensor_files::describe(entry.dtype, entry.shape);
    if (entry.dtype != Dtype::I32 && entry.dtype != Dtype::I64) return data_error(spec, what + found + "; it must be I32 or I64");
    if (entry.shape.size() != 2) return data_error(spec, what + found + "; it must have two dimensions, rows and positions");
    if (entry.shape != file.input_ids->shape) {
      return data_error(spec, what + found + ", but input_ids is " + tensor_files::describe(file.input_ids->dtype, file.input_ids->shape));
    }
  }
  file.rows = file.input_ids->shape[0];
  file.length = file.input_ids->shape[1];
  if (file.rows == 0 || file.length == 0)
    return data_error(
        spec, path + ": input_ids is " + tensor_files::describe(file.input_ids->dtype, file.input_ids->shape) + ": there is no token");
  return file;
}

// Neither documents, nor padding on the left.
bool one_document(const BatchFile& file) { return !file.document_ids && !file.attention_mask; }

Result<BatchLayout> layout_of(const DataSpec& spec, const Recipe& recipe, const BatchFile& file) {
  const BatchLayout layout{recipe.batch.value_or(file.rows), recipe.length.value_or(file.length)};
  TRY_STATUS(check_layout(spec, layout));
  TRY_STATUS(check_layout(spec, {file.rows, layout.length}));
  if (layout.length < file.length) {
    return data_error(spec, "the recipe's length is " + std::to_string(layout.length) + ", but the rows of " + file.path + " have " +
                                std::to_string(file.length) + " positions");
  }
  return layout;
}

// One row of the file as it is read: S numbers a tensor, empty where the tensor is absent.
struct RawRow {
  std::vector<int64_t> input_ids, labels, position_ids, document_ids, attention_mask;
};

Status read_row(const BatchFile& file, const Entry* entry, int64_t row, std::vector<int64_t>* out) {
  out->clear();
  if (entry == nullptr) return ok();
  const auto length = static_cast<size_t>(file.length);
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
  BatchSource(DataSpec spec, BatchFile file, BatchLayout layout, const Windows& windows, int64_t vocabulary)
      : spec_(std::move(spec)), file_(std::move(file)), layout_(layout), windows_(windows), vocabulary_(vocabulary) {}

  Status load(std::span<std::byte> memory) override {
    const BatchFile& file = *file_;
    if (const uint64_t needed = window_bytes({file.rows, layout_.length}, 1); needed > memory.size()) {
      return data_error(spec_, file.path + " has grown since the run was planned: " + std::to_string(needed) + " bytes instead of " +
                                   std::to_string(memory.size()));
    }
    rows_ = {.layout = {file.rows, layout_.length}, .memory = memory, .window = 0, .micro_batches = 1};
    RawRow raw;
    for (int64_t row = 0; row < file.rows; ++row) {
      TRY_STATUS(read_row(file, file.input_ids, row, &raw.input_ids));
      TRY_STATUS(read_row(file, file.labels, row, &raw.labels));
      TRY_STATUS(read_row(file, file.position_ids, row, &raw.position_ids));
      TRY_STATUS(read_row(file, file.document_ids, row, &raw.document_ids));
      TRY_STATUS(read_row(file, file.attention_mask, row, &raw.attention_mask));
      if (Status made = make_row(raw, rows_.row(row)); !made.ok()) {
        return data_error(spec_, file.path + ": row " + std::to_string(row) + ": " + made.error().cause, made.error().hint);
      }
    }
    if (rows_.count_valid() == 0) {
      return data_error(spec_, file.path + ": nothing would train: every label is -100, or belongs to the first position of a document",
                        "labels are the ids of input_ids where they count, not shifted, and -100 elsewhere");
    }
    for (size_t t = 0; t < kBatchTensorCount; ++t) {
      const std::span<const int32_t> tensor = rows_.tensor(0, t);
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
        row.pad(0, row.input_ids.size());
        continue;
      }
      const BatchRow from = rows_.row(r);
      std::copy(from.input_ids.begin(), from.input_ids.end(), row.input_ids.begin());
      std::copy(from.labels.begin(), from.labels.end(), row.labels.begin());
      std::copy(from.position_ids.begin(), from.position_ids.end(), row.position_ids.begin());
      std::copy(from.first_key.begin(), from.first_key.end(), row.first_key.begin());
    }
    buffer.valid_tokens = buffer.count_valid();
    return ok();
  }

  uint64_t fingerprint() const override { return fingerprint_; }

 private:
  static Error wrong(const char* tensor, size_t position, int64_t value, const std::string& why) {
    return recipe_error(std::string(tensor) + "[" + std::to_string(position) + "] is " + std::to_string(value) + "; " + why);
  }

  // Errors begin behind "row 3: ".
  Status make_row(const RawRow& raw, const BatchRow& row) const {
    const size_t length = raw.input_ids.size();
    const std::string ids_of_model = "the model's ids are 0 to " + std::to_string(vocabulary_ - 1);
    const auto is_id = [&](int64_t id) { return id >= 0 && id < vocabulary_; };

    // The tokens are positions [first, last); what is around them is padding.
    size_t first = 0, last = length;
    if (const auto& mask = raw.attention_mask; !mask.empty()) {
      for (size_t s = 0; s < length; ++s) {
        if (mask[s] != 0 && mask[s] != 1) return wrong("attention_mask", s, mask[s], "it must be 1, or 0 for padding");
      }
      first = static_cast<size_t>(std::find(mask.begin(), mask.end(), 1) - mask.begin());
      last = length - static_cast<size_t>(std::find(mask.rbegin(), mask.rend(), 1) - mask.rbegin());
      if (first == length) last = length;  // no token at all
      const auto end = mask.begin() + static_cast<std::ptrdiff_t>(last);
      const auto hole = std::find(mask.begin() + static_cast<std::ptrdiff_t>(first), end, 0);
      if (hole != end) {
        return wrong("attention_mask", static_cast<size_t>(hole - mask.begin()), 0,
                     "padding between tokens is not possible, only before and behind them");
      }
    }

    size_t start = first;  // of the document
    std::set<int64_t> documents;
    for (size_t s = 0; s < length; ++s) {
      const bool token = s >= first && s < last;
      const bool begins = !raw.document_ids.empty() && (s == 0 || raw.document_ids[s] != raw.document_ids[s - 1]);
      if (begins && !documents.insert(raw.document_ids[s]).second) {
        return wrong("document_ids", s, raw.document_ids[s], "that document ended earlier in the row");
      }
      if (begins) start = std::max(first, s);

      const bool last_of_document = s + 1 == length || (!raw.document_ids.empty() && raw.document_ids[s + 1] != raw.document_ids[s]);
      const int64_t label = last_of_document ? kNoLabel : raw.labels[s + 1];
      if (label != kNoLabel && !is_id(label)) return wrong("labels", s + 1, label, "it must be -100, or an id: " + ids_of_model);
      if (!token) {
        if (label != kNoLabel)
          return wrong("labels", s + 1, label, "it counts for position " + std::to_string(s) + ", which is padding; -100 belongs there");
        row.pad(s, s + 1);
        continue;
      }
      if (!is_id(raw.input_ids[s])) return wrong("input_ids", s, raw.input_ids[s], ids_of_model);
      const int64_t position = raw.position_ids.empty() ? static_cast<int64_t>(s) : raw.position_ids[s];
      if (position < 0 || position >= layout_.length) {
        return wrong("position_ids", s, position,
                     "positions of a row of " + std::to_string(layout_.length) + " are 0 to " + std::to_string(layout_.length - 1));
      }
      row.input_ids[s] = static_cast<int32_t>(raw.input_ids[s]);
      row.labels[s] = static_cast<int32_t>(label);
      row.position_ids[s] = static_cast<int32_t>(position);
      row.first_key[s] = static_cast<int32_t>(start);
    }
    row.pad(length, row.input_ids.size());
    return ok();
  }

  DataSpec spec_;
  std::optional<BatchFile> file_;  // until it is loaded
  BatchLayout layout_;
  Windows windows_;
  int64_t vocabulary_;
  WindowBuffer rows_;  // all rows of the file as one micro-batch, ready to be copied
  uint64_t fingerprint_ = 0;
};

}  // namespace

Result<DataInfo> describe_batch(const DataSpec& spec, const Recipe& recipe) {
  const BatchFile file = TRY(open_file(spec));
  DataInfo info;
  info.layout = TRY(layout_of(spec, recipe, file));
  info.window_rows = file.rows;
  info.one_document = one_document(file);
  info.bytes = window_bytes({file.rows, info.layout.length}, 1);
  info.summary = "one batch of " + std::to_string(file.rows) + " rows of " + std::to_string(file.length) + " positions";
  return info;
}

Result<std::unique_ptr<Source>> open_batch(const DataInfo& info, const DataSpec& spec, const Recipe& recipe, int64_t vocabulary,
                                           const Windows& windows) {
  BatchFile file = TRY(open_file(spec));
  if (info.one_document && !one_document(file))
    return data_error(spec, file.path + " has changed since the run was planned: it has documents or padding now");
  const BatchLayout layout = TRY(layout_of(spec, recipe, file));
  return std::unique_ptr<Source>(std::make_unique<BatchSource>(spec, std::move(file), layout, windows, vocabulary));
}

}  // namespace galley
