// Products by cuBLASLt.
//
// Rows and columns. cuBLASLt's matrices lie in columns; the same bytes in rows are the transposed matrix. So it is asked for
// Cᵀ (n, m) = Bᵀ (n, k) · Aᵀ (k, m): our B is its first operand, our A its second.
//
//     ours                      cuBLASLt's, in columns            leading dimension
//     B stored (k, n)           first is Bᵀ (n, k) as it lies      n
//     B stored (n, k)           first lies as B (k, n), taken T    k
//     A stored (m, k)           second is Aᵀ (k, m) as it lies     k
//     A stored (k, m)           second lies as A (m, k), taken T   m
//     C        (m, n)           Cᵀ (n, m)                          n
//
// Its bias has one number for each row of Cᵀ: that is one for each column of C, as ours.
#pragma once

#include <algorithm>
#include <memory>

#include "cuda/cublaslt.hpp"
#include "cuda/gemm.hpp"

namespace galley::cuda {

namespace detail {

inline cudaDataType_t cuda_type(uint32_t dtype) {
  return dtype == GALLEY_BF16  ? CUDA_R_16BF
         : dtype == GALLEY_F16 ? CUDA_R_16F
         : dtype == GALLEY_I8  ? CUDA_R_8I
         : dtype == GALLEY_I32 ? CUDA_R_32I
                               : CUDA_R_32F;
}
inline cublasComputeType_t cuda_compute(Compute compute) {
  return compute == Compute::Tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : compute == Compute::I32 ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F;
}

template <class Handle>
using LtOwned = std::unique_ptr<std::remove_pointer_t<Handle>, cublasStatus_t (*)(Handle)>;

/// nvcc 13.0 cannot make a vector of cuBLASLt's own struct, which has no name.
struct Algorithm {
  cublasLtMatmulAlgo_t made = {};
};

/// A time on a stream.
struct Event {
  Event() { check(cudaEventCreate(&made), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(made); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t made = nullptr;
};

/// A matrix in columns.
struct LtLayout {
  LtLayout(const Lt& lt_, uint32_t dtype, int64_t rows, int64_t columns) : lt(lt_) {
    lt.check(lt.layout_create(&made, cuda_type(dtype), static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), rows),
             "cublasLtMatrixLayoutCreate");
    owned.reset(made);
  }
  template <class T>
  void set(cublasLtMatrixLayoutAttribute_t attribute, T value) {
    lt.check(lt.layout_set(made, attribute, &value, sizeof value), "cublasLtMatrixLayoutSetAttribute");
  }
  const Lt& lt;
  cublasLtMatrixLayout_t made = nullptr;
  LtOwned<cublasLtMatrixLayout_t> owned{nullptr, lt.layout_destroy};
};

/// Those of a product.
struct LtLayouts {
  LtLayouts(const Lt& lt, const Matmul& p)
      : first(lt, p.dtype, p.b_row(), p.b_transposed ? p.n : p.k),
        second(lt, p.dtype, p.a_row(), p.a_transposed ? p.k : p.m),
        out(lt, p.c_dtype, p.n, p.m) {}
  LtLayout first, second, out;
};

}  // namespace detail

class GemmEngine {
 public:
  explicit GemmEngine(const GemmSetup& setup) : setup_(setup), lt_(Lt::of(setup.version)), layouts_(lt_, form()) {
    const bool integers = form().compute == Compute::I32;
    lt_.check(lt_.operation_create(&made_, detail::cuda_compute(form().compute), integers ? CUDA_R_32I : CUDA_R_32F),
              "cublasLtMatmulDescCreate");
    operation_.reset(made_);
    set(CUBLASLT_MATMUL_DESC_TRANSA, form().b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, form().a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    choose();
    if (setup_.products.size() > 1) batch();
  }

  /// Whether run() needs the table of addresses.
  bool reads_addresses() const { return pointers_; }
  void run(galley_queue* queue) const {
    const size_t count = setup_.products.size();
    if (pointers_) call(*batch_, setup_.addresses + count, setup_.addresses, setup_.addresses + 2 * count, queue);
    else if (batch_) call(*batch_, form().b, form().a, form().c, queue);
    else
      for (const Matmul& p : setup_.products) call(layouts_, p.b, p.a, p.c, queue);
  }

 private:
  // An address that stands for all of this alignment: heuristics look at those of biases, which lie elsewhere in the next run.
  static void* somewhere() { return reinterpret_cast<void*>(uintptr_t{16}); }

  const Matmul& form() const { return setup_.products.front(); }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    lt_.check(lt_.operation_set(made_, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }

  void call(const detail::LtLayouts& layouts, const void* first, const void* second, const void* c, galley_queue* queue) const {
    const float times = form().alpha, beta = form().adds ? 1.0f : 0.0f;
    const int32_t one_i = 1, beta_i = 0;
    const bool integers = form().compute == Compute::I32;
    const void* const alpha = integers ? static_cast<const void*>(&one_i) : &times;
    const void* const held = integers ? static_cast<const void*>(&beta_i) : &beta;
    void* const out = const_cast<void*>(c);
    const cublasStatus_t status = lt_.matmul(lt_.handle(), made_, alpha, first, layouts.first.made, second, layouts.second.made, held, out,
                                             layouts.out.made, out, layouts.out.made, &algorithm_, setup_.workspace,
                                             static_cast<size_t>(setup_.workspace_bytes), reinterpret_cast<cudaStream_t>(queue));
    if (status != CUBLAS_STATUS_SUCCESS) fail("cublasLtMatmul", status);
  }
  [[noreturn]] void fail(const char* what, cublasStatus_t status) const {
    throw sdk::Failure(GALLEY_FAILED, setup_.name + ": " + request() + ": " + what + ": " + lt_.status_name(status));
  }
  /// What was asked for, for messages.
  std::string request() const {
    return "cuBLASLt " + lt_.version() + ", " + text(form()) + ", within " + std::to_string(setup_.workspace_bytes) + " bytes of workspace";
  }

  /// Sets the algorithm, and what follows the product. ReLU has the algorithm that the product has alone, if that takes it: its bytes are
  /// those of two nodes. For GELU and its gradient an algorithm is searched with the epilogue: many of those for the product alone take it,
  /// and are several times slower with it. GELU has one algorithm whether its product is kept or not, and so the same bytes.
  void choose() {
    if (form().has_bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, somewhere());
    switch (form().epilogue) {
      case Epilogue::None:
      case Epilogue::Relu:
        follow(0);
        take({});
        if (form().epilogue == Epilogue::None) break;
        follow(CUBLASLT_EPILOGUE_RELU);
        if (!takes(layouts_)) algorithm_ = search().front().made;
        break;
      case Epilogue::Gelu: {
        follow(CUBLASLT_EPILOGUE_GELU_AUX);
        const std::vector<detail::Algorithm> keeping = search();
        follow(CUBLASLT_EPILOGUE_GELU);
        std::vector<detail::Algorithm> both;
        for (const detail::Algorithm& x : keeping)
          if (algorithm_ = x.made; takes(layouts_)) both.push_back(x);
        if (both.empty()) throw NoAlgorithm(GALLEY_UNSUPPORTED, request() + ": it has no algorithm for both forms of GELU");
        take(both);
        if (form().keeps_product) follow(CUBLASLT_EPILOGUE_GELU_AUX, form().product);
        break;
      }
      case Epilogue::GeluGrad:
        follow(CUBLASLT_EPILOGUE_DGELU);
        take(search(), form().product);
        break;
    }
    if (form().has_bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, setup_.bias);
  }
  /// What follows the product; `aux`: GELU's matrix, where it has one.
  void follow(uint32_t then, void* aux = somewhere()) {
    const uint32_t all = then | (form().has_bias ? CUBLASLT_EPILOGUE_BIAS : 0);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, all ? all : uint32_t{CUBLASLT_EPILOGUE_DEFAULT});
    const bool reads = then == CUBLASLT_EPILOGUE_GELU_AUX || then == CUBLASLT_EPILOGUE_DGELU;
    if (reads) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, form().n);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, reads ? aux : nullptr);
  }
  /// The first one of the candidates, those of a search where there are none, or the fastest one. `aux`: as for follow(), set at the end.
  void take(std::vector<detail::Algorithm> candidates, void* aux = nullptr) {
    if (aux && setup_.choices) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
    if (setup_.choices) tune(std::move(candidates));
    else algorithm_ = (candidates.empty() ? search() : candidates).front().made;
    if (aux) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
  }

