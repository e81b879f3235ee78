#include "host/base/gguf.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>

#include "host/base/printable.hpp"

namespace galley::gguf {
namespace {

using tensor_files::Dtype;
using tensor_files::Entry;

constexpr uint64_t kLargestHeader = uint64_t{256} << 20;
constexpr uint64_t kMostDimensions = 4, kLongestName = 1024, kLargestAlignment = uint64_t{1} << 20;
/// Many times what any model has. An entry that is kept takes more memory than it takes bytes in the file.
constexpr uint64_t kMostKeys = 4096, kMostTensors = uint64_t{1} << 20;

struct TypeRow {
  uint32_t id;
  const char* name;
  std::optional<Dtype> dtype;  ///< none: not read
};
constexpr TypeRow kTypes[] = {{0, "F32", Dtype::F32},   {1, "F16", Dtype::F16},    {30, "BF16", Dtype::BF16}, {28, "F64", Dtype::F64},
                              {24, "I8", Dtype::I8},    {25, "I16", Dtype::I16},   {26, "I32", Dtype::I32},   {27, "I64", Dtype::I64},
                              {2, "Q4_0", Dtype::Q4_0}, {3, "Q4_1", Dtype::Q4_1},  {6, "Q5_0", Dtype::Q5_0},  {7, "Q5_1", Dtype::Q5_1},
                              {8, "Q8_0", Dtype::Q8_0}, {12, "Q4_K", Dtype::Q4_K}, {13, "Q5_K", Dtype::Q5_K}, {14, "Q6_K", Dtype::Q6_K},
                              {9, "Q8_1", {}},          {10, "Q2_K", {}},          {11, "Q3_K", {}},          {15, "Q8_K", {}},
                              {16, "IQ2_XXS", {}},      {17, "IQ2_XS", {}},        {18, "IQ3_XXS", {}},       {19, "IQ1_S", {}},
                              {20, "IQ4_NL", {}},       {21, "IQ3_S", {}},         {22, "IQ2_S", {}},         {23, "IQ4_XS", {}},
                              {29, "IQ1_M", {}},        {34, "TQ1_0", {}},         {35, "TQ2_0", {}},         {39, "MXFP4", {}}};

/// Types of values, in the order of their numbers.
enum class Type : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64 };
constexpr const char* kTypeNames[] = {"U8", "I8", "U16", "I16", "U32", "I32", "F32", "BOOL", "string", "array", "U64", "I64", "F64"};
constexpr uint64_t kTypeBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

std::string named(const std::string& text) { return "'" + printable(text.substr(0, 200), Lines::Escape) + "'"; }

/// Whose the cause is, in front of it: "key 'a' is …", "key 'a': its text takes …".
Error of(const std::string& whose, const Error& error) {
  return recipe_error(whose + (error.cause.starts_with("it") ? ": " : " ") + error.cause, error.hint);
}

/// Reads the header's bytes from the first to the last, through a window.
class Cursor {
 public:
  Cursor(const File& file, uint64_t size) : file_(file), size_(size) {}
  uint64_t at() const { return at_; }
  uint64_t left() const { return size_ - at_; }

  template <class T>
  Result<T> number(const char* what) {
    T out;
    TRY_STATUS(bytes(&out, sizeof out, what));
    return out;
  }
  /// A text that is at most `most` bytes long.
  Result<std::string> text(uint64_t most, const char* what) {
    const uint64_t length = TRY(text_length(what));
    if (length > most)
      return recipe_error(std::string(what) + " is said to have " + std::to_string(length) + " bytes, and at most " + std::to_string(most) +
                          " are read");
    std::string out(length, '\0');
    TRY_STATUS(bytes(out.data(), length, what));
    return out;
  }
  Result<uint64_t> text_length(const char* what) {
    const auto length = TRY(number<uint64_t>(what));
    if (length > left()) return too_few(what, length);
    return length;
  }
  Status bytes(void* to, uint64_t n, const char* what) {
    if (n > left()) return too_few(what, n);
    if (at_ + n > kLargestHeader)
      return recipe_error("the header does not end within " + std::to_string(kLargestHeader) + " bytes: that is no model's");
    auto* out = static_cast<std::byte*>(to);
    while (n > 0) {
      if (at_ < begin_ || at_ - begin_ >= window_.size()) {
        begin_ = at_;
        window_.resize(std::min<uint64_t>(left(), uint64_t{1} << 16));
        TRY_STATUS(file_.read_at(window_, begin_));
      }
      const uint64_t from = at_ - begin_, part = std::min<uint64_t>(n, window_.size() - from);
      std::memcpy(out, window_.data() + from, part);
      out += part;
      at_ += part;
      n -= part;
    }
    return ok();
  }
  Status skip(uint64_t n, const char* what) {
    if (n > left()) return too_few(what, n);
    at_ += n;
    return at_ > kLargestHeader ? recipe_error("the header does not end within " + std::to_string(kLargestHeader) + " bytes") : ok();
  }

