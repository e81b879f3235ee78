// Reads named tensors from files of any format: safetensors (safetensors.hpp) or GGUF (gguf.hpp).
//
// Headers are read and checked at once, data only when asked for, with pread into the caller's memory: nothing is mapped and nothing
// as large as a tensor is allocated. What is wrong with a file is an error with the file, the tensor and the values in it: exit code
// Recipe when it is opened (the recipe names it), Failed when it cannot be read later.
#pragma once

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

namespace galley::tensor_files {

/// The dtype of a tensor in a file. Those after F64 are GGUF's block types: some numbers of a row share scales, and are stored as a block.
enum class Dtype : uint8_t { Bool, U8, I8, I16, I32, I64, F16, BF16, F32, F64, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K };
inline constexpr size_t kPlainDtypes = static_cast<size_t>(Dtype::F64) + 1;

/// Returns the bytes of one element, or of one block.
uint64_t size_of(Dtype dtype);
/// Returns how many numbers a block has; 1 if the dtype has no blocks.
uint64_t numbers_of(Dtype dtype);
/// Returns the name in headers: "BF16".
const char* name_of(Dtype dtype);
inline bool in_blocks(Dtype dtype) { return numbers_of(dtype) > 1; }

/// A tensor as the header describes it.
struct Entry {
  std::string name;
  Dtype dtype = Dtype::F32;
  std::vector<int64_t> shape;  ///< the shape of its numbers; () is a scalar: one element
  uint64_t bytes = 0;          ///< what tensor_bytes() returns
  uint64_t offset = 0;         ///< offset of its first byte in the file
  size_t file = 0;             ///< index into Reader::files()
};

/// Returns the shape of an entry in blocks as bytes: (rows, bytes of a row).
std::vector<int64_t> block_shape(const Entry& entry);

/// Returns the first block in `bytes`, whole blocks of `dtype`, that has a scale of NaN or infinity; -1 if there is none.
int64_t first_broken_block(Dtype dtype, std::span<const std::byte> bytes);

/// What a file has otherwise than the tensor that is read of it.
struct FileForm {
  int64_t outer = 1, a = 1, b = 1;  ///< the tensor's first dimension is (outer, a, b, rest), and the file's (outer, b, a, rest)
  bool turned = false;              ///< a matrix that has the tensor's columns as its rows
  double added = 0, scale = 1;      ///< a number x is scale · (x + added) in the file, in F32
  bool same_numbers() const { return added == 0 && scale == 1; }
  bool plain() const { return a * b == 1 && !turned && same_numbers(); }
  /// The form of the tensor in a file of its own, beside a tensor as this file has it; but for other numbers.
  FileForm inverse() const { return {outer, b, a, turned}; }
};

/// Returns the bytes of a tensor; an error if a dimension is negative, rows are no whole blocks, or the product does not fit 63 bits.
Result<uint64_t> tensor_bytes(Dtype dtype, std::span<const int64_t> shape);

/// Returns "F32 (3, 4)", for messages.
std::string describe(Dtype dtype, std::span<const int64_t> shape);
/// Returns "3, 4".
std::string numbers_text(std::span<const int64_t> values);
/// Makes the error "<place>tensor '<name>' <cause>".
Error tensor_error(const std::string& place, const std::string& name, const std::string& cause, std::string hint = {});
/// Gives an error of the file system while opening the exit code Recipe, because the recipe names the file.
Error as_recipe(Error error);

/// The contents that a reader of one format has found.
struct Contents {
  std::vector<File> files;
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;  ///< "__metadata__" of a safetensors file
};

/// Reads one file, or several files of an index. Immutable once open; every function is [thread-safe].
class Reader {
 public:
  /// Opens a safetensors or GGUF file, an index (*.index.json), or a folder: with model.safetensors or model.safetensors.index.json (the
  /// single file goes first), or else with one GGUF file. Of an index's files, only the tensors that it names are there. Holds its files
  /// open.
  static Result<Reader> open(const std::filesystem::path& path);
  /// Returns the file that open() would open; empty if a folder has none of them, or several GGUF files.
  static std::filesystem::path file_of(const std::filesystem::path& path);

  /// Returns all tensors, by name.
  std::span<const Entry> entries() const { return contents_.entries; }
  /// Returns the tensor of that name, null if there is none. It lives as long as the reader.
  const Entry* find(std::string_view name) const;
  std::span<const File> files() const { return contents_.files; }
  /// Returns the metadata of the single file or of the first shard.
  const std::map<std::string, std::string>& metadata() const { return contents_.metadata; }
  /// Returns "FILE: tensor 'NAME'", for messages.
  std::string place_of(const Entry& entry) const;

  /// Reads bytes.size() bytes of the tensor from its byte `offset` on, as the tensor has them; to read beyond its end is an error.
  Status read_bytes(const Entry& entry, uint64_t offset, std::span<std::byte> bytes, const FileForm& form = {}) const;
  /// Reads the whole tensor; `bytes` has exactly its size.
  Status read(const Entry& entry, std::span<std::byte> bytes, const FileForm& form = {}) const;

 private:
  explicit Reader(Contents contents) : contents_(std::move(contents)) {}
  Contents contents_;
};

}  // namespace galley::tensor_files
