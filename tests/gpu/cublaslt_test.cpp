// The calls of cuBLASLt (models/cuda/gemm_cublaslt.hpp) on a strict cuBLASLt of the tests (cublaslt/mock.cpp), over the tests' CUDA
// runtime: every form of a product that kernels ask for, beside sums in F64, and the shapes of models that are trained, an eighth as wide.
#define GALLEY_TEST_CUBLASLT
#include "models/devices/cuda/machine.hpp"

#include "cuda/gemm.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>

namespace galley::cuda {
namespace {

/// Memory that the test and a GPU can read.
class Pinned {
 public:
  explicit Pinned(size_t bytes) : bytes_(bytes) { check(cudaHostAlloc(&data_, bytes, 0), "cudaHostAlloc"); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned() { (void)cudaFreeHost(data_); }
  char* data() const { return static_cast<char*>(data_); }
  size_t size() const { return bytes_; }

 private:
  size_t bytes_;
  void* data_ = nullptr;
};

/// Numbers from −1 to 1 in a dtype, at an address of 256 or `off` bytes after one, as a test and cuBLASLt see them.
class Numbers {
 public:
  Numbers(uint32_t dtype, int64_t count, std::mt19937& random, int64_t off = 0)
      : dtype_(dtype), storage_(static_cast<size_t>(count * galley_dtype_bytes(dtype) + 512)) {
    const auto at = reinterpret_cast<uintptr_t>(storage_.data());
    data_ = storage_.data() + (256 - at % 256) % 256 + off;
    std::uniform_real_distribution<float> draw(-1, 1);
    for (int64_t i = 0; i < count; ++i) put(i, dtype == GALLEY_I8 ? 127 * draw(random) : draw(random));
  }
  double operator[](int64_t i) const { return at(data_, dtype_, i); }
  static double at(const void* data, uint32_t dtype, int64_t i) {
    switch (dtype) {
      case GALLEY_F32: return static_cast<const float*>(data)[i];
      case GALLEY_BF16: return widen(static_cast<const Bf16*>(data)[i]);
      case GALLEY_F16: return widen(static_cast<const F16*>(data)[i]);
      case GALLEY_I8: return static_cast<const int8_t*>(data)[i];
      default: return static_cast<const int32_t*>(data)[i];
    }
  }
  void* data() const { return data_; }

 private:
  void put(int64_t i, float x) {
    switch (dtype_) {
      case GALLEY_F32: reinterpret_cast<float*>(data_)[i] = x; break;
      case GALLEY_BF16: narrow(x, reinterpret_cast<Bf16*>(data_)[i]); break;
      case GALLEY_F16: narrow(x, reinterpret_cast<F16*>(data_)[i]); break;
      case GALLEY_I8: reinterpret_cast<int8_t*>(data_)[i] = static_cast<int8_t>(x); break;
      default: reinterpret_cast<int32_t*>(data_)[i] = 0;
    }
  }
  uint32_t dtype_;
  Pinned storage_;
  char* data_;
};

/// How several products lie: each anywhere, all in a row, or in a row with one A for all.
enum class Lie { Anywhere, InARow, OneA };

struct Choices {
  static const char* find(void* self, const char* key) noexcept {
    auto& all = static_cast<Choices*>(self)->kept;
    const auto found = all.find(key);
    return found == all.end() ? nullptr : found->second.c_str();
  }
  static void keep(void* self, const char* key, const char* choice) noexcept {
    auto& of = *static_cast<Choices*>(self);
    of.kept[key] = choice;
    ++of.measured;
  }
  galley_choices table = [this] {
    galley_choices t = sdk::fresh<galley_choices>();
    t.self = this;
    t.find = find;
    t.keep = keep;
    return t;
  }();
  std::map<std::string, std::string> kept;
  int measured = 0;
};

double gelu(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) {
  constexpr double h = 1e-5;
  return (gelu(x + h) - gelu(x - h)) / (2 * h);
}

class CuBlasLt : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ::setenv("GALLEY_CUBLASLT", (std::string(std::getenv("GALLEY_BINARY")) + "/tests/stubs/libcublasLt.so.13").c_str(), 1);
  }
  CuBlasLt() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    library_.name = "cublaslt";
    library_.version = "13.1";
    target_.device = "cuda";
    target_.isa = "sm_90";
    target_.workspace_budget = int64_t{640} << 20;
    target_.libraries = libraries_;
    target_.n_libraries = 1;
    setup_.target = &target_;
    setup_.workspace = workspace_.data() + 3 * 16;  // as aligned as the host's
    setup_.workspace_bytes = static_cast<int64_t>(workspace_.size()) - 48;
    setup_.queue = reinterpret_cast<galley_queue*>(stream_);
  }
  ~CuBlasLt() override {
    ::unsetenv("GALLEY_MOCK_LT_BATCHES");
    ::unsetenv("GALLEY_MOCK_LT_REFUSES");
    ::unsetenv("GALLEY_MOCK_LT_GELU");
    (void)cudaStreamDestroy(stream_);
  }