  /// Those that the heuristic knows, the best first; one at least.
  std::vector<detail::Algorithm> search() const {
    cublasLtMatmulPreference_t made = nullptr;
    lt_.check(lt_.preference_create(&made), "cublasLtMatmulPreferenceCreate");
    const detail::LtOwned<cublasLtMatmulPreference_t> preference(made, lt_.preference_destroy);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      lt_.check(lt_.preference_set(made, attribute, &value, sizeof value), "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(setup_.workspace_bytes));
    // Where sums are split, their parts are added up in F32. Sums in 16 bit whose length is no multiple of 64 are not split: cuBLASLt 12.8
    // to 13.2 then leaves out the rest after the last 64, for some lengths (github.com/facebookexperimental/triton, pull request 2767).
    const bool whole = form().dtype != GALLEY_F32 && form().k % 64 != 0;
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<uint32_t>(whole ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(form().b_row(), form().dtype, &Matmul::b));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(form().a_row(), form().dtype, &Matmul::a));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(form().n, form().c_dtype, &Matmul::c));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(form().n, form().c_dtype, &Matmul::c));
    cublasLtMatmulHeuristicResult_t found[8] = {};
    int count = 0;
    const cublasStatus_t status = lt_.heuristic(lt_.handle(), made_, layouts_.first.made, layouts_.second.made, layouts_.out.made,
                                                layouts_.out.made, made, 8, found, &count);
    std::vector<detail::Algorithm> out;
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < count; ++i)
      if (fits(found[i])) out.push_back({found[i].algo});
    if (!out.empty()) return out;
    throw NoAlgorithm(GALLEY_UNSUPPORTED, request() + ": it has no algorithm: " +
                                              lt_.status_name(status == CUBLAS_STATUS_SUCCESS ? CUBLAS_STATUS_NOT_SUPPORTED : status));
  }
  bool fits(const cublasLtMatmulHeuristicResult_t& result) const {
    return result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= static_cast<size_t>(setup_.workspace_bytes);
  }
  /// The bytes that divide the address of every row, at most 16, since no algorithm asks for more. Tensors begin at addresses of 64, so
  /// it is the row that decides; a tensor that does not counts as it lies.
  template <class Address>
  uint32_t alignment(int64_t row, uint32_t dtype, Address Matmul::*address) const {
    auto bits = static_cast<uint64_t>(row * galley_dtype_bytes(dtype)) | 16;
    for (const Matmul& p : setup_.products) bits |= reinterpret_cast<uintptr_t>(p.*address);
    return static_cast<uint32_t>(bits & (~bits + 1));
  }

  // ---- Measured choices: an algorithm is kept as the words of cuBLASLt's own struct ----

  void tune(std::vector<detail::Algorithm> candidates) {
    Matmul form = this->form();
    if (form.epilogue == Epilogue::Relu) form.epilogue = Epilogue::None;  // the algorithm is that of the product alone
    const std::string key = "cublaslt: " + text(form) + ", " + std::to_string(setup_.workspace_bytes) + " bytes of workspace, rows at " +
                            std::to_string(alignment(form.a_row(), form.dtype, &Matmul::a)) + ", " +
                            std::to_string(alignment(form.b_row(), form.dtype, &Matmul::b)) + ", " +
                            std::to_string(alignment(form.n, form.c_dtype, &Matmul::c));
    if (const char* known = setup_.choices->find(setup_.choices->self, key.c_str()); known && read(known) && takes(layouts_)) return;
    if (candidates.empty()) candidates = search();
    const std::vector<char> held = held_by_c();
    if (form.has_bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, setup_.bias);
    double best = 0;
    cublasLtMatmulAlgo_t fastest = candidates.front().made;
    for (size_t i = 0; i < candidates.size(); ++i) {
      algorithm_ = candidates[i].made;
      const double seconds = measure();
      // The heuristic's order decides between equals: times scatter.
      if (i == 0 || seconds < 0.98 * best) best = seconds, fastest = candidates[i].made;
    }
    algorithm_ = fastest;
    if (!held.empty()) move(form.c, held.data(), held.size());
    if (form.has_bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, somewhere());
    setup_.choices->keep(setup_.choices->self, key.c_str(), words().c_str());
  }
  /// What the first product adds to, if it does: the calls that are measured add to it, too, and it is put back after them.
  std::vector<char> held_by_c() const {
    std::vector<char> out(static_cast<size_t>(form().adds ? form().m * form().n * galley_dtype_bytes(form().c_dtype) : 0));
    if (!out.empty()) move(out.data(), form().c, out.size());
    return out;
  }
  void move(void* to, const void* from, size_t bytes) const {
    const auto stream = reinterpret_cast<cudaStream_t>(setup_.queue);
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  /// Seconds of the first product, the shortest of a few. Several calls between two events: one would be over before the host has made the
  /// next call of the runtime.
  double measure() const {
    const auto stream = reinterpret_cast<cudaStream_t>(setup_.queue);
    const detail::Event begin, end;
    constexpr int kRounds = 4, kCalls = 8;
    float best = 0;
    for (int round = 0; round < kRounds; ++round) {
      const int calls = round == 0 ? 1 : kCalls;  // the first one loads the code
      check(cudaEventRecord(begin.made, stream), "cudaEventRecord");
      for (int k = 0; k < calls; ++k) call(layouts_, form().b, form().a, form().c, setup_.queue);
      check(cudaEventRecord(end.made, stream), "cudaEventRecord");
      check(cudaEventSynchronize(end.made), "cudaEventSynchronize");
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, begin.made, end.made), "cudaEventElapsedTime");
      if (round == 1 || (round > 1 && milliseconds < best)) best = milliseconds;
    }
    return static_cast<double>(best) / (1e3 * kCalls);
  }
  std::string words() const {
    std::string out;
    for (const uint64_t word : algorithm_.data) out += (out.empty() ? "" : " ") + std::to_string(word);
    return out;
  }
  bool read(const char* text) {
    for (uint64_t& word : algorithm_.data) {
      char* end = nullptr;
      word = std::strtoull(text, &end, 10);
      if (end == text) return false;
      text = end;
    }
    return true;
  }

  bool takes(const detail::LtLayouts& layouts) const {
    cublasLtMatmulHeuristicResult_t result = {};
    return lt_.algorithm_check(lt_.handle(), made_, layouts.first.made, layouts.second.made, layouts.out.made, layouts.out.made,
                               &algorithm_, &result) == CUBLAS_STATUS_SUCCESS &&
           fits(result);
  }
  bool can(cublasLtMatmulAlgoCapAttributes_t capability) const {
    int32_t value = 0;
    size_t written = 0;
    return lt_.algorithm_capability(&algorithm_, capability, &value, sizeof value, &written) == CUBLAS_STATUS_SUCCESS && value != 0;
  }

  /// One call for all products, if the algorithm that each of them has alone can do that: by a stride where their addresses have one, or
  /// by the table of addresses.
  void batch() {
    int64_t strides[3];
    if (can(CUBLASLT_ALGO_CAP_STRIDED_BATCH_SUPPORT) && stride(&Matmul::b, form().dtype, strides[0]) &&
        stride(&Matmul::a, form().dtype, strides[1]) && stride(&Matmul::c, form().c_dtype, strides[2])) {
      batch_ = batched();
      detail::LtLayout* const layouts[] = {&batch_->first, &batch_->second, &batch_->out};
      for (size_t i = 0; i < 3; ++i) layouts[i]->set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, strides[i]);
      if (takes(*batch_)) return;
    }
    batch_.reset();
