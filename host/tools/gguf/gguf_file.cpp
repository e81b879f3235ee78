#include "host/tools/gguf/gguf_file.hpp"

#include "host/base/gguf.hpp"

namespace galley {
namespace {

constexpr uint64_t kAlignment = 32;
uint64_t aligned(uint64_t at) { return (at + kAlignment - 1) / kAlignment * kAlignment; }

template <class T>
void append_number(std::string& out, T number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

}  // namespace

Result<GgufFile> GgufFile::create(File& file, const GgufKeys& keys, const std::vector<GgufTensor>& tensors) {
  GgufFile out(file);
  std::string header = "GGUF";
  append_number(header, uint32_t{3});
  append_number(header, static_cast<uint64_t>(tensors.size()));
  append_number(header, keys.count());
  header += keys.bytes();
  uint64_t at = 0;
  for (const GgufTensor& tensor : tensors) {
    append_number(header, static_cast<uint64_t>(tensor.name.size()));
    header += tensor.name;
    append_number(header, static_cast<uint32_t>(tensor.shape.size()));
    for (auto extent = tensor.shape.rbegin(); extent != tensor.shape.rend(); ++extent)
      append_number(header, static_cast<uint64_t>(*extent));
    append_number(header, gguf::type_number(tensor.dtype));
    append_number(header, at);
    out.begins_.push_back(at);
    out.end_ = at + TRY(tensor_files::tensor_bytes(tensor.dtype, tensor.shape));
    at = aligned(out.end_);
  }
  header.resize(aligned(header.size()));
  for (uint64_t& begin : out.begins_) begin += header.size();
  out.end_ += header.size();
  TRY_STATUS(file.write_at(std::as_bytes(std::span(header)), 0));
  return out;
}

Status GgufFile::write(size_t tensor, uint64_t offset, std::span<const std::byte> bytes) {
  return file_->write_at(bytes, begins_[tensor] + offset);
}

Status GgufFile::finish() {
  TRY_STATUS(file_->truncate(end_));
  return file_->sync();
}

}  // namespace galley
