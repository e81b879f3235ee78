// Does cuDNN take our graphs of attention, on every kind of GPU, and do its engines stay within the memory that the plan gives them? Asked
// of cuDNN itself, for GPUs that are only described, in the place of whose driver there is one that runs nothing
// (tests/gpu/stubs/driver.c).
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "models/ops/attention/fused_cudnn.hpp"
#include "tests/turn.hpp"

namespace galley {
namespace {

namespace dnn = cuda::dnn;
using models::FusedForm;
using models::FusedGraph;
using models::FusedMemory;

struct Gpu {
  const char* name;
  int sm, processors, shared_memory;
};

std::string properties_of(const Gpu& gpu) {
  return R"({"cudaDeviceId":0,"deviceVer":)" + std::to_string(gpu.sm * 10) +
         R"(,"driverVer":13000,"totalGlobalMem":85899345920,"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)" +
         R"("regsPerBlock":65536,"multiProcessorCount":)" + std::to_string(gpu.processors) +
         R"(,"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":)" + std::to_string(gpu.shared_memory) +
         R"(,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,)" +
         R"("maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"smClockRateKHz":1980000,)" +
         R"("memClockRateKHz":3201000,"l2CacheSize":62914560,"deviceName":")" + gpu.name + "\"}";
}

TEST(CudnnPieces, BackwardRunsInPiecesThatKeepTheGpuBusyWithinTheBudget) {
  constexpr int64_t budget = int64_t{256} << 20;
  const auto piece = [](int64_t B, int64_t heads, int64_t kv_heads, int64_t S, int64_t bytes, bool deterministic = true) {
    const FusedForm whole = {B,           heads, kv_heads, S,     128,         heads * 128, kv_heads * 128,
                             heads * 128, 128,   128,      heads, GALLEY_BF16, 1.0f,        deterministic};
    const FusedForm of = models::fused_piece_within(whole, 90, 132, bytes);
    EXPECT_EQ(of.heads, of.kv_heads * (heads / kv_heads));
    EXPECT_EQ(of.lse_heads, heads);
    EXPECT_LE(of.B ? FusedMemory(of, 90).end : 0, bytes);
    return std::pair(of.B, of.kv_heads);
  };
  EXPECT_EQ(piece(8, 16, 16, 1024, budget), std::pair(int64_t{4}, int64_t{16}));  // 528 blocks of rows: 5 sequences at least, but 4 fit
  EXPECT_EQ(piece(16, 16, 4, 512, budget), std::pair(int64_t{16}, int64_t{4}));   // all at once
  EXPECT_EQ(piece(64, 16, 16, 1024, budget, false), std::pair(int64_t{8}, int64_t{16}));  // no more than keeps it busy
  EXPECT_EQ(piece(1, 32, 8, 4096, budget), std::pair(int64_t{1}, int64_t{1}));            // a key head and its four query heads
  EXPECT_EQ(piece(1, 32, 8, 16384, budget).first, 0);                                     // 2 GiB for one key head
  EXPECT_EQ(piece(1, 32, 8, 16384, budget, false), std::pair(int64_t{1}, int64_t{2}));
}

constexpr Gpu kGpus[] = {{"a100", 80, 108, 166912}, {"rtx3090", 86, 82, 101376}, {"l40s", 89, 142, 101376},
                         {"h100", 90, 132, 232448}, {"b200", 100, 148, 232448},  {"rtx5090", 120, 170, 101376}};

/// cuDNN with a driver that runs nothing; skips the test where it is not installed.
class Cudnn : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("GALLEY_CUDNN") && !::dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL)) GTEST_SKIP() << "there is no cuDNN here";
    if (std::getenv("GALLEY_TEST_DEVICE")) GTEST_SKIP() << "there is a GPU";
    const auto driver = std::filesystem::path(std::getenv("GALLEY_BINARY")) / "tests" / "driver" / "libcuda.so.1";
    ASSERT_NE(::dlopen(driver.c_str(), RTLD_NOW | RTLD_GLOBAL), nullptr) << ::dlerror();
  }
  /// A plan of a form within the memory that ours gives it, as prepare() makes it; the bytes that its engine asks for.
  static std::pair<int64_t, int64_t> needed_and_given(const Gpu& gpu, const FusedForm& form, bool backward) {
    const dnn::Dnn& library = dnn::Dnn::of("9.0");
    const std::string text = properties_of(gpu);
    dnn::Descriptor properties(library, dnn::CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    properties.set(dnn::CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, dnn::CUDNN_TYPE_CHAR, static_cast<int64_t>(text.size()), text.data())
        .finish("a GPU's properties");
    const FusedMemory memory(form, gpu.sm);
    const int64_t given = backward ? memory.end - memory.library : FusedMemory::kForward;
    try {
      const FusedGraph graph(library, {nullptr, &properties}, form, backward, given);
      const models::FusedOperands none = {};
      graph.pack(none, nullptr, nullptr, nullptr);
      return {graph.workspace_bytes(), given};
    } catch (const sdk::Failure& failure) {
      ADD_FAILURE() << failure.what();
      return {0, 0};
    }
  }
};