#if CUBLAS_VERSION >= 130000
    if (std::atoi(lt_.version().c_str()) >= 13 && can(CUBLASLT_ALGO_CAP_POINTER_ARRAY_BATCH_SUPPORT)) {
      batch_ = batched();
      for (detail::LtLayout* layout : {&batch_->first, &batch_->second, &batch_->out})
        layout->set(CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, uint32_t{CUBLASLT_BATCH_MODE_POINTER_ARRAY});
      pointers_ = takes(*batch_);
      if (!pointers_) batch_.reset();
    }
#endif
  }
  std::unique_ptr<detail::LtLayouts> batched() const {
    auto out = std::make_unique<detail::LtLayouts>(lt_, form());
    for (detail::LtLayout* layout : {&out->first, &out->second, &out->out})
      layout->set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(setup_.products.size()));
    return out;
  }
  /// The distance between an operand of one product and the next one's, in numbers; false if it is not the same everywhere.
  template <class Address>
  bool stride(Address Matmul::*address, uint32_t dtype, int64_t& out) const {
    const auto at = [&](size_t i) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(setup_.products[i].*address)); };
    const int64_t bytes = at(1) - at(0);
    for (size_t i = 2; i < setup_.products.size(); ++i)
      if (at(i) - at(i - 1) != bytes) return false;
    out = bytes / galley_dtype_bytes(dtype);
    return bytes >= 0 && bytes % galley_dtype_bytes(dtype) == 0;
  }

  GemmSetup setup_;
  const Lt& lt_;
  detail::LtLayouts layouts_;
  cublasLtMatmulDesc_t made_ = nullptr;
  detail::LtOwned<cublasLtMatmulDesc_t> operation_{nullptr, lt_.operation_destroy};
  cublasLtMatmulAlgo_t algorithm_ = {};
  std::unique_ptr<detail::LtLayouts> batch_;
  bool pointers_ = false;
};

}  // namespace galley::cuda