 private:
  Error too_few(const char* what, uint64_t n) const {
    return recipe_error(std::string(what) + " takes " + std::to_string(n) + " bytes from byte " + std::to_string(at_) + " on, and " +
                            std::to_string(left()) + " are left in the file",
                        "the file is truncated, it seems: fetch it again");
  }

  const File& file_;
  uint64_t size_, at_ = 0, begin_ = 0;
  std::vector<std::byte> window_;
};

/// Returns the number that somebody wrote who meant this F32: 1e-05, not 9.99999974737875e-06.
double as_written(float x) {
  if (!std::isfinite(x)) return static_cast<double>(x);
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, x).ptr;
  double out = 0;
  std::from_chars(text, end, out);
  return out;
}

Result<Type> type_of(uint32_t number) {
  if (number < std::size(kTypeNames)) return static_cast<Type>(number);
  return recipe_error("is of type " + std::to_string(number) + ", which GGUF does not have");
}

Result<Value> scalar(Cursor& from, Type type) {
  switch (type) {
    case Type::U8: return Value(static_cast<int64_t>(TRY(from.number<uint8_t>("it"))));
    case Type::I8: return Value(static_cast<int64_t>(TRY(from.number<int8_t>("it"))));
    case Type::U16: return Value(static_cast<int64_t>(TRY(from.number<uint16_t>("it"))));
    case Type::I16: return Value(static_cast<int64_t>(TRY(from.number<int16_t>("it"))));
    case Type::U32: return Value(static_cast<int64_t>(TRY(from.number<uint32_t>("it"))));
    case Type::I32: return Value(static_cast<int64_t>(TRY(from.number<int32_t>("it"))));
    case Type::F32: return Value(as_written(TRY(from.number<float>("it"))));
    case Type::I64: return Value(TRY(from.number<int64_t>("it")));
    case Type::F64: return Value(TRY(from.number<double>("it")));
    case Type::U64: {
      const auto value = TRY(from.number<uint64_t>("it"));
      if (value > INT64_MAX) return recipe_error("is " + std::to_string(value) + ", more than 63 bits hold");
      return Value(static_cast<int64_t>(value));
    }
    case Type::Bool: {
      const auto value = TRY(from.number<uint8_t>("it"));
      if (value > 1) return recipe_error("is a boolean with the value " + std::to_string(value));
      return Value(value != 0);
    }
    case Type::String: {
      const uint64_t length = TRY(from.text_length("its text"));
      if (length > kLongestText) {
        TRY_STATUS(from.skip(length, "its text"));
        return Value(Table{{"count", Value(static_cast<int64_t>(length))}});
      }
      std::string text(length, '\0');
      TRY_STATUS(from.bytes(text.data(), length, "its text"));
      return Value(std::move(text));
    }
    case Type::Array: break;
  }
  return recipe_error("is an array of arrays");
}

