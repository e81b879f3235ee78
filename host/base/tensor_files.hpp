// Named tensors in files, whatever the file's format: safetensors (safetensors.hpp) or GGUF (gguf.hpp).
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

/// What a tensor holds. Those after F64 are GGUF's block types: so many numbers of a row share scales and lie as so many bytes.
enum class Dtype : uint8_t { Bool, U8, I8, I16, I32, I64, F16, BF16, F32, F64, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K };
inline constexpr size_t kPlainDtypes = static_cast<size_t>(Dtype::F64) + 1;

/// Bytes of one element, or of one block.
uint64_t size_of(Dtype dtype);
/// Numbers of one block; 1 where every number lies by itself.
uint64_t numbers_of(Dtype dtype);
/// As the header writes it: "BF16".
const char* name_of(Dtype dtype);
inline bool in_blocks(Dtype dtype) { return numbers_of(dtype) > 1; }

/// What the header says of one tensor.
struct Entry {
  std::string name;
  Dtype dtype = Dtype::F32;
  std::vector<int64_t> shape;  ///< of its numbers; () is a scalar: one element
  uint64_t bytes = 0;          ///< as tensor_bytes() says
  uint64_t offset = 0;         ///< of its first byte in the file
  size_t file = 0;             ///< index into Reader::files()
};

/// Of an entry in blocks: its shape as bytes, (rows, bytes of a row).
std::vector<int64_t> block_shape(const Entry& entry);

/// The first of `bytes`, whole blocks of `dtype`, one of whose scales is NaN or infinite; -1: none.
int64_t first_broken_block(Dtype dtype, std::span<const std::byte> bytes);

/// In which order a file has a tensor's rows. In GGUF's files of the architecture "llama", RoPE turns neighbours: where a head's rows are
/// numbered s · half + i for s = 0, 1, the file has them as 2 · i + s.
struct RowOrder {
  int64_t heads = 0;  ///< 0: as they are
  int64_t in_file(int64_t row, int64_t rows) const {
    const int64_t head = rows / heads, half = head / 2, at = row % head;
    return row - at + 2 * (at % half) + at / half;
  }
};

/// The bytes of a tensor, or an error where a dimension is negative, rows are no whole blocks, or the product does not fit 63 bits.
Result<uint64_t> tensor_bytes(Dtype dtype, std::span<const int64_t> shape);

/// "F32 (3, 4)": for messages.
std::string describe(Dtype dtype, std::span<const int64_t> shape);
/// "3, 4".
std::string numbers_text(std::span<const int64_t> values);
/// "<place>tensor '<name>' <cause>"
Error tensor_error(const std::string& place, const std::string& name, const std::string& cause, std::string hint = {});
/// Errors of the file system while opening are the recipe's too: it names the file.
Error as_recipe(Error error);

/// What a reader of one format finds.
struct Contents {
  std::vector<File> files;
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;  ///< "__metadata__" of a safetensors file
};

/// One file, or several that an index ties together. Immutable once open; every function is [thread-safe].
class Reader {
 public:
  /// `path` is a safetensors or GGUF file, an index (*.index.json), or a folder: with model.safetensors or model.safetensors.index.json
  /// (the single file goes first), or else with one GGUF file. Of a set only the tensors that its index names are there. Holds its files
  /// open.
  static Result<Reader> open(const std::filesystem::path& path);
  /// Which file that is; empty: a folder has none of them, or several GGUF files.
  static std::filesystem::path file_of(const std::filesystem::path& path);

  /// All tensors, by name.
  std::span<const Entry> entries() const { return contents_.entries; }
  /// Null when there is none of that name. Lives as long as the reader.
  const Entry* find(std::string_view name) const;
  std::span<const File> files() const { return contents_.files; }
  /// Of the single file or of the first shard.
  const std::map<std::string, std::string>& metadata() const { return contents_.metadata; }
  /// "FILE: tensor 'NAME'": where an entry lies, for messages.
  std::string place_of(const Entry& entry) const;

  /// bytes.size() bytes of the tensor's data from byte `offset` of it on, in the order of its own rows; reaching beyond its end is an
  /// error. Rows are along the first dimension.
  Status read_bytes(const Entry& entry, uint64_t offset, std::span<std::byte> bytes, RowOrder order = {}) const;
  /// The whole tensor; `bytes` has exactly its size.
  Status read(const Entry& entry, std::span<std::byte> bytes, RowOrder order = {}) const;

 private:
  explicit Reader(Contents contents) : contents_(std::move(contents)) {}
  Contents contents_;
};

}  // namespace galley::tensor_files
