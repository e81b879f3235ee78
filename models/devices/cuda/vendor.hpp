// NVIDIA's libraries that kernels may call: which are here, and which of those can be used. A target lists these and no others, so a plan
// never chooses a kernel that cannot run.
//
//   GALLEY_CUBLASLT, GALLEY_CUDNN, GALLEY_NVRTC = FILE     the library to open; an empty one: none
#pragma once

#include <dlfcn.h>

#include <filesystem>
#include <initializer_list>
#include <string>
#include <vector>

#include "../../cuda/library.hpp"

namespace galley::cuda {

/// A library that the variable names, or else the first of `files`, in the loader's words; null: it is not here. It stays open.
inline void* open_vendor(const char* variable, const std::vector<std::string>& files) {
  if (const char* const given = std::getenv(variable)) return *given ? ::dlopen(given, RTLD_LAZY | RTLD_LOCAL) : nullptr;
  for (const std::string& file : files)
    if (void* const library = ::dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL)) return library;
  return nullptr;
}

/// What a function without arguments returns; 0 if there is none.
inline size_t number_of(void* library, const char* function) {
  auto* const found = reinterpret_cast<size_t (*)()>(library ? ::dlsym(library, function) : nullptr);
  return found ? found() : 0;
}

/// Its version; "" where it is not here.
inline std::string find_cublaslt() {
  const size_t number =
      number_of(open_vendor("GALLEY_CUBLASLT", {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}), "cublasLtGetVersion");
  return number ? dotted_version(number) : "";
}

/// cuDNN compiles its engines of attention by NVRTC of the CUDA that it was built with, and fails at the first of them where there is none.
/// It looks beside itself and where NVIDIA's packages for Python put it; once NVRTC is open, it takes that one.
struct Cudnn {
  std::string version;  ///< "": it is not here
  std::string missing;  ///< a library that it needs, and that is not here; else ""
};
inline Cudnn find_cudnn() {
  void* const library = open_vendor("GALLEY_CUDNN", {"libcudnn.so.9", "libcudnn.so"});
  const size_t number = number_of(library, "cudnnGetVersion"), cuda = number_of(library, "cudnnGetCudartVersion") / 1000;
  if (!number) return {};
  const std::string name = "libnvrtc.so." + std::to_string(cuda);
  std::vector<std::string> places = {name};
  if (Dl_info found = {}; ::dladdr(::dlsym(library, "cudnnGetVersion"), &found) && found.dli_fname) {
    const auto folder = std::filesystem::absolute(found.dli_fname).parent_path();
    for (const char* beside : {".", "../../cuda_nvrtc/lib", "../../cu13/lib"}) places.push_back((folder / beside / name).string());
  }
  return {dotted_version(number), open_vendor("GALLEY_NVRTC", places) ? "" : name};
}

}  // namespace galley::cuda
