// A GGUF file from anybody: it is refused with a cause, or every tensor lies within it, and reads as many bytes as it says.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "host/base/gguf.hpp"

using namespace galley;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int file = memfd_create("m.gguf", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (ftruncate(file, 0) || pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  const Result<gguf::Header> header = gguf::read(path);
  if (!header) {
    if (!header.error().cause.starts_with(path + ": ")) std::abort();
    return 0;
  }
  for (const tensor_files::Entry& entry : header->entries) {
    if (entry.bytes > size || entry.offset > size - entry.bytes) std::abort();
    std::vector<std::byte> bytes(entry.bytes);
    if (!header->file.read_at(bytes, entry.offset)) std::abort();
    if (tensor_files::in_blocks(entry.dtype)) {
      const std::vector<int64_t> shape = tensor_files::block_shape(entry);
      if (shape[0] * shape[1] != static_cast<int64_t>(entry.bytes)) std::abort();
      (void)tensor_files::first_broken_block(entry.dtype, bytes);
    }
  }
  return 0;
}
