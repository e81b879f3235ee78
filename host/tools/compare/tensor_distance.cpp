#include "host/tools/compare/tensor_distance.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <vector>

#include "host/base/tensor_files.hpp"
#include "host/exec/convert.hpp"
#include "host/plan/dtype.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

/// So many numbers of a tensor are compared at a time.
constexpr int64_t kAtOnce = 1 << 16;

struct StoredTensor {
  const tensor_files::Reader* file = nullptr;
  const tensor_files::Entry* entry = nullptr;
};

class StoredTensors {
 public:
  Status open(const TensorFiles& files) {
    for (const fs::path& file : files) {
      files_.push_back(TRY(tensor_files::Reader::open(file)));
      for (const tensor_files::Entry& entry : files_.back().entries()) tensors_[entry.name] = {&files_.back(), &entry};
    }
    return ok();
  }
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  StoredTensor find(const std::string& name, const std::vector<int64_t>& shape) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() || found->second.entry->shape != shape ? StoredTensor() : found->second;
  }

 private:
  std::deque<tensor_files::Reader> files_;  // stay where they are
  std::map<std::string, StoredTensor> tensors_;
};

/// Reads numbers [at, at + n) of a tensor.
class StoredNumbers {
 public:
  explicit StoredNumbers(const StoredTensor& tensor) : tensor_(tensor), dtype_(dtype_of(tensor.entry->dtype)) {}
  bool numbers() const { return convertible(dtype_, GALLEY_F64); }
  Status read(int64_t at, int64_t n) {
    const uint64_t size = tensor_files::size_of(tensor_.entry->dtype);
    bytes.resize(static_cast<size_t>(n) * size);
    TRY_STATUS(tensor_.file->read_bytes(*tensor_.entry, static_cast<uint64_t>(at) * size, bytes));
    values.assign(static_cast<size_t>(n), 0);
    if (numbers()) convert(values.data(), GALLEY_F64, bytes.data(), dtype_, n);
    return ok();
  }
  std::vector<std::byte> bytes;
  std::vector<double> values;

 private:
  StoredTensor tensor_;
  uint32_t dtype_;
};

Result<TensorDistance> distance_between(const StoredTensor& of_a, const StoredTensor& of_b, const StoredTensor& of_origin) {
  StoredNumbers a(of_a), b(of_b);
  std::optional<StoredNumbers> origin;
  if (of_origin.file) origin.emplace(of_origin);
  const auto count = static_cast<int64_t>(of_b.entry->bytes / tensor_files::size_of(of_b.entry->dtype));
  TensorDistance out;
  out.alike = of_a.entry->dtype == of_b.entry->dtype;
  for (int64_t at = 0; at < count; at += kAtOnce) {
    const int64_t n = std::min(kAtOnce, count - at);
    TRY_STATUS(a.read(at, n));
    TRY_STATUS(b.read(at, n));
    if (origin) TRY_STATUS(origin->read(at, n));
    out.alike = out.alike && !std::memcmp(a.bytes.data(), b.bytes.data(), b.bytes.size());
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      const double x = a.values[i], y = b.values[i], from = origin ? origin->values[i] : y;
      out.difference += (x - y) * (x - y);
      out.norm += y * y;
      out.other += x * x;
      out.moved += (y - from) * (y - from);
    }
  }
  out.difference = std::sqrt(out.difference);
  out.norm = std::sqrt(out.norm);
  out.other = std::sqrt(out.other);
  out.moved = std::sqrt(out.moved);
  out.numbers = a.numbers() && b.numbers();
  if (!out.alike && (!std::isfinite(out.difference) || !out.numbers)) out.difference = HUGE_VAL;
  if (out.alike) out.difference = 0;
  return out;
}

}  // namespace

Result<TensorFiles> tensor_files_below(const fs::path& folder) {
  TensorFiles out;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".safetensors") out.push_back(at->path());
  if (error) return run_error("cannot read " + folder.string() + ": " + error.message());
  return out;
}

Result<Distances> tensor_distances(const TensorFiles& a, const TensorFiles& b, const TensorFiles& origin) {
  StoredTensors of_a, of_b, of_origin;
  TRY_STATUS(of_a.open(a));
  TRY_STATUS(of_b.open(b));
  TRY_STATUS(of_origin.open(origin));
  Distances out;
  for (const auto& [name, one] : of_b.tensors())
    if (!of_a.find(name, one.entry->shape).file) out.alone = name;
  for (const auto& [name, one] : of_a.tensors()) {
    const StoredTensor other = of_b.find(name, one.entry->shape);
    if (!other.file) out.alone = name;
    else out.tensors[name] = TRY(distance_between(one, other, of_origin.find(name, one.entry->shape)));
  }
  return out;
}

}  // namespace galley
