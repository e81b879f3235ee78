// The devices by themselves: arenas, and the orders in which the lazy one works.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/exec/small.hpp"

namespace galley {
namespace {

struct Open {
  explicit Open(const galley_device& device_) : device(device_), target(small::target()) {
    const TargetView view(target);
    auto options = sdk::fresh<galley_device_options>();
    options.target = view.get();
    options.n_events = 8;
    EXPECT_EQ(device.open(device.self, &options, &handle, &error), GALLEY_OK) << error.text;
  }
  /// Copies between two places of this process.
  galley_status copy(uint32_t queue, void* to, const void* from, size_t bytes) {
    auto c = sdk::fresh<galley_copy>();
    c.to_memory = c.from_memory = GALLEY_MEMORY_PROCESS;
    c.to_address = to;
    c.from_address = from;
    c.bytes = static_cast<int64_t>(bytes);
    return device.copy(handle, queue, &c, &error);
  }
  ~Open() { device.close(handle); }
  const galley_device& device;
  Target target;
  void* handle = nullptr;
  galley_error error = GALLEY_ERROR_INIT;
};

TEST(CpuDevice, DescribesThisMachineAlikeEachTime) {
  auto a = sdk::fresh<galley_target>(), b = a;
  galley_error error = GALLEY_ERROR_INIT;
  ASSERT_EQ(small::cpu().describe(nullptr, &a, &error), GALLEY_OK) << error.text;
  ASSERT_EQ(small::cpu().describe(nullptr, &b, &error), GALLEY_OK);
  EXPECT_STREQ(a.device, "cpu");
  EXPECT_TRUE(std::string(a.isa).starts_with("x86-64") || std::string(a.isa) == "generic");
  EXPECT_GE(a.threads, 1);
  ASSERT_GE(a.n_peaks, 1u);
  EXPECT_STREQ(a.peaks[0]->name, "f32");
  EXPECT_GT(a.peaks[0]->flops, 1e9);
  EXPECT_LT(a.peaks[0]->flops, 1e15);
  EXPECT_EQ(a.peaks[0]->flops, b.peaks[0]->flops);
  // A second one says that the processor has instructions for BF16, which are faster.
  ASSERT_LE(a.n_peaks, 2u);
  if (a.n_peaks == 2) {
    EXPECT_STREQ(a.peaks[1]->name, "bf16");
    EXPECT_GE(a.peaks[1]->flops, 2 * a.peaks[0]->flops);
  }
  ASSERT_EQ(a.n_memories, 1u);
  EXPECT_GT(a.memories[0]->capacity, int64_t{1} << 28);
  EXPECT_EQ(a.threads, b.threads);
}

TEST(CpuDevice, ThreadsAreWhatTheEnvironmentSays) {
  const char* before = std::getenv("OMP_NUM_THREADS");
  const std::string kept = before ? before : "";
  auto t = sdk::fresh<galley_target>();
  galley_error error = GALLEY_ERROR_INIT;
  ::setenv("OMP_NUM_THREADS", "3,1", 1);
  EXPECT_EQ(small::cpu().describe(nullptr, &t, &error), GALLEY_OK);
  EXPECT_EQ(t.threads, 3);
  ::setenv("OMP_NUM_THREADS", "", 1);
  EXPECT_EQ(small::cpu().describe(nullptr, &t, &error), GALLEY_OK);
  EXPECT_GE(t.threads, 1);
  for (const char* wrong : {"many", "0", "-1", "4097", "2x"}) {
    ::setenv("OMP_NUM_THREADS", wrong, 1);
    EXPECT_EQ(small::cpu().describe(nullptr, &t, &error), GALLEY_INVALID) << wrong;
  }
  if (before) ::setenv("OMP_NUM_THREADS", kept.c_str(), 1);
  else ::unsetenv("OMP_NUM_THREADS");
}

TEST(CpuDevice, ArenasAreZeroAndAligned) {
  Open open(small::cpu());
  for (const int64_t bytes : {int64_t{1}, int64_t{4096}, int64_t{5} << 20 | 64}) {
    void* data = nullptr;
    ASSERT_EQ(open.device.allocate(open.handle, 0, bytes, &data, &open.error), GALLEY_OK) << open.error.text;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % (2u << 20), 0u);
    const std::vector<char> zeros(static_cast<size_t>(bytes), 0);
    EXPECT_EQ(std::memcmp(data, zeros.data(), zeros.size()), 0);
    std::memset(data, 1, zeros.size());
    open.device.release(open.handle, 0, data, bytes);
  }
}

TEST(CpuDevice, SaysHowMuchItCouldNotGet) {
  Open open(small::cpu());
  void* data = nullptr;
  EXPECT_EQ(open.device.allocate(open.handle, 0, int64_t{1} << 50, &data, &open.error), GALLEY_FAILED);
  EXPECT_NE(std::string(open.error.text).find("1125899906842624 bytes for memory class 'host'"), std::string::npos) << open.error.text;
  EXPECT_EQ(data, nullptr);
}

TEST(CpuDevice, CopiesLargePiecesWhole) {
  Open open(small::cpu());
  std::vector<uint32_t> from((9u << 18) + 3), to(from.size());
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint32_t>(i * 2654435761u);
  ASSERT_EQ(open.copy(1, to.data(), from.data(), 4 * from.size()), GALLEY_OK);
  EXPECT_EQ(from, to);
}

TEST(CpuDevice, RefusesATargetOfAnotherDevice) {
  Target other = small::target();
  other.device = "cuda";
  const TargetView view(other);
  auto options = sdk::fresh<galley_device_options>();
  options.target = view.get();
  void* handle = nullptr;
  galley_error error = GALLEY_ERROR_INIT;
  EXPECT_EQ(small::cpu().open(nullptr, &options, &handle, &error), GALLEY_INVALID);
}

// Queue 1 copies a to b, queue 0 copies b to c; what comes out tells who went first.
class LazyOrder : public testing::Test {
 protected:
  LazyOrder() : open(small::lazy()) {}
  void copy(uint32_t queue, int& to, const int& from) { EXPECT_EQ(open.copy(queue, &to, &from, sizeof to), GALLEY_OK); }
  void record(uint32_t queue, uint32_t event) { EXPECT_EQ(open.device.record(open.handle, queue, event, &open.error), GALLEY_OK); }
  void wait(uint32_t queue, uint32_t event) { EXPECT_EQ(open.device.wait(open.handle, queue, event, &open.error), GALLEY_OK); }
  void synchronize() { EXPECT_EQ(open.device.synchronize(open.handle, &open.error), GALLEY_OK) << open.error.text; }
  Open open;
  int a = 1, b = 0, c = -1;
};

TEST_F(LazyOrder, NothingRunsBeforeItIsWaitedFor) {
  copy(0, b, a);
  EXPECT_EQ(b, 0);
  synchronize();
  EXPECT_EQ(b, 1);
}

TEST_F(LazyOrder, WithoutEventsBothOrdersCome) {
  std::vector<int> seen;
  for (int round = 0; round < 2; ++round) {
    b = 0;
    copy(1, b, a);
    copy(0, c, b);
    synchronize();
    seen.push_back(c);
  }
  EXPECT_EQ(seen, (std::vector{0, 1}));
}

TEST_F(LazyOrder, EventsHoldInBothOrders) {
  for (int round = 0; round < 4; ++round) {
    b = c = 0;
    copy(0, b, a);
    record(0, 1);
    wait(1, 1);
    copy(1, c, b);
    record(1, 2);
    wait(0, 2);
    copy(0, b, c);
    synchronize();
    EXPECT_EQ(b, 1);
    EXPECT_EQ(c, 1);
  }
}

}  // namespace
}  // namespace galley
