#include "host/sources/kinds.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <mutex>
#include <vector>

#include "host/sources/batch.hpp"
#include "host/sources/corpus.hpp"
#include "host/sources/layout.hpp"
#include "host/sources/plugin_rows.hpp"
#include "host/sources/shape.hpp"
#include "host/tokens/spec.hpp"

namespace galley {
namespace {

/// The plugin of a part, or of the data itself.
LoadedSource* plugin_at(const DataPlugins& plugins, size_t part) { return part < plugins.size() ? plugins[part].get() : nullptr; }

Error no_validation(const DataSpec& spec, const Recipe& recipe, const DataPlugins& plugins) {
  const LoadedSource* plugin = spec.parts.empty() ? plugin_at(plugins, 0) : nullptr;
  return data_error(spec, "the recipe validates every " + std::to_string(recipe.validate.every) + " steps, but nothing is held out for it",
                    spec.kind == "batch" || (plugin && !(plugin->says().flags & GALLEY_SOURCE_VALIDATES))
                        ? "take 'validate' out of the recipe"
                        : "give two documents or more and a validation above 0");
}

/// The weights of a mix's parts, which are checked.
Result<std::vector<double>> mix_weights(const DataSpec& spec) {
  const OptionReader options = options_of(spec);
  TRY_STATUS(options.only({"weights"}));
  if (spec.parts.empty())
    return data_error(spec, "there is nothing to mix", "write data.mix { data.text { … }, data.chat { … }, weights = { 1, 2 } }");
  const OptionSpec each = {.name = "weights",
                           .description = "one for each data in it",
                           .type = OptionType::Numbers,
                           .range = {0, 1e9},
                           .length = static_cast<int64_t>(spec.parts.size())};
  const Value list = TRY(options.take(each));
  std::vector<double> weights(spec.parts.size(), 1);
  for (size_t i = 0; !list.is_nil() && i < weights.size(); ++i) (*list.as<List>())[i].number(&weights[i]);
  for (const DataSpec& part : spec.parts) {
    if (part.kind == "batch" || part.kind == "mix") return data_error(part, "it cannot be mixed: it has no rows of its own");
    if (options_of(part).find("group_by_length"))
      return data_error(part, "group_by_length: a mix puts rows of several data into a micro-batch");
  }
  if (std::all_of(weights.begin(), weights.end(), [](double weight) { return weight == 0; })) return data_error(spec, "all weights are 0");
  return weights;
}

/// Rows of a mix's parts come in any order, and each is a row like those of the others.
Result<DataInfo> describe_part(const DataSpec& part, const Recipe& recipe, LoadedSource& plugin) {
  const DataInfo info = TRY(describe_plugin_rows(part, recipe, plugin));
  const auto no = [&](const std::string& why) { return data_error(part, "it cannot be mixed: " + why); };
  if (plugin.says().flags & GALLEY_SOURCE_ENDLESS) return no("it has no end");
  if (plugin.says().rows_of_item > 1) return no("an item of it is " + std::to_string(plugin.says().rows_of_item) + " rows");
  if (!info.layout.own.empty()) return no("it brings '" + info.layout.own.front().name + "', which other data has not");
  return info;
}

Result<DataInfo> describe_rows(const DataSpec& spec, const Recipe& recipe, const DataPlugins& plugins) {
  DataInfo info;
  info.layout = TRY(recipe_layout(spec, recipe));
  if (spec.kind != "mix") {
    const CorpusInfo corpus = TRY(describe_corpus(spec, recipe));
    info.vocabulary = corpus.vocabulary;
    info.validation = corpus.validation;
    info.one_document = corpus.one_document;
    info.summary = corpus.summary;
    return info;
  }
  TRY(mix_weights(spec));
  info.one_document = true;
  const auto join = [&info](const std::string& kind, const auto& part) {
    info.vocabulary = std::max(info.vocabulary, part.vocabulary);
    info.validation |= part.validation;
    info.one_document &= part.one_document;
    info.summary += (info.summary.empty() ? "" : " + ") + kind + " (" + part.summary + ")";
  };
  for (size_t i = 0; i < spec.parts.size(); ++i)
    if (LoadedSource* plugin = plugin_at(plugins, i)) join(spec.parts[i].kind, TRY(describe_part(spec.parts[i], recipe, *plugin)));
    else join(spec.parts[i].kind, TRY(describe_corpus(spec.parts[i], recipe)));
  return info;
}

Result<std::unique_ptr<RowStream>> open_rows(const DataInfo& info, const DataSpec& spec, const Recipe& recipe, int64_t vocabulary,
                                             const Windows& windows, const PrepareOptions& options, const DataPlugins& plugins) {
  const auto open = [&](const DataSpec& part, size_t number) -> Result<std::unique_ptr<RowStream>> {
    if (LoadedSource* plugin = plugin_at(plugins, number)) return open_plugin_rows(info, recipe, vocabulary, windows, *plugin);
    return open_corpus(part, recipe, vocabulary, options);
  };
  if (spec.kind != "mix") return open(spec, 0);
  const std::vector<double> weights = TRY(mix_weights(spec));
  std::vector<std::unique_ptr<RowStream>> streams;
  for (size_t i = 0; i < spec.parts.size(); ++i) streams.push_back(TRY(open(spec.parts[i], i)));
  return mix_streams(std::move(streams), weights, recipe.seed);
}

/// Windows cut from a stream of rows.
class StreamSource final : public Source {
 public:
  StreamSource(std::unique_ptr<RowStream> rows, const BatchLayout& layout, const Windows& windows)
      : rows_(std::move(rows)), layout_(layout), windows_(windows) {}

