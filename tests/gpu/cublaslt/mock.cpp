// A cuBLASLt of the tests: the calls of cublasLt.h beside this file, strict where NVIDIA's leaves it to the caller. What its documentation
// forbids, and what it would take in silence and compute wrongly, is written to stderr and ends the process: an attribute of another size
// or value, an object that is not there any more, shapes and dtypes that do not fit, an operand that is less aligned than the heuristic was
// told, a workspace that is too small, memory that holds no attribute yet. Products are computed by the documentation's own formula,
// column by column in F64, when the stream comes to them, from what the objects said when cublasLtMatmul was called.
//
//   GALLEY_MOCK_LT_BATCHES = none | strided | pointers     what its algorithms can batch (default: both)
//   GALLEY_MOCK_LT_REFUSES = N                             the first N algorithms of a heuristic ask for more workspace than there is
#include "tests/gpu/cublaslt/cublasLt.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "galley/cuda/number.hpp"

namespace {

[[noreturn]] void forbid(const std::string& what) {
  std::fprintf(stderr, "cuBLASLt of the tests: %s\n", what.c_str());
  std::abort();
}
void require(bool holds, const std::string& what) {
  if (!holds) forbid(what);
}
/// An attribute's value: of exactly its size.
template <class T>
T value_of(const void* from, size_t bytes, const char* what) {
  require(from && bytes == sizeof(T),
          std::string(what) + " has " + std::to_string(sizeof(T)) + " bytes, and " + std::to_string(bytes) + " are given");
  T out;
  std::memcpy(&out, from, sizeof out);
  return out;
}

/// Objects that are there.
template <class T>
struct Objects {
  std::set<T*> all;
  T* made(T* object) { return *all.insert(object).first; }
  T& at(T* object, const char* what) {
    require(all.contains(object), std::string(what) + " that is not there (any more)");
    return *object;
  }
  void remove(T* object, const char* what) {
    delete &at(object, what);
    all.erase(object);
  }
};

constexpr uint64_t kAlgorithm = 0x6761'6C6C'6579'0001;  // word 0 of each of ours
constexpr size_t kNeeds = 4096;                         // bytes of workspace of an algorithm

int64_t bytes_of(cudaDataType_t type) { return type == CUDA_R_8I ? 1 : type == CUDA_R_32F || type == CUDA_R_32I ? 4 : 2; }

double read(const void* from, cudaDataType_t type, int64_t i) {
  switch (type) {
    case CUDA_R_32F: return static_cast<const float*>(from)[i];
    case CUDA_R_16BF: return galley::cuda::widen(static_cast<const galley::cuda::Bf16*>(from)[i]);
    case CUDA_R_16F: return galley::cuda::widen(static_cast<const galley::cuda::F16*>(from)[i]);
    case CUDA_R_8I: return static_cast<const int8_t*>(from)[i];
    case CUDA_R_32I: return static_cast<const int32_t*>(from)[i];
  }
  forbid("a data type");
}
void write(void* to, cudaDataType_t type, int64_t i, double x) {
  switch (type) {
    case CUDA_R_32F: static_cast<float*>(to)[i] = static_cast<float>(x); return;
    case CUDA_R_16BF: galley::cuda::narrow(static_cast<float>(x), static_cast<galley::cuda::Bf16*>(to)[i]); return;
    case CUDA_R_16F: galley::cuda::narrow(static_cast<float>(x), static_cast<galley::cuda::F16*>(to)[i]); return;
    case CUDA_R_32I: static_cast<int32_t*>(to)[i] = static_cast<int32_t>(x); return;
    case CUDA_R_8I: break;
  }
  forbid("results of this data type");
}

}  // namespace

struct LtHandle {};
/// A matrix in columns.
struct LtMatrix {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t leading;
  int32_t batch = 1;
  int64_t stride = 0;
  bool pointers = false;

  int64_t at(int64_t row, int64_t column) const { return row + column * leading; }
  const void* member(const void* of, int32_t i) const {
    return pointers ? static_cast<const void* const*>(of)[i] : static_cast<const char*>(of) + i * stride * bytes_of(type);
  }
};
struct LtProduct {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  bool a_transposed = false, b_transposed = false;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* aux = nullptr;
  int64_t aux_leading = 0;