  /// `count` products of a form, run and compared. `off`: bytes that A and B lie after an aligned address.
  void expect_right(const Matmul& form, int count = 1, Lie lie = Lie::Anywhere, int64_t off = 0, int64_t bias_off = 0) {
    SCOPED_TRACE(text(form) + ", " + std::to_string(count) + " of them, lying " + std::to_string(static_cast<int>(lie)) + ", off " +
                 std::to_string(off));
    ASSERT_EQ(Gemm::refusal(form, target_), nullptr);
    const int64_t a_count = form.m * form.k, b_count = form.k * form.n, c_count = form.m * form.n;
    const bool row = lie != Lie::Anywhere;
    const auto make = [&](uint32_t dtype, int64_t numbers, int64_t behind) {
      std::vector<std::unique_ptr<Numbers>> out;
      for (int i = 0; i < (row ? 1 : count); ++i)
        out.push_back(std::make_unique<Numbers>(dtype, row ? numbers * count : numbers, random_, behind));
      return out;
    };
    const auto a = make(form.dtype, a_count, off), b = make(form.dtype, b_count, off), c = make(form.c_dtype, c_count, 0);
    const Numbers bias(form.bias_dtype, form.n, random_, bias_off),
        product(form.c_dtype == GALLEY_I32 ? uint32_t{GALLEY_F32} : form.c_dtype, c_count, random_);
    const auto address = [&](const auto& of, int i, uint32_t dtype, int64_t numbers) {
      return row ? static_cast<char*>(of[0]->data()) + i * numbers * galley_dtype_bytes(dtype)
                 : static_cast<char*>(of[static_cast<size_t>(i)]->data());
    };
    std::vector<Matmul> all;
    for (int i = 0; i < count; ++i) {
      Matmul p = form;
      p.a = address(a, lie == Lie::OneA ? 0 : i, form.dtype, a_count);
      p.b = address(b, i, form.dtype, b_count);
      p.c = address(c, i, form.c_dtype, c_count);
      if (form.has_bias) p.bias = bias.data();
      if (form.keeps_product || form.epilogue == Epilogue::GeluGrad) p.product = product.data();
      all.push_back(p);
    }
    // What it should be, and how far what is rounded may be from it.
    std::vector<std::vector<double>> wanted(all.size()), before(all.size());
    for (size_t z = 0; z < all.size(); ++z)
      for (int64_t i = 0; i < form.m; ++i)
        for (int64_t j = 0; j < form.n; ++j) {
          double y = 0;
          for (int64_t l = 0; l < form.k; ++l)
            y += Numbers::at(all[z].a, form.dtype, form.a_transposed ? l * form.m + i : i * form.k + l) *
                 Numbers::at(all[z].b, form.dtype, form.b_transposed ? j * form.k + l : l * form.n + j);
          if (form.adds) y += Numbers::at(all[z].c, form.c_dtype, i * form.n + j);
          if (form.has_bias) y += bias[j];
          before[z].push_back(y);
          if (form.epilogue == Epilogue::Relu) y = std::max(y, 0.0);
          if (form.epilogue == Epilogue::Gelu) y = gelu(y);
          if (form.epilogue == Epilogue::GeluGrad) y *= gelu_slope(product[i * form.n + j]);
          wanted[z].push_back(y);
        }
    {
      const Gemm gemm("node", all, setup_);
      gemm.run(setup_.queue);
      check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    }
    ++done_;
    const double share = form.c_dtype == GALLEY_BF16 ? 8e-3 : form.c_dtype == GALLEY_F16 ? 1e-3 : form.c_dtype == GALLEY_I32 ? 0 : 1e-5;
    const auto expect_near = [&](double got, double want, const char* what, size_t at) {
      ASSERT_LE(std::fabs(got - want), share * (1 + std::fabs(want))) << what << " " << at << " is " << got << ", not " << want;
    };
    for (size_t z = 0; z < all.size(); ++z)
      for (int64_t i = 0; i < c_count; ++i) {
        const auto at = static_cast<size_t>(i);
        expect_near(Numbers::at(all[z].c, form.c_dtype, i), wanted[z][at], "C", at);
        if (form.keeps_product) expect_near(product[i], before[z][at], "the product", at);
        if (HasFatalFailure()) return;
      }
  }

