// Products of matrices by cuBLASLt: C (m, n) = A (m, k) · B (k, n), in rows, and in the same pass a bias, what C held, an activation. Sums
// are made in F32 and rounded once; in 16 bit cuBLASLt may round them before, too, where it adds to what C held or multiplies by GELU's
// slope. Where there is no cuBLASLt to call, because CUDA is emulated, loops on the host's threads stand in for it (emulated/gemm.hpp);
// all else is the same.
//
//   query:        if (const char* why = Gemm::refusal(product, target)) unsupported(why);
//                 plan.workspace_bytes = Gemm::workspace_bytes(product, 1, target);
//   constructor:  Gemm gemm(node.name(), {product}, setup);
//   run:          gemm.run(queue);
//
// Algorithms. The heuristic's first one within the workspace is taken, once, while the kernel is prepared; where the host gives choices,
// the fastest of its first eight, which is measured once for each form. It is searched for one product at a time, and for addresses as
// aligned as rows are: so a product has the same bytes alone, in a group, at any row of a tensor and in every run. It does depend on the
// number of rows.
//
// Bias. cuBLASLt wants it in the dtype of C, so one in another dtype is copied into the workspace before each product. Addresses of several
// products are written there, too: constants would not let the host group products.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cuda/library.hpp"
#include "cuda/workspace.hpp"
#include "galley/cuda/elementwise.hpp"

namespace galley::cuda {

/// What sums are made of.
enum class Compute : uint8_t {
  F32,   ///< of F32, BF16 or F16 as they are
  Tf32,  ///< of F32 with 10 bits of mantissa
  I32,   ///< of I8, into I32
};

/// What follows a product. Gelu is the form by tanh.
enum class Epilogue : uint8_t { None, Relu, Gelu, GeluGrad };

/// A product. Addresses are null at plan time.
struct Matmul {
  int64_t m = 0, n = 0, k = 0;
  bool a_transposed = false;  ///< A is stored (k, m)
  bool b_transposed = false;  ///< B is stored (n, k)
  uint32_t dtype = GALLEY_F32, c_dtype = GALLEY_F32;
  Compute compute = Compute::F32;
  bool adds = false;  ///< to what C holds
  float alpha = 1;    ///< the product is multiplied by this before anything is added
  bool has_bias = false;
  uint32_t bias_dtype = GALLEY_F32;
  Epilogue epilogue = Epilogue::None;
  bool keeps_product = false;  ///< of Gelu: `product` is written

  const void *a = nullptr, *b = nullptr, *bias = nullptr;  // bias (n)
  void* c = nullptr;
  void* product = nullptr;  ///< (m, n) in the dtype of C: what Gelu was applied to; GeluGrad reads it

