// Writes a GGUF file: its keys, the places of its tensors, and their bytes. host/base/gguf.hpp says how such a file is laid out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "host/base/file.hpp"
#include "host/base/tensor_files.hpp"
#include "host/tools/gguf/gguf_keys.hpp"

namespace galley {

/// A tensor that is to be written. The shape has the fastest dimension last, as everywhere else.
struct GgufTensor {
  std::string name;
  tensor_files::Dtype dtype = tensor_files::Dtype::F32;
  std::vector<int64_t> shape;
};

/// Writes a file whose tensors are known before their numbers are. The file must be empty, and outlive this.
class GgufFile {
 public:
  /// Writes the header.
  static Result<GgufFile> create(File& file, const GgufKeys& keys, const std::vector<GgufTensor>& tensors);
  /// Writes bytes of the tensor of that index, from its byte `offset` on. Tensors may come in any order.
  Status write(size_t tensor, uint64_t offset, std::span<const std::byte> bytes);
  /// Gives the file its length and syncs it.
  Status finish();
  /// Returns the bytes of the whole file.
  uint64_t bytes() const { return end_; }

 private:
  explicit GgufFile(File& file) : file_(&file) {}
  File* file_;
  std::vector<uint64_t> begins_;  ///< of each tensor: the byte of the file where it begins
  uint64_t end_ = 0;
};

}  // namespace galley
