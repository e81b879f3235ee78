// What follows a product in a chain ("linear>gelu", "linear>add"): each block of the product passes through it while it is in the cache,
// with the bits that it would have in its dtype. So a product that nobody else reads has no memory, but for blocks in the workspace.
#pragma once

#include <string_view>

#include "cpu/number.hpp"
#include "galley/cpp/groups.hpp"
#include "ops/activation/functions.hpp"

namespace galley::cpu {

class Activation {
 public:
  /// Throws where the two nodes cannot be a chain.
  static void check(const sdk::Node& product, const sdk::Node& link) {
    if (!all_numbers(link)) sdk::unsupported("dtypes");
    if (product.accumulates(0)) sdk::unsupported("a product that is added to");
    if (!(product.out(0).flags & GALLEY_OPERAND_NO_MEMORY)) sdk::unsupported("a product that others read: no faster than apart");
    const bool first = sdk::same_operand(product.out(0), link.in(0));
    const bool second = link.has(1) && sdk::same_operand(product.out(0), link.in(1));
    if (first == second) sdk::unsupported("the activation of something else than the product");
    if (is_gated(link) && !link.has(1)) sdk::unsupported("a gate beside what it multiplies, in one product");
    if (!is_sum(link)) return;
    if (link.f("alpha", 1) != 1) sdk::unsupported("a multiple of the product");
    if (!is_thin(product)) sdk::unsupported("only thin products go into a sum");
    if (link.in(1 - (first ? 0 : 1)).dtype != product.out(0).dtype || link.out(0).dtype != product.out(0).dtype)
      sdk::unsupported("a sum of several dtypes");
  }
  /// An adapter's B adds to what the layer makes: its time is that of its output, which a sum of its own would read and write once more.
  /// Sums after a model's own layers are left to the norms that read them.
  static bool is_thin(const sdk::Node& product) {
    const int64_t terms = sdk::columns(product.in(0));
    return terms <= 256 && 2 * terms <= sdk::columns(product.out(0));
  }
  static bool is_gated(const sdk::Node& link) { return std::string_view(link.view()->op) == "swiglu"; }
  static bool is_sum(const sdk::Node& link) { return std::string_view(link.view()->op) == "add"; }

  Activation(const sdk::Node& product, const sdk::Node& link)
      : place_(sdk::same_operand(product.out(0), link.in(0)) ? 0 : 1),
        dtype_(product.out(0).dtype),
        row_(sdk::columns(product.out(0))),
        other_(link, 1 - place_),
        y_(link, 0),
        function_(function_of(link)),
        addend_(is_sum(link) ? link.in(1 - place_).data : nullptr),
        sum_(link.out(0).data) {}

  /// The block of the product's rows i … i + rows − 1 and columns j … j + n − 1, which lies at `c` in rows of `ldc` numbers.
  void block(int64_t i, int64_t j, int64_t rows, int64_t n, const void* c, int64_t ldc) const {
    for (int64_t r = 0; r < rows; ++r) row(i + r, j, n, c, r * ldc);
  }
  /// n numbers of row i from column j on; they are those of `c` from `from` on.
  void row(int64_t i, int64_t j, int64_t n, const void* c, int64_t from) const {
    Buffer buffers[3];
    in_runs(0, n, run_length, [&](int64_t first, int64_t size) {
      const int64_t at = i * row_ + j + first;
      const float* x = static_cast<const float*>(c) + from + first;
      if (dtype_ != GALLEY_F32) {
        load(c, dtype_, from + first, size, buffers[0].numbers);
        x = buffers[0].numbers;
      }
      const float* const other = other_ ? other_.read(at, size, buffers[1]) : nullptr;
      float* const to = y_.open(at, size, buffers[2]);
      function_(place_ == 0 ? x : other, place_ == 0 ? other : x, to, size);
      y_.close(at, size, to);
    });
  }

  /// Of a sum: what is added to, and where the sum goes.
  const void* addend() const { return addend_; }
  void* sum() const { return sum_; }

 private:
  using Function = void (*)(const float* a, const float* b, float* y, int64_t n);
  static float plus(float a, float b) { return a + b; }
  template <float (*f)(float)>
  static void one(const float* x, const float*, float* y, int64_t n) {
    GALLEY_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) y[i] = f(x[i]);
  }
  template <float (*f)(float, float)>
  static void two(const float* a, const float* b, float* y, int64_t n) {
    GALLEY_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) y[i] = f(a[i], b[i]);
  }
  static Function function_of(const sdk::Node& link) {
    const std::string_view op = link.view()->op;
    if (op == "gelu") return link.s("approximate", "none") == "tanh" ? one<gelu_tanh> : one<gelu_erf>;
    if (op == "silu") return one<silu>;
    if (op == "relu") return one<relu>;
    if (op == "add") return two<plus>;
    return by_gate(link, [](auto gate) -> Function { return two<gated<decltype(gate)>>; });
  }

  uint32_t place_, dtype_;  ///< which operand the product is, and its dtype
  int64_t row_;
  Input other_;
  Output y_;
  Function function_;
  const void* addend_;
  void* sum_;
};

}  // namespace galley::cpu