  int64_t a_row() const { return a_transposed ? m : k; }
  int64_t b_row() const { return b_transposed ? k : n; }
};

inline const char* dtype_text(uint32_t dtype) {
  return dtype == GALLEY_F32    ? "f32"
         : dtype == GALLEY_BF16 ? "bf16"
         : dtype == GALLEY_F16  ? "f16"
         : dtype == GALLEY_I8   ? "i8"
         : dtype == GALLEY_I32  ? "i32"
                                : "another dtype";
}
/// "A (64 x 768) B (768 x 3072), bf16 to f32": for messages.
inline std::string text(const Matmul& p) {
  const auto shape = [](int64_t rows, int64_t columns, bool transposed) {
    return "(" + std::to_string(rows) + " x " + std::to_string(columns) + (transposed ? ", transposed)" : ")");
  };
  return "A " + shape(p.m, p.k, p.a_transposed) + " B " + shape(p.k, p.n, p.b_transposed) + ", " + dtype_text(p.dtype) + " to " +
         dtype_text(p.c_dtype) + (p.compute == Compute::Tf32 ? ", in tf32" : "") + (p.has_bias ? ", with a bias" : "") +
         (p.adds ? ", added" : "") +
         (p.epilogue == Epilogue::Relu       ? ", then ReLU"
          : p.epilogue == Epilogue::Gelu     ? ", then GELU"
          : p.epilogue == Epilogue::GeluGrad ? ", times the slope of GELU"
                                             : "");
}

/// cuBLASLt knows no algorithm for a product, though its version takes such products as a rule: whoever asked makes it in another way.
class NoAlgorithm : public sdk::Failure {
 public:
  using Failure::Failure;
  /// Warns of it, once for each product that is asked for. [thread-safe]
  void warn(const char* instead) const {
    static std::mutex mutex;
    static std::set<std::string> said;
    const std::lock_guard lock(mutex);
    if (const galley_host* host = sdk::host(); host && said.insert(what()).second)
      host->log(host->context, GALLEY_LOG_WARNING, (std::string(what()) + "; " + instead).c_str());
  }
};

namespace detail {

struct SameNumber {
  __device__ float operator()(float x) const { return x; }
};

/// Addresses as an argument of a launch.
struct Addresses {
  static constexpr int kMost = 480;
  const void* at[kMost];
  int count;
};
template <class Table>
__global__ void __launch_bounds__(256) write_addresses(GALLEY_LARGE(Table) from, const void** to) {
  for (int i = static_cast<int>(threadIdx.x); i < from.count; i += 256) to[i] = from.at[i];
}

}  // namespace detail

/// What an engine is given: products of one form (several only if they can be batched), and what the form asked for.
struct GemmSetup {
  std::string name;
  std::vector<Matmul> products;
  const void* bias;  ///< in the dtype of C
  std::string version;
  void* workspace;
  int64_t workspace_bytes;
  /// In device memory, for several products: the addresses of all A, then of all B, then of all C.
  const void* const* addresses;
  const galley_choices* choices;  ///< null: nothing is measured
  galley_queue* queue;            ///< to measure on
};

}  // namespace galley::cuda

// The tests compile the calls of cuBLASLt for a cuBLASLt of their own (tests/gpu/cublaslt_test.cpp).
#if GALLEY_CUDA_EMULATED && !defined(GALLEY_TEST_CUBLASLT)
#include "cuda/emulated/gemm.hpp"
#else
#include "cuda/gemm_cublaslt.hpp"
#endif

namespace galley::cuda {

class Gemm {
 public:
  /// Why a product is not for cuBLASLt; null if it is.
  static const char* refusal(const Matmul& p, const galley_target& target) {
    if (!library_version(target, "cublaslt")) return "the target lists no library cublaslt";
    if (p.compute == Compute::I32) {
      if (p.dtype != GALLEY_I8 || p.c_dtype != GALLEY_I32 || p.adds || p.alpha != 1 || p.has_bias || p.epilogue != Epilogue::None)
        return "dtypes: cublaslt makes I32 of I8, and nothing after it";
      if (p.a_transposed || !p.b_transposed || p.n % 4 != 0 || p.k % 4 != 0)
        return "cublaslt multiplies I8 in rows of multiples of 4, A (m, k) by B stored (n, k)";
    } else if (!is_number(p.dtype) || (p.c_dtype != p.dtype && p.c_dtype != GALLEY_F32) || (p.has_bias && !is_number(p.bias_dtype)))
      return "dtypes: cublaslt makes F32, or what it multiplies";
    if (p.m < 1 || p.n < 1 || p.k < 1) return "an empty product";
    return nullptr;
  }

  /// `products`: how many of this form are made together.
  static int64_t workspace_bytes(const Matmul& p, size_t products, const galley_target& target) {
    return kAlignment + bias_bytes(p) + table_bytes(products) + library_bytes(p, products, target);
  }

