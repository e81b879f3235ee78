#include "host/sources/plugin_rows.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "host/base/random.hpp"
#include "host/plugins/abi.hpp"
#include "host/sources/layout.hpp"
#include "host/sources/shape.hpp"
#include "host/sources/window_memory.hpp"
#include "host/tokens/spec.hpp"

namespace galley {
namespace {

/// What a model learns, as the plugin is told.
constexpr std::pair<Fill, uint32_t> kLearned[] = {
    {Fill::NextTokens, GALLEY_LEARNS_NEXT_TOKENS},   {Fill::MaskedTokens, GALLEY_LEARNS_MASKED_TOKENS},
    {Fill::TokenLabels, GALLEY_LEARNS_TOKEN_LABELS}, {Fill::RowLabels, GALLEY_LEARNS_ROW_LABELS},
    {Fill::RowValues, GALLEY_LEARNS_ROW_VALUES},     {Fill::TargetLabels, GALLEY_LEARNS_TARGET}};

class PluginRows final : public RowStream {
 public:
  PluginRows(const LoadedSource& source, const LoadedSource::Contents& found, const BatchLayout& layout, const Recipe& recipe,
             int64_t vocabulary, const Windows& windows)
      : source_(source),
        found_(found),
        layout_(layout),
        learning_(recipe.learning),
        seed_(recipe.seed),
        of_item_(static_cast<uint64_t>(source.says().rows_of_item)),
        of_window_(static_cast<uint64_t>(windows.micro_batches * layout.rows)),
        vocabulary_(vocabulary) {
    scratch_.layout = layout;
    scratch_.layout.rows = scratch_.micro_batches = 1;
    memory_ = WindowMemory(window_bytes(scratch_.layout, 1));
    scratch_.memory = memory_.bytes();
  }

  uint64_t epoch() const override { return found_.items * of_item_; }
  Status write(uint64_t row, const BatchRow& out) const override {
    if (source_.says().flags & GALLEY_SOURCE_ENDLESS) return write_row(row / of_window_, row % of_window_, false, out);
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
    const std::span<int32_t> learned = learning_.labels == Fill::NextTokens ? std::span<int32_t>() : out[learning_.labels];
    const std::span<int32_t> target = out[Fill::TargetTokens];
    std::ranges::fill(target, kNoLabel);
    auto row = new_struct<galley_source_row>();
    row.item = static_cast<int64_t>(item);
    row.row = static_cast<int64_t>(of_item);
    row.room = static_cast<int64_t>(out.length());
    row.tokens = out.tokens().data();
    row.labels = out.next().data();
    row.tensors = tensors.data();
    row.learned = learned.data();
    row.n_learned = static_cast<int64_t>(learned.size());
    row.target = target.data();
    row.validation = validation ? 1 : 0;
    TRY_STATUS(source_.read(row));
    const auto length = static_cast<size_t>(row.length);
    for (size_t s = 0; s < length; ++s) {
      if (out.tokens()[s] < 0 || out.tokens()[s] >= vocabulary_) return wrong(row, s, "token", out.tokens()[s]);
      if (!(source_.says().flags & GALLEY_SOURCE_LABELS)) out.next()[s] = s + 1 < length ? out.tokens()[s + 1] : kNoLabel;
      else if (out.next()[s] != kNoLabel && (out.next()[s] < 0 || out.next()[s] >= vocabulary_))
        return wrong(row, s, "label", out.next()[s]);
      out.positions()[s] = static_cast<int32_t>(s);
      out.first_key()[s] = 0;
    }
    out.pad(length, out.length());
    bound_row(out, 0, length);
    TRY_STATUS(check_learned(row, learned));
    return complete_target(row, learned, target);
  }

