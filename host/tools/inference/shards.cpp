#include "host/tools/inference/shards.hpp"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "host/base/file.hpp"
#include "host/base/json.hpp"
#include "host/base/safetensors.hpp"

namespace galley {
namespace {

using Weight = tensor_files::Entry;
using Shard = std::vector<const Weight*>;

std::string shard_name(size_t index, size_t count) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

/// Tensors in the order of the file, as many a shard as fit.
std::vector<Shard> shards_of(const tensor_files::Reader& from, uint64_t most) {
  Shard all;
  for (const Weight& entry : from.entries()) all.push_back(&entry);
  std::ranges::sort(all, {}, &Weight::offset);
  std::vector<Shard> out;
  uint64_t bytes = 0;
  for (const Weight* entry : all) {
    if (out.empty() || bytes + entry->bytes > most) {
      out.emplace_back();
      bytes = 0;
    }
    out.back().push_back(entry);
    bytes += entry->bytes;
  }
  return out;
}

Status write_shard(const tensor_files::Reader& from, const Shard& shard, const std::filesystem::path& file) {
  std::vector<safetensors::Item> items;
  for (const Weight* entry : shard) items.push_back({entry->name, entry->dtype, entry->shape});
  safetensors::Writer to = TRY(safetensors::Writer::create(file, std::move(items), from.metadata()));
  std::vector<std::byte> bytes;
  for (const safetensors::Item& item : to.items()) {
    const Weight& entry = *from.find(item.name);
    constexpr uint64_t piece = uint64_t{16} << 20;
    for (uint64_t at = 0; at < entry.bytes; at += piece) {
      bytes.resize(std::min(piece, entry.bytes - at));
      TRY_STATUS(from.read_bytes(entry, at, bytes));
      TRY_STATUS(to.write(item.name, bytes));
    }
  }
  return to.finish();
}

}  // namespace

Status split_weights(const std::filesystem::path& folder, int64_t most) {
  const std::filesystem::path whole = folder / "model.safetensors";
  std::error_code error;
  if (!std::filesystem::exists(whole, error)) return ok();
  Table places;
  uint64_t total = 0;
  {
    const tensor_files::Reader from = TRY(tensor_files::Reader::open(whole));
    const std::vector<Shard> shards = shards_of(from, static_cast<uint64_t>(most));
    if (shards.size() < 2) return ok();
    for (size_t k = shards.size(); k-- > 0;) {
      const std::string name = shard_name(k, shards.size());
      TRY_STATUS(write_shard(from, shards[k], folder / name));
      std::filesystem::resize_file(whole, shards[k].front()->offset, error);
      if (error) return file_error("shorten", whole, error.value());
      for (const Weight* entry : shards[k]) {
        places[entry->name] = Value(name);
        total += entry->bytes;
      }
    }
  }
  std::filesystem::remove(whole, error);
  if (error) return file_error("remove", whole, error.value());
  const Table index = {{"metadata", Value(Table{{"total_size", Value(static_cast<int64_t>(total))}})},
                       {"weight_map", Value(std::move(places))}};
  File file = TRY(File::create(folder / "model.safetensors.index.json"));
  TRY_STATUS(file.write(to_json(Value(index), 2) + "\n"));
  return file.sync();
}

}  // namespace galley
