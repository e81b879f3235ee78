// The reader; the writer is in safetensors_writer.cpp.
#include "host/base/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

#include "host/base/json.hpp"

namespace galley::safetensors {
namespace {

using namespace tensor_files;

// The library's own limit: a header larger than this is not a header.
constexpr uint64_t kLargestHeader = 100'000'000;

// A list of integers that are not negative, as shape and data_offsets are.
bool read_sizes(const Value& value, std::vector<int64_t>* sizes) {
  const auto* list = value.as<List>();
  if (list == nullptr) return false;
  for (const Value& element : *list) {
    const auto* size = element.as<int64_t>();
    if (size == nullptr || *size < 0) return false;
    sizes->push_back(*size);
  }
  return true;
}

// One tensor's line of the header. `offset` is left counted from the header's end.
Result<Entry> read_entry(const std::string& name, const Value& value, uint64_t data_bytes) {
  Entry entry;
  entry.name = name;
  const auto* table = value.as<Table>();
  if (table == nullptr) return recipe_error("is " + std::string(value.type_name()) + " where {dtype, shape, data_offsets} belongs");
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!table->contains(key)) return recipe_error("has no '" + std::string(key) + "'");
  }
  for (const auto& [key, unused] : *table) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") return recipe_error("has an unknown key '" + key + "'");
  }

  const Value& dtype = table->at("dtype");
  const auto* dtype_name = dtype.as<std::string>();
  size_t known = 0;
  while (known < kPlainDtypes && (!dtype_name || *dtype_name != name_of(static_cast<Dtype>(known)))) ++known;
  if (known == kPlainDtypes) {
    std::string list;
    for (size_t k = 0; k < kPlainDtypes; ++k) list += (list.empty() ? "" : ", ") + std::string(name_of(static_cast<Dtype>(k)));
    return recipe_error("has the unknown dtype " + to_json(dtype) + " (known: " + list + ")");
  }
  entry.dtype = static_cast<Dtype>(known);

  if (!read_sizes(table->at("shape"), &entry.shape)) {
    return recipe_error("has the shape " + to_json(table->at("shape")) + ", which is not a list of integers from 0 on");
  }
  std::vector<int64_t> offsets;
  if (!read_sizes(table->at("data_offsets"), &offsets) || offsets.size() != 2 || offsets[0] > offsets[1]) {
    return recipe_error("has the data_offsets " + to_json(table->at("data_offsets")) +
                        ", which are not [begin, end] with 0 <= begin <= end");
  }
  if (static_cast<uint64_t>(offsets[1]) > data_bytes) {
    return recipe_error(
        "has the data_offsets [" + numbers_text(offsets) + "], beyond the " + std::to_string(data_bytes) + " bytes of data in the file",
        "the file is truncated, it seems: fetch it again");
  }
  entry.offset = static_cast<uint64_t>(offsets[0]);
  entry.bytes = static_cast<uint64_t>(offsets[1] - offsets[0]);
  const uint64_t needed = TRY(tensor_bytes(entry.dtype, entry.shape));
  if (needed != entry.bytes) {
    return recipe_error("is " + describe(entry.dtype, entry.shape) + ", which takes " + std::to_string(needed) +
                        " bytes, but its data_offsets [" + numbers_text(offsets) + "] span " + std::to_string(entry.bytes));
  }
  return entry;
}

// The tensors, in the order of their data, must cover it exactly.
Status check_cover(std::vector<const Entry*> entries, uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const Entry* a, const Entry* b) {
    return std::pair(a->offset, a->offset + a->bytes) < std::pair(b->offset, b->offset + b->bytes);
  });
  uint64_t end = 0;
  const Entry* before = nullptr;
  for (const Entry* entry : entries) {
    if (entry->offset < end) {
      return recipe_error("tensors '" + before->name + "' and '" + entry->name + "' overlap: one ends at byte " + std::to_string(end) +
                          " of the data, the other begins at " + std::to_string(entry->offset));
    }
    if (entry->offset > end) {
      return recipe_error("bytes " + std::to_string(end) + " to " + std::to_string(entry->offset) + " of the data, before tensor '" +
                          entry->name + "', belong to no tensor");
    }
    end = entry->offset + entry->bytes;
    before = entry;
  }
  if (end != data_bytes) {
    return recipe_error("the last " + std::to_string(data_bytes - end) + " of " + std::to_string(data_bytes) +
                        " bytes of data belong to no tensor");
  }
  return ok();
}

Error metadata_error(const std::string& place, const std::string& key) {
  return recipe_error(place + "__metadata__: '" + key + "' is not a string");
}

