#include "host/sources/plugin_rows.hpp"

#include <algorithm>
#include <array>
#include <mutex>
#include <string>
#include <vector>

#include "host/base/random.hpp"
#include "host/plugins/abi.hpp"
#include "host/sources/layout.hpp"
#include "host/sources/shape.hpp"
#include "host/tokens/spec.hpp"

namespace galley {
namespace {

class PluginRows final : public RowStream {
 public:
  PluginRows(const LoadedSource& source, const LoadedSource::Contents& found, const BatchLayout& layout, const Recipe& recipe,
             int64_t vocabulary)
      : source_(source),
        found_(found),
        layout_(layout),
        seed_(recipe.seed),
        of_item_(static_cast<uint64_t>(source.says().rows_of_item)),
        vocabulary_(vocabulary) {
    scratch_.layout = layout;
    scratch_.layout.rows = scratch_.micro_batches = 1;
    memory_.resize(window_bytes(scratch_.layout, 1) + BatchLayout::kAlignment);
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    scratch_.memory = std::span(memory_).subspan((BatchLayout::kAlignment - address % BatchLayout::kAlignment) % BatchLayout::kAlignment);
  }

  uint64_t epoch() const override { return found_.items * of_item_; }
  Status write(uint64_t row, const BatchRow& out) const override {
    const uint64_t number = row / of_item_, epoch = number / found_.items;
    const Permutation order(found_.items, bits64(galley_philox(seed_, galley_name_hash("data.items"), epoch), 0));
    return write_row(order(number % found_.items), row % of_item_, false, out);
  }
  Result<uint64_t> counted(uint64_t row) const override {
    const std::lock_guard lock(mutex_);
    TRY_STATUS(write(row, scratch_.row(0)));
    return static_cast<uint64_t>(scratch_.count_valid());
  }

  uint64_t validation_rows() const override { return found_.validation_items * of_item_; }
  Status write_validation(uint64_t row, const BatchRow& out) const override { return write_row(row / of_item_, row % of_item_, true, out); }

  uint64_t fingerprint() const override { return found_.fingerprint; }
  std::vector<DataReport> reports() const override { return {}; }
  std::vector<DataFile> files() const override { return {}; }

 private:
  Status write_row(uint64_t item, uint64_t of_item, bool validation, const BatchRow& out) const {
    pad_row(out);
    std::array<void*, kMostOwnInputs> tensors = {};
    for (size_t i = 0; i < layout_.own.size(); ++i) tensors[i] = out[own_fill(i)].data();
    auto row = new_struct<galley_source_row>();
    row.item = static_cast<int64_t>(item);
    row.row = static_cast<int64_t>(of_item);
    row.room = static_cast<int64_t>(out.length());
    row.tokens = out.tokens().data();
    row.labels = out.next().data();
    row.tensors = tensors.data();
    row.validation = validation ? 1 : 0;
    TRY_STATUS(source_.read(row));
    const auto length = static_cast<size_t>(row.length);
    for (size_t s = 0; s < length; ++s) {
      if (out.tokens()[s] < 0 || out.tokens()[s] >= vocabulary_) return wrong(row, s, "token", out.tokens()[s]);
      if (!source_.says().makes_labels) out.next()[s] = s + 1 < length ? out.tokens()[s + 1] : kNoLabel;
      else if (out.next()[s] != kNoLabel && (out.next()[s] < 0 || out.next()[s] >= vocabulary_))
        return wrong(row, s, "label", out.next()[s]);
      out.positions()[s] = static_cast<int32_t>(s);
      out.first_key()[s] = 0;
    }
    out.pad(length, out.length());
    complete_row(out, 0, length, nullptr, {});
    return ok();
  }
  Status wrong(const galley_source_row& row, size_t position, const char* what, int32_t number) const {
    return plugin_fault(
        source_.caller(), "read",
        plugin_error("item " + std::to_string(row.item) + ", row " + std::to_string(row.row) + ": " + what + " " + std::to_string(number) +
                     " at position " + std::to_string(position) + "; the model's vocabulary has " + std::to_string(vocabulary_)));
  }

  const LoadedSource& source_;
  LoadedSource::Contents found_;
  BatchLayout layout_;
  uint64_t seed_, of_item_;
  int64_t vocabulary_;
  std::vector<std::byte> memory_;  ///< of the row that counted() writes
  WindowBuffer scratch_;
  mutable std::mutex mutex_;  ///< guards that memory
};

}  // namespace

Result<DataInfo> describe_plugin_rows(const DataSpec& spec, const Recipe& recipe, LoadedSource& source) {
  DataInfo info;
  info.layout = TRY(recipe_layout(spec, recipe));
  if (recipe.learning.labels != Fill::NextTokens)
    return data_error(spec,
                      "it has tokens and the tokens that follow, and the model's task '" + recipe.learning.task + "' learns other labels",
                      "take a task such as \"causal-lm\"");
  TRY_STATUS(source.describe(info.layout.rows, info.layout.length));
  const LoadedSource::Description& says = source.says();
  if (info.layout.rows % says.rows_of_item != 0)
    return data_error(spec,
                      "an item of it is " + std::to_string(says.rows_of_item) + " rows, and a batch of " +
                          std::to_string(info.layout.rows) + " rows would cut one",
                      "make 'batch' a multiple of " + std::to_string(says.rows_of_item));
  info.layout.own = says.tensors;
  info.vocabulary = says.vocabulary;
  info.validation = says.validates;
  info.one_document = true;
  info.summary = says.summary;
  return info;
}

Result<std::unique_ptr<RowStream>> open_plugin_rows(const DataInfo& info, const Recipe& recipe, int64_t vocabulary, LoadedSource& source) {
  return std::unique_ptr<RowStream>(std::make_unique<PluginRows>(source, TRY(source.open()), info.layout, recipe, vocabulary));
}

}  // namespace galley