  Status fill(int64_t window, WindowBuffer& buffer) const override {
    const Extent extent = TRY(find(window));
    buffer.window = window;
    buffer.micro_batches = extent.micro_batches;
    for (int64_t r = 0; r < buffer.rows(); ++r) {
      const int64_t row = extent.first * layout_.rows + r;
      if (row < end_) TRY_STATUS(rows_->write(static_cast<uint64_t>(row), buffer.row(r)));
      else pad_row(buffer.row(r));
    }
    buffer.valid_tokens = buffer.count_valid();
    pad_lanes(buffer, windows_);
    buffer.rows_done = std::min(end_, (extent.first + extent.micro_batches) * layout_.rows);
    return ok();
  }
  Result<int64_t> windows_in(double epochs) const override {
    const int64_t rows = rows_in(epochs), micro_batches = (rows + layout_.rows - 1) / layout_.rows;
    if (windows_.tokens == 0) return (micro_batches + windows_.micro_batches - 1) / windows_.micro_batches;
    int64_t windows = 0;
    for (Extent extent; windows <= kMostSteps && extent.first + extent.micro_batches < micro_batches; ++windows)
      extent = {windows, extent.first + extent.micro_batches, TRY(count(extent.first + extent.micro_batches, micro_batches))};
    return windows;
  }
  void end_after(double epochs) override {
    end_ = rows_in(epochs);
    last_ = {};
  }
  int64_t validation_batches() const override { return (static_cast<int64_t>(rows_->validation_rows()) + layout_.rows - 1) / layout_.rows; }
  Status fill_validation(int64_t batch, WindowBuffer& buffer) const override {
    buffer.window = batch;
    buffer.micro_batches = 1;
    for (int64_t r = 0; r < layout_.rows; ++r) {
      const auto at = static_cast<uint64_t>(batch * layout_.rows + r);
      if (at < rows_->validation_rows()) TRY_STATUS(rows_->write_validation(at, buffer.row(r)));
      else pad_row(buffer.row(r));
    }
    buffer.valid_tokens = buffer.count_valid();
    return ok();
  }
  uint64_t fingerprint() const override { return rows_->fingerprint(); }
  std::vector<DataReport> reports() const override { return rows_->reports(); }
  std::vector<DataFile> files() const override { return rows_->files(); }
  uint64_t epoch() const override { return rows_->epoch(); }

 private:
  struct Extent {
    int64_t window = 0, first = 0, micro_batches = 0;  // the first of its micro-batches, counted over all windows
  };

