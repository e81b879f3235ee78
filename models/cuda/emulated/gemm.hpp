// What stands in for cuBLASLt where CUDA is emulated: plain loops over rows, on the host's threads. Sums are made in F64 and rounded to
// F32, then to the dtype of C. A row of C is computed alone, so it has the same bytes wherever it lies.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "cuda/gemm.hpp"

namespace galley::cuda {

class GemmEngine {
 public:
  /// GALLEY_EMULATED_LT_REFUSES=1: a library that has no algorithm for anything; =known: for what the real one is known to refuse.
  explicit GemmEngine(const GemmSetup& setup) : setup_(setup) {
    const char* const refuses = std::getenv("GALLEY_EMULATED_LT_REFUSES");
    if (refuses && (std::strcmp(refuses, "known") != 0 || known_to_be_refused(setup.products.front())))
      throw NoAlgorithm(GALLEY_UNSUPPORTED, "cuBLASLt, emulated, " + text(setup.products.front()) + ": it has no algorithm");
    const galley_choices* const choices = setup.choices;
    const std::string key = "loops: " + text(setup.products.front());
    if (choices && !choices->find(choices->self, key.c_str())) choices->keep(choices->self, key.c_str(), "the only ones");
  }

  bool reads_addresses() const { return setup_.products.size() > 1; }
  void run(galley_queue* queue) const {
    put(queue, [setup = setup_] { run_now(setup); });
  }

 private:
  static constexpr int64_t kRows = 16;  // of C at a time: what is converted of B serves all of them

  /// By versions of cuBLASLt, as what PyTorch keeps from it says (aten/src/ATen/native/cuda/Blas.cpp: _int_mm takes more than 16 rows and multiples
  /// of 8, addmm of one row or column has no bias there); and odd rows of 16 bit, which are aligned to 2 bytes.
  static bool known_to_be_refused(const Matmul& p) {
    if (p.compute == Compute::I32) return p.m <= 16 || p.n % 8 != 0 || p.k % 8 != 0;
    const bool odd = (p.a_row() | p.b_row() | p.n) % 2 != 0;
    return (p.has_bias && (p.m == 1 || p.n == 1)) || (odd && p.dtype != GALLEY_F32);
  }

  static void run_now(const GemmSetup& setup) {
    // As an algorithm might: whatever must outlive a product has to lie elsewhere.
    const auto junk = static_cast<size_t>(std::min<int64_t>(setup.workspace_bytes, 4096));
    std::memset(setup.workspace, 0xFF, junk);
    std::memset(static_cast<char*>(setup.workspace) + setup.workspace_bytes - junk, 0xFF, junk);
    const size_t count = setup.products.size();
    for (size_t i = 0; i < count; ++i) {
      Matmul p = setup.products.front();  // of all but the addresses
      p.bias = setup.bias;
      if (count > 1) {
        p.a = setup.addresses[i];
        p.b = setup.addresses[count + i];
        p.c = const_cast<void*>(setup.addresses[2 * count + i]);
      }
      multiply(p);
    }
  }

  static void multiply(const Matmul& p) {
    const int64_t blocks = (p.m + kRows - 1) / kRows;
    const auto block = [&p](int64_t i) { rows(p, i * kRows, std::min(kRows, p.m - i * kRows)); };
    if (sdk::host() && blocks > 1) return sdk::parallel(blocks, block);
    for (int64_t i = 0; i < blocks; ++i) block(i);
  }

  /// Rows first … first + count − 1 of C.
  static void rows(const Matmul& p, int64_t first, int64_t count) {
    std::vector<double> a(static_cast<size_t>(count * p.k)), b(static_cast<size_t>(p.b_row())), sums(static_cast<size_t>(count * p.n));
    for (int64_t r = 0; r < count; ++r)
      load(p, p.a, p.a_transposed ? first + r : (first + r) * p.k, p.a_transposed ? p.m : 1, p.k, &a[static_cast<size_t>(r * p.k)]);
    for (int64_t i = 0; i < (p.b_transposed ? p.n : p.k); ++i) {
      load(p, p.b, i * p.b_row(), 1, p.b_row(), b.data());
      for (int64_t r = 0; r < count; ++r) {
        const double* const row = &a[static_cast<size_t>(r * p.k)];
        double* const sum = &sums[static_cast<size_t>(r * p.n)];
        if (p.b_transposed) sum[i] = dot(row, b.data(), p.k);
        else
          for (int64_t j = 0; j < p.n; ++j) sum[j] += row[i] * b[static_cast<size_t>(j)];
      }
    }
    for (int64_t r = 0; r < count; ++r) finish(p, first + r, &sums[static_cast<size_t>(r * p.n)]);
  }