// Each takes a second of its planner; without GALLEY_TEST_ALL, those of one GPU are made, of another one with each commit.
TEST_F(Cudnn, TakesItsGraphsWithinTheirMemory) {
  const FusedForm packed = {2, 12, 12, 256, 64, 3 * 768, 3 * 768, 768, 64, 64, 12, GALLEY_BF16, 0.125f, true},
                  by_head = {2, 12, 12, 256, 64, 3 * 768, 3 * 768, 768, 3 * 64, 3 * 64, 12, GALLEY_BF16, 0.125f, true},
                  grouped = {1, 8, 2, 384, 128, 1024, 256, 1024, 128, 128, 32, GALLEY_F16, 0.125f, true};
  for (const Gpu& gpu : kGpus) {
    if (!test::has_turn(static_cast<uint64_t>(&gpu - kGpus), std::size(kGpus))) continue;
    for (FusedForm form : {packed, by_head, grouped})
      for (const auto& [backward, deterministic] : {std::pair(false, true), std::pair(true, true), std::pair(true, false)}) {
        SCOPED_TRACE(std::string(gpu.name) + (backward ? deterministic ? ", backward" : ", backward by atomics" : ", forward"));
        form.deterministic = deterministic;
        const auto [needed, given] = needed_and_given(gpu, form, backward);
        EXPECT_GE(needed, given - FusedMemory::kForward);  // the plan gives not much more than is used
      }
  }
}

// Its heuristic goes by the number of sequences, too, and a plan has to give what any of its choices asks for. Every model with every
// number of sequences takes minutes; without GALLEY_TEST_ALL, some of them are asked for.
TEST_F(Cudnn, TakesTheShapesOfModelsWithAnyNumberOfSequences) {
  struct Model {
    const char* name;
    int64_t heads, kv_heads, S, D;
    bool packed;
  };
  constexpr Model of[] = {{"gpt2-124m", 12, 12, 1024, 64, true},   {"gpt2-1558m", 25, 25, 1024, 64, true},
                          {"smollm2-135m", 9, 3, 2048, 64, false}, {"qwen2.5-0.5b", 14, 2, 2048, 64, false},
                          {"llama-8b", 32, 8, 4096, 128, false},   {"heads of 96", 8, 4, 512, 96, false}};
  int asked = 0, turn = 0;
  for (const Gpu& gpu : kGpus)
    for (const Model& m : of)
      for (const int64_t B : {1, 2, 3, 8, 32}) {
        if (!std::getenv("GALLEY_TEST_ALL") && turn++ % 97 != 0) continue;
        const int64_t width = m.heads * m.D, q_row = m.packed ? 3 * width : width, kv_row = m.packed ? q_row : m.kv_heads * m.D;
        for (const bool deterministic : {true, false}) {
          const FusedForm whole = {B,     m.heads, m.kv_heads, m.S,     m.D,         q_row,  kv_row,
                                   width, m.D,     m.D,        m.heads, GALLEY_BF16, 0.125f, deterministic};
          SCOPED_TRACE(std::string(gpu.name) + ", " + m.name + ", " + std::to_string(B) + " sequences" +
                       (deterministic ? "" : ", by atomics"));
          if (deterministic) needed_and_given(gpu, whole, false);
          const FusedForm piece = models::fused_piece_within(whole, gpu.sm, gpu.processors, int64_t{640} << 20);
          ASSERT_GT(piece.B, 0);
          needed_and_given(gpu, piece, true);
          asked += deterministic ? 2 : 1;
        }
      }
  std::printf("%d plans\n", asked);
}

}  // namespace
}  // namespace galley
