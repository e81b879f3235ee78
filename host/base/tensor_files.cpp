#include "host/base/tensor_files.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "host/base/gguf.hpp"
#include "host/base/safetensors.hpp"

namespace galley::tensor_files {
namespace {

static_assert(std::endian::native == std::endian::little, "the formats are little-endian, and data is read as it is");

struct DtypeRow {
  const char* name;
  uint64_t bytes, numbers;
  uint64_t scale = 0, scales = 0;  // of a block: where its numbers in F16 lie, and how many there are
};
// In the order of the enumeration.
constexpr DtypeRow kDtypes[] = {{"BOOL", 1, 1},
                                {"U8", 1, 1},
                                {"I8", 1, 1},
                                {"I16", 2, 1},
                                {"I32", 4, 1},
                                {"I64", 8, 1},
                                {"F16", 2, 1},
                                {"BF16", 2, 1},
                                {"F32", 4, 1},
                                {"F64", 8, 1},
                                {"Q4_0", 18, 32, 0, 1},
                                {"Q4_1", 20, 32, 0, 2},
                                {"Q5_0", 22, 32, 0, 1},
                                {"Q5_1", 24, 32, 0, 2},
                                {"Q8_0", 34, 32, 0, 1},
                                {"Q4_K", 144, 256, 0, 2},
                                {"Q5_K", 176, 256, 0, 2},
                                {"Q6_K", 210, 256, 208, 1}};

std::vector<std::filesystem::path> gguf_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> out;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (gguf::is_gguf(at->path())) out.push_back(at->path());
  std::sort(out.begin(), out.end());
  return out;
}

Error nothing_in(const std::filesystem::path& folder) {
  std::error_code error;
  const std::vector<std::filesystem::path> several = gguf_files(folder);
  if (several.size() > 1)
    return recipe_error(folder.string() + ": " + std::to_string(several.size()) + " GGUF files are there, " +
                            several[0].filename().string() + " and others",
                        "name the file that is meant");
  const bool pickled = std::filesystem::exists(folder / "pytorch_model.bin", error) ||
                       std::filesystem::exists(folder / "pytorch_model.bin.index.json", error);
  return recipe_error(folder.string() + ": neither model.safetensors nor model.safetensors.index.json is there, nor a GGUF file",
                      pickled ? "pytorch_model.bin is; save the model as safetensors once" : "");
}

/// Of units (outer, a, b) the file has (outer, b, a): of some of the tensor's lines of b units it has each k-th unit side by side.
Status read_exchanged(const File& file, const Entry& entry, uint64_t offset, std::span<std::byte> bytes, uint64_t outer, uint64_t a,
                      uint64_t b) {
  constexpr uint64_t kAtOnce = uint64_t{1} << 20;
  const uint64_t unit = entry.bytes / (outer * a * b), end = offset + bytes.size();
  std::vector<std::byte> units;
  for (uint64_t line = offset / (b * unit), lines = 0; line * b * unit < end; line += lines) {
    const uint64_t first = line % a;
    lines = std::min({std::max<uint64_t>(1, kAtOnce / unit), a - first, (end - 1) / (b * unit) + 1 - line});
    units.resize(lines * unit);
    for (uint64_t k = 0; k < b; ++k) {
      const uint64_t begin = (line * b + k) * unit;
      if (lines == 1 && (begin >= end || begin + unit <= offset)) continue;
      TRY_STATUS(file.read_at(units, entry.offset + ((line / a * b + k) * a + first) * unit));
      for (uint64_t i = 0; i < lines; ++i) {
        const uint64_t its = begin + i * b * unit, from = std::max(its, offset), to = std::min(its + unit, end);
        if (from < to) std::memcpy(bytes.data() + (from - offset), units.data() + (i * unit + from - its), to - from);
      }
    }
  }
  return ok();
}

}  // namespace

uint64_t size_of(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)].bytes; }
uint64_t numbers_of(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)].numbers; }
const char* name_of(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)].name; }

std::vector<int64_t> block_shape(const Entry& entry) {
  const int64_t row = entry.shape.back() / static_cast<int64_t>(numbers_of(entry.dtype)) * static_cast<int64_t>(size_of(entry.dtype));
  return {row > 0 ? static_cast<int64_t>(entry.bytes) / row : 0, row};
}

int64_t first_broken_block(Dtype dtype, std::span<const std::byte> bytes) {
  const DtypeRow& row = kDtypes[static_cast<size_t>(dtype)];
  for (size_t block = 0; block < bytes.size() / row.bytes; ++block)
    for (uint64_t k = 0; k < row.scales; ++k) {
      uint16_t scale;
      std::memcpy(&scale, bytes.data() + block * row.bytes + row.scale + k * sizeof scale, sizeof scale);
      if ((scale & 0x7C00) == 0x7C00) return static_cast<int64_t>(block);
    }
  return -1;
}