  /// Labels have to be those of the model, and where there are tokens.
  Status check_learned(const galley_source_row& row, std::span<const int32_t> learned) const {
    const Fill labels = learning_.labels;
    const bool of_tokens = labels == Fill::MaskedTokens || labels == Fill::TargetLabels;
    const bool of_positions = labels == Fill::MaskedTokens || labels == Fill::TokenLabels;
    const int64_t bound = of_tokens ? vocabulary_ : labels == Fill::RowLabels && learned.size() > 1 ? 2 : learning_.classes;
    for (size_t i = 0; i < learned.size(); ++i) {
      if (learned[i] == kNoLabel) continue;
      if (labels == Fill::RowValues ? !std::isfinite(std::bit_cast<float>(learned[i])) : learned[i] < 0 || learned[i] >= bound)
        return wrong(row, i, labels == Fill::RowValues ? "value with the bits" : "label", learned[i],
                     labels == Fill::RowValues ? "it is no finite number" : "labels are 0 to " + std::to_string(bound - 1));
      if (of_positions && i >= static_cast<size_t>(row.length)) return wrong(row, i, "label", learned[i], "which is padding");
    }
    return ok();
  }
  /// What a decoder reads, where the source has not said it.
  Status complete_target(const galley_source_row& row, std::span<const int32_t> learned, std::span<int32_t> target) const {
    for (size_t i = 0; i < target.size(); ++i) {
      if (target[i] == kNoLabel) target[i] = i == 0 ? learning_.start : learned[i - 1] == kNoLabel ? learning_.padding : learned[i - 1];
      else if (target[i] < 0 || target[i] >= vocabulary_) return wrong(row, i, "target", target[i]);
    }
    return ok();
  }
  Status wrong(const galley_source_row& row, size_t position, const char* what, int32_t number, std::string why = {}) const {
    if (why.empty()) why = "the model's vocabulary has " + std::to_string(vocabulary_);
    return plugin_fault(source_.caller(), "read",
                        plugin_error("item " + std::to_string(row.item) + ", row " + std::to_string(row.row) + ": " + what + " " +
                                     std::to_string(number) + " at position " + std::to_string(position) + "; " + why));
  }

  const LoadedSource& source_;
  LoadedSource::Contents found_;
  BatchLayout layout_;
  Learning learning_;
  uint64_t seed_, of_item_, of_window_;
  int64_t vocabulary_;
  WindowMemory memory_;  ///< of the row that counted() writes
  WindowBuffer scratch_;
  mutable std::mutex mutex_;  ///< guards that memory
};

}  // namespace

Result<DataInfo> describe_plugin_rows(const DataSpec& spec, const Recipe& recipe, LoadedSource& source) {
  DataInfo info;
  info.layout = TRY(recipe_layout(spec, recipe));
  auto call = new_struct<galley_source_call>();
  call.rows = info.layout.rows;
  call.length = info.layout.length;
  call.classes = recipe.learning.classes;
  call.learns = std::ranges::find(kLearned, recipe.learning.labels, &std::pair<Fill, uint32_t>::first)->second;
  TRY_STATUS(source.describe(call));
  const LoadedSource::Description& says = source.says();
  if (call.learns != GALLEY_LEARNS_NEXT_TOKENS && !(says.flags & GALLEY_SOURCE_LEARNED))
    return data_error(spec,
                      "it has tokens and the tokens that follow, and the model's task '" + recipe.learning.task + "' learns other labels",
                      "take a task such as \"causal-lm\"");
  if (info.layout.rows % says.rows_of_item != 0)
    return data_error(spec,
                      "an item of it is " + std::to_string(says.rows_of_item) + " rows, and a batch of " +
                          std::to_string(info.layout.rows) + " rows would cut one",
                      "make 'batch' a multiple of " + std::to_string(says.rows_of_item));
  info.layout.own = says.tensors;
  info.vocabulary = says.vocabulary;
  info.validation = says.flags & GALLEY_SOURCE_VALIDATES;
  info.one_document = true;
  info.summary = says.summary;
  return info;
}

Result<std::unique_ptr<RowStream>> open_plugin_rows(const DataInfo& info, const Recipe& recipe, int64_t vocabulary, const Windows& windows,
                                                    LoadedSource& source) {
  const LoadedSource::Contents found = TRY(source.open(vocabulary, recipe.seed));
  return std::unique_ptr<RowStream>(std::make_unique<PluginRows>(source, found, info.layout, recipe, vocabulary, windows));
}

}  // namespace galley
