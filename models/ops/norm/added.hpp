// What norms read on CUDA in the chains add>layer_norm and add>rms_norm: a + alpha·b, which is made where it is read. Where others read the
// sum too, it is also written, with the bits that the op `add` gives it; where not, it never reaches memory.
#pragma once

#include "cuda/rows.hpp"

namespace galley::models {

struct Summed {
  static constexpr int kWidth = 1;
  struct Raw {
    cuda::Packed a, b;
  };
  cuda::Reader a, b;
  cuda::Writer kept;  // the sum, if others read it
  uint32_t dtype;     // of the sum
  float alpha;

  explicit Summed(const sdk::Node& add)
      : a(add, 0), b(add, 1), kept(add, 0), dtype(add.out(0).dtype), alpha(static_cast<float>(add.f("alpha", 1))) {}

  // What is kept may lie in the place of a: it is read there after the first time.
  template <bool again>
  __device__ void fetch(int64_t at, int n, Raw& raw) const {
    if (again && kept.there()) {
      cuda::Reader reader;
      reader.data = kept.data;
      reader.dtype = dtype;
      raw.a = cuda::fetch(reader, at, n);
    } else {
      raw.a = cuda::fetch(a, at, n);
      raw.b = cuda::fetch(b, at, n);
    }
  }
  template <bool again>
  __device__ void value(const Raw& raw, int64_t at, int, int n, float (&to)[1][cuda::kPack]) const {
    if (again && kept.there()) return unpack(raw.a, dtype, to[0]);
    float other[cuda::kPack];
    unpack(raw.a, a.dtype, to[0]);
    unpack(raw.b, b.dtype, other);
#pragma unroll
    for (int i = 0; i < cuda::kPack; ++i)
      to[0][i] = cuda::rounded(alpha == 1.0f ? to[0][i] + other[i] : fmaf(alpha, other[i], to[0][i]), dtype);
    if (!again && kept.there()) kept.store(at, n, to[0]);
  }
};

/// The kernel of such a chain.
template <void (*Norm)(const sdk::Node&, const Summed&, galley_queue*), bool (*Supports)(const sdk::Node&)>
class AddedNorm {
 public:
  static void query(const sdk::Nodes& nodes, const galley_target&, galley_kernel_plan&) {
    if (nodes.size() != 2) sdk::unsupported("one chain at a time");
    if (!cuda::all_numbers(nodes[0]) || !Supports(nodes[1])) sdk::unsupported("dtypes or shapes");
    if (nodes[0].accumulates(0)) sdk::unsupported("a sum that is added to");
    if (!sdk::same_operand(nodes[0].out(0), nodes[1].in(0))) sdk::unsupported("a sum that is not what is normed");
  }
  AddedNorm(const sdk::Nodes& nodes, const galley_kernel_setup&) : add_(nodes[0]), norm_(nodes[1]) {}
  void run(galley_queue* queue) const { Norm(norm_, Summed(add_), queue); }

 private:
  sdk::Node add_, norm_;
};

}  // namespace galley::models
