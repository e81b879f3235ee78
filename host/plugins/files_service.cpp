#include "host/plugins/files_service.hpp"

#include <vector>

#include "host/base/glob.hpp"
#include "host/base/json.hpp"
#include "host/base/ordered.hpp"
#include "host/base/tensor_files.hpp"
#include "host/plugins/abi.hpp"

namespace galley {
namespace {

/// Runs `body`; what it returns or throws becomes a status. A file that cannot be read is the fault of whoever named it. The body returns
/// what the caller's function has said of what it was shown.
template <class Body>
galley_status answer(galley_error* error, const Body& body) noexcept {
  const auto failed = [&](galley_status status, const Error& why) {
    fill_error(error, status, why.cause, why.hint);
    return status;
  };
  try {
    const Result<galley_status> done = body();
    return done ? *done : failed(GALLEY_INVALID, done.error());
  } catch (...) {
    return failed(GALLEY_FAILED, error_of_exception());
  }
}

galley_status text(void*, const char* path, uint64_t limit, galley_status (*see)(void*, const char*, uint64_t), void* context,
                   galley_error* error) {
  return answer(error, [&]() -> Result<galley_status> {
    if (!path || !see) return plugin_error("galley.files/1: text() was called without a path or a function");
    const std::string contents = TRY(read_text(path, limit));
    // A plugin's own parser, and what it does with the result, may recurse by levels and search by turns.
    if (std::string_view(path).ends_with(".json")) TRY(parse_json(contents, path, kFewJsonValues));
    return see(context, contents.c_str(), contents.size());
  });
}

galley_status tensors(void*, const char* path, galley_status (*see)(void*, const galley_file_tensor*), void* context, galley_error* error) {
  return answer(error, [&]() -> Result<galley_status> {
    if (!path || !see) return plugin_error("galley.files/1: tensors() was called without a path or a function");
    const tensor_files::Reader reader = TRY(tensor_files::Reader::open(path));
    for (const tensor_files::Entry& entry : reader.entries()) {
      auto t = new_struct<galley_file_tensor>();
      t.name = entry.name.c_str();
      t.dtype = tensor_files::name_of(entry.dtype);
      t.extents = entry.shape.data();
      t.bytes = entry.bytes;
      t.rank = static_cast<uint32_t>(entry.shape.size());
      if (const galley_status said = see(context, &t); said != GALLEY_OK) return said;
    }
    return GALLEY_OK;
  });
}

galley_status contents(void*, const char* path, const char* pattern, uint64_t limit,
                       galley_status (*see)(void*, const char*, const void*, uint64_t), void* context, galley_error* error) {
  return answer(error, [&]() -> Result<galley_status> {
    if (!path || !pattern || !see) return plugin_error("galley.files/1: contents() was called without a path, a pattern or a function");
    const tensor_files::Reader reader = TRY(tensor_files::Reader::open(path));
    std::vector<std::byte> data;
    for (const tensor_files::Entry& entry : reader.entries()) {
      if (!glob_matches(pattern, entry.name)) continue;
      if (entry.bytes > limit)
        return recipe_error(reader.files()[entry.file].path().string() + ": tensor '" + entry.name + "' has " +
                            std::to_string(entry.bytes) + " bytes, where at most " + std::to_string(limit) + " are expected");
      data.resize(entry.bytes);
      TRY_STATUS(reader.read_bytes(entry, 0, data));
      if (const galley_status said = see(context, entry.name.c_str(), data.data(), data.size()); said != GALLEY_OK) return said;
    }
    return GALLEY_OK;
  });
}

}  // namespace

const galley_files* files_service() {
  static const galley_files table = {sizeof(galley_files), 1, text, tensors, 0, contents};
  return &table;
}

}  // namespace galley