std::string numbers_text(std::span<const int64_t> values) {
  std::string text;
  for (const int64_t value : values) text += (text.empty() ? "" : ", ") + std::to_string(value);
  return text;
}
std::string describe(Dtype dtype, std::span<const int64_t> shape) { return std::string(name_of(dtype)) + " (" + numbers_text(shape) + ")"; }
Error tensor_error(const std::string& place, const std::string& name, const std::string& cause, std::string hint) {
  return recipe_error(place + "tensor '" + name + "' " + cause, std::move(hint));
}
Error as_recipe(Error error) {
  error.exit = Exit::Recipe;
  return error;
}

Result<uint64_t> tensor_bytes(Dtype dtype, std::span<const int64_t> shape) {
  uint64_t bytes = size_of(dtype);
  bool overflow = false, empty = false;
  const auto block = static_cast<int64_t>(numbers_of(dtype));
  for (size_t k = 0; k < shape.size(); ++k) {
    int64_t size = shape[k];
    if (size < 0) return recipe_error("has the shape (" + numbers_text(shape) + "), with a negative size");
    if (k + 1 == shape.size() && size % block != 0)
      return recipe_error("is " + describe(dtype, shape) + ", and its rows are no whole blocks of " + std::to_string(block) + " numbers");
    if (k + 1 == shape.size()) size /= block;
    empty |= size == 0;
    overflow |= __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes);
  }
  if (shape.empty() && block > 1) return recipe_error("is " + describe(dtype, shape) + ", which is no whole block");
  if (empty) return uint64_t{0};
  // Offsets in files and in memory are signed somewhere below: half the range is the limit.
  if (overflow || bytes > INT64_MAX) return recipe_error("is " + describe(dtype, shape) + ", more bytes than 63 bits count");
  return bytes;
}

std::filesystem::path Reader::file_of(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return path;
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"})
    if (std::filesystem::exists(path / name, error)) return path / name;
  const std::vector<std::filesystem::path> others = gguf_files(path);
  return others.size() == 1 ? others.front() : std::filesystem::path();
}

Result<Reader> Reader::open(const std::filesystem::path& path) {
  const std::filesystem::path file = file_of(path);
  if (file.empty()) return nothing_in(path);
  Contents contents;
  if (gguf::is_gguf(file)) {
    gguf::Header header = TRY(gguf::read(file));
    contents.files.push_back(std::move(header.file));
    contents.entries = std::move(header.entries);
  } else {
    contents = TRY(safetensors::read(file));
  }
  std::sort(contents.entries.begin(), contents.entries.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return Reader(std::move(contents));
}

const Entry* Reader::find(std::string_view name) const {
  const std::vector<Entry>& all = contents_.entries;
  const auto at = std::lower_bound(all.begin(), all.end(), name, [](const Entry& entry, std::string_view n) { return entry.name < n; });
  return at != all.end() && at->name == name ? &*at : nullptr;
}

std::string Reader::place_of(const Entry& entry) const {
  return contents_.files[entry.file].path().string() + ": tensor '" + entry.name + "'";
}

Status Reader::read_bytes(const Entry& entry, uint64_t offset, std::span<std::byte> bytes, const FileForm& form) const {
  const File& file = contents_.files[entry.file];
  if (offset > entry.bytes || bytes.size() > entry.bytes - offset) {
    return run_error(file.path().string() + ": " + std::to_string(bytes.size()) + " bytes from byte " + std::to_string(offset) +
                     " on were asked of tensor '" + entry.name + "', which has " + std::to_string(entry.bytes));
  }
  if (form.plain() || bytes.empty()) return file.read_at(bytes, entry.offset + offset);
  const int64_t rows = entry.shape.empty() ? 0 : entry.shape[0], parts = form.outer * form.a * form.b;
  if (form.turned ? entry.shape.size() != 2 || in_blocks(entry.dtype) : parts < 1 || rows % parts || entry.shape.empty())
    return run_error(place_of(entry) + " is " + describe(entry.dtype, entry.shape) + ", and its rows " +
                     (form.turned ? "cannot be the model's columns" : "are not " + std::to_string(parts) + " equal parts"));
  if (!form.same_numbers() && entry.dtype != Dtype::F32)
    return run_error(place_of(entry) + " is in " + name_of(entry.dtype) + ", and can only be read in F32: its numbers are not the model's");
  const auto u = [](int64_t x) { return static_cast<uint64_t>(x); };
  TRY_STATUS(form.turned ? read_exchanged(file, entry, offset, bytes, 1, u(entry.shape[1]), u(rows))
                         : read_exchanged(file, entry, offset, bytes, u(form.outer), u(form.a), u(form.b)));
  for (size_t at = 0; !form.same_numbers() && at < bytes.size(); at += sizeof(float)) {
    float number;
    std::memcpy(&number, &bytes[at], sizeof number);
    number = static_cast<float>(static_cast<double>(number) / form.scale - form.added);
    std::memcpy(&bytes[at], &number, sizeof number);
  }
  return ok();
}

Status Reader::read(const Entry& entry, std::span<std::byte> bytes, const FileForm& form) const {
  if (bytes.size() != entry.bytes) {
    return run_error(place_of(entry) + " has " + std::to_string(entry.bytes) + " bytes, the memory for it " + std::to_string(bytes.size()));
  }
  return read_bytes(entry, 0, bytes, form);
}

}  // namespace galley::tensor_files
