// Reads GGUF: a model's tensors and its metadata in one file, as llama.cpp reads and writes it. All numbers are little-endian.
//
//   "GGUF"  version: u32, 2 or 3  tensors: u64  keys: u64
//   keys:     name: string, type: u32, value      string: length: u64, bytes      array: type: u32, length: u64, values
//   tensors:  name: string, dimensions: u32, extents: u64 each, the fastest first, type: u32, offset: u64
//   padding to a multiple of general.alignment (32 if it is not there); from there offsets of tensors count, which are multiples of it too
//
// Types of tensors are ggml's: numbers, or blocks of a row's numbers with their scales. Source: ggml/docs/gguf.md, and for blocks
// ggml-common.h, of https://github.com/ggml-org/ggml.
#pragma once

#include <filesystem>
#include <vector>

#include "host/base/tensor_files.hpp"
#include "host/base/value.hpp"

namespace galley::gguf {

inline constexpr const char* kExtension = ".gguf";
/// Longer texts and arrays belong to a tokenizer: they are checked and not kept.
inline constexpr uint64_t kLongestText = uint64_t{1} << 16, kLongestArray = 512;

struct Header {
  File file;
  /// By key: booleans, integers, numbers, strings, lists. An F32 number is the shortest decimal that is rounded to it, as the file's author
  /// wrote it. Of a longer text or array { count = n }.
  Table metadata;
  /// In the order of the file; shapes as everywhere else: the fastest dimension last.
  std::vector<tensor_files::Entry> entries;
};

/// Returns the number by which files call a dtype; there must be one.
uint32_t type_number(tensor_files::Dtype dtype);

/// Returns whether a path names a GGUF file, by its extension.
bool is_gguf(const std::filesystem::path& file);

/// Reads and checks everything but the tensors' data: exit code Recipe with the file, the key or tensor, and the value that is wrong. The
/// header ends within 256 MiB, and of a hostile one no more than some hundred megabytes are kept.
Result<Header> read(const std::filesystem::path& path);

}  // namespace galley::gguf
