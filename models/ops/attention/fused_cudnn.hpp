// Attention as graphs of cuDNN 9's backend. The graphs are the ones that its fused engines know: forward S = scale·Q·Kᵀ, a causal mask, a
// softmax with its logarithm kept, P·V; backward the same from Q, K and what forward left (NVIDIA, "cuDNN: attention forward and
// backward"). Tensors are (B, heads, S, D) by strides, so heads stay where they are. Numbers of dtype F32 between operations are never
// stored.
//
// A plan is made once for each form; its nodes share it.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "cuda/cudnn.hpp"
#include "ops/attention/fused.hpp"

namespace galley::models {

/// Where a graph is to run: on the handle's device, or on one that is only described, where nothing can be executed.
struct FusedPlace {
  cuda::dnn::Handle handle = nullptr;
  const cuda::dnn::Descriptor* properties = nullptr;
};

/// A graph, and the engine that the library's heuristic puts first of those within the bound on its memory.
class FusedGraph {
  using Dnn = cuda::dnn::Dnn;
  using Descriptor = cuda::dnn::Descriptor;

 public:
  /// Unique ids of tensors in memory; numbers in between operations have later ones.
  enum Id : int64_t { Q = 1, K, V, O, Lse, Go, Dq, Dk, Dv, Sums, DqSums, Scale, One, NegativeInfinity, Between };

  FusedGraph(const Dnn& dnn, const FusedPlace& place, const FusedForm& form, bool backward, int64_t most_bytes)
      : dnn_(dnn), form_(form), scale_(form.scale) {
    if (backward) add_backward();
    else add_forward();
    choose(place, backward, most_bytes);
  }

  int64_t workspace_bytes() const { return workspace_bytes_; }
  cuda::dnn::Raw plan() const { return plan_->raw(); }

