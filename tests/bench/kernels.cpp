// Times kernels at the shapes of GPT-2 124M, SmolLM2-135M and the quickstart's model: matrix products and attention as shares of the peak
// of fused multiply-adds that this machine reaches meanwhile, others by the bytes of their operands. Before a kernel is timed, its numbers
// are compared: with those of the op's reference up to REFERENCE flops, which take it seconds, and with those of the first kernel beyond,
// whose line then says that it was not compared; nodes in one launch with the same nodes apart. Where they differ, the bench ends.
//
//   c++ -std=c++20 -O2 -I . -I sdk/include tests/bench/kernels.cpp host/base/{pool,ordered,processor_loan}.cpp -o bench
//   ./bench build/release/plugins/models v4 [THREADS [FILTER]]
//
// With one thread the clock is the thread's own time, which other programs on the machine hardly disturb; with more it is the wall's. Best
// of several runs.
#include <dlfcn.h>
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "galley/cpp/half.hpp"
#include "galley/cpp/plugin.hpp"
#include "host/base/pool.hpp"
#include "models/devices/cpu/machine.hpp"
#include "tests/bench/kernels_operands.hpp"

namespace {

using galley::bench::compare;
using galley::bench::huge;
using galley::bench::Memory;
using galley::bench::Operands;
using galley::bench::Shape;
using galley::sdk::Attrs;

int thread_count = 2;
constexpr double REFERENCE = 5e8;

void log(void*, uint32_t, const char* text) { std::puts(text); }
void parallel(void*, int64_t blocks, void (*fn)(void*, int64_t), void* context) {
  static galley::Pool pool(thread_count);
  pool.run(blocks, fn, context);
}

double seconds() {
  if (thread_count > 1) return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// 96 operations an iteration in 12 chains: enough to hide the latency of any processor's multiply-add.
__attribute__((target("avx2,fma"), noinline)) double chains(int64_t n) {
  __m256 x[12];
  for (int i = 0; i < 12; ++i) x[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
  for (int64_t k = 0; k < n; ++k)
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) x[i] = _mm256_fmadd_ps(x[i], a, b);
  float sum = 0;
  for (int i = 0; i < 12; ++i) sum += _mm256_cvtss_f32(x[i]);
  return static_cast<double>(sum);
}
__attribute__((target("avx512f"), noinline)) double wide_chains(int64_t n) {
  __m512 x[12];
  for (int i = 0; i < 12; ++i) x[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
  for (int64_t k = 0; k < n; ++k)
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) x[i] = _mm512_fmadd_ps(x[i], a, b);
  float sum = 0;
  for (int i = 0; i < 12; ++i) sum += _mm512_cvtss_f32(x[i]);
  return static_cast<double>(sum);
}
double peak(bool wide) {
  constexpr int64_t n = 1000000;
  double best = 0;
  for (int run = 0; run < 9; ++run) {
    const double begin = seconds();
    std::vector<double> kept(static_cast<size_t>(thread_count));
    const auto body = [&](int64_t i) { kept[static_cast<size_t>(i)] = wide ? wide_chains(n) : chains(n); };
    parallel(
        nullptr, thread_count, [](void* context, int64_t i) { (*static_cast<const decltype(body)*>(context))(i); },
        const_cast<void*>(static_cast<const void*>(&body)));
    best = std::max(best, (wide ? 32.0 : 16.0) * 12 * n * thread_count / (seconds() - begin));
    if (kept[0] == 0.5) std::puts("");
  }
  return best;
}

class Bench {
 public:
  Bench(const std::string& folder, const std::string& level, std::string filter) : filter_(std::move(filter)) {
    ops_ = open(folder + "/models.so");
    kernels_ = open(folder + "/models-cpu-" + level + ".so");
    isa_ = "x86-64-" + level;
    peak_ = peak(level == "v4");
    std::printf("%d threads, peak %.0f GF\n", thread_count, peak_ * 1e-9);
  }

  void run(const std::string& label, const char* op_name, const std::vector<Shape>& inputs, Attrs attrs = {}, bool add = false) {
    if ((label + op_name).find(filter_) == std::string::npos) return;
    const Placed placed(*this, op_name, inputs, attrs, add);
    galley_error error = GALLEY_ERROR_INIT;
    galley_cost cost = {sizeof cost, 1, 0, 0};
    if (placed.op->cost) check(placed.op->cost(placed.op->self, &placed.node, &cost, &error), error);
    Right right{placed.op->reference && cost.flops <= REFERENCE, {}};
    for (uint32_t i = 0; i < kernels_->n_kernels; ++i)
      if (!std::strcmp(kernels_->kernels[i]->op, op_name)) time(label, *kernels_->kernels[i], placed, cost.flops, add, right);
  }

  struct Link {
    const char* op;
    std::vector<Shape> inputs;
    Attrs attrs = {};
    bool add = false;
    int common = -1;  // the input that is the first node's, too
    int made = -1;    // the input that is the first node's output
  };
  /// Nodes in one launch of kernel `text`, a chain or an op of which they are a group, beside each by its best kernel: in turns. `kept`:
  /// what lies between has memory.
  void together(const std::string& label, const char* text, const std::vector<Link>& links, bool kept = true) {
    if ((label + text).find(filter_) == std::string::npos) return;
    std::vector<std::unique_ptr<Placed>> apart, joint;
    for (auto* nodes : {&apart, &joint})
      for (const Link& link : links) {
        Placed& placed = *nodes->emplace_back(std::make_unique<Placed>(*this, link.op, link.inputs, link.attrs, link.add));
        const Placed& first = *nodes->front();
        const auto to = static_cast<size_t>(std::max(link.common, link.made));
        if (link.common >= 0) placed.in.operands[to].data = first.in.operands[to].data;
        if (link.made >= 0) placed.in.operands[to].data = first.out.operands[0].data;
        placed.in.operands[to].name = link.made >= 0 ? "between" : "";
        if (text != std::string(link.op) && nodes->size() == 1) placed.out.operands[0].name = "between";
        if (nodes == &joint && !kept && link.made >= 0)
          for (galley_operand* between : {&placed.in.operands[to], &nodes->front()->out.operands[0]}) {
            between->data = nullptr;
            between->flags = GALLEY_OPERAND_NO_MEMORY;
          }
      }
    std::vector<std::unique_ptr<Prepared>> alone;
    for (const auto& placed : apart) {
      std::unique_ptr<Prepared> best;
      for (uint32_t i = 0; i < kernels_->n_kernels; ++i) {
        if (std::strcmp(kernels_->kernels[i]->op, placed->op->name)) continue;
        auto next = std::make_unique<Prepared>(*this, *kernels_->kernels[i], std::vector<const galley_node_view*>{&placed->node});
        if (next->state && (!best || next->plan.priority > best->plan.priority)) best = std::move(next);
      }
      alone.push_back(std::move(best));
    }
    std::vector<const galley_node_view*> views;
    for (const auto& placed : joint) views.push_back(&placed->node);
    std::unique_ptr<Prepared> all;
    for (uint32_t i = 0; i < kernels_->n_kernels && !(all && all->state); ++i)
      if (!std::strcmp(kernels_->kernels[i]->op, text) &&
          (links[0].op != std::string(text) || kernels_->kernels[i]->flags & GALLEY_KERNEL_GROUPS))
        all = std::make_unique<Prepared>(*this, *kernels_->kernels[i], views);
    if (!all || !all->state) return void(std::printf("%-44s %-16s declined\n", label.c_str(), text));
    for (const auto& one : alone) one->run();
    all->run();
    for (size_t i = 0; i < apart.size(); ++i)
      if (!(joint[i]->out.operands[0].flags & GALLEY_OPERAND_NO_MEMORY))
        compare(label + ' ' + text, joint[i]->out.numbers(), apart[i]->out.numbers(), in_16_bit(*apart[i]));
    std::vector<double> times[2];
    double spent = 0;
    for (int round = 0; round < 200 && (round < 9 || spent < 1.2); ++round)
      for (const int which : {round % 2, 1 - round % 2}) {
        const double begin = seconds();
        if (which) all->run();
        else
          for (const auto& one : alone) one->run();
        times[which].push_back(seconds() - begin);
        spent += times[which].back();
      }
    double least[2], middle[2];
    for (int which : {0, 1}) {
      std::sort(times[which].begin(), times[which].end());
      least[which] = times[which].front();
      middle[which] = times[which][times[which].size() / 2];
    }
    std::printf("%-44s %-16s apart %8.3f ms, together %8.3f ms: least %.3f, median %.3f\n", label.c_str(), text, least[0] * 1e3,
                least[1] * 1e3, least[1] / least[0], middle[1] / middle[0]);
    std::fflush(stdout);
  }

 private:
  /// A node with its operands.
  struct Placed {
    Placed(const Bench& bench, const char* op_name, const std::vector<Shape>& inputs, const Attrs& attrs, bool add)
        : in(inputs, GALLEY_READ) {
      for (uint32_t i = 0; i < bench.ops_->n_ops; ++i)
        if (!std::strcmp(bench.ops_->ops[i]->name, op_name)) op = bench.ops_->ops[i];
      node = {sizeof node,
              1,
              op_name,
              "node",
              in.pointers.data(),
              nullptr,
              attrs.data(),
              static_cast<uint32_t>(in.pointers.size()),
              0,
              attrs.count(),
              0,
              GALLEY_NODE_TRAINING,
              0,
              0,
              -1};
      galley_error error = GALLEY_ERROR_INIT;
      galley_shape shapes[8] = {};
      galley_shape* pointers[8] = {};
      for (size_t i = 0; i < 8; ++i) pointers[i] = &shapes[i];
      check(op->infer(op->self, &node, pointers, &error), error);
      std::vector<Shape> outputs;
      for (uint32_t i = 0; i < op->n_outputs; ++i)
        outputs.push_back({shapes[i].dtype, {shapes[i].extents, shapes[i].extents + shapes[i].rank}});
      out = Operands(outputs, add ? GALLEY_ACCUMULATE : GALLEY_WRITE);
      node.outputs = out.pointers.data();
      node.n_outputs = static_cast<uint32_t>(out.pointers.size());
    }
    const galley_op* op = nullptr;
    Operands in, out;
    galley_node_view node;
  };

  /// A kernel ready to run; no state: it declines.
  struct Prepared {
    Prepared(const Bench& bench, const galley_kernel& kernel_, const std::vector<const galley_node_view*>& nodes) : kernel(kernel_) {
      galley::cpu::describe(&target);  // with this machine's peaks
      target.isa = bench.isa_.c_str();
      target.threads = thread_count;
      target.workspace_budget = 1 << 30;
      galley_error error = GALLEY_ERROR_INIT;
      const auto n = static_cast<uint32_t>(nodes.size());
      if (kernel.query(kernel.self, nodes.data(), n, &target, &plan, &error)) return;
      workspace = huge(plan.workspace_bytes);
      auto setup = galley::sdk::fresh<galley_kernel_setup>();
      setup.target = &target;
      setup.workspace = workspace.get();
      setup.workspace_bytes = plan.workspace_bytes;
      check(kernel.prepare(kernel.self, nodes.data(), n, &setup, &state, &error), error);
    }
    Prepared(const Prepared&) = delete;
    Prepared& operator=(const Prepared&) = delete;
    ~Prepared() {
      if (state) kernel.release(state);
    }
    void run() const {
      galley_error error = GALLEY_ERROR_INIT;
      check(kernel.enqueue(state, nullptr, &error), error);
    }
    const galley_kernel& kernel;
    galley_target target = galley::sdk::fresh<galley_target>();
    galley_kernel_plan plan = galley::sdk::fresh<galley_kernel_plan>();
    Memory workspace;
    void* state = nullptr;
  };

  static const galley_entry* open(const std::string& file) {
    static const galley_host host = {sizeof host, 1, GALLEY_ABI_MAJOR, GALLEY_ABI_MINOR, nullptr, log, parallel, nullptr};
    void* library = dlopen(file.c_str(), RTLD_NOW);
    auto* entry = library ? static_cast<galley_entry*>(dlsym(library, GALLEY_ENTRY_SYMBOL)) : nullptr;
    galley_error error = GALLEY_ERROR_INIT;
    if (!entry || (entry->open && entry->open(&host, &error))) {
      std::fprintf(stderr, "%s: %s\n", file.c_str(), entry ? error.text : dlerror());
      std::exit(1);
    }
    return entry;
  }
  static void check(galley_status status, const galley_error& error) {
    if (status == GALLEY_OK) return;
    std::fprintf(stderr, "%s\n", error.text);
    std::exit(1);
  }

  static int64_t bytes_of(const galley_node_view& node) {
    int64_t bytes = 0;
    for (uint32_t i = 0; i < node.n_inputs; ++i) bytes += node.inputs[i] ? galley_operand_bytes(node.inputs[i]) : 0;
    for (uint32_t i = 0; i < node.n_outputs; ++i) bytes += node.outputs[i] ? galley_operand_bytes(node.outputs[i]) : 0;
    return bytes;
  }

  /// What the outputs of a node have to be; empty until the first kernel has taken it.
  struct Right {
    bool by_reference;
    std::vector<double> numbers;
  };

  static bool in_16_bit(const Placed& placed) { return placed.in.in_16_bit() || placed.out.in_16_bit(); }
  /// References write, and do not add.
  static std::vector<double> by_reference(const Placed& placed, bool add) {
    Operands in = placed.in.wide(GALLEY_READ), out = placed.out.wide(GALLEY_WRITE);
    const std::vector<double> begun = out.numbers();
    galley_node_view node = placed.node;
    node.inputs = in.pointers.data();
    node.outputs = out.pointers.data();
    galley_error error = GALLEY_ERROR_INIT;
    check(placed.op->reference(placed.op->self, &node, &error), error);
    std::vector<double> made = out.numbers();
    for (size_t i = 0; add && i < made.size(); ++i) made[i] += begun[i];
    return made;
  }

  void time(const std::string& label, const galley_kernel& kernel, const Placed& placed, double flops, bool add, Right& right) const {
    const galley_node_view& node = placed.node;
    const Prepared prepared(*this, kernel, {&node});
    if (!prepared.state) return;
    placed.out.draw();  // what is added to
    if (right.numbers.empty() && right.by_reference) right.numbers = by_reference(placed, add);
    prepared.run();
    const bool is_first = right.numbers.empty();
    if (is_first) right.numbers = placed.out.numbers();
    else compare(label + ' ' + kernel.name, placed.out.numbers(), right.numbers, in_16_bit(placed));
    double best = 1e9, spent = 0;
    for (int run = 0; run < 100 && (run < 5 || spent < 0.6); ++run) {
      const double begin = seconds();
      prepared.run();
      const double took = seconds() - begin;
      best = std::min(best, took);
      spent += took;
    }
    std::printf("%-28s %-24s %s %9.3f ms ", label.c_str(), kernel.name, add ? "+=" : "= ", best * 1e3);
    if (flops > 0) std::printf("%7.1f GF  %.2f of peak ", flops / best * 1e-9, flops / best / peak_);
    else std::printf("%7.1f GB/s ", static_cast<double>(bytes_of(node)) / best * 1e-9);
    std::printf(" workspace %.2f MiB%s\n", static_cast<double>(prepared.plan.workspace_bytes) / (1 << 20),
                is_first ? ", not compared" : "");
    std::fflush(stdout);
  }

  const galley_entry *ops_, *kernels_;
  std::string isa_, filter_;
  double peak_;
};

void linear_in(Bench& bench, uint32_t dtype, const char* name, int64_t rows, int64_t K, int64_t N, int64_t transposed) {
  const std::string label = std::to_string(rows) + " x " + std::to_string(K) + " -> " + std::to_string(N) + (transposed ? " T" : "") + name;
  const Shape x{dtype, {rows, K}}, w{dtype, transposed ? std::vector<int64_t>{K, N} : std::vector<int64_t>{N, K}}, b{GALLEY_F32, {N}},
      dy{dtype, {rows, N}};
  const auto attrs = [=] { return Attrs().i("transposed", transposed); };
  bench.run(label, "linear", {x, w, b}, attrs());
  bench.run(label, "linear_dx", {dy, w}, attrs());
  bench.run(label, "linear_dw", {dy, x}, attrs(), true);
}

void linear(Bench& bench, int64_t rows, int64_t K, int64_t N, int64_t transposed) {
  linear_in(bench, GALLEY_F32, "", rows, K, N, transposed);
  linear_in(bench, GALLEY_BF16, " bf16", rows, K, N, transposed);
}

// Chains and groups at `rows` rows.
void several(Bench& bench, uint32_t dtype, const char* name, int64_t rows) {
  constexpr uint32_t F = GALLEY_F32;
  const auto x = [=](int64_t K) { return Shape{dtype, {rows, K}}; };
  const auto T = [](int64_t t) { return Attrs().i("transposed", t); };
  const auto product = [&](int64_t K, int64_t N, int64_t t) {
    return Bench::Link{
        "linear", {x(K), {dtype, t ? std::vector{K, N} : std::vector{N, K}}, t ? Shape{F, {N}} : Shape{0, {}}}, T(t), false, 0};
  };
  const auto gradient = [&](int64_t K, int64_t N) { return Bench::Link{"linear_dw", {x(N), x(K)}, T(0), true, 1}; };
  const auto all = [](auto... link) {
    std::vector<Bench::Link> out;
    (out.push_back(std::move(link)), ...);
    return out;
  };
  const std::string label = std::to_string(rows) + " rows" + name;
  for (const bool kept : {true, false}) {
    const std::string what = label + (kept ? ", kept" : ", gone");
    const auto gelu = [&](int64_t N) { return Bench::Link{"gelu", {x(N)}, Attrs().s("approximate", "tanh"), false, -1, 0}; };
    bench.together(what + " 768 -> 3072 T", "linear>gelu", all(product(768, 3072, 1), gelu(3072)), kept);
    bench.together(what + " 768 -> 3072", "linear>gelu", all(product(768, 3072, 0), gelu(3072)), kept);
    bench.together(what + " 576 -> 1536", "linear>silu", all(product(576, 1536, 0), Bench::Link{"silu", {x(1536)}, {}, false, -1, 0}),
                   kept);
    bench.together(what + " 576 -> 1536", "linear>relu", all(product(576, 1536, 0), Bench::Link{"relu", {x(1536)}, {}, false, -1, 0}),
                   kept);
    bench.together(what + " 576 -> 1536", "linear>swiglu",
                   all(product(576, 1536, 0), Bench::Link{"swiglu", {x(1536), x(1536)}, {}, false, -1, 1}), kept);
  }
  bench.together(label + " 576 -> 576, 192, 192", "linear", all(product(576, 576, 0), product(576, 192, 0), product(576, 192, 0)));
  bench.together(label + " 576 -> 1536, 1536", "linear", all(product(576, 1536, 0), product(576, 1536, 0)));
  for (const int64_t rank : {8, 32})
    bench.together(label + " 576 -> 3 of " + std::to_string(rank), "linear",
                   all(product(576, rank, 0), product(576, rank, 0), product(576, rank, 0)));
  bench.together(label + " 576 -> 576, 192, 192", "linear_dw", all(gradient(576, 576), gradient(576, 192), gradient(576, 192)));
  bench.together(label + " 576 -> 1536, 1536", "linear_dw", all(gradient(576, 1536), gradient(576, 1536)));
  bench.together(label + " 576 -> 3 of 8", "linear_dw", all(gradient(576, 8), gradient(576, 8), gradient(576, 8)));
  // An adapter of rank 16: A, B into the base's output, and their gradients.
  for (const auto& [K, N] : {std::pair<int64_t, int64_t>(576, 1536), {1536, 576}, {576, 192}}) {
    const std::string shape = ", adapter " + std::to_string(K) + " -> " + std::to_string(N);
    bench.run(label + shape, "linear", {x(K), {dtype, {16, K}}}, T(0));
    bench.together(label + shape, "linear>add", all(product(16, N, 0), Bench::Link{"add", {x(N), x(N)}, {}, false, -1, 0}), false);
    bench.run(label + shape, "linear_dx", {x(N), {dtype, {N, 16}}}, T(0));
    bench.run(label + shape, "linear_dx", {x(16), {dtype, {16, K}}}, T(0), true);
    bench.run(label + shape, "linear_dw", {x(N), x(16)}, T(0), true);
    bench.run(label + shape, "linear_dw", {x(16), x(K)}, T(0), true);
  }
}

// What stands between the products, with data in `dtype`; weights of norms and logits are F32.
void between(Bench& bench, uint32_t dtype, const char* name, int64_t rows) {
  constexpr uint32_t F = GALLEY_F32;
  const Shape narrow{dtype, {rows, 768}}, wide{dtype, {rows, 3072}}, w{F, {768}}, one{F, {rows}}, logits{F, {rows, 50304}};
  const std::string label = std::to_string(rows) + name;
  const auto in_dtype = [&] { return dtype == F ? Attrs() : Attrs().s("dtype", "bf16"); };
  bench.run(label, "gelu", {wide}, Attrs().s("approximate", "tanh"));
  bench.run(label, "gelu_grad", {wide, wide}, Attrs().s("approximate", "tanh"));
  bench.run(label, "swiglu", {wide, wide});
  bench.run(label, "swiglu_grad", {wide, wide, wide});
  bench.run(label, "add", {wide, wide});
  bench.run(label, "dropout", {wide, {GALLEY_I64, {4}}}, Attrs().f("p", 0.1));
  bench.run(label, "layer_norm", {narrow, w, w});
  bench.run(label, "layer_norm_dx", {narrow, narrow, w, one, one});
  bench.run(label, "layer_norm_dw", {narrow, narrow, one, one}, {}, true);
  bench.run(label, "rms_norm", {narrow, w});
  bench.run(label, "sum_rows", {wide}, {}, true);
  bench.run(label, "copy", {{F, {rows, 3072}}}, in_dtype());
  bench.run(label, "cross_entropy_grad", {logits, {GALLEY_I32, {rows}}, one, {F, {1}}}, in_dtype());
}

struct Attention {
  const char* label;
  int64_t B, Sq, Sk, heads, kv, D;
  bool packed;
  Attrs (*more)() = [] { return Attrs(); };
  bool documents = false;  // with first_key
  int64_t buckets = 0;
  uint32_t dtype = GALLEY_F32;
};

void attention(Bench& bench, const Attention& a) {
  constexpr uint32_t F = GALLEY_F32;
  const Shape none{0, {}}, o{a.dtype, {a.B, a.Sq, a.heads * a.D}}, kv{a.dtype, {a.B, a.Sk, a.kv * a.D}};
  const std::vector<Shape> in = {{a.dtype, {a.B, a.Sq, (a.packed ? a.heads + 2 * a.kv : a.heads) * a.D}},
                                 a.packed ? none : kv,
                                 a.packed ? none : kv,
                                 a.documents ? Shape{GALLEY_I32, {a.B, a.Sq}} : none,
                                 none,
                                 none,
                                 a.buckets ? Shape{F, {a.heads, a.buckets}} : none,
                                 {GALLEY_I64, {4}}};
  const auto attrs = [&] {
    Attrs all = a.more();
    all.i("heads", a.heads).i("kv_heads", a.kv).i("head_dim", a.D).i("dbias", a.buckets > 0);
    return all;
  };
  bench.run(a.label, "attention", in, attrs());
  std::vector<Shape> back = in;
  for (const Shape& s : {o, Shape{F, {a.B, a.heads, a.Sq}}, o}) back.push_back(s);
  bench.run(a.label, "attention_grad", back, attrs());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s FOLDER_OF_THE_PLUGIN v3|v4 [THREADS [FILTER]]\n", argv[0]);
    return 2;
  }
  if (argc > 3) thread_count = std::max(1, std::atoi(argv[3]));
  Bench bench(argv[1], argv[2], argc > 4 ? argv[4] : "");
  for (const int64_t rows : {256, 512}) {
    for (const auto& [K, N] : {std::pair(768, 2304), {768, 768}, {768, 3072}, {3072, 768}}) linear(bench, rows, K, N, 1);
    linear(bench, rows, 768, 50304, 0);
    for (const auto& [K, N] : {std::pair(576, 576), {576, 192}, {576, 1536}, {1536, 576}, {576, 49152}}) linear(bench, rows, K, N, 0);
  }
  for (const auto& [K, N] : {std::pair(192, 192), {192, 512}, {512, 192}}) linear(bench, 1024, K, N, 0);
  linear(bench, 2048, 576, 1536, 0);
  for (const int64_t rows : {256, 512}) {
    several(bench, GALLEY_F32, ", f32", rows);
    several(bench, GALLEY_BF16, ", bf16", rows);
    several(bench, GALLEY_F16, ", f16", rows);
  }
  for (const int64_t rows : {256, 512}) {
    between(bench, GALLEY_F32, " rows, f32", rows);
    between(bench, GALLEY_BF16, " rows, bf16", rows);
  }
  attention(bench, {"GPT-2 4 x 64", 4, 64, 64, 12, 12, 64, true});
  attention(bench, {"GPT-2 1 x 512", 1, 512, 512, 12, 12, 64, true});
  attention(bench, {"GPT-2 1 x 512, documents", 1, 512, 512, 12, 12, 64, true, [] { return Attrs(); }, true});
  attention(bench, {"GPT-2 1 x 512, dropout", 1, 512, 512, 12, 12, 64, true, [] { return Attrs().f("dropout", 0.1); }});
  attention(bench, {"SmolLM2 1 x 512", 1, 512, 512, 9, 3, 64, false});
  attention(bench, {"SmolLM2 1 x 2048", 1, 2048, 2048, 9, 3, 64, false});
  attention(bench, {"SmolLM2 1 x 2048, window 256", 1, 2048, 2048, 9, 3, 64, false, [] { return Attrs().i("window", 256); }});
  attention(bench, {"SmolLM2 1 x 2048, cap", 1, 2048, 2048, 9, 3, 64, false, [] { return Attrs().f("softcap", 50); }});
  attention(bench, {"16 + 8 heads of 128, 1 x 512", 1, 512, 512, 16, 8, 128, false});
  attention(bench, {"T5, both ways, 1 x 512", 1, 512, 512, 8, 8, 64, false, [] { return Attrs().i("causal", 0); }, false, 32});
  for (const uint32_t dtype : {GALLEY_BF16, GALLEY_F16}) {
    const bool b = dtype == GALLEY_BF16;
    attention(bench,
              {b ? "GPT-2 1 x 512, bf16" : "GPT-2 1 x 512, f16", 1, 512, 512, 12, 12, 64, true, [] { return Attrs(); }, false, 0, dtype});
    attention(bench, {b ? "SmolLM2 1 x 2048, bf16" : "SmolLM2 1 x 2048, f16", 1, 2048, 2048, 9, 3, 64, false, [] { return Attrs(); }, false,
                      0, dtype});
  }
}