  /// Where a window lies. Windows of so many tokens are found one after the other; where the last one ended is remembered.
  Result<Extent> find(int64_t window) const {
    if (rows_->epoch() == 0) {
      const int64_t positions = layout_.rows * layout_.length, most = windows_.micro_batches;
      const int64_t near = std::clamp<int64_t>((windows_.tokens + positions / 2) / positions, 1, most);
      return Extent{window, window * most, windows_.tokens > 0 ? near : most};
    }
    const int64_t end = end_ / layout_.rows + (end_ % layout_.rows > 0);
    if (windows_.tokens == 0) {
      const int64_t first = window * windows_.micro_batches;
      return Extent{window, first, std::clamp<int64_t>(end - first, 1, windows_.micro_batches)};
    }
    const std::lock_guard lock(mutex_);
    if (last_.micro_batches == 0 || window < last_.window) last_ = {0, 0, TRY(count(0, end))};
    while (last_.window < window) {
      const int64_t first = last_.first + last_.micro_batches;
      last_ = {last_.window + 1, first, TRY(count(first, end))};
    }
    return last_;
  }
  /// How many micro-batches from `first` on come closest to the target, up to `end`.
  Result<int64_t> count(int64_t first, int64_t end) const {
    int64_t tokens = 0;
    const int64_t most = std::clamp<int64_t>(end - first, 1, windows_.micro_batches);
    for (int64_t m = 0; m < most; ++m) {
      int64_t more = 0;
      for (int64_t r = 0; r < layout_.rows; ++r)
        more += static_cast<int64_t>(TRY(rows_->counted(static_cast<uint64_t>((first + m) * layout_.rows + r))));
      if (m > 0 && tokens + more - windows_.tokens > windows_.tokens - tokens) return m;
      tokens += more;
      if (tokens >= windows_.tokens) return m + 1;
    }
    return most;
  }
  int64_t rows_in(double epochs) const {
    const double rows = std::ceil(epochs * static_cast<double>(rows_->epoch()));
    return static_cast<int64_t>(std::clamp(rows, 1.0, static_cast<double>(kMostRows)));
  }

  /// More than any run has, so that nothing overflows.
  static constexpr int64_t kMostRows = INT64_MAX / 4;
  std::unique_ptr<RowStream> rows_;
  BatchLayout layout_;
  Windows windows_;
  int64_t end_ = kMostRows;  // rows of the run
  mutable std::mutex mutex_;
  mutable Extent last_;  // guarded by the mutex
};

Result<DataInfo> describe_kind(const DataSpec& spec, const Recipe& recipe, const DataPlugins& plugins) {
  if (LoadedSource* plugin = plugin_at(plugins, 0); plugin && spec.parts.empty()) return describe_plugin_rows(spec, recipe, *plugin);
  if (spec.kind == "batch") return describe_batch(spec, recipe);
  return describe_rows(spec, recipe, plugins);
}

}  // namespace

Result<DataInfo> describe_data(const DataSpec& spec, const Recipe& recipe, const DataPlugins& plugins) {
  DataInfo info = TRY(describe_kind(spec, recipe, plugins));
  const LoadedSource* plugin = plugin_at(plugins, 0);
  const bool endless = plugin && plugin->says().flags & GALLEY_SOURCE_ENDLESS;
  if (recipe.epochs > 0 && (endless || spec.kind == "batch"))
    return recipe_error(recipe.epochs_place.text() + ": data." + spec.kind +
                            " has no epochs: " + (endless ? "it has no end" : "every step takes the whole batch"),
                        "say how many updates the run makes: steps = 1000");
  if (recipe.validate.every > 0 && !info.validation) return no_validation(spec, recipe, plugins);
  return info;
}

Status check_data(const DataInfo& info, const DataSpec& spec, int64_t vocabulary, const Windows& windows) {
  assert(vocabulary > 0);
  if (info.vocabulary > vocabulary) {
    return data_error(spec, "its tokens have ids up to " + std::to_string(info.vocabulary - 1) + ", but the model's vocabulary has " +
                                std::to_string(vocabulary));
  }
  if (windows.micro_batches * info.layout.rows < info.window_rows) {
    return data_error(spec,
                      "the batch has " + std::to_string(info.window_rows) + " rows, but a window takes " +
                          std::to_string(windows.micro_batches) + " micro-batches of " + std::to_string(info.layout.rows),
                      "a window takes the whole batch: accumulate over " +
                          std::to_string((info.window_rows + info.layout.rows - 1) / info.layout.rows) +
                          " micro-batches, or leave 'batch' out of the recipe");
  }
  return ok();
}

Result<std::unique_ptr<Source>> open_data(const DataInfo& info, const DataSpec& spec, const Recipe& recipe, int64_t vocabulary,
                                          const Windows& windows, const PrepareOptions& options, const DataPlugins& plugins) {
  TRY_STATUS(check_data(info, spec, vocabulary, windows));
  if (spec.kind == "batch") return open_batch(info, spec, recipe, vocabulary, windows);
  std::unique_ptr<Source> source =
      std::make_unique<StreamSource>(TRY(open_rows(info, spec, recipe, vocabulary, windows, options, plugins)), info.layout, windows);
  for (const DataReport& report : source->reports())
    for (const RowFacts* facts : {&report.train, &report.validation})
      if (info.one_document && facts->packed.pieces > facts->packed.rows)
        return data_error(spec, "its files have changed since the run was planned: there are rows of several documents now");
  if (recipe.validate.every > 0 && source->validation_batches() == 0) return no_validation(spec, recipe, plugins);
  return source;
}

}  // namespace galley
