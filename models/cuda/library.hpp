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

/// "13.1.0" of 130100.
inline std::string dotted_version(size_t number) {
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." + std::to_string(number % 100);
}

class Library {
 public:
  /// `variable`: the environment variable with the path of the library to open, "" for none; without it, the loader searches for `names`,
  /// in this order. Fails with `hint` if none can be opened.
  Library(const char* what, const char* variable, std::vector<std::string> names, const std::string& hint)
      : what_(what), variable_(variable), hint_(hint) {
    std::string reason;
    if (const char* given = std::getenv(variable)) {
      names = {given};
      if (!*given) names.clear(), reason = std::string(variable) + " is empty";
    }
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
  /// Fails if the library is of another major version than the one that the target lists. `number`: its own;
  /// `file`: what its file is called, "libcudnn.so".
  void check_planned(const std::string& planned, size_t number, const std::string& file) const {
    const int major = std::atoi(planned.c_str());
    if (major != static_cast<int>(number / 10000))
      throw sdk::Failure(GALLEY_FAILED,
                         "the plan is made for " + what_ + " " + planned + ", but " + path_ + " is " + dotted_version(number),
                         "set " + variable_ + " to the path of a " + file + "." + std::to_string(major) + ", or plan for this machine");
  }

 private:
  void* address_ = nullptr;
  std::string what_, variable_, path_, hint_;
};

}  // namespace galley::cuda
