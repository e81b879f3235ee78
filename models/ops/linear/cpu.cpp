// Linear layers on oneDNN 2.6: y = x·Wᵀ + b, dx = dy·W, dW = dyᵀ·x, in F32, for both layouts of a weight. Processors with 512-bit vectors only: below, oneDNN
// takes another path, which allocates by itself and splits sums by threads; cpu_blocked.cpp serves those.
//
// Which primitive. `matmul` for all three: it has a declared scratchpad and adds by a `sum` post-op. `inner_product` (a gemm inside) is up to 10 % faster for
// dW and dx, up to 40 % slower elsewhere, allocates by itself and cannot add. With 2 threads of a Zen 4 at 256 rows, shares of the FMA peak (235 GF),
// matmul | inner_product, dW added by the one and written by the other:
//     K → N                y             dx            dW
//     768 → 768          .95 | .86     .99 | .99     .96 | .99
//     768 → 768, T       .99 | .98     .97 | .86     .95 | .99
//     768 → 3072, T      .92 | .87     .93 | .60     .80 | .83
//     576 → 1536         .97 | .89     .99 | .99     .97 | .99
//     576 → 49152        .90 | .78     .87 | .97     .85 | .88
// Against our own product: the table in cpu_blocked.cpp (tests/models/bench_kernels). A sum costs 1–8 %; operands off a cache line cost up to a quarter.
//
// Workspace. A plan is a function of the target, not of the machine that makes it, so the scratchpad is bounded by a formula from oneDNN's own choice of
// blocks (brgemm_matmul_utils.cpp, v2.6.3) and compared with the real one in `prepare`.
//
// Bits. Within `matmul` a sum over k runs in blocks of 512 or 1,024 that depend on the shape alone, for any number of threads, with one exception: with 2,048
// or more rows it may split the sums of a narrow dW between threads. dW is therefore made of pieces of at most 512 rows, each adding to the last. With that
// all shapes of tests/models/bench_linear.cpp give the same bytes with 1, 2, 3 and 8 threads.
#if defined(GALLEY_CPU_LEVEL) && GALLEY_CPU_LEVEL >= 4

#include <array>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "cpu/vector.hpp"
#include "ops/linear/roles.hpp"

// oneDNN's threads are OpenMP's, and a primitive is made for as many as there are at that moment. Weak: the library comes with oneDNN, or not at all.
extern "C" {
__attribute__((weak)) int omp_get_max_threads();
__attribute__((weak)) void omp_set_num_threads(int);
}