  static void finish(const Matmul& p, int64_t row, const double* sums) {
    if (p.compute == Compute::I32) {
      for (int64_t j = 0; j < p.n; ++j) static_cast<int32_t*>(p.c)[row * p.n + j] = static_cast<int32_t>(sums[j]);
      return;
    }
    Reader bias, held, product;
    bias.data = p.bias;
    bias.dtype = p.c_dtype;
    held.data = p.c;
    product.data = p.product;
    held.dtype = product.dtype = p.c_dtype;
    for (int64_t j = 0; j < p.n; ++j) {
      const int64_t at = row * p.n + j;
      double sum = static_cast<double>(p.alpha) * sums[j];
      if (p.adds) sum += static_cast<double>(held.at(at));
      if (p.has_bias) sum += static_cast<double>(bias.at(j));
      auto y = static_cast<float>(sum);
      if (p.keeps_product) store(p.product, p.c_dtype, at, y);
      if (p.epilogue == Epilogue::Relu) y = y > 0.0f ? y : 0.0f;
      if (p.epilogue == Epilogue::Gelu) y = gelu(y);
      if (p.epilogue == Epilogue::GeluGrad) y *= gelu_slope(product.at(at));
      store(p.c, p.c_dtype, at, y);
    }
  }

  static float tanh_of(float x) { return std::tanh(0.797884561f * (x + 0.044715f * x * x * x)); }
  static float gelu(float x) { return 0.5f * x * (1.0f + tanh_of(x)); }
  static float gelu_slope(float x) {
    const float t = tanh_of(x);
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * 0.797884561f * (1.0f + 3.0f * 0.044715f * x * x);
  }

  /// Eight sums beside each other, so that the compiler makes vectors of them.
  static double dot(const double* x, const double* y, int64_t n) {
    double sums[8] = {};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
      for (int64_t k = 0; k < 8; ++k) sums[k] += x[i + k] * y[i + k];
    for (int64_t k = 0; i + k < n; ++k) sums[k] += x[i + k] * y[i + k];
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
  }
  static void load(const Matmul& p, const void* data, int64_t at, int64_t stride, int64_t n, double* to) {
    if (p.dtype == GALLEY_I8)
      std::transform(static_cast<const int8_t*>(data) + at, static_cast<const int8_t*>(data) + at + n, to, [](int8_t x) { return x; });
    else if (p.dtype == GALLEY_BF16) widen_all(static_cast<const Bf16*>(data) + at, stride, n, to);
    else if (p.dtype == GALLEY_F16) widen_all(static_cast<const F16*>(data) + at, stride, n, to);
    else widen_all(static_cast<const float*>(data) + at, stride, n, to);
    if (p.compute == Compute::Tf32) std::transform(to, to + n, to, tf32);
  }
  /// Rounded to 10 bits of mantissa.
  static double tf32(double x) {
    int exponent = 0;
    const double fraction = std::frexp(x, &exponent);
    return std::ldexp(std::nearbyint(std::ldexp(fraction, 11)), exponent - 11);
  }
  template <class T>
  static void widen_all(const T* from, int64_t stride, int64_t n, double* to) {
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<double>(sdk::to_float(from[i * stride]));
  }
  static void store(void* data, uint32_t dtype, int64_t at, float x) {
    if (dtype == GALLEY_BF16) narrow(x, static_cast<Bf16*>(data)[at]);
    else if (dtype == GALLEY_F16) narrow(x, static_cast<F16*>(data)[at]);
    else static_cast<float*>(data)[at] = x;
  }

  GemmSetup setup_;
};

}  // namespace galley::cuda
