// Rows without end, and the windows that are cut from them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/data/window.hpp"
#include "host/tokens/rows.hpp"

namespace galley {

/// What was found in the data: for people, and for the record of a run.
struct DataReport {
  std::string kind;  ///< "chat"
  StoreFacts store;
  RowFacts train, validation;
  uint64_t length = 0;  ///< of a row
};

/// Rows numbered from 0, running on over the end of an epoch. Immutable; every function is [thread-safe] and allocates nothing unless it
/// fails.
class RowStream {
 public:
  virtual ~RowStream() = default;
  /// Rows of an epoch; at least 1.
  virtual uint64_t epoch() const = 0;
  virtual Status write(uint64_t row, const BatchRow& out) const = 0;
  /// How many labels of a row count.
  virtual Result<uint64_t> counted(uint64_t row) const = 0;

  virtual uint64_t validation_rows() const = 0;
  virtual Status write_validation(uint64_t row, const BatchRow& out) const = 0;

  virtual uint64_t fingerprint() const = 0;
  virtual std::vector<DataReport> reports() const = 0;
  virtual std::vector<DataFile> files() const = 0;
};

/// Rows of several streams, so many of each in every 4,096 as the weights say; each goes through its own epochs. `weights` are at least
/// 0, one a stream, their sum is above 0. Validation shows that of all of them, one after the other.
std::unique_ptr<RowStream> mix_streams(std::vector<std::unique_ptr<RowStream>> streams, const std::vector<double>& weights, uint64_t seed);

}  // namespace galley
