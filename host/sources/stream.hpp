// Streams of rows without end, from which sources cut windows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/data/source.hpp"

namespace galley {

/// Writes rows by their numbers, which count from 0 and run on over the end of an epoch. Where there are no epochs, window w begins with
/// row w times the most rows that a window has. Immutable; every function is [thread-safe] and allocates nothing unless it fails.
class RowStream {
 public:
  virtual ~RowStream() = default;
  /// Returns the rows of an epoch; 0: there are none, and a window has as many rows as it would take if every position counted.
  virtual uint64_t epoch() const = 0;
  virtual Status write(uint64_t row, const BatchRow& out) const = 0;
  /// Returns how many labels of a row count.
  virtual Result<uint64_t> counted(uint64_t row) const = 0;

  virtual uint64_t validation_rows() const = 0;
  virtual Status write_validation(uint64_t row, const BatchRow& out) const = 0;

  virtual uint64_t fingerprint() const = 0;
  virtual std::vector<DataReport> reports() const = 0;
  virtual std::vector<DataFile> files() const = 0;
};

/// Mixes rows of several streams: the weights say how many of each are in every 4,096 rows. Each stream goes through its own epochs. There
/// is one weight a stream, at least 0, and their sum is above 0. Validation goes through that of all streams, one after another.
std::unique_ptr<RowStream> mix_streams(std::vector<std::unique_ptr<RowStream>> streams, const std::vector<double>& weights, uint64_t seed);

}  // namespace galley