Result<Value> array(Cursor& from) {
  const Type type = TRY(type_of(TRY(from.number<uint32_t>("the type of its entries"))));
  const auto length = TRY(from.number<uint64_t>("its length"));
  if (type == Type::Array) return recipe_error("is an array of arrays, which is not read");
  const uint64_t least = type == Type::String ? sizeof(uint64_t) : kTypeBytes[static_cast<size_t>(type)];
  if (length > from.left() / least)
    return recipe_error("is an array of " + std::to_string(length) + " entries of type " + kTypeNames[static_cast<size_t>(type)] +
                            ", and " + std::to_string(from.left()) + " bytes are left in the file",
                        "the file is truncated, it seems: fetch it again");
  if (length > kLongestArray) {
    if (type != Type::String) TRY_STATUS(from.skip(length * least, "it"));
    for (uint64_t i = 0; i < length && type == Type::String; ++i) TRY_STATUS(from.skip(TRY(from.text_length("an entry")), "an entry"));
    return Value(Table{{"count", Value(static_cast<int64_t>(length))}});
  }
  List out;
  for (uint64_t i = 0; i < length; ++i) out.push_back(TRY(scalar(from, type)));
  return Value(std::move(out));
}

Status read_metadata(Cursor& from, uint64_t keys, Table* out) {
  for (uint64_t i = 0; i < keys; ++i) {
    Result<std::string> key = from.text(UINT16_MAX, "the name of a key");
    if (!key)
      return recipe_error("key " + std::to_string(i + 1) + " of " + std::to_string(keys) + ": " + key.error().cause, key.error().hint);
    if (out->contains(*key)) return recipe_error("key " + named(*key) + " is there twice");
    const auto value = [&]() -> Result<Value> {
      const Type type = TRY(type_of(TRY(from.number<uint32_t>("its type"))));
      return type == Type::Array ? array(from) : scalar(from, type);
    }();
    if (!value) return of("key " + named(*key), value.error());
    out->emplace(*std::move(key), *value);
  }
  return ok();
}

std::string known_types() {
  std::string out;
  for (const TypeRow& row : kTypes)
    if (row.dtype) out += (out.empty() ? "" : ", ") + std::string(row.name);
  return out;
}

/// A tensor's line, after its name; its offset counts from the begin of the data.
Status read_tensor(Cursor& from, uint64_t alignment, Entry* out) {
  const auto dimensions = TRY(from.number<uint32_t>("its number of dimensions"));
  if (dimensions > kMostDimensions)
    return recipe_error("has " + std::to_string(dimensions) + " dimensions; at most " + std::to_string(kMostDimensions) + " are read");
  for (uint32_t k = 0; k < dimensions; ++k) {
    const auto extent = TRY(from.number<uint64_t>("a dimension"));
    if (extent == 0 || extent > INT64_MAX) return recipe_error("has a dimension of " + std::to_string(extent));
    out->shape.insert(out->shape.begin(), static_cast<int64_t>(extent));
  }
  const auto type = TRY(from.number<uint32_t>("its type"));
  const auto row = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeRow& r) { return r.id == type; });
  if (row == std::end(kTypes) || !row->dtype)
    return recipe_error("is of type " + (row == std::end(kTypes) ? std::to_string(type) : std::string(row->name)) + ", which is not read",
                        "read are " + known_types());
  out->dtype = *row->dtype;
  out->offset = TRY(from.number<uint64_t>("its offset"));
  if (out->offset % alignment)
    return recipe_error("begins at byte " + std::to_string(out->offset) + " of the data, which is no multiple of the alignment, " +
                        std::to_string(alignment));
  out->bytes = TRY(tensor_files::tensor_bytes(out->dtype, out->shape));
  return ok();
}

Status read_tensors(Cursor& from, uint64_t tensors, uint64_t alignment, std::vector<Entry>* out) {
  std::set<std::string> names;
  for (uint64_t i = 0; i < tensors; ++i) {
    Entry entry;
    Result<std::string> name = from.text(kLongestName, "its name");
    if (!name)
      return recipe_error("tensor " + std::to_string(i + 1) + " of " + std::to_string(tensors) + ": " + name.error().cause,
                          name.error().hint);
    entry.name = *std::move(name);
    const std::string place = "tensor " + named(entry.name);
    if (!names.insert(entry.name).second) return recipe_error(place + " is there twice");
    if (Status read = read_tensor(from, alignment, &entry); !read) return of(place, read.error());
    out->push_back(std::move(entry));
  }
  return ok();
}