  static Matmul product(int64_t m, int64_t n, int64_t k, uint32_t dtype, uint32_t c_dtype) {
    Matmul p;
    p.m = m, p.n = n, p.k = k;
    p.dtype = dtype, p.c_dtype = p.bias_dtype = c_dtype;
    return p;
  }

  std::mt19937 random_{7};
  cudaStream_t stream_ = nullptr;
  galley_library library_ = sdk::fresh<galley_library>();
  const galley_library* libraries_[1] = {&library_};
  galley_target target_ = sdk::fresh<galley_target>();
  galley_kernel_setup setup_ = sdk::fresh<galley_kernel_setup>();
  Pinned workspace_{size_t{40} << 20};
  int done_ = 0;
};

constexpr uint32_t kDtypes[] = {GALLEY_F32, GALLEY_BF16, GALLEY_F16};

TEST_F(CuBlasLt, MakesEveryFormOfAProduct) {
  Choices choices;
  for (const bool tuned : {false, true}) {
    setup_.choices = tuned ? &choices.table : nullptr;
    for (const uint32_t dtype : kDtypes)
      for (const uint32_t c_dtype : dtype == GALLEY_F32 ? std::vector<uint32_t>{GALLEY_F32} : std::vector<uint32_t>{GALLEY_F32, dtype})
        for (const bool a_transposed : {false, true})
          for (const bool b_transposed : {false, true})
            for (const bool adds : {false, true})
              for (const auto& [m, n, k] : {std::tuple(5, 7, 9), std::tuple(16, 8, 64), std::tuple(3, 40, 16)}) {
                Matmul p = product(m, n, k, dtype, c_dtype);
                p.a_transposed = a_transposed, p.b_transposed = b_transposed, p.adds = adds;
                expect_right(p);
                for (const Lie lie : {Lie::Anywhere, Lie::InARow, Lie::OneA}) expect_right(p, 3, lie);
                for (const uint32_t bias_dtype : {uint32_t{GALLEY_F32}, c_dtype}) {
                  Matmul with_bias = p;
                  with_bias.has_bias = true, with_bias.bias_dtype = bias_dtype;
                  expect_right(with_bias);
                }
                if (HasFailure()) return;
              }
  }
  EXPECT_GT(choices.measured, 100);
  EXPECT_EQ(static_cast<size_t>(choices.measured), choices.kept.size()) << "a form was measured twice";
  EXPECT_GT(done_, 1000);
}