// Adds a file and its tensors, those of an index to `entries`.
Status add_file(const std::filesystem::path& path, Contents* out, std::vector<Entry>* entries) {
  Result<File> opened = File::open_read(path);
  if (!opened.ok()) return as_recipe(std::move(opened).error());
  File& file = *opened;
  const std::string place = path.string() + ": ";
  const uint64_t size = TRY(file.size());
  uint64_t header_bytes = 0;
  if (size < sizeof header_bytes) {
    return recipe_error(place + "not a safetensors file: " + std::to_string(size) + " bytes, too few for the size of a header");
  }
  TRY_STATUS(file.read_at(std::as_writable_bytes(std::span(&header_bytes, 1)), 0));
  const std::string header_size = "the header's size is given as " + std::to_string(header_bytes) + " bytes, ";
  if (header_bytes < 2) return recipe_error(place + header_size + "too few for a header: not a safetensors file");
  if (header_bytes > kLargestHeader) {
    return recipe_error(place + header_size + "more than the " + std::to_string(kLargestHeader) +
                        " that are allowed: not a safetensors file");
  }
  if (header_bytes > size - sizeof header_bytes) {
    return recipe_error(place + header_size + "but only " + std::to_string(size - sizeof header_bytes) + " follow: the file is truncated");
  }

  std::string text(header_bytes, '\0');
  TRY_STATUS(file.read_at(std::as_writable_bytes(std::span(text)), sizeof header_bytes));
  if (text[0] != '{') return recipe_error(place + "the header does not begin with '{': not a safetensors file");
  const Value header = TRY(parse_json(text, path.string() + ": header", kManyJsonValues));

  const uint64_t data_begin = sizeof header_bytes + header_bytes;
  const uint64_t data_bytes = size - data_begin;
  const size_t first = entries->size();
  std::map<std::string, std::string> metadata;
  for (const auto& [name, value] : *header.as<Table>()) {
    if (name == "__metadata__") {
      const auto* table = value.as<Table>();
      if (table == nullptr) return recipe_error(place + "__metadata__ is not a table of strings");
      for (const auto& [key, entry] : *table) {
        if (entry.as<std::string>() == nullptr) return metadata_error(place, key);
        metadata[key] = *entry.as<std::string>();
      }
      continue;
    }
    Result<Entry> entry = read_entry(name, value, data_bytes);
    if (!entry.ok()) return tensor_error(place, name, entry.error().cause, entry.error().hint);
    entry->file = out->files.size();
    entries->push_back(std::move(*entry));
  }
  std::vector<const Entry*> added;
  for (size_t i = first; i < entries->size(); ++i) added.push_back(&(*entries)[i]);
  if (Status covered = check_cover(std::move(added), data_bytes); !covered.ok()) return recipe_error(place + covered.error().cause);
  for (size_t i = first; i < entries->size(); ++i) (*entries)[i].offset += data_begin;

  if (out->files.empty()) out->metadata = std::move(metadata);
  out->files.push_back(std::move(file));
  return ok();
}

Result<Contents> read_index(const std::filesystem::path& index) {
  Result<Value> parsed = read_json(index, uint64_t{64} << 20, kManyJsonValues);
  if (!parsed.ok()) return as_recipe(std::move(parsed).error());
  const Value& json = *parsed;
  const std::string place = index.string() + ": ";
  const auto* weights = json.field<Table>("weight_map");
  if (weights == nullptr) return recipe_error(place + "has no table 'weight_map' of tensors and their files");
  if (weights->empty()) return recipe_error(place + "'weight_map' names no tensor");

  std::set<std::string> shards;
  for (const auto& [name, value] : *weights) {
    const auto* shard = value.as<std::string>();
    // A shard lies beside its index; anything else could read files that the model has no business with.
    if (shard == nullptr || shard->empty() || *shard == "." || *shard == ".." || shard->find('/') != std::string::npos) {
      return tensor_error(place, name, "is said to lie in " + to_json(value) + ", which is not the name of a file beside the index");
    }
    shards.insert(*shard);
  }

  Contents out;
  std::vector<std::string> missing;
  for (const std::string& shard : shards) {
    std::error_code error;
    if (!std::filesystem::exists(index.parent_path() / shard, error)) missing.push_back(shard);
  }
  if (!missing.empty()) {
    std::string names = missing[0];
    for (size_t i = 1; i < std::min<size_t>(missing.size(), 3); ++i) names += ", " + missing[i];
    if (missing.size() > 3) names += ", …";
    return recipe_error(place + std::to_string(missing.size()) + " of " + std::to_string(shards.size()) + " shards are missing: " + names,
                        "download the missing files into the same folder");
  }
  std::vector<Entry> found;
  for (const std::string& shard : shards) TRY_STATUS(add_file(index.parent_path() / shard, &out, &found));
  std::set<std::string> seen;
  for (Entry& entry : found) {
    const auto listed = weights->find(entry.name);
    const std::filesystem::path shard = out.files[entry.file].path().filename();
    if (listed == weights->end() || *listed->second.as<std::string>() != shard.string()) continue;
    seen.insert(entry.name);
    out.entries.push_back(std::move(entry));
  }
  for (const auto& [name, shard] : *weights) {
    if (seen.contains(name)) continue;
    return tensor_error(place, name, "is said to lie in '" + *shard.as<std::string>() + "', which does not have it");
  }
  return out;
}

}  // namespace

Result<Contents> read(const std::filesystem::path& file) {
  if (file.filename().string().ends_with(".index.json")) return read_index(file);
  Contents out;
  TRY_STATUS(add_file(file, &out, &out.entries));
  return out;
}

}  // namespace galley::safetensors