Result<uint64_t> alignment_of(const Table& metadata) {
  const auto at = metadata.find("general.alignment");
  if (at == metadata.end()) return uint64_t{32};
  const auto* value = at->second.as<int64_t>();
  if (!value || *value < 1 || static_cast<uint64_t>(*value) > kLargestAlignment || !std::has_single_bit(static_cast<uint64_t>(*value)))
    return recipe_error("key 'general.alignment' has to be a power of two up to " + std::to_string(kLargestAlignment) +
                        (value ? ", and is " + std::to_string(*value) : ""));
  return static_cast<uint64_t>(*value);
}

/// Tensors lie in the file, and no two of them share a byte.
Status check_places(const std::vector<Entry>& entries, uint64_t data_bytes) {
  std::vector<const Entry*> order;
  for (const Entry& entry : entries) {
    order.push_back(&entry);
    if (entry.offset > data_bytes || entry.bytes > data_bytes - entry.offset)
      return recipe_error("tensor " + named(entry.name) + " is " + tensor_files::describe(entry.dtype, entry.shape) + ", " +
                              std::to_string(entry.bytes) + " bytes from byte " + std::to_string(entry.offset) +
                              " of the data on, and the file has " + std::to_string(data_bytes),
                          "the file is truncated, it seems: fetch it again");
  }
  std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset)
      return recipe_error("tensors " + named(order[i - 1]->name) + " and " + named(order[i]->name) + " overlap: one ends at byte " +
                          std::to_string(order[i - 1]->offset + order[i - 1]->bytes) + " of the data, the other begins at " +
                          std::to_string(order[i]->offset));
  return ok();
}

Status read_header(Header* out) {
  const uint64_t size = TRY(out->file.size());
  Cursor from(out->file, size);
  char magic[4] = {};
  if (size >= sizeof magic) TRY_STATUS(from.bytes(magic, sizeof magic, "the beginning"));
  if (std::memcmp(magic, "GGUF", sizeof magic) != 0) return recipe_error("not a GGUF file: it does not begin with 'GGUF'");
  const auto version = TRY(from.number<uint32_t>("the version"));
  if (version == 0x02000000 || version == 0x03000000) return recipe_error("the file is big-endian, and little-endian ones are read");
  if (version != 2 && version != 3) return recipe_error("the file has version " + std::to_string(version) + " of GGUF; 2 and 3 are read");
  const auto tensors = TRY(from.number<uint64_t>("the number of tensors")), keys = TRY(from.number<uint64_t>("the number of keys"));
  if (keys > kMostKeys)
    return recipe_error("the file is said to have " + std::to_string(keys) + " keys; at most " + std::to_string(kMostKeys) + " are read");
  if (tensors > kMostTensors)
    return recipe_error("the file is said to have " + std::to_string(tensors) + " tensors; at most " + std::to_string(kMostTensors) +
                        " are read");
  TRY_STATUS(read_metadata(from, keys, &out->metadata));
  const uint64_t alignment = TRY(alignment_of(out->metadata));
  if (const auto at = out->metadata.find("split.count"); at != out->metadata.end())
    if (const auto* parts = at->second.as<int64_t>(); parts && *parts > 1)
      return recipe_error("the file is one of " + std::to_string(*parts) + " parts of a model ('split.count')",
                          "put them together: llama-gguf-split --merge");
  TRY_STATUS(read_tensors(from, tensors, alignment, &out->entries));
  // Without tensors nothing follows, not even padding.
  const uint64_t begin = std::min(size, (from.at() + alignment - 1) / alignment * alignment);
  TRY_STATUS(check_places(out->entries, size - begin));
  for (Entry& entry : out->entries) entry.offset += begin;
  return ok();
}

}  // namespace

uint32_t type_number(Dtype dtype) { return std::ranges::find(kTypes, dtype, &TypeRow::dtype)->id; }

bool is_gguf(const std::filesystem::path& file) { return file.extension() == kExtension; }

Result<Header> read(const std::filesystem::path& path) {
  Result<File> opened = File::open_read(path);
  if (!opened) return tensor_files::as_recipe(std::move(opened).error());
  Header out{std::move(*opened), {}, {}};
  if (Status read = read_header(&out); !read) return recipe_error(path.string() + ": " + read.error().cause, read.error().hint);
  return out;
}

}  // namespace galley::gguf
