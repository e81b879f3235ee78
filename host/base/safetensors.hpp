// safetensors: named tensors in a file. 8 bytes little-endian: the header's size; the header: JSON {name: {dtype, shape, data_offsets:
// [begin, end)}}, offsets counted from the header's end; then the data, row-major, without holes.
//
// Headers are read and checked at once, data only when asked for, with pread into the caller's memory: nothing is mapped and nothing
// as large as a tensor is allocated. What is wrong with a file is an error with the file, the tensor and the values in it: exit code
// Recipe when it is opened (the recipe names it), Failed when it cannot be read later.
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

namespace galley::safetensors {

enum class Dtype : uint8_t { Bool, U8, I8, I16, I32, I64, F16, BF16, F32, F64 };

/// Bytes of one element.
uint64_t size_of(Dtype dtype);
/// As the header writes it: "BF16".
const char* name_of(Dtype dtype);

/// What the header says of one tensor.
struct Entry {
  std::string name;
  Dtype dtype = Dtype::F32;
  std::vector<int64_t> shape;  ///< () is a scalar: one element
  uint64_t bytes = 0;          ///< elements · size_of(dtype)
  uint64_t offset = 0;         ///< of its first byte in the file
  size_t file = 0;             ///< index into Reader::files()
};

/// The bytes of a tensor, or an error where a dimension is negative or the product does not fit 64 bits.
Result<uint64_t> tensor_bytes(Dtype dtype, std::span<const int64_t> shape);

/// "F32 (3, 4)": for messages.
std::string describe(Dtype dtype, std::span<const int64_t> shape);

/// One file, or several that an index ties together. Immutable once open; every function is [thread-safe].
class Reader {
 public:
  /// `path` is a file, an index (*.index.json), or a folder with model.safetensors or model.safetensors.index.json (the single file
  /// goes first). Of a set only the tensors that its index names are there. Holds its files open.
  static Result<Reader> open(const std::filesystem::path& path);
  /// Which file that is; empty: a folder has none of them.
  static std::filesystem::path file_of(const std::filesystem::path& path);

  /// All tensors, by name.
  std::span<const Entry> entries() const { return entries_; }
  /// Null when there is none of that name. Lives as long as the reader.
  const Entry* find(std::string_view name) const;
  std::span<const File> files() const { return files_; }
  /// "__metadata__" of the single file or of the first shard.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// bytes.size() bytes of the tensor's data from byte `offset` of it on; reaching beyond its end is an error.
  Status read_bytes(const Entry& entry, uint64_t offset, std::span<std::byte> bytes) const;
  /// The whole tensor; `bytes` has exactly its size.
  Status read(const Entry& entry, std::span<std::byte> bytes) const;

 private:
  Reader() = default;
  Status add_file(const std::filesystem::path& path, std::vector<Entry>* entries);
  static Result<Reader> open_index(const std::filesystem::path& index);

  std::vector<File> files_;
  std::vector<Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

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