  /// What one execution reads and writes. `sums`, `dq_sums`: of backward (FusedMemory).
  Descriptor pack(const FusedOperands& a, float* sums, float* dq_sums, void* workspace) const {
    std::vector<int64_t> ids;
    std::vector<void*> pointers;
    const auto give = [&](int64_t id, const void* address) {
      if (!uses(id)) return;
      ids.push_back(id);
      pointers.push_back(const_cast<void*>(address));
    };
    give(Q, a.q), give(K, a.k), give(V, a.v), give(O, a.o), give(Lse, a.lse);
    give(Go, a.go), give(Dq, a.dq), give(Dk, a.dk), give(Dv, a.dv), give(Sums, sums), give(DqSums, dq_sums);
    give(Scale, &scale_), give(One, &one_), give(NegativeInfinity, &negative_infinity_);
    using namespace cuda::dnn;
    Descriptor out(dnn_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    out.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, static_cast<int64_t>(ids.size()), ids.data())
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, static_cast<int64_t>(pointers.size()), pointers.data())
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace)
        .finish("a variant pack");
    return out;
  }

 private:
  using Tensor = const Descriptor*;

  // ---- Tensors ----
  struct Shape {
    int64_t sizes[4], strides[4];
  };
  /// (B, heads, S, D) in rows of `row` numbers, heads `head` apart.
  Shape rows(int64_t heads, int64_t row, int64_t head) const { return {{form_.B, heads, form_.S, form_.D}, {form_.S * row, head, row, 1}}; }
  Shape of_q() const { return rows(form_.heads, form_.q_row, form_.q_head); }
  Shape of_kv() const { return rows(form_.kv_heads, form_.kv_row, form_.kv_head); }
  Shape of_o() const { return rows(form_.heads, form_.o_row, form_.D); }
  /// The last two dimensions exchanged.
  static Shape turned(Shape s) {
    std::swap(s.sizes[2], s.sizes[3]);
    std::swap(s.strides[2], s.strides[3]);
    return s;
  }
  Shape dense(int64_t columns) const {
    return {{form_.B, form_.heads, form_.S, columns}, {form_.heads * form_.S * columns, form_.S * columns, columns, 1}};
  }
  Shape scores() const { return dense(form_.S); }
  Shape a_query() const { return dense(1); }
  static Shape single() { return {{1, 1, 1, 1}, {1, 1, 1, 1}}; }

  Tensor tensor(int64_t id, int dtype, const Shape& s, int kind) {
    using namespace cuda::dnn;
    Descriptor& t = *parts_.emplace_back(std::make_unique<Descriptor>(dnn_, CUDNN_BACKEND_TENSOR_DESCRIPTOR));
    t.choice(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, dtype)
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, s.sizes)
        .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, s.strides)
        .number(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
        .number(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16);
    if (kind) t.yes(kind);
    t.finish("a tensor");
    return &t;
  }
  Tensor stored(Id id, int dtype, const Shape& s) {
    used_ |= uint64_t{1} << id;
    return tensor(id, dtype, s, 0);
  }
  Tensor value(Id id) {
    used_ |= uint64_t{1} << id;
    return tensor(id, cuda::dnn::CUDNN_DATA_FLOAT, single(), cuda::dnn::CUDNN_ATTR_TENSOR_IS_BY_VALUE);
  }
  Tensor between(int dtype, const Shape& s) { return tensor(next_++, dtype, s, cuda::dnn::CUDNN_ATTR_TENSOR_IS_VIRTUAL); }
  Tensor numbers(const Shape& s) { return between(cuda::dnn::CUDNN_DATA_FLOAT, s); }
  bool uses(int64_t id) const { return used_ >> id & 1; }
  int half() const { return form_.dtype == GALLEY_BF16 ? cuda::dnn::CUDNN_DATA_BFLOAT16 : cuda::dnn::CUDNN_DATA_HALF; }

  // ---- Operations: what they make is given, and returned ----
  Descriptor& part(int kind) { return *parts_.emplace_back(std::make_unique<Descriptor>(dnn_, kind)); }
  void operation(Descriptor& made, const char* what) { operations_.push_back(made.finish(what).raw()); }

  Tensor product(Tensor a, Tensor b, Tensor c) {
    using namespace cuda::dnn;
    Descriptor& how = part(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    how.choice(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT).finish("a product");
    operation(part(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
                  .part(CUDNN_ATTR_OPERATION_MATMUL_ADESC, *a)
                  .part(CUDNN_ATTR_OPERATION_MATMUL_BDESC, *b)
                  .part(CUDNN_ATTR_OPERATION_MATMUL_CDESC, *c)
                  .part(CUDNN_ATTR_OPERATION_MATMUL_DESC, how),
              "a product");
    return c;
  }
  /// y = x, x ∘ b, or where `test` says so x and else b. `axis`: of indices.
  Tensor pointwise(int mode, Tensor x, Tensor b, Tensor y, Tensor test = nullptr, int64_t axis = -1) {
    using namespace cuda::dnn;
    Descriptor& how = part(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    how.choice(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode)
        .choice(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
                mode == CUDNN_POINTWISE_CMP_GE ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT);
    if (axis >= 0) how.number(CUDNN_ATTR_POINTWISE_AXIS, axis);
    how.finish("an operation by elements");
    Descriptor& made = part(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    made.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how).part(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *x);
    if (b) made.part(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
    if (test) made.part(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *test);
    operation(made.part(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *y), "an operation by elements");
    return y;
  }
  Tensor reduction(int mode, Tensor x, Tensor y) {
    using namespace cuda::dnn;
    Descriptor& how = part(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    how.choice(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, mode)
        .choice(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
        .finish("a reduction");
    operation(part(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
                  .part(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, *x)
                  .part(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, *y)
                  .part(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how),
              "a reduction");
    return y;
  }
  Tensor reshaped(Tensor x, Tensor y) {
    using namespace cuda::dnn;
    operation(part(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
                  .part(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, *x)
                  .part(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, *y),
              "a reshape");
    return y;
  }
  /// Scores of later keys become −∞.
  Tensor masked(Tensor s) {
    using namespace cuda::dnn;
    const Tensor query = pointwise(CUDNN_POINTWISE_GEN_INDEX, s, nullptr, between(CUDNN_DATA_INT32, scores()), nullptr, 2);
    const Tensor key = pointwise(CUDNN_POINTWISE_GEN_INDEX, s, nullptr, between(CUDNN_DATA_INT32, scores()), nullptr, 3);
    const Tensor seen = pointwise(CUDNN_POINTWISE_CMP_GE, query, key, between(CUDNN_DATA_BOOLEAN, scores()));
    return pointwise(CUDNN_POINTWISE_BINARY_SELECT, s, value(NegativeInfinity), numbers(scores()), seen);
  }

  void add_forward() {
    using namespace cuda::dnn;
    const Tensor q = stored(Q, half(), of_q());
    const Tensor k = stored(K, half(), turned(of_kv()));
    const Tensor v = stored(V, half(), of_kv());
    Tensor s = product(q, k, numbers(scores()));
    s = masked(pointwise(CUDNN_POINTWISE_MUL, s, value(Scale), numbers(scores())));
    const Tensor largest = reduction(CUDNN_REDUCE_TENSOR_MAX, s, numbers(a_query()));
    const Tensor less = pointwise(CUDNN_POINTWISE_SUB, s, largest, numbers(scores()));
    const Tensor p = pointwise(CUDNN_POINTWISE_EXP, less, nullptr, numbers(scores()));
    const Tensor sum = reduction(CUDNN_REDUCE_TENSOR_ADD, p, numbers(a_query()));
    const Tensor log = pointwise(CUDNN_POINTWISE_LOG, sum, nullptr, numbers(a_query()));
    pointwise(CUDNN_POINTWISE_ADD, largest, log, lse());
    const Tensor softmax = pointwise(CUDNN_POINTWISE_DIV, p, sum, between(half(), scores()));
    product(softmax, v, stored(O, half(), of_o()));
  }

  void add_backward() {
    using namespace cuda::dnn;
    const Shape q_rows = of_q(), kv_rows = of_kv(), o_rows = of_o();
    const Tensor q = stored(Q, half(), q_rows), k = stored(K, half(), turned(kv_rows)), v = stored(V, half(), turned(kv_rows)),
                 o = stored(O, half(), o_rows), go = stored(Go, half(), o_rows), scale = value(Scale);
    // Σ do·o of each query.
    const Tensor both = pointwise(CUDNN_POINTWISE_MUL, go, o, numbers(dense(form_.D)));
    const Tensor sum = reduction(CUDNN_REDUCE_TENSOR_ADD, both, numbers(a_query()));
    const Tensor sums = pointwise(CUDNN_POINTWISE_MUL, sum, value(One), stored(Sums, CUDNN_DATA_FLOAT, a_query()));
    // P from Q, K and lse.
    Tensor s = product(q, k, numbers(scores()));
    s = pointwise(CUDNN_POINTWISE_MUL, s, scale, numbers(scores()));
    s = masked(pointwise(CUDNN_POINTWISE_SUB, s, lse(), numbers(scores())));
    const Tensor p = pointwise(CUDNN_POINTWISE_EXP, s, nullptr, numbers(scores()));
    // dV = Pᵀ·dO.
    const Tensor p_turned = reshaped(p, between(half(), turned(scores())));
    of_key_heads(p_turned, go, stored(Dv, half(), kv_rows));
    // dS = P∘(dO·Vᵀ − Σ do·o), times the scale.
    Tensor ds = product(go, v, numbers(scores()));
    ds = pointwise(CUDNN_POINTWISE_SUB, ds, sums, numbers(scores()));
    ds = pointwise(CUDNN_POINTWISE_MUL, ds, p, numbers(scores()));
    ds = pointwise(CUDNN_POINTWISE_MUL, ds, scale, numbers(scores()));
    const Tensor ds_turned = reshaped(ds, between(half(), turned(scores())));
    of_key_heads(ds_turned, q, stored(Dk, half(), kv_rows));
    const Tensor keys = reshaped(k, numbers(kv_rows));
    if (form_.deterministic) {
      product(ds, keys, stored(Dq, half(), q_rows));
    } else {
      const Tensor dq = product(ds, keys, stored(DqSums, CUDNN_DATA_FLOAT, dense(form_.D)));
      pointwise(CUDNN_POINTWISE_IDENTITY, dq, nullptr, stored(Dq, half(), q_rows));
    }
  }
  /// c = aᵀ·b, summed up over the query heads of each key head.
  void of_key_heads(Tensor a, Tensor b, Tensor c) {
    if (form_.heads == form_.kv_heads) product(a, b, c);
    else reduction(cuda::dnn::CUDNN_REDUCE_TENSOR_ADD, product(a, b, between(half(), dense(form_.D))), c);
  }
  Tensor lse() {
    const Shape s = {{form_.B, form_.heads, form_.S, 1}, {form_.lse_heads * form_.S, form_.S, 1, 1}};
    return stored(Lse, cuda::dnn::CUDNN_DATA_FLOAT, s);
  }

  // ---- The engine ----
  /// Whether an engine says that its sums have no fixed order. None of 9.10 to 9.26 does, also for the graph that adds dq atomically: it
  /// is the graph of deterministic forms that has an order.
  bool varies(const Descriptor& config) const {
    using namespace cuda::dnn;
    Descriptor engine(dnn_, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    Raw raw = engine.raw();
    int64_t count = 0;
    dnn_.check(dnn_.get(config.raw(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw), "the engine of a plan");
    int notes[32];
    count = 0;
    dnn_.check(dnn_.get(raw, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, 32, &count, notes), "what an engine notes");
    return std::find(notes, notes + count, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) != notes + count;
  }

  void choose(const FusedPlace& place, bool backward, int64_t most_bytes) {
    using namespace cuda::dnn;
    Descriptor graph(dnn_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (place.handle) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &place.handle);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(operations_.size()), operations_.data())
        .finish("a graph");
    Descriptor heuristic(dnn_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristic.part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
        .choice(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
    if (place.properties) heuristic.part(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *place.properties);
    heuristic.finish("a heuristic");

    constexpr int64_t kMost = 16;
    std::vector<Descriptor> configs;
    std::vector<Raw> raws;
    for (int64_t i = 0; i < kMost; ++i) raws.push_back(configs.emplace_back(dnn_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).raw());
    int64_t found = 0;
    dnn_.check(dnn_.get(heuristic.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, kMost, &found, raws.data()),
               "cudnnBackendGetAttribute of a heuristic");
    std::string reasons;
    for (size_t i = 0; i < static_cast<size_t>(std::min(found, kMost)) && !plan_; ++i) try {
        if (backward && form_.deterministic && varies(configs[i])) {
          reasons += "; its sums have no fixed order";
          continue;
        }
        auto plan = std::make_unique<Descriptor>(dnn_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        if (place.handle) plan->set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &place.handle);
        if (place.properties) plan->part(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *place.properties);
        plan->part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configs[i]).finish("a plan");
        int64_t bytes = 0, count = 0;
        dnn_.check(dnn_.get(plan->raw(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &bytes),
                   "a plan's workspace");
        if (bytes > most_bytes) {
          reasons += "; it asks for " + std::to_string(bytes) + " bytes";
          continue;
        }
        workspace_bytes_ = bytes;
        plan_ = std::move(plan);
      } catch (const sdk::Failure& failure) {
        reasons += std::string("; ") + failure.what();
      }
    if (!plan_)
      throw sdk::Failure(GALLEY_FAILED,
                         "cuDNN " + dnn_.version() + " has no engine for attention" + (backward ? " backward" : "") + " of (" +
                             std::to_string(form_.B) + ", " + std::to_string(form_.heads) + " heads over " +
                             std::to_string(form_.kv_heads) + ", " + std::to_string(form_.S) + ", " + std::to_string(form_.D) +
                             ") within " + std::to_string(most_bytes) + " bytes of workspace: " + std::to_string(found) + " found" +
                             reasons,
                         "cuDNN compiles with libnvrtc.so of its CUDA: install that; or leave cuDNN out with an empty GALLEY_CUDNN");
  }

  const Dnn& dnn_;
  const FusedForm form_;
  const float scale_, one_ = 1, negative_infinity_ = -std::numeric_limits<float>::infinity();
  int64_t next_ = Between;
  uint64_t used_ = 0;
  std::vector<std::unique_ptr<Descriptor>> parts_;
  std::vector<cuda::dnn::Raw> operations_;
  std::unique_ptr<Descriptor> plan_;
  int64_t workspace_bytes_ = 0;
};

/// The plan of a form, which its nodes share. It takes up to a second to make and a few KiB to keep, so it stays for later nodes of this
/// process. [thread-safe]
inline std::shared_ptr<const FusedGraph> fused_graph(const cuda::dnn::Dnn& dnn, const FusedForm& form, bool backward, int64_t most_bytes) {
  static std::mutex mutex;
  // Never destroyed: cuDNN may be gone when the process ends.
  static auto& plans = *new std::map<std::tuple<FusedForm, bool, int64_t>, std::shared_ptr<const FusedGraph>>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const FusedGraph>& graph = plans[{form, backward, most_bytes}];
  if (!graph) graph = std::make_shared<const FusedGraph>(dnn, FusedPlace{dnn.handle(), nullptr}, form, backward, most_bytes);
  return graph;
}

}  // namespace galley::models
