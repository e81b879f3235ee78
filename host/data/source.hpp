// Sources fill windows with training data, by the recipe's data.KIND (host/sources has the kinds). A window is a function of the data, the
// seed and the window's number alone, so the whole state of the data in a run is the number of the next window.
//
// Before planning, DataKinds::describe looks only at headers, file sizes and the tokenizer, and returns what the data needs. Before a
// device is opened, DataKinds::open prepares the data, which may take a while the first time. Errors name the recipe's line and have exit
// code Recipe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/data/window.hpp"
#include "host/plugins/source.hpp"
#include "host/recipe/recipe.hpp"
#include "host/tokens/rows.hpp"

namespace galley {

/// What is known of the data before anything is read.
struct DataInfo {
  BatchLayout layout;       ///< the layout of every micro-batch: B, S and T; the fills that the model reads are added when it is built
  int64_t vocabulary = 0;   ///< every id is below this; 0: not known, or whatever the model has
  int64_t window_rows = 0;  ///< rows that a window must have room for (data.batch); 0: any
  int64_t kept_rows = 0;    ///< rows of the data that stay in memory
  bool validation = false;  ///< there will be validation batches
  /// Every row is one document or a piece of one, from its first position on, and padding after it. Then first_key is not needed, because
  /// no label counts in padding. Known from the recipe and from what it names, not from what is in the files.
  bool one_document = false;
  /// Returns the bytes that Source::load() needs; owner "data" of the plan. The window buffers are not in it.
  uint64_t bytes() const {
    BatchLayout kept = layout;
    kept.rows = kept_rows;
    return kept_rows > 0 ? window_bytes(kept, 1) : 0;
  }
  std::string summary;  ///< "12 documents, 48213 bytes; 5% of them held out": for the report
};

/// A report of what was found in the data, for people and for the record of a run.
struct DataReport {
  std::string kind;  ///< "chat"
  StoreFacts store;
  RowFacts train, validation;
  uint64_t length = 0;  ///< of a row
};

/// Fills windows of training data and batches of validation data. Immutable once loaded. Every function is [thread-safe].
class Source {
 public:
  virtual ~Source() = default;

  /// Reads what the source keeps in memory: DataInfo::bytes(), aligned to BatchLayout::kAlignment. The memory stays the caller's and
  /// outlives the source. Must be called before anything else.
  virtual Status load(std::span<std::byte> memory);

  /// Writes all micro-batches of window `window` (>= 0), and those of padding after them (Windows::lanes), which do not count in what it
  /// sets: the buffer's window, micro_batches and valid_tokens. Allocates nothing unless it fails. `buffer` has the source's layout and room
  /// for Windows::micro_batches, rounded up to a multiple of the lanes.
  virtual Status fill(int64_t window, WindowBuffer& buffer) const = 0;

  /// Returns the number of validation batches, 0 if there are none. They are a fixed sequence of micro-batches; the last is padded.
  virtual int64_t validation_batches() const { return 0; }
  /// Writes validation batch `batch` as the one micro-batch of the buffer. Allocates nothing.
  virtual Status fill_validation(int64_t batch, WindowBuffer& buffer) const;

  /// Returns a hash of everything that was read, so that a run does not resume on other data.
  virtual uint64_t fingerprint() const { return 0; }
  /// Returns what was found in files.
  virtual std::vector<DataReport> reports() const { return {}; }
  /// Returns the files that the data comes from.
  virtual std::vector<DataFile> files() const { return {}; }
  /// Returns the rows of an epoch; 0 if there are no epochs.
  virtual uint64_t epoch() const { return 0; }
  /// Returns the windows in so many epochs; the last may be short. Fails if there are no epochs, or more than kMostSteps windows in them.
  virtual Result<int64_t> windows_in(double epochs) const;
  /// Lets fill() leave out what lies after so many epochs: the last window is short. Must be called before a loader begins.
  virtual void end_after(double epochs);
};

using DataPlugins = std::vector<std::unique_ptr<LoadedSource>>;  ///< of the data's parts, or of itself; null: it is Galley's own

/// The kinds of data (sources/kinds.hpp): the loop knows a Source and no kind.
struct DataKinds {
  std::vector<std::string> (*names)() = nullptr;  ///< Galley's own: all others are plugins'
  Result<DataInfo> (*describe)(const DataSpec& spec, const Recipe& recipe, const DataPlugins& plugins) = nullptr;
  Status (*check)(const DataInfo& info, const DataSpec& spec, int64_t vocabulary, const Windows& windows) = nullptr;
  Result<std::unique_ptr<Source>> (*open)(const DataInfo& info, const DataSpec& spec, const Recipe& recipe, int64_t vocabulary,
                                          const Windows& windows, const PrepareOptions& options, const DataPlugins& plugins) = nullptr;
};

}  // namespace galley