namespace {

using namespace galley::sdk;
using galley::cpu::Multiply;
using galley::cpu::product_of;
using galley::cpu::round_up;

constexpr int64_t piece_rows = 512;

// The pieces of dW's rows, as even as they can be; one piece for the other roles.
int64_t pieces(const Multiply& p) { return a_transposed(p) ? (p.k + piece_rows - 1) / piece_rows : 1; }

// At least what matmul asks for: for each thread a block of B where its columns are not contiguous (or lie a large power of two apart), one of A where
// it is transposed, and sums where k has several blocks and C is added to.
int64_t scratchpad_bound(const Multiply& p, int64_t threads) {
  const int64_t k = (p.k + pieces(p) - 1) / pieces(p), depth = std::min<int64_t>(k, k > 1024 ? 1024 : 512);
  const bool power = p.n > 256 && (p.n & (p.n - 1)) == 0;
  int64_t floats = 0;
  if (b_transposed(p) || power || p.n == 1 || p.k == 1) floats += 64 * round_up(depth, 16);
  if (a_transposed(p) || p.m == 1 || p.k == 1) floats += std::min<int64_t>(p.m, 256) * (round_up(depth, 16) + 16);
  if (k > depth) floats += std::min<int64_t>(p.m, 256) * 64;
  return threads * (floats * static_cast<int64_t>(sizeof(float)) + 512) + 4096;
}

dnnl::engine& engine() {
  static dnnl::engine e(dnnl::engine::kind::cpu, 0);
  return e;
}
dnnl::stream& stream() {
  static dnnl::stream s(engine());
  return s;
}

class Threads {
 public:
  explicit Threads(int64_t n) : before_(omp_get_max_threads ? omp_get_max_threads() : 0) {
    if (before_) omp_set_num_threads(static_cast<int>(n));
  }
  ~Threads() {
    if (before_) omp_set_num_threads(before_);
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

class OneDnn {
 public:
  static void query(const Node& node, const galley_target& target, galley_kernel_plan& plan) {
    if (!galley::cpu::all_f32(node)) unsupported("F32 only");
    plan.workspace_bytes = scratchpad_bound(product_of(node), target.threads);
    plan.priority = 1;
  }

  OneDnn(const Node& node, const galley_kernel_setup& setup) : OneDnn(node, *setup.target, setup.workspace) {}
  OneDnn(const Node& node, const galley_target& target, void* workspace) {
    const Multiply whole = product_of(node);
    const int64_t bound = scratchpad_bound(whole, target.threads), n = pieces(whole);
    const Threads threads(target.threads);
    calls_.reserve(static_cast<size_t>(n));
    for (int64_t piece = 0; piece < n; ++piece) {
      Multiply p = whole;
      const int64_t first = whole.k * piece / n;
      p.k = whole.k * (piece + 1) / n - first;
      p.a += first * p.a_step;
      p.b += first * p.b_row;
      p.add = whole.add || piece > 0;
      calls_.push_back(make(node, p, bound, workspace));
    }
  }

  void run() const {
    for (const Call& call : calls_)
      if (dnnl_primitive_execute(call.primitive.get(), stream().get(), static_cast<int>(call.count), call.arguments.data()) != dnnl_success)
        throw Failure(GALLEY_FAILED, "oneDNN failed to execute a product");
  }

 private:
  struct Call {
    dnnl::matmul primitive;
    std::array<dnnl::memory, 5> memory;
    std::array<dnnl_exec_arg_t, 5> arguments;  // of the C interface: the C++ one makes a vector at each call
    size_t count;
  };

  static Call make(const Node& node, const Multiply& p, int64_t bound, void* workspace) {
    using dnnl::memory;
    constexpr auto f32 = memory::data_type::f32;
    const memory::desc a({p.m, p.k}, f32, memory::dims{p.a_row, p.a_step}), b({p.k, p.n}, f32, memory::dims{p.b_row, p.b_step}),
        c({p.m, p.n}, f32, memory::dims{p.n, 1}), bias({1, p.n}, f32, memory::dims{p.n, 1});
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (p.add) {
      dnnl::post_ops ops;
      ops.append_sum(1.0f);
      attr.set_post_ops(ops);
    }
    const dnnl::matmul::primitive_desc chosen(p.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c), attr, engine());
    const memory::desc scratchpad = chosen.scratchpad_desc();
    const std::string name = chosen.impl_info_str();
    if (name.rfind("brg", 0) != 0 || static_cast<int64_t>(scratchpad.get_size()) > bound)
      throw Failure(GALLEY_FAILED, std::string(node.name()) + ": oneDNN chose '" + name + "' with a scratchpad of " +
                                       std::to_string(scratchpad.get_size()) + " bytes where the plan has " + std::to_string(bound) +
                                       "; is ONEDNN_MAX_CPU_ISA set?");
    Call call;
    call.primitive = dnnl::matmul(chosen);
    call.count = 0;
    const auto argument = [&](int which, const memory::desc& desc, const void* data) {
      call.memory[call.count] = memory(desc, engine(), const_cast<void*>(data));
      call.arguments[call.count] = {which, call.memory[call.count].get()};
      ++call.count;
    };
    argument(DNNL_ARG_SRC, a, p.a);
    argument(DNNL_ARG_WEIGHTS, b, p.b);
    argument(DNNL_ARG_DST, c, p.c);
    argument(DNNL_ARG_SCRATCHPAD, scratchpad, workspace);
    if (p.bias) argument(DNNL_ARG_BIAS, bias, p.bias);
    return call;
  }

  std::vector<Call> calls_;
};

const bool added = add(kernel_of<OneDnn>("linear.onednn", "linear")) && add(kernel_of<OneDnn>("linear_dx.onednn", "linear_dx")) &&
                   add(kernel_of<OneDnn>("linear_dw.onednn", "linear_dw"));

}  // namespace

#endif
