// cuBLASLt, opened when the first product is prepared (library.hpp). For nvcc, and for tests.
//
// GALLEY_CUBLASLT = PATH: the library to open. Without it, the loader searches for libcublasLt.so of the target's version, then of 13
// and 12.
#pragma once

#include <cublasLt.h>

#include "cuda/library.hpp"
#include "galley/cuda/platform.hpp"

namespace galley::cuda {

/// The library's functions, and the process's handle. They stay until the process ends: kernels are released in any order.
class Lt {
  Library library_;  // the functions below are taken from it, so it is opened before

 public:
  /// `planned`: the version that the target lists. Fails if there is no library, or one of another major version. [thread-safe]
  static const Lt& of(const std::string& planned) {
    static const Lt lt(planned);
    lt.library_.check_planned(planned, lt.version_number(), "libcublasLt.so");
    return lt;
  }

#define GALLEY_LT(member, name) decltype(&name) const member = library_.function<decltype(&name)>(#name)
  GALLEY_LT(matmul, cublasLtMatmul);
  GALLEY_LT(heuristic, cublasLtMatmulAlgoGetHeuristic);
  GALLEY_LT(algorithm_check, cublasLtMatmulAlgoCheck);
  GALLEY_LT(algorithm_capability, cublasLtMatmulAlgoCapGetAttribute);
  GALLEY_LT(operation_create, cublasLtMatmulDescCreate);
  GALLEY_LT(operation_destroy, cublasLtMatmulDescDestroy);
  GALLEY_LT(operation_set, cublasLtMatmulDescSetAttribute);
  GALLEY_LT(layout_create, cublasLtMatrixLayoutCreate);
  GALLEY_LT(layout_destroy, cublasLtMatrixLayoutDestroy);
  GALLEY_LT(layout_set, cublasLtMatrixLayoutSetAttribute);
  GALLEY_LT(preference_create, cublasLtMatmulPreferenceCreate);
  GALLEY_LT(preference_destroy, cublasLtMatmulPreferenceDestroy);
  GALLEY_LT(preference_set, cublasLtMatmulPreferenceSetAttribute);
  GALLEY_LT(create, cublasLtCreate);
  GALLEY_LT(version_number, cublasLtGetVersion);
  GALLEY_LT(status_name, cublasLtGetStatusName);
#undef GALLEY_LT

  cublasLtHandle_t handle() const { return handle_; }
  std::string version() const { return dotted_version(version_number()); }
  /// Throws what a status says, with the call's name.
  void check(cublasStatus_t status, const char* call) const {
    if (status != CUBLAS_STATUS_SUCCESS) throw sdk::Failure(GALLEY_FAILED, library_.path() + ": " + call + ": " + status_name(status));
  }

 private:
  static std::vector<std::string> names(const std::string& planned) {
    std::vector<std::string> out = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
    if (const int major = std::atoi(planned.c_str()); major > 0) out.insert(out.begin(), "libcublasLt.so." + std::to_string(major));
    return out;
  }
  explicit Lt(const std::string& planned)
      : library_("cuBLASLt", "GALLEY_CUBLASLT", names(planned),
                 "install cuBLAS " + planned + ", or set GALLEY_CUBLASLT to the path of libcublasLt.so") {
    check(create(&handle_), "cublasLtCreate");
  }

  cublasLtHandle_t handle_ = nullptr;
};

}  // namespace galley::cuda
