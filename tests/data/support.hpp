// What the tests of the data have in common: specs and recipes, memory aligned as an arena is, windows that own theirs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "host/sources/kinds.hpp"
#include "tests/base/folder.hpp"

namespace galley {

/// Calls of operator new in this process so far (allocations.cpp counts them).
int64_t allocations();

/// Memory full of junk, aligned to BatchLayout::kAlignment.
class Memory {
 public:
  explicit Memory(uint64_t bytes)
      : bytes_(bytes), data_(static_cast<std::byte*>(::operator new(bytes + 1, std::align_val_t(BatchLayout::kAlignment)))) {
    std::fill_n(data_, bytes, std::byte{0xA5});
  }
  ~Memory() { ::operator delete(data_, std::align_val_t(BatchLayout::kAlignment)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::span<std::byte> span() const { return {data_, bytes_}; }

 private:
  uint64_t bytes_;
  std::byte* data_;
};

struct OwnedWindow {
  OwnedWindow(const BatchLayout& layout, int64_t micro_batches)
      : memory(window_bytes(layout, micro_batches)), buffer{.layout = layout, .memory = memory.span()} {}
  Memory memory;
  WindowBuffer buffer;
};

/// One row, copied out.
struct RowCopy {
  std::vector<int32_t> input_ids, labels, position_ids, first_key;
  friend bool operator==(const RowCopy&, const RowCopy&) = default;
};

inline RowCopy copy_row(const WindowBuffer& buffer, int64_t row) {
  const BatchRow r = buffer.row(row);
  const auto copy = [](std::span<int32_t> s) { return std::vector<int32_t>(s.begin(), s.end()); };
  return {copy(r.tokens()), copy(r.next()), copy(r.positions()), copy(r.first_key())};
}

inline std::vector<RowCopy> copy_rows(const WindowBuffer& buffer) {
  std::vector<RowCopy> rows;
  for (int64_t r = 0; r < buffer.rows(); ++r) rows.push_back(copy_row(buffer, r));
  return rows;
}

/// A source that has been described and opened, with the memory it asked for.
struct Opened {
  DataPlugins plugins;
  DataInfo info;
  std::unique_ptr<Memory> memory;
  std::unique_ptr<Source> source;

  std::vector<RowCopy> window(int64_t index, int64_t micro_batches, int64_t* valid = nullptr) const {
    OwnedWindow window(info.layout, micro_batches);
    EXPECT_TRUE(source->fill(index, window.buffer).ok());
    EXPECT_EQ(window.buffer.window, index);
    EXPECT_EQ(window.buffer.micro_batches, micro_batches);
    EXPECT_EQ(window.buffer.valid_tokens, window.buffer.count_valid());
    if (valid != nullptr) *valid = window.buffer.valid_tokens;
    return copy_rows(window.buffer);
  }
};

inline Recipe recipe_of(std::optional<int64_t> batch, std::optional<int64_t> length, uint64_t seed = 1, int64_t validate_every = 0) {
  Recipe recipe;
  recipe.batch = batch;
  recipe.length = length;
  recipe.seed = recipe.split = seed;
  recipe.validate.every = validate_every;
  return recipe;
}

inline DataSpec spec_of(std::string kind, Table options) { return {std::move(kind), std::move(options), {"recipe.lua", 5}}; }

inline DataSpec text_of(std::vector<std::string> files, Table options = {}) {
  List list;
  for (std::string& file : files) list.emplace_back(std::move(file));
  options.emplace("files", std::move(list));
  options.emplace("tokenizer", std::string("bytes"));
  return spec_of("text", std::move(options));
}

/// Prepared data lies in a folder of the process's own.
inline void use_own_cache() {
  static const Folder* const folder = [] {
    auto* made = new Folder;  // as long as the process
    setenv("GALLEY_CACHE", (*made / "cache").c_str(), 1);
    std::atexit([] { std::filesystem::remove_all(std::getenv("GALLEY_CACHE")); });
    return made;
  }();
  (void)folder;
}

/// For kinds of data that are plugins'.
inline Plugins& built_in_plugins() {
  const std::filesystem::path folders[] = {std::filesystem::path(std::getenv("GALLEY_BINARY")) / "plugins"};
  static Plugins& plugins = *Plugins::scan(folders).release();  // as long as the process
  return plugins;
}

inline Result<Opened> try_open(const DataSpec& spec, const Recipe& recipe, int64_t vocabulary, const Windows& windows) {
  use_own_cache();
  Opened opened;
  opened.plugins.push_back(TRY(LoadedSource::create(built_in_plugins(), {spec.kind, spec.options, spec.place, {}}, own_data_kinds())));
  opened.info = TRY(describe_data(spec, recipe, opened.plugins));
  opened.memory = std::make_unique<Memory>(opened.info.bytes());
  opened.source = TRY(open_data(opened.info, spec, recipe, vocabulary, windows, {.threads = 2}, opened.plugins));
  TRY_STATUS(opened.source->load(opened.memory->span()));
  return opened;
}

/// The cause of the error that describing or opening gives, which is the recipe's, and names its line.
inline std::string open_error(const DataSpec& spec, const Recipe& recipe, int64_t vocabulary = 256, const Windows& windows = {1}) {
  const Result<Opened> opened = try_open(spec, recipe, vocabulary, windows);
  if (opened.ok()) return "no error";
  EXPECT_EQ(opened.error().exit, Exit::Recipe);
  const std::string place = "recipe.lua:5: ";
  EXPECT_EQ(opened.error().cause.substr(0, place.size()), place);
  return opened.error().cause.substr(place.size());
}

}  // namespace galley
