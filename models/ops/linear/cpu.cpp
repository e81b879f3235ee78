// Linear layers in F32 on oneDNN 2.6: y = x·Wᵀ + b, dx = dy·W, dW = dyᵀ·x, for both layouts of a weight. Processors with 512-bit vectors
// only: below, oneDNN takes another path, which allocates by itself and splits sums by threads; cpu_blocked.cpp serves those.
//
// Which primitive. `matmul` for all three: it has a declared scratchpad and adds by a `sum` post-op. `inner_product` (a gemm inside) is up
// to 10 % faster for dW and dx, up to 40 % slower elsewhere, allocates by itself and cannot add. With 2 threads of a Zen 4 at 256 rows,
// shares of the FMA peak (235 GF), matmul | inner_product, dW added by the one and written by the other:
//     K → N                y             dx            dW
//     768 → 768          .95 | .86     .99 | .99     .96 | .99
//     768 → 768, T       .99 | .98     .97 | .86     .95 | .99
//     768 → 3072, T      .92 | .87     .93 | .60     .80 | .83
//     576 → 1536         .97 | .89     .99 | .99     .97 | .99
//     576 → 49152        .90 | .78     .87 | .97     .85 | .88
// A sum costs 1–8 %; operands off a cache line cost up to a quarter.
//
// Threads. They are the host's: a product is cut into tasks by shape alone (Cut), and oneDNN makes each on the thread that claimed it. It
// wants dense operands, strided ones take the slow path; so tasks are rows of C, or 64 columns of C that are made in a buffer and written
// out after. Measured on one thread of an Intel core with 512-bit vectors and 2 MiB of second-level cache (FMA peak 226 GF;
// tests/bench/kernels.cpp), in GF, whole product | its tasks:
//     rows, K → N               y             dx             dW
//     256,  768 → 768, T     168 | 167     174 | 170      165 | 162
//     256,  768 → 3072, T     74 | 150     158 | 160      108 | –
//     256, 3072 → 768, T     147 | –       163 | 161      156 | 153
//     256,  576 → 1536       172 | 167     164 | 164      166 | 159
//     256,  768 → 50304      146 | 147     116 | –        139 | 136
//     1024, 192 → 512        172 | 172     184 | 184      166 | 148
//     1024, 512 → 192        175 | 173     176 | 170      164 | 146
// So tasks cost up to 5 % of a product; up to 11 % for a dW of few rows whose columns are a power of two, as oneDNN copies x for each of
// them.
// They are twice as fast where rows of W are a multiple of 4 KiB: such rows meet in one set of the cache, their copies do not. –: left to
// cpu_blocked.cpp, which is as fast or faster there (its table). Whole steps are no slower than with oneDNN's own threads, where the one
// that is done first waits for the other.
//
// Workspace. A plan is a function of the target, not of the machine that makes it, so the scratchpad is bounded by a formula from oneDNN's
// own choice of blocks (brgemm_matmul_utils.cpp, v2.6.3) and compared with the real one in `prepare`.
//
// Bits. A task is one thread's, and where a product is cut depends on its shape alone.
#if defined(GALLEY_CPU_LEVEL) && GALLEY_CPU_LEVEL >= 4 && defined(GALLEY_DNNL)

#include <array>
#include <map>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "ops/linear/products.hpp"

// oneDNN's threads are OpenMP's, and a primitive is made for as many as there are at that moment. Weak: the library comes with oneDNN, or
// not at all.
extern "C" {
__attribute__((weak)) int omp_get_max_threads();
__attribute__((weak)) void omp_set_num_threads(int);
}

