// Sources of training data, by the recipe's data.KIND: corpus.hpp, batch.hpp and random_tokens.hpp say what there is. A window is a
// function of the data, the seed and the window's number alone, so the whole state of the data in a run is the number of the next window.
//
// Before planning, describe_data() looks at headers, file sizes and the tokenizer only and says what the data needs. open_data() then
// prepares it, which may take a while the first time, before a device is opened. What is wrong is an error with the recipe's line, exit
// code Recipe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/data/stream.hpp"
#include "host/data/window.hpp"
#include "host/recipe/recipe.hpp"

namespace galley {

/// What is known of the data before anything is read.
struct DataInfo {
  BatchLayout layout;       ///< of every micro-batch: B, S and T; the fills that the model reads are added when it is built
  int64_t vocabulary = 0;   ///< every id is below this; 0: not known, or whatever the model has
  int64_t window_rows = 0;  ///< rows that a window must have room for (data.batch); 0: any
  int64_t kept_rows = 0;    ///< of the data, in memory
  bool validation = false;  ///< there are to be validation batches
  /// Every row is a document, or a piece of one, from its first position on, and padding after it: first_key says nothing, as no label
  /// counts in padding. Known from the recipe and from what it names, not from what is in it.
  bool one_document = false;
  /// Memory that Source::load() is to be given; owner "data" of the plan. The window buffers are not in it.
  uint64_t bytes() const {
    BatchLayout kept = layout;
    kept.rows = kept_rows;
    return kept_rows > 0 ? window_bytes(kept, 1) : 0;
  }
  std::string summary;  ///< "12 documents, 48213 bytes; 5% of them held out": for the report
};

/// Immutable once loaded. Every function is [thread-safe].
class Source {
 public:
  virtual ~Source() = default;

  /// Reads what the source keeps in memory: DataInfo::bytes(), aligned to BatchLayout::kAlignment, which stay the caller's and outlive the
  /// source.
  /// Before anything else.
  virtual Status load(std::span<std::byte> memory);

  /// Writes all micro-batches of window `window` (>= 0) and sets the buffer's window, micro_batches and valid_tokens. Allocates nothing
  /// unless it fails. `buffer` has the source's layout and room for Windows::micro_batches.
  virtual Status fill(int64_t window, WindowBuffer& buffer) const = 0;

  /// Validation is a fixed sequence of micro-batches, 0 … validation_batches() − 1; the last is padded. 0: there is none.
  virtual int64_t validation_batches() const { return 0; }
  /// Writes validation batch `batch` as the one micro-batch of the buffer. Allocates nothing.
  virtual Status fill_validation(int64_t batch, WindowBuffer& buffer) const;

  /// A hash of everything that was read: a run that is resumed on other data can refuse.
  virtual uint64_t fingerprint() const { return 0; }
  /// What was found in files.
  virtual std::vector<DataReport> reports() const { return {}; }
  /// The files that all of it comes from.
  virtual std::vector<DataFile> files() const { return {}; }
  /// Rows of an epoch; 0: there are no epochs.
  virtual uint64_t epoch() const { return 0; }
  /// Windows in so many epochs, the last of which may be short. Fails where there are no epochs, or more than kMostSteps windows in them.
  virtual Result<int64_t> windows_in(double epochs) const;
  /// fill() leaves out what lies after so many epochs from now on: the last window is short. Before a loader begins.
  virtual void end_after(double epochs);
};

/// Cheap: stats files, reads headers, the tokenizer, and the first 8 KiB of texts (files with a NUL are not texts). The same files give
/// the same answer.
Result<DataInfo> describe_data(const DataSpec& spec, const Recipe& recipe);

/// What can be checked before anything is read, once the model and the strategies are known: ids fit the vocabulary, a window has room
/// for the rows.
Status check_data(const DataInfo& info, const DataSpec& spec, int64_t vocabulary, const Windows& windows);

/// Prepares what has not been prepared yet, with `options`, and opens it. `info` is what describe_data() said.
Result<std::unique_ptr<Source>> open_data(const DataInfo& info, const DataSpec& spec, const Recipe& recipe, int64_t vocabulary,
                                          const Windows& windows, const PrepareOptions& options);

}  // namespace galley