  /// Whether several products of this form are made in one call.
  static bool batches(const Matmul& p) { return !p.has_bias && p.epilogue == Epilogue::None; }
  static bool same_form(const Matmul& p, const Matmul& q) {
    return p.m == q.m && p.n == q.n && p.k == q.k && p.a_transposed == q.a_transposed && p.b_transposed == q.b_transposed &&
           p.dtype == q.dtype && p.c_dtype == q.c_dtype && p.compute == q.compute && p.adds == q.adds && p.alpha == q.alpha;
  }
  /// `products`: one, or several of one form that batches, which do not depend on each other. Fails if cuBLASLt cannot be
  /// opened; throws NoAlgorithm if it has none for them.
  Gemm(const char* name, const std::vector<Matmul>& products, const galley_kernel_setup& setup)
      : form_(products.front()), engine_(prepare(name, products, setup)) {}

  void run(galley_queue* queue) const {
    if (converted_bias_) {
      Reader from;
      from.data = form_.bias;
      from.dtype = form_.bias_dtype;
      Writer to;
      to.data = converted_bias_;
      to.dtype = form_.c_dtype;
      launch(detail::map_numbers<detail::SameNumber>, map_grid(form_.n), queue, from, to, form_.n, detail::SameNumber());
    }
    int64_t written = 0;
    if (!engine_.reads_addresses()) return engine_.run(queue);
    for (const detail::Addresses& part : addresses_) {
      launch(detail::write_addresses<detail::Addresses>, {1, 256}, queue, part, table_ + written);
      written += part.count;
    }
    engine_.run(queue);
  }

 private:
  static constexpr int64_t kAlignment = kWorkspaceAlignment;
  static constexpr int64_t kVector = 16;  // the bytes that cuBLASLt reads of a bias at a time

  static int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
  static int64_t bias_bytes(const Matmul& p) { return p.has_bias ? aligned(p.n * galley_dtype_bytes(p.c_dtype)) : 0; }
  static int64_t table_bytes(size_t products) { return products > 1 ? aligned(static_cast<int64_t>(3 * products * sizeof(void*))) : 0; }
  /// What an algorithm may ask for: as much as cuBLAS itself sets aside, 32 MiB on Hopper and later ones.
  static int64_t library_bytes(const Matmul& p, size_t products, const galley_target& target) {
    const int64_t most = int64_t{architecture(target) >= 90 ? 32 : 8} << 20,
                  left = target.workspace_budget - kAlignment - bias_bytes(p) - table_bytes(products);
    return left < 0 ? 0 : left < most ? left : most;
  }

  GemmSetup prepare(const char* name, const std::vector<Matmul>& products, const galley_kernel_setup& setup) {
    char* const memory = aligned_workspace(setup.workspace);
    GemmSetup out = {name,
                     products,
                     form_.bias,
                     library_version(*setup.target, "cublaslt"),
                     memory + bias_bytes(form_) + table_bytes(products.size()),
                     library_bytes(form_, products.size(), *setup.target),
                     nullptr,
                     setup.choices,
                     setup.queue};
    if (form_.has_bias && (form_.bias_dtype != form_.c_dtype || reinterpret_cast<uintptr_t>(form_.bias) % kVector != 0))
      out.bias = converted_bias_ = memory;
    if (products.size() > 1) {
      table_ = reinterpret_cast<const void**>(memory + bias_bytes(form_));
      out.addresses = table_;
      for (const Matmul& p : products) add_address(p.a);
      for (const Matmul& p : products) add_address(p.b);
      for (const Matmul& p : products) add_address(p.c);
    }
    return out;
  }

  void add_address(const void* address) {
    if (addresses_.empty() || addresses_.back().count == detail::Addresses::kMost) addresses_.emplace_back();
    addresses_.back().at[addresses_.back().count++] = address;
  }

  Matmul form_;
  void* converted_bias_ = nullptr;
  const void** table_ = nullptr;
  std::vector<detail::Addresses> addresses_;  ///< what the table gets
  GemmEngine engine_;
};

}  // namespace galley::cuda