TEST_F(CuBlasLt, MakesEpiloguesOfSixteenBits) {
  for (const uint32_t dtype : {GALLEY_BF16, GALLEY_F16})
    for (const bool a_transposed : {false, true})
      for (const bool b_transposed : {false, true})
        for (const bool bias : {false, true})
          for (const auto& [m, n, k] : {std::tuple(16, 8, 24), std::tuple(5, 40, 64), std::tuple(1, 24, 1)})
            for (const auto& [epilogue, keeps] : {std::pair(Epilogue::Relu, false), std::pair(Epilogue::Gelu, false),
                                                  std::pair(Epilogue::Gelu, true), std::pair(Epilogue::GeluGrad, false)}) {
              if (bias && epilogue == Epilogue::GeluGrad) continue;
              Matmul p = product(m, n, k, dtype, dtype);
              p.a_transposed = a_transposed, p.b_transposed = b_transposed, p.has_bias = bias;
              p.epilogue = epilogue, p.keeps_product = keeps;
              expect_right(p);
              if (HasFailure()) return;
            }
  EXPECT_GT(done_, 150);
}

TEST_F(CuBlasLt, MakesIntegersAndTf32) {
  for (const auto& [m, n, k] : {std::tuple(6, 8, 12), std::tuple(7, 4, 4), std::tuple(33, 64, 96)}) {
    Matmul p = product(m, n, k, GALLEY_I8, GALLEY_I32);
    p.b_transposed = true;
    p.compute = Compute::I32;
    expect_right(p);
    p = product(m, n, k, GALLEY_F32, GALLEY_F32);
    p.compute = Compute::Tf32;
    expect_right(p);
    expect_right(p, 4, Lie::InARow);
  }
}

// Ranges of tensors begin anywhere, and a bias of a packed projection lies where the one before it ends.
TEST_F(CuBlasLt, TellsTheHeuristicHowOperandsLie) {
  for (const uint32_t dtype : kDtypes)
    for (const int64_t off : {4, 8, 16, 48})
      for (const int64_t n : {7, 8, 12, 16}) {
        Matmul p = product(4, n, 64, dtype, dtype);
        expect_right(p, 1, Lie::Anywhere, off);
        p.has_bias = true;
        expect_right(p, 1, Lie::Anywhere, off, off);
      }
}

// Linear layers as plans have them: y, dx, and dW, which is added in F32; a bias; W as it is stored (GPT-2: (in, out)).
TEST_F(CuBlasLt, MakesTheProductsOfModels) {
  struct Layer {
    const char* of;
    int64_t in, out;
    bool transposed, bias;
  };
  constexpr int64_t rows = 24;
  for (const Layer& layer : {Layer{"gpt2-124m, q k v", 96, 288, false, true}, Layer{"gpt2-124m, up", 96, 384, false, true},
                             Layer{"gpt2-124m, down", 384, 96, false, true}, Layer{"gpt2-124m, head", 96, 785, true, false},
                             Layer{"gpt2-1558m, q k v", 200, 600, false, true}, Layer{"smollm2-135m, gate", 72, 192, true, false},
                             Layer{"qwen2.5-0.5b, k", 112, 16, true, true}, Layer{"qwen2.5-0.5b, gate", 112, 608, true, false},
                             Layer{"llama-8b, v", 512, 128, true, false}, Layer{"llama-8b, lora A", 512, 16, true, false},
                             Layer{"llama-8b, lora B", 16, 448, true, false}, Layer{"lora of rank 2", 96, 2, true, false}})
    for (const uint32_t dtype : {GALLEY_F32, GALLEY_BF16}) {
      SCOPED_TRACE(layer.of);
      Matmul y = product(rows, layer.out, layer.in, dtype, dtype);
      y.b_transposed = layer.transposed, y.has_bias = layer.bias;
      expect_right(y);
      Matmul dx = product(rows, layer.in, layer.out, dtype, dtype);
      dx.b_transposed = !layer.transposed;
      expect_right(dx);
      for (const bool adds : {false, true}) {
        Matmul dw = layer.transposed ? product(layer.out, layer.in, rows, dtype, GALLEY_F32)
                                     : product(layer.in, layer.out, rows, dtype, GALLEY_F32);
        dw.a_transposed = true, dw.adds = adds;
        expect_right(dw);
      }
      if (HasFailure()) return;
    }
}

