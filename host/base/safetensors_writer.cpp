#include <algorithm>
#include <utility>

#include "host/base/json.hpp"
#include "host/base/safetensors.hpp"

namespace galley::safetensors {
namespace {

// The library's order of dtypes is that of its enumeration, where I64 stands above F64 and F64 above F32; large elements come
// first, so that every tensor is aligned to its element.
int rank(Dtype dtype) {
  switch (dtype) {
    case Dtype::I64: return 0;
    case Dtype::F64: return 1;
    case Dtype::F32: return 2;
    case Dtype::I32: return 3;
    case Dtype::BF16: return 4;
    case Dtype::F16: return 5;
    case Dtype::I16: return 6;
    case Dtype::I8: return 7;
    case Dtype::U8: return 8;
    case Dtype::Bool: return 9;
    default: return 10;
  }
}

struct Layout {
  std::string header;  ///< padded, without the eight bytes before it
  uint64_t data_bytes = 0;
};

// Sorts the items, and writes the header that they make.
Result<Layout> lay_out(std::vector<Item>& items, const Writer::Metadata& metadata) {
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return std::pair(rank(a.dtype), std::string_view(a.name)) < std::pair(rank(b.dtype), std::string_view(b.name));
  });
  std::vector<std::string_view> names;
  names.reserve(items.size());
  for (const Item& item : items) names.push_back(item.name);
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
    return run_error("tensor '" + std::string(*twice) + "' is to be written twice");
  }

  Layout layout;
  std::string& text = layout.header;
  text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) text += json_quote(key) + ":" + json_quote(value) + ",";
    text.back() = '}';
    text += ',';
  }
  for (const Item& item : items) {
    Result<uint64_t> bytes = tensor_bytes(item.dtype, item.shape);
    if (!bytes.ok()) return run_error("tensor '" + item.name + "' " + bytes.error().cause);
    text += json_quote(item.name) + ":{\"dtype\":\"" + name_of(item.dtype) + "\",\"shape\":[";
    for (size_t i = 0; i < item.shape.size(); ++i) text += (i > 0 ? "," : "") + std::to_string(item.shape[i]);
    text += "],\"data_offsets\":[" + std::to_string(layout.data_bytes) + ",";
    layout.data_bytes += *bytes;
    text += std::to_string(layout.data_bytes) + "]},";
  }
  if (text.back() == ',') text.back() = '}';
  else text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return layout;
}

}  // namespace

Result<Writer> Writer::create(const std::filesystem::path& path, std::vector<Item> items, const Metadata& metadata) {
  TRY(lay_out(items, metadata));  // no file for items that cannot be written
  return create(TRY(File::create(path)), std::move(items), metadata);
}

Result<Writer> Writer::create(File file, std::vector<Item> items, const Metadata& metadata) {
  const Layout layout = TRY(lay_out(items, metadata));
  Writer writer(std::move(file), std::move(items));
  const uint64_t header_bytes = layout.header.size();
  TRY_STATUS(writer.file_.write(std::as_bytes(std::span(&header_bytes, 1))));
  TRY_STATUS(writer.file_.write(layout.header));
  TRY_STATUS(writer.skip_complete());
  return writer;
}

Result<uint64_t> Writer::file_bytes(std::vector<Item> items, const Metadata& metadata) {
  const Layout layout = TRY(lay_out(items, metadata));
  return sizeof(uint64_t) + layout.header.size() + layout.data_bytes;
}

Result<std::map<std::string, Writer::Place>> Writer::places(std::vector<Item> items, const Metadata& metadata) {
  const Layout layout = TRY(lay_out(items, metadata));
  std::map<std::string, Place> out;
  uint64_t at = sizeof(uint64_t) + layout.header.size();
  for (const Item& item : items) {
    const uint64_t bytes = TRY(tensor_bytes(item.dtype, item.shape));
    out[item.name] = {at, bytes};
    at += bytes;
  }
  return out;
}

// Goes on to the next item that still lacks bytes; an empty tensor never does.
Status Writer::skip_complete() {
  while (current_ < items_.size()) {
    if (written_ < TRY(tensor_bytes(items_[current_].dtype, items_[current_].shape))) break;
    ++current_;
    written_ = 0;
  }
  return ok();
}

Status Writer::write(std::string_view name, std::span<const std::byte> bytes) {
  if (bytes.empty()) return ok();
  const std::string place = "cannot write '" + file_.path().string() + "': ";
  if (current_ == items_.size()) return run_error(place + "tensor '" + std::string(name) + "' comes after the last one was complete");
  const Item& item = items_[current_];
  if (item.name != name) return run_error(place + "tensor '" + std::string(name) + "' comes where '" + item.name + "' belongs");
  const uint64_t missing = TRY(tensor_bytes(item.dtype, item.shape)) - written_;
  if (bytes.size() > missing) {
    return run_error(place + std::to_string(bytes.size()) + " bytes of tensor '" + item.name + "' come where " + std::to_string(missing) +
                     " are missing");
  }
  TRY_STATUS(file_.write(bytes));
  written_ += bytes.size();
  return skip_complete();
}

Status Writer::finish() {
  if (current_ < items_.size()) {
    return run_error("cannot finish '" + file_.path().string() + "': tensor '" + items_[current_].name + "' lacks data after byte " +
                     std::to_string(written_));
  }
  return file_.sync();
}

}  // namespace galley::safetensors
