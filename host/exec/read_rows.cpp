#include "host/exec/read_rows.hpp"

#include <algorithm>
#include <vector>

#include "host/exec/convert.hpp"

namespace galley {
namespace {

/// The mean of a tensor's rows, in its own dtype.
Result<std::vector<std::byte>> mean_row(const tensor_files::Reader& reader, const tensor_files::Entry& entry) {
  const uint32_t dtype = dtype_of(entry.dtype);
  const auto size = static_cast<size_t>(galley_dtype_bytes(dtype));
  const int64_t rows = entry.shape[0];
  const size_t columns = entry.bytes / size / static_cast<size_t>(rows);
  const auto at_once = static_cast<int64_t>(std::max<size_t>(1, (size_t{1} << 18) / columns));
  std::vector<double> mean(columns), numbers;
  std::vector<std::byte> bytes;
  for (int64_t row = 0; row < rows; row += at_once) {
    const auto count = static_cast<size_t>(std::min(at_once, rows - row)) * columns;
    bytes.resize(count * size);
    numbers.resize(count);
    TRY_STATUS(reader.read_bytes(entry, static_cast<uint64_t>(row) * columns * size, bytes));
    convert(numbers.data(), GALLEY_F64, bytes.data(), dtype, static_cast<int64_t>(count));
    for (size_t i = 0; i < count; ++i) mean[i % columns] += numbers[i];
  }
  for (double& x : mean) x /= static_cast<double>(rows);
  bytes.resize(columns * size);
  convert(bytes.data(), dtype, mean.data(), GALLEY_F64, static_cast<int64_t>(columns));
  return bytes;
}

}  // namespace

Shape shape_read(const tensor_files::Entry& entry, const Read& from) {
  Shape out = entry.shape;
  if (from.form.turned) std::ranges::reverse(out);
  if (from.added_rows > 0) out.at(0) += from.added_rows;
  return out;
}

Status read_rows(const tensor_files::Reader& reader, const tensor_files::Entry& entry, const Read& from, uint64_t offset,
                 std::span<std::byte> bytes) {
  const uint64_t there = offset < entry.bytes ? std::min<uint64_t>(bytes.size(), entry.bytes - offset) : 0;
  if (there > 0) TRY_STATUS(reader.read_bytes(entry, offset, bytes.first(there), from.form));
  if (there == bytes.size()) return ok();
  const std::vector<std::byte> row = TRY(mean_row(reader, entry));
  uint64_t at = offset + there - entry.bytes;
  for (std::byte& byte : bytes.subspan(there)) byte = row[at++ % row.size()];
  return ok();
}

Status read_elements(const tensor_files::Reader& reader, const tensor_files::Entry& entry, const Read& from, int64_t first,
                     std::span<std::byte> bytes) {
  const int64_t size = galley_dtype_bytes(dtype_of(entry.dtype));
  while (!bytes.empty()) {
    const int64_t together = from.runs.together(first, std::ssize(bytes) / size);
    const auto count = static_cast<size_t>(together * size);
    TRY_STATUS(read_rows(reader, entry, from, static_cast<uint64_t>(from.runs.at(first) * size), bytes.first(count)));
    first += together;
    bytes = bytes.subspan(count);
  }
  return ok();
}

}  // namespace galley