  bool has_bias() const { return epilogue & CUBLASLT_EPILOGUE_BIAS; }
  uint32_t then() const { return epilogue & ~uint32_t{CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_DEFAULT}; }
  bool has_aux() const { return then() == CUBLASLT_EPILOGUE_GELU_AUX || then() == CUBLASLT_EPILOGUE_DGELU; }
};
struct LtPreference {
  uint64_t workspace = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignments[4] = {256, 256, 256, 256};  // of A, B, C, D
};

namespace {

Objects<LtHandle> handles;
Objects<LtMatrix> matrices;
Objects<LtProduct> products;
Objects<LtPreference> preferences;

bool batches(const char* how) {
  const char* const only = std::getenv("GALLEY_MOCK_LT_BATCHES");
  return !only || std::string(only) == how;
}

/// The four matrices of a call.
struct Call {
  Call(cublasLtHandle_t handle, cublasLtMatmulDesc_t p_, cublasLtMatrixLayout_t a_, cublasLtMatrixLayout_t b_, cublasLtMatrixLayout_t c_,
       cublasLtMatrixLayout_t d_)
      : p(products.at(p_, "a product")),
        a(matrices.at(a_, "A")),
        b(matrices.at(b_, "B")),
        c(matrices.at(c_, "C")),
        d(matrices.at(d_, "D")) {
    handles.at(handle, "a handle");
    m = static_cast<int64_t>(p.a_transposed ? a.columns : a.rows);
    k = static_cast<int64_t>(p.a_transposed ? a.rows : a.columns);
    n = static_cast<int64_t>(p.b_transposed ? b.rows : b.columns);
    const auto inner = static_cast<int64_t>(p.b_transposed ? b.columns : b.rows);
    require(k == inner, "A has " + std::to_string(k) + " numbers in each sum, B " + std::to_string(inner));
    for (const LtMatrix* out : {&c, &d})
      require(out->rows == static_cast<uint64_t>(m) && out->columns == static_cast<uint64_t>(n), "C and D have the product's shape");
    check_types();
    check_epilogue();
    for (const LtMatrix* x : {&a, &b, &c})
      require(x->batch == d.batch && x->pointers == d.pointers, "matrices are batched in the same way");
  }
  void check_types() const {
    require(a.type == b.type && c.type == d.type, "A and B have one type, C and D have one");
    if (p.compute == CUBLAS_COMPUTE_32I) {
      require(p.scale == CUDA_R_32I && a.type == CUDA_R_8I && d.type == CUDA_R_32I, "integers: I32 of I8, scaled in I32");
      require(p.a_transposed && !p.b_transposed, "integers: only A transposed, B as it lies");
      require(m % 4 == 0 && k % 4 == 0 && a.leading % 4 == 0 && b.leading % 4 == 0, "integers: multiples of 4");
      require(p.epilogue == CUBLASLT_EPILOGUE_DEFAULT, "integers: no epilogue");
    } else {
      require(p.scale == CUDA_R_32F, "sums in F32 are scaled in F32");
      require(a.type == CUDA_R_32F || a.type == CUDA_R_16BF || a.type == CUDA_R_16F, "numbers");
      require(d.type == a.type || d.type == CUDA_R_32F, "results have the operands' type, or F32");
      require(p.compute == CUBLAS_COMPUTE_32F || a.type == CUDA_R_32F, "TF32 is of F32");
    }
  }
  void check_epilogue() const {
    const uint32_t then = p.then();
    require(p.epilogue == CUBLASLT_EPILOGUE_DEFAULT || !(p.epilogue & CUBLASLT_EPILOGUE_DEFAULT), "the default epilogue is alone");
    require(then == 0 || then == CUBLASLT_EPILOGUE_RELU || then == CUBLASLT_EPILOGUE_GELU || p.has_aux(), "an epilogue that there is");
    require(!p.has_bias() || then != CUBLASLT_EPILOGUE_DGELU, "DGELU has no bias");
    require(!p.has_bias() || p.bias, "a bias has an address, also for the heuristic, which goes by its alignment");
    require(p.epilogue == CUBLASLT_EPILOGUE_DEFAULT || d.batch == 1, "an epilogue of one product");
    if (!p.has_aux()) return;
    require(p.aux && reinterpret_cast<uintptr_t>(p.aux) % 16 == 0, "the auxiliary matrix lies at a multiple of 16 bytes");
    require(p.aux_leading % 8 == 0 && p.aux_leading >= m, "its leading dimension is a multiple of 8, and at least D's rows");
    require(d.type != CUDA_R_32F, "GELU's matrix is of 16 bit");
  }
  /// What an algorithm cannot do is an answer, and no fault.
  cublasStatus_t support() const {
    return d.batch == 1 || batches(d.pointers ? "pointers" : "strided") ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const LtProduct& p;
  const LtMatrix &a, &b, &c, &d;
  int64_t m, n, k;
};

/// What an algorithm's words say that it was searched for.
struct Algorithm {
  explicit Algorithm(const cublasLtMatmulAlgo_t& from)
      : mine(from.data[0] == kAlgorithm), number(from.data[1]), needs(from.data[2]), alignments(from.data[3]), shape(from.data[4]) {}
  static uint64_t shape_of(const Call& call) {
    return static_cast<uint64_t>(call.m * 1'000'003 + call.n * 1009 + call.k) * 64 + static_cast<uint64_t>(call.a.type) * 4 +
           2 * call.p.a_transposed + call.p.b_transposed;
  }
  /// GALLEY_MOCK_LT_GELU = n: the first n algorithms cannot do GELU alone, without its matrix.
  bool takes(const Call& call) const {
    const char* const others = std::getenv("GALLEY_MOCK_LT_GELU");
    return !others || call.p.then() != CUBLASLT_EPILOGUE_GELU || number >= static_cast<uint64_t>(std::atoi(others));
  }
  int64_t alignment(int operand) const { return static_cast<int64_t>(alignments >> 16 * operand & 0xFFFF); }
  bool mine;
  uint64_t number, needs, alignments, shape;
};

void check_alignment(const Algorithm& algorithm, int operand, const LtMatrix& x, const void* address) {
  const int64_t told = algorithm.alignment(operand);
  for (int32_t i = 0; i < x.batch; ++i)
    require(reinterpret_cast<uintptr_t>(x.member(address, i)) % static_cast<uint64_t>(told) == 0,
            "operand " + std::to_string(operand) + " is less aligned than the heuristic was told: " + std::to_string(told));
  if (x.columns > 1)
    require(x.leading * bytes_of(x.type) % told == 0, "rows of operand " + std::to_string(operand) + " are less aligned than it was told");
}

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) {
  const double root = std::sqrt(2 / M_PI), t = std::tanh(root * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);
}

/// D = epilogue(alpha · op(A) · op(B) + beta · C + bias), for each of a batch.
struct Multiplication {
  LtProduct p;
  LtMatrix a, b, c, d;
  int64_t m, n, k;
  const void *at_a, *at_b, *at_c;
  void* at_d;
  double alpha, beta;

