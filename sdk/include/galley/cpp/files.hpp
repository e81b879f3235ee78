// The service galley.files/1 for C++: files as the host reads them. Header-only.
#pragma once

#include <exception>
#include <map>
#include <string>
#include <vector>

#include "galley/cpp/plugin.hpp"
#include "galley/files.h"

namespace galley::sdk {

/// A tensor of a safetensors file.
struct FileTensor {
  std::string name;
  std::string dtype;  ///< in the file's words: "BF16"
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
};

namespace detail {

inline galley_files files() {
  const auto* table = static_cast<const galley_files*>(service(GALLEY_FILES));
  if (!table) unsupported("this host does not have the service " GALLEY_FILES);
  return read(table);
}

/// What a callback fills, and what it threw: an exception must not pass through the host.
template <class T>
struct Seen {
  T value = {};
  std::exception_ptr failure;
  template <class F>
  galley_status add(const F& f) noexcept {
    try {
      f(value);
      return GALLEY_OK;
    } catch (...) {
      failure = std::current_exception();
      return GALLEY_FAILED;
    }
  }
  T take(galley_status status, const galley_error& error) {
    if (failure) std::rethrow_exception(failure);
    if (status != GALLEY_OK) throw Failure(status, error.text, error.hint);
    return std::move(value);
  }
};

}  // namespace detail

/// The contents of a file of at most `limit` bytes. Throws Failure with the path and the cause.
inline std::string read_text(const std::string& path, uint64_t limit = uint64_t{64} << 20) {
  detail::Seen<std::string> seen;
  galley_error error = GALLEY_ERROR_INIT;
  const galley_status status = detail::files().text(
      host()->context, path.c_str(), limit,
      [](void* context, const char* text, uint64_t bytes) {
        return static_cast<detail::Seen<std::string>*>(context)->add([&](std::string& out) { out.assign(text, bytes); });
      },
      &seen, &error);
  return seen.take(status, error);
}

/// The tensors of a safetensors file, an index or a model's folder, by name. Reads headers only. Throws Failure with the path and the
/// cause.
inline std::vector<FileTensor> read_tensors(const std::string& path) {
  using Tensors = std::vector<FileTensor>;
  detail::Seen<Tensors> seen;
  galley_error error = GALLEY_ERROR_INIT;
  const galley_status status = detail::files().tensors(
      host()->context, path.c_str(),
      [](void* context, const galley_file_tensor* shown) {
        return static_cast<detail::Seen<Tensors>*>(context)->add([&](Tensors& out) {
          const galley_file_tensor t = read(shown);
          out.push_back({t.name, t.dtype, {t.extents, t.extents + t.rank}, t.bytes});
        });
      },
      &seen, &error);
  return seen.take(status, error);
}

/// What each tensor holds, by name, whose name matches the pattern and which has at most `limit` bytes. Throws Failure with the path and
/// the cause.
inline std::map<std::string, std::string> read_contents(const std::string& path, const char* pattern, uint64_t limit) {
  using Contents = std::map<std::string, std::string>;
  detail::Seen<Contents> seen;
  galley_error error = GALLEY_ERROR_INIT;
  const galley_files files = detail::files();
  if (!files.contents) unsupported("this host's service " GALLEY_FILES " does not show what tensors hold");
  const galley_status status = files.contents(
      host()->context, path.c_str(), pattern, limit,
      [](void* context, const char* name, const void* data, uint64_t bytes) {
        return static_cast<detail::Seen<Contents>*>(context)->add(
            [&](Contents& out) { out.emplace(name, std::string(static_cast<const char*>(data), bytes)); });
      },
      &seen, &error);
  return seen.take(status, error);
}

}  // namespace galley::sdk
