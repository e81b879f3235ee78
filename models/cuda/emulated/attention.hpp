// What stands in for cuDNN's attention where CUDA is emulated: plain loops over rows, on the host's threads, in F64. As in cuDNN's graphs
// (ops/attention/fused_cudnn.hpp), probabilities and the gradients of scores are rounded to 16 bits before they are multiplied. Backward
// uses what it asked of its workspace, as the library would: an overlap with another operand shows.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "galley/cuda/number.hpp"
#include "ops/attention/fused.hpp"

namespace galley::models {

class FusedLoops {
 public:
  FusedLoops(const FusedForm& form, const FusedOperands& a) : f_(form), a_(a) {}

  void forward() const {
    each(f_.B * f_.heads, [&](int64_t head) {
      std::vector<double> p(static_cast<size_t>(f_.S)), o(static_cast<size_t>(f_.D));
      for (int64_t i = 0; i < f_.S; ++i) {
        double largest = -HUGE_VAL, sum = 0;
        for (int64_t j = 0; j <= i; ++j) largest = std::max(largest, p[size_t(j)] = score(head, i, j));
        for (int64_t j = 0; j <= i; ++j) sum += p[size_t(j)] = std::exp(p[size_t(j)] - largest);
        std::fill(o.begin(), o.end(), 0.0);
        for (int64_t j = 0; j <= i; ++j) {
          const double weight = rounded(p[size_t(j)] / sum);
          for (int64_t d = 0; d < f_.D; ++d) o[size_t(d)] += weight * at(a_.v, kv(head, j) + d);
        }
        for (int64_t d = 0; d < f_.D; ++d) store(a_.o, o_at(head, i) + d, o[size_t(d)]);
        a_.lse[lse(head, i)] = static_cast<float>(largest + std::log(sum));
      }
    });
  }

  /// `sums` (B, heads, S).
  void backward(float* sums) const {
    const auto numbers = static_cast<size_t>(f_.S * f_.D);
    each(f_.B * f_.kv_heads, [&](int64_t group) {
      std::vector<double> dk(numbers), dv(numbers), dq(static_cast<size_t>(f_.D));
      const int64_t heads = f_.heads / f_.kv_heads;
      for (int64_t head = group * heads; head < (group + 1) * heads; ++head)
        for (int64_t i = 0; i < f_.S; ++i) {
          float& delta = sums[head * f_.S + i] = 0;
          for (int64_t d = 0; d < f_.D; ++d) delta += static_cast<float>(at(a_.go, o_at(head, i) + d) * at(a_.o, o_at(head, i) + d));
          std::fill(dq.begin(), dq.end(), 0.0);
          for (int64_t j = 0; j <= i; ++j) {
            double dp = 0;
            for (int64_t d = 0; d < f_.D; ++d) dp += at(a_.go, o_at(head, i) + d) * at(a_.v, kv(head, j) + d);
            const double p = std::exp(score(head, i, j) - static_cast<double>(a_.lse[lse(head, i)]));
            // Of one key the probability is 1 whatever the score. With an o that forward has made, dp is delta; test cases draw o.
            const double ds = i == 0 ? 0 : rounded(p * (dp - static_cast<double>(delta)) * static_cast<double>(f_.scale));
            const double weight = rounded(p);
            for (int64_t d = 0; d < f_.D; ++d) {
              dq[size_t(d)] += ds * at(a_.k, kv(head, j) + d);
              dk[size_t(j * f_.D + d)] += ds * at(a_.q, q(head, i) + d);
              dv[size_t(j * f_.D + d)] += weight * at(a_.go, o_at(head, i) + d);
            }
          }
          for (int64_t d = 0; d < f_.D; ++d) store(a_.dq, q(head, i) + d, dq[size_t(d)]);
        }
      for (int64_t j = 0; j < f_.S; ++j)
        for (int64_t d = 0; d < f_.D; ++d) {
          store(a_.dk, kv(group * heads, j) + d, dk[size_t(j * f_.D + d)]);
          store(a_.dv, kv(group * heads, j) + d, dv[size_t(j * f_.D + d)]);
        }
    });
  }

 private:
  template <class Body>
  static void each(int64_t count, const Body& body) {
    if (sdk::host() && count > 1) return sdk::parallel(count, body);
    for (int64_t i = 0; i < count; ++i) body(i);
  }
  // Indices of a head's first number at a position; `head`: of all sequences.
  int64_t q(int64_t head, int64_t i) const { return (head / f_.heads * f_.S + i) * f_.q_row + head % f_.heads * f_.q_head; }
  int64_t kv(int64_t head, int64_t j) const {
    return (head / f_.heads * f_.S + j) * f_.kv_row + head % f_.heads / (f_.heads / f_.kv_heads) * f_.kv_head;
  }
  int64_t o_at(int64_t head, int64_t i) const { return (head / f_.heads * f_.S + i) * f_.o_row + head % f_.heads * f_.D; }
  int64_t lse(int64_t head, int64_t i) const { return (head / f_.heads * f_.lse_heads + head % f_.heads) * f_.S + i; }

  double score(int64_t head, int64_t i, int64_t j) const {
    double sum = 0;
    for (int64_t d = 0; d < f_.D; ++d) sum += at(a_.q, q(head, i) + d) * at(a_.k, kv(head, j) + d);
    return sum * static_cast<double>(f_.scale);
  }
  double at(const void* data, int64_t index) const {
    cuda::Reader reader;
    reader.data = data;
    reader.dtype = f_.dtype;
    return static_cast<double>(reader.at(index));
  }
  double rounded(double x) const { return static_cast<double>(cuda::rounded(static_cast<float>(x), f_.dtype)); }
  void store(void* data, int64_t index, double x) const { cuda::store_numbers<1>(data, f_.dtype, index, 1, {static_cast<float>(x)}); }

  const FusedForm& f_;
  const FusedOperands& a_;
};

}  // namespace galley::models