  void run() const {
    for (int32_t z = 0; z < d.batch; ++z)
      for (int64_t j = 0; j < n; ++j)
        for (int64_t i = 0; i < m; ++i) element(z, i, j);
  }
  void element(int32_t z, int64_t i, int64_t j) const {
    double sum = 0;
    for (int64_t l = 0; l < k; ++l)
      sum += read(a.member(at_a, z), a.type, p.a_transposed ? a.at(l, i) : a.at(i, l)) *
             read(b.member(at_b, z), b.type, p.b_transposed ? b.at(j, l) : b.at(l, j));
    double y = alpha * sum;
    if (beta != 0) y += beta * read(c.member(at_c, z), c.type, c.at(i, j));
    if (p.has_bias()) y += read(p.bias, d.type, i);
    const int64_t of_aux = i + j * p.aux_leading;
    switch (p.then()) {
      case CUBLASLT_EPILOGUE_RELU: y = std::max(y, 0.0); break;
      case CUBLASLT_EPILOGUE_GELU: y = gelu(y); break;
      case CUBLASLT_EPILOGUE_GELU_AUX:
        write(p.aux, d.type, of_aux, y);
        y = gelu(y);
        break;
      case CUBLASLT_EPILOGUE_DGELU: y *= gelu_slope(read(p.aux, d.type, of_aux)); break;
      default: break;
    }
    write(const_cast<void*>(d.member(at_d, z)), d.type, d.at(i, j), y);
  }
};

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* out) {
  *out = handles.made(new LtHandle);
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }
const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_INVALID_VALUE";
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType_t type, uint64_t rows, uint64_t columns,
                                          int64_t leading) {
  require(rows > 0 && columns > 0 && leading >= static_cast<int64_t>(rows),
          "a matrix in columns, whose leading dimension is its rows at least");
  *out = matrices.made(new LtMatrix{type, rows, columns, leading});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matrix) {
  matrices.remove(matrix, "a matrix to be destroyed");
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matrix, cublasLtMatrixLayoutAttribute_t which, const void* from,
                                                size_t bytes) {
  LtMatrix& x = matrices.at(matrix, "a matrix");
  switch (which) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: x.batch = value_of<int32_t>(from, bytes, "a batch's count"); break;
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: x.stride = value_of<int64_t>(from, bytes, "a stride"); break;
    case CUBLASLT_MATRIX_LAYOUT_BATCH_MODE: {
      const auto mode = value_of<uint32_t>(from, bytes, "a batch's mode");
      require(mode <= CUBLASLT_BATCH_MODE_POINTER_ARRAY, "a batch's mode");
      x.pointers = mode == CUBLASLT_BATCH_MODE_POINTER_ARRAY;
      break;
    }
  }
  require(x.batch > 0 && x.stride >= 0, "a batch");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t compute, cudaDataType_t scale) {
  *out = products.made(new LtProduct{compute, scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  products.remove(product, "a product to be destroyed");
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t which, const void* from,
                                              size_t bytes) {
  LtProduct& p = products.at(product, "a product");
  const auto transposed = [&] {
    const auto operation = value_of<int32_t>(from, bytes, "an operation");
    require(operation == CUBLAS_OP_N || operation == CUBLAS_OP_T, "an operation");
    return operation == CUBLAS_OP_T;
  };
  switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA: p.a_transposed = transposed(); break;
    case CUBLASLT_MATMUL_DESC_TRANSB: p.b_transposed = transposed(); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: p.epilogue = value_of<uint32_t>(from, bytes, "an epilogue"); break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: p.bias = value_of<const void*>(from, bytes, "a bias"); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: p.aux = value_of<void*>(from, bytes, "an auxiliary matrix"); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: p.aux_leading = value_of<int64_t>(from, bytes, "its leading dimension"); break;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
  *out = preferences.made(new LtPreference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  preferences.remove(preference, "a preference to be destroyed");
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t which,
                                                    const void* from, size_t bytes) {
  LtPreference& x = preferences.at(preference, "a preference");
  switch (which) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: x.workspace = value_of<uint64_t>(from, bytes, "a workspace's bytes"); break;
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      x.reductions = value_of<uint32_t>(from, bytes, "a mask of reductions");
      require(x.reductions <= CUBLASLT_REDUCTION_SCHEME_MASK, "a mask of reductions");
      break;
    default: {
      const auto alignment = value_of<uint32_t>(from, bytes, "an alignment");
      require(alignment > 0 && alignment <= 256 && (alignment & (alignment - 1)) == 0, "an alignment is a power of two up to 256");
      x.alignments[which - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES] = alignment;
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most, cublasLtMatmulHeuristicResult_t* out,
                                              int* count) {
  const Call call(handle, product, a, b, c, d);
  const LtPreference& wanted = preferences.at(preference, "a preference");
  // cuBLASLt 12.8 to 13.2 leaves terms out of such sums where it splits them.
  require(call.a.type == CUDA_R_32F || call.a.type == CUDA_R_8I || call.k % 64 == 0 || wanted.reductions == CUBLASLT_REDUCTION_SCHEME_NONE,
          "sums in 16 bit whose length is no multiple of 64 are not split");
  require((wanted.reductions & ~uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}) == 0,
          "parts of sums are added up in F32, in a fixed order");
  const cublasStatus_t status = call.support();
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  uint64_t alignments = 0;
  for (int i = 0; i < 4; ++i) alignments |= static_cast<uint64_t>(wanted.alignments[i]) << 16 * i;
  const char* const refuses = std::getenv("GALLEY_MOCK_LT_REFUSES");
  *count = std::min(most, 3);
  for (int i = 0; i < *count; ++i) {
    const uint64_t needs = refuses && i < std::atoi(refuses) ? wanted.workspace + 1 : kNeeds;
    out[i] = {{{kAlgorithm, static_cast<uint64_t>(i), needs, alignments, Algorithm::shape_of(call), 0, 0, 0}},
              needs,
              CUBLAS_STATUS_SUCCESS,
              1,
              {}};
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* out) {
  const Call call(handle, product, a, b, c, d);
  const Algorithm of(*algorithm);
  if (!of.mine || of.shape != Algorithm::shape_of(call)) return CUBLAS_STATUS_INVALID_VALUE;
  *out = {*algorithm, of.needs, of.takes(call) ? call.support() : CUBLAS_STATUS_NOT_SUPPORTED, 1, {}};
  return out->state;
}
cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulAlgoCapAttributes_t which, void* to,
                                                 size_t bytes, size_t* written) {
  require(Algorithm(*algorithm).mine, "an algorithm that no heuristic gave");
  require(bytes == sizeof(int32_t) && written, "a capability is an int32");
  const int32_t value = batches(which == CUBLASLT_ALGO_CAP_STRIDED_BATCH_SUPPORT ? "strided" : "pointers");
  std::memcpy(to, &value, sizeof value);
  *written = sizeof value;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void* alpha, const void* at_a,
                              cublasLtMatrixLayout_t a, const void* at_b, cublasLtMatrixLayout_t b, const void* beta, const void* at_c,
                              cublasLtMatrixLayout_t c, void* at_d, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algorithm,
                              void* workspace, size_t bytes, struct CUstream_st* stream) {
  const Call call(handle, product, a, b, c, d);
  if (const cublasStatus_t status = call.support(); status != CUBLAS_STATUS_SUCCESS) return status;
  const Algorithm of(*algorithm);
  require(of.mine && of.shape == Algorithm::shape_of(call), "an algorithm is of the product that it was searched for");
  require(of.takes(call), "an algorithm takes what follows the product");
  require(of.needs <= bytes && (bytes == 0 || (workspace && reinterpret_cast<uintptr_t>(workspace) % 256 == 0)), "a workspace");
  require(!call.p.has_bias() || reinterpret_cast<uintptr_t>(call.p.bias) > 4096, "the bias has no address yet");
  require(!call.p.has_aux() || reinterpret_cast<uintptr_t>(call.p.aux) > 4096, "the auxiliary matrix has no address yet");
  require(!call.p.has_bias() || reinterpret_cast<uintptr_t>(call.p.bias) % 16 == 0, "a bias is read 16 bytes at a time");
  require(at_a && at_b && at_c && at_d && alpha && beta, "operands have addresses");
  Multiplication work = {call.p, call.a, call.b, call.c, call.d, call.m, call.n, call.k, at_a, at_b, at_c, at_d, 0, 0};
  if (call.p.scale == CUDA_R_32I) {
    work.alpha = *static_cast<const int32_t*>(alpha);
    work.beta = *static_cast<const int32_t*>(beta);
  } else {
    work.alpha = *static_cast<const float*>(alpha);
    work.beta = *static_cast<const float*>(beta);
  }
  galley::cuda::put(reinterpret_cast<galley_queue*>(stream), [work, of] {
    check_alignment(of, 0, work.a, work.at_a);  // a table of addresses is read here
    check_alignment(of, 1, work.b, work.at_b);
    check_alignment(of, 2, work.c, work.at_c);
    check_alignment(of, 3, work.d, work.at_d);
    work.run();
  });
  return CUBLAS_STATUS_SUCCESS;
}
