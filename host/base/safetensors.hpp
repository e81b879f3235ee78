// safetensors: named tensors in a file. 8 bytes little-endian: the header's size; the header: JSON {name: {dtype, shape, data_offsets:
// [begin, end)}}, offsets counted from the header's end; then the data, row-major, without holes.
//
// What is wrong with a file is an error with the file, the tensor and the values in it: exit code Recipe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host/base/file.hpp"
#include "host/base/result.hpp"
#include "host/base/tensor_files.hpp"

namespace galley::safetensors {

using tensor_files::describe;
using tensor_files::Dtype;
using tensor_files::name_of;
using tensor_files::size_of;
using tensor_files::tensor_bytes;

/// The headers of a file, or of all files of an index (*.index.json): of these only the tensors that the index names.
Result<tensor_files::Contents> read(const std::filesystem::path& file);

/// One tensor of a file that is to be written.
struct Item {
  std::string name;
  Dtype dtype = Dtype::F32;
  std::vector<int64_t> shape;
};

/// Writes one file from its first byte to its last. The layout is fixed by the items alone (large elements first, then by name, as the
/// safetensors library orders them), so that equal tensors give equal files. Not thread-safe. A writer that is dropped before
/// finish() leaves an incomplete file: write aside, and rename when it is finished.
class Writer {
 public:
  using Metadata = std::map<std::string, std::string>;

  /// Writes the header into an empty file. Two items of one name are an error.
  static Result<Writer> create(File file, std::vector<Item> items, const Metadata& metadata = {{"format", "pt"}});
  /// Creates the file.
  static Result<Writer> create(const std::filesystem::path& path, std::vector<Item> items, const Metadata& metadata = {{"format", "pt"}});
  /// The bytes that such a file has, header included: for the plan's disk space.
  static Result<uint64_t> file_bytes(std::vector<Item> items, const Metadata& metadata = {{"format", "pt"}});

  struct Place {
    uint64_t begin = 0, bytes = 0;  ///< in the file
  };
  /// Where the data of each item belongs, by name: for whoever writes it in another order than this writer.
  static Result<std::map<std::string, Place>> places(std::vector<Item> items, const Metadata& metadata = {{"format", "pt"}});

  /// The order in which the data has to come.
  std::span<const Item> items() const { return items_; }
  /// The next bytes of tensor `name`, in pieces of any size. Another tensor than the one whose turn it is, or more bytes than it has,
  /// is an error.
  Status write(std::string_view name, std::span<const std::byte> bytes);
  /// fsync. An error if bytes are still missing.
  Status finish();

 private:
  Writer(File file, std::vector<Item> items) : file_(std::move(file)), items_(std::move(items)) {}
  Status skip_complete();

  File file_;
  std::vector<Item> items_;
  size_t current_ = 0;    ///< the item whose turn it is
  uint64_t written_ = 0;  ///< bytes of it so far
};

}  // namespace galley::safetensors
