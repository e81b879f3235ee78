// A vendor's library, opened when the first kernel that calls it is prepared: a kernel library is never linked with it, so it loads on
// machines that have none.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "galley/cpp/plugin.hpp"

namespace galley::cuda {

/// The version of a library that the target lists; null if it does not.
inline const char* library_version(const galley_target& target, const char* name) {
  for (uint32_t i = 0; i < target.n_libraries; ++i)
    if (std::string(target.libraries[i]->name) == name) return target.libraries[i]->version;
  return nullptr;
}

class Library {
 public:
  /// `variable`: the environment variable with the path of the library to open; without it, the loader searches for `names`, in this order.
  /// Fails with `hint` if none can be opened.
  Library(const char* what, const char* variable, std::vector<std::string> names, const std::string& hint) : hint_(hint) {
    if (const char* given = std::getenv(variable); given && *given) names = {given};
    std::string reason;
    for (size_t i = 0; !address_ && i < names.size(); ++i) {
      path_ = names[i];
      address_ = ::dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
      const char* const text = address_ ? nullptr : ::dlerror();
      if (reason.empty() && text) reason = text;
    }
    if (!address_) throw sdk::Failure(GALLEY_FAILED, std::string(what) + " cannot be opened: " + reason, hint_);
  }

  template <class Function>
  Function function(const char* name) const {
    void* const found = ::dlsym(address_, name);
    if (!found) throw sdk::Failure(GALLEY_FAILED, path_ + " has no function " + name, hint_);
    return reinterpret_cast<Function>(found);
  }
  const std::string& path() const { return path_; }

 private:
  void* address_ = nullptr;
  std::string path_, hint_;
};

/// "13.1.0" of 130100.
inline std::string dotted_version(size_t number) {
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." + std::to_string(number % 100);
}

}  // namespace galley::cuda