namespace galley::cpu {
namespace {

using sdk::Failure;
using sdk::Node;

constexpr int64_t piece_rows = 512;    // of dW's sums at a time: what is copied of its operands stays in cache
constexpr int64_t wide = 1024;         // rows of B up to here lie near enough to each other
constexpr int64_t long_column = 2048;  // what is copied of 64 longer columns no longer stays in the second-level cache

// How a product is cut into tasks, by shape alone. Operands have to be dense: what a cut leaves strided is copied, C after its product.
struct Cut {
  Cut(const Multiply& p, Links links) : columns(p.n), pieces(a_transposed(p) ? divide_up(p.k, piece_rows) : 1) {
    if (a_transposed(p)) {
      rows = p.m >= 256 ? 64 : 96;
    } else if (p.n <= wide && p.m >= 256 && (p.k <= 512 || !b_transposed(p))) {
      rows = p.m >= 1024 ? 256 : 64;
    } else {
      columns = std::min<int64_t>(p.n, 64);
      rows = p.n >= 8 * columns ? 256 : 64;
    }
    rows = std::min(rows, p.m);
    depth = divide_up(p.k, pieces);
    row_blocks = divide_up(p.m, rows);
    column_blocks = divide_up(p.n, columns);
    copies_a = p.a_step != 1 && rows < p.m;
    copies_b = p.b_step == 1 && columns < p.n;
    copies_c = columns < p.n || links != Links::One;
  }
  int64_t tasks() const { return row_blocks * column_blocks; }
  int64_t floats_of_a() const { return copies_a ? round_up(depth * rows, 16) : 0; }
  int64_t floats_of_b() const { return copies_b ? round_up(depth * columns, 16) : 0; }
  int64_t floats_of_c() const { return copies_c ? round_up(rows * columns, 16) : 0; }
  int64_t rows, columns, depth, pieces, row_blocks, column_blocks;
  bool copies_a, copies_b, copies_c;
};

// The product of a task with m rows, n columns and k numbers in each sum, as oneDNN gets it; without addresses.
Multiply task_of(const Multiply& whole, const Cut& cut, int64_t m, int64_t n, int64_t k, bool add) {
  Multiply p = whole;
  p.m = m;
  p.n = n;
  p.k = k;
  if (cut.copies_a) p.a_row = 1, p.a_step = m;
  if (cut.copies_b) p.b_row = n, p.b_step = 1;
  p.add = add;
  return p;
}

// At least what matmul asks for: a block of B where its columns are not contiguous (or lie a large power of two apart), one of A where it
// is transposed, and sums where k has several blocks and C is added to.
int64_t scratchpad_bound(const Multiply& p) {
  const int64_t depth = std::min<int64_t>(p.k, p.k > 1024 ? 1024 : 512);
  const bool power = p.n > 256 && (p.n & (p.n - 1)) == 0;
  int64_t floats = 0;
  if (b_transposed(p) || power || p.n == 1 || p.k == 1) floats += 64 * round_up(depth, 16);
  if (a_transposed(p) || p.m == 1 || p.k == 1) floats += std::min<int64_t>(p.m, 256) * (round_up(depth, 16) + 16);
  if (p.k > depth) floats += std::min<int64_t>(p.m, 256) * 64;
  return round_up(floats * static_cast<int64_t>(sizeof(float)) + 1024, 64);
}

// Over the sizes that a cut leaves at the edges, which may have one column where others have many.
int64_t scratchpad_bound(const Multiply& whole, const Cut& cut) {
  int64_t most = 0;
  for (const int64_t m : {cut.rows, whole.m - (cut.row_blocks - 1) * cut.rows})
    for (const int64_t n : {cut.columns, whole.n - (cut.column_blocks - 1) * cut.columns})
      for (const int64_t k : {cut.depth, whole.k - (cut.pieces - 1) * cut.depth})
        most = std::max(most, scratchpad_bound(task_of(whole, cut, m, n, k, whole.add || cut.pieces > 1)));
  return most;
}

dnnl::engine& engine() {
  static dnnl::engine e(dnnl::engine::kind::cpu, 0);
  return e;
}
dnnl::stream& stream() {
  static dnnl::stream s(engine());
  return s;
}

// Primitives made meanwhile compute on the thread that executes them.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads ? omp_get_max_threads() : 0) {
    if (before_) omp_set_num_threads(1);
  }
  ~OneThread() {
    if (before_) omp_set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// A product of one size, made once for all kernels that have it: a primitive and its operands take kilobytes. Each lane has operands of its
// own, whose addresses change with the task. Launches of a session run one after the other, so that its kernels can share them.
class Primitive {
 public:
  static std::shared_ptr<Primitive> of(const Node& node, const Multiply& p, int64_t bound, int64_t n_lanes) {
    static thread_local std::map<std::array<int64_t, 10>, std::weak_ptr<Primitive>> known;  // of the session on this thread
    std::weak_ptr<Primitive>& place = known[{p.m, p.n, p.k, p.a_row, p.a_step, p.b_row, p.b_step, p.add, p.bias != nullptr, bound}];
    std::shared_ptr<Primitive> out = place.lock();
    if (!out) place = out = std::make_shared<Primitive>(node, p, bound);
    while (std::ssize(out->calls_) < n_lanes) out->calls_.push_back(out->call());
    return out;
  }

  Primitive(const Node& node, const Multiply& p, int64_t bound) : primitive_(make(node, p, bound)) {}

  void execute(int64_t lane, const float* a, const float* b, float* c, void* scratchpad, const float* bias) const {
    const Call& call = calls_[static_cast<size_t>(lane)];
    const std::array<const void*, 5> data = {a, b, c, scratchpad, bias};
    const int n = bias ? 5 : 4;
    bool done = true;
    for (size_t i = 0; i < static_cast<size_t>(n); ++i)
      done = done && dnnl_memory_set_data_handle(call.arguments[i].memory, const_cast<void*>(data[i])) == dnnl_success;
    if (!done || dnnl_primitive_execute(primitive_.get(), stream().get(), n, call.arguments.data()) != dnnl_success)
      throw Failure(GALLEY_FAILED, "oneDNN failed to execute a product");
  }

 private:
  struct Call {
    std::array<dnnl::memory, 5> memory;
    std::array<dnnl_exec_arg_t, 5> arguments;  // of the C interface: the C++ one makes a vector at each call
  };

  static dnnl::matmul make(const Node& node, const Multiply& p, int64_t bound) {
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
    const auto scratchpad = static_cast<int64_t>(chosen.scratchpad_desc().get_size());
    const std::string name = chosen.impl_info_str();
    if (name.rfind("brg", 0) != 0 || scratchpad > bound)
      throw Failure(GALLEY_FAILED, std::string(node.name()) + ": oneDNN chose '" + name + "' with a scratchpad of " +
                                       std::to_string(scratchpad) + " bytes where the plan has " + std::to_string(bound) +
                                       "; is ONEDNN_MAX_CPU_ISA set?");
    return dnnl::matmul(chosen);
  }

  Call call() const {
    const const_dnnl_primitive_desc_t made = primitive_.get_primitive_desc();
    const auto operand = [&](dnnl_query_t which) {
      return dnnl::memory(dnnl::memory::desc(*dnnl_primitive_desc_query_md(made, which, 0)), engine(), nullptr);
    };
    Call call;
    call.memory = {operand(dnnl_query_src_md), operand(dnnl_query_weights_md), operand(dnnl_query_dst_md),
                   operand(dnnl_query_scratchpad_md), dnnl::memory()};
    constexpr int names[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD, DNNL_ARG_BIAS};
    if (const dnnl_memory_desc_t* bias = dnnl_primitive_desc_query_md(made, dnnl_query_weights_md, 1); bias && bias->ndims > 0)
      call.memory[4] = dnnl::memory(dnnl::memory::desc(*bias), engine(), nullptr);
    for (size_t i = 0; i < 5; ++i) call.arguments[i] = {names[i], call.memory[i].get(true)};
    return call;
  }

  dnnl::matmul primitive_;
  std::vector<Call> calls_;
};

class OneDnn : public Product {
 public:
  static Offer offer(const Node& node, const galley_target&, Links links) {
    if (!all_f32(node)) return {"F32 only"};
    if (!reads_weight(node)) return {"another format"};
    const Multiply p = product_of(node);
    if (p.alpha != 1.0f) return {"a multiple of the product"};
    // Its tasks are blocks of rows, each of which would make the same numbers of codes.
    if (p.coded) return {"the blocked product reads codes once"};
    // Rows of B that are whole multiples of 4 KiB meet in one set of the cache.
    if (a_transposed(p) ? p.m < 128 || (p.n > wide && p.n % 1024 == 0) : p.b_step == 1 && p.k > long_column)
      return {"the blocked product is faster"};
    const Cut cut(p, links);
    return {nullptr, cut.tasks(), lane_bytes(p, cut)};
  }

  OneDnn(const Node& node, const galley_target&, int64_t n_lanes, const std::optional<Activation>& activation)
      : whole_(product_of(node)), cut_(whole_, activation ? Links::Two : Links::One), activation_(activation) {
    const OneThread one;
    const int64_t bound = scratchpad_bound(whole_, cut_);
    for (const int64_t m : {cut_.rows, whole_.m - (cut_.row_blocks - 1) * cut_.rows})
      for (const int64_t n : {cut_.columns, whole_.n - (cut_.column_blocks - 1) * cut_.columns})
        for (const int64_t k : {cut_.depth, whole_.k - (cut_.pieces - 1) * cut_.depth})
          for (const bool add : {whole_.add && !cut_.copies_c, cut_.pieces > 1})
            if (!find(m, n, k, add))
              kinds_.push_back({m, n, k, add, Primitive::of(node, task_of(whole_, cut_, m, n, k, add), bound, n_lanes)});
  }

 private:
  // Tasks of one size.
  struct Kind {
    int64_t m, n, k;
    bool add;
    std::shared_ptr<Primitive> primitive;
  };

  static int64_t lane_bytes(const Multiply& p, const Cut& cut) {
    return (cut.floats_of_a() + cut.floats_of_b() + cut.floats_of_c()) * static_cast<int64_t>(sizeof(float)) + scratchpad_bound(p, cut);
  }

  const Kind* find(int64_t m, int64_t n, int64_t k, bool add) const {
    for (const Kind& kind : kinds_)
      if (kind.m == m && kind.n == n && kind.k == k && kind.add == add) return &kind;
    return nullptr;
  }

  void task(int64_t task, int64_t lane, void* memory) const override {
    // Down a column of blocks first, which read the same columns of B.
    const int64_t i = task % cut_.row_blocks * cut_.rows, j = task / cut_.row_blocks * cut_.columns;
    const int64_t m = std::min(cut_.rows, whole_.m - i), n = std::min(cut_.columns, whole_.n - j);
    auto* const copied_a = static_cast<float*>(memory);
    float *const copied_b = copied_a + cut_.floats_of_a(), *const copied_c = copied_b + cut_.floats_of_b();
    float* const scratchpad = copied_c + cut_.floats_of_c();
    float* const c = static_cast<float*>(whole_.c) + (activation_ ? 0 : i * whole_.n + j);
    for (int64_t first = 0; first == 0 || first < whole_.k; first += cut_.depth) {
      const int64_t k = std::min(cut_.depth, whole_.k - first);
      const float* a = static_cast<const float*>(whole_.a) + i * whole_.a_row + first * whole_.a_step;
      const float* b = static_cast<const float*>(whole_.b) + j * whole_.b_step + first * whole_.b_row;
      if (cut_.copies_a) a = copy(a, whole_.a_step, k, m, copied_a);
      if (cut_.copies_b) b = copy(b, whole_.b_row, k, n, copied_b);
      const Kind& kind = *find(m, n, k, first > 0 || (whole_.add && !cut_.copies_c));
      kind.primitive->execute(lane, a, b, cut_.copies_c ? copied_c : c, scratchpad,
                              whole_.bias ? static_cast<const float*>(whole_.bias) + j : nullptr);
    }
    if (activation_) return activation_->block(i, j, m, n, copied_c, n);
    if (!cut_.copies_c) return;
    for (int64_t r = 0; r < m; ++r) {
      float* __restrict to = c + r * whole_.n;
      const float* __restrict from = copied_c + r * n;
      if (whole_.add)
        for (int64_t x = 0; x < n; ++x) to[x] += from[x];
      else
        for (int64_t x = 0; x < n; ++x) to[x] = from[x];
    }
  }

  static const float* copy(const float* from, int64_t row, int64_t rows, int64_t columns, float* to) {
    for (int64_t r = 0; r < rows; ++r) std::memcpy(to + r * columns, from + r * row, static_cast<size_t>(columns) * sizeof(float));
    return to;
  }

  Multiply whole_;
  Cut cut_;
  std::optional<Activation> activation_;
  std::vector<Kind> kinds_;
};

constexpr Way onednn = {1, OneDnn::offer,
                        [](const Node& node, const galley_target& target, int64_t n_lanes, const std::optional<Activation>& activation) {
                          return std::unique_ptr<Product>(std::make_unique<OneDnn>(node, target, n_lanes, activation));
                        }};
const bool added = add_way<onednn>({"linear.onednn", "linear_dx.onednn", "linear_dw.onednn"});

}  // namespace
}  // namespace galley::cpu

#endif