// The first algorithm that fits is taken, and where none does, the error says what was asked for.
TEST_F(CuBlasLt, TakesWhatFitsIntoTheWorkspace) {
  const Matmul p = product(8, 8, 64, GALLEY_BF16, GALLEY_BF16);
  ::setenv("GALLEY_MOCK_LT_REFUSES", "2", 1);
  expect_right(p);
  ::setenv("GALLEY_MOCK_LT_REFUSES", "3", 1);
  try {
    expect_right(p);
    ADD_FAILURE() << "an algorithm that needs more than there is was taken";
  } catch (const NoAlgorithm& failure) {
    const std::string said = failure.what();
    EXPECT_NE(said.find("cuBLASLt 13.1.0, A (8 x 64) B (64 x 8), bf16 to bf16"), std::string::npos) << said;
    EXPECT_NE(said.find("it has no algorithm"), std::string::npos) << said;
  }
}

// What is recomputed must have the bytes of what was used, so one algorithm makes GELU with and without its product.
TEST_F(CuBlasLt, MakesBothFormsOfGeluByOneAlgorithm) {
  Choices choices;
  setup_.choices = &choices.table;
  Matmul p = product(8, 16, 64, GALLEY_BF16, GALLEY_BF16);
  p.epilogue = Epilogue::Gelu;
  for (const char* others : {"0", "2"}) {
    ::setenv("GALLEY_MOCK_LT_GELU", others, 1);
    choices.kept.clear();
    choices.measured = 0;
    for (const bool keeps : {false, true}) {
      p.keeps_product = keeps;
      expect_right(p);
    }
    EXPECT_EQ(choices.measured, 1) << "each form was measured";
    ASSERT_EQ(choices.kept.size(), 1u);
    EXPECT_GE(choices.kept.begin()->second.substr(choices.kept.begin()->second.find(' ') + 1, 1), others);
  }
  ::setenv("GALLEY_MOCK_LT_GELU", "3", 1);
  EXPECT_THROW(expect_right(p), NoAlgorithm);
}

// One call by a stride, one by a table of addresses, or one after another: what the algorithm can.
TEST_F(CuBlasLt, BatchesAsItsAlgorithmsCan) {
  for (const char* how : {"none", "strided", "pointers"}) {
    ::setenv("GALLEY_MOCK_LT_BATCHES", how, 1);
    for (const uint32_t dtype : {GALLEY_F32, GALLEY_BF16})
      for (const Lie lie : {Lie::Anywhere, Lie::InARow, Lie::OneA})
        for (const int count : {2, 5, 500}) {  // more addresses than one launch writes
          Matmul p = product(3, 8, 8, dtype, GALLEY_F32);
          p.adds = true;
          expect_right(p, count, lie);
        }
  }
}

// Measuring leaves what a product adds to as it was, and a choice that was kept is taken without measuring.
TEST_F(CuBlasLt, MeasuresWithoutATrace) {
  Choices choices;
  setup_.choices = &choices.table;
  Matmul p = product(4, 8, 64, GALLEY_BF16, GALLEY_F32);
  p.adds = true;
  expect_right(p);
  EXPECT_EQ(choices.measured, 1);
  expect_right(p);
  EXPECT_EQ(choices.measured, 1);
  for (auto& [key, choice] : choices.kept) choice = "1 2 3";  // not one of cuBLASLt's
  expect_right(p);
  EXPECT_EQ(choices.measured, 2);
}

}  // namespace
}  // namespace galley::cuda
