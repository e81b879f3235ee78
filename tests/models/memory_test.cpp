// The memory that the CPU device takes for available, on systems that are made of a few files.
#include <gtest/gtest.h>

#include <limits>

#include "models/devices/cpu/arena.hpp"
#include "tests/base/folder.hpp"

namespace galley::cpu {
namespace {

class System {
 public:
  System() { put("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:   8000 kB\nSwapFree: 1000 kB\n"); }
  void put(const std::string& file, const std::string& text) const { root_.put(file, text); }
  int64_t available() const { return available_bytes(root_.path().string()); }

 private:
  Folder root_;
};

constexpr int64_t kMachine = 9000 * 1024;

TEST(Available, OfTheMachine) {
  EXPECT_EQ(System().available(), kMachine);
  EXPECT_EQ(available_bytes("/nowhere"), std::numeric_limits<int64_t>::max());
  EXPECT_GT(available_bytes(), 0);
}

TEST(Available, OfAGroupOfVersion2WithoutWhatItHolds) {
  const System system;
  system.put("proc/self/cgroup", "0::/user/session\n");
  system.put("sys/fs/cgroup/user/session/memory.max", "max\n");
  EXPECT_EQ(system.available(), kMachine);
  system.put("sys/fs/cgroup/user/session/memory.max", "1000000\n");
  system.put("sys/fs/cgroup/user/session/memory.current", "700000\n");
  EXPECT_EQ(system.available(), 300000);
  system.put("sys/fs/cgroup/user/session/memory.stat", "anon 600000\ninactive_file 100000\n");
  EXPECT_EQ(system.available(), 400000) << "cached files can go";
  system.put("sys/fs/cgroup/user/memory.max", "900000\n");
  system.put("sys/fs/cgroup/user/memory.current", "850000\n");
  EXPECT_EQ(system.available(), 50000) << "the group above is nearer to its limit";
  system.put("sys/fs/cgroup/user/memory.current", "950000\n");
  EXPECT_EQ(system.available(), 0);
}

TEST(Available, OfAGroupOfVersion1) {
  const System system;
  system.put("proc/self/cgroup", "9:cpu:/\n4:hugetlb,memory:/job\n0::/\n");
  system.put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  system.put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "5\n");
  EXPECT_EQ(system.available(), kMachine) << "no limit is a very large one";
  system.put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2000000\n");
  system.put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1500000\n");
  system.put("sys/fs/cgroup/memory/job/memory.stat", "cache 700\ntotal_inactive_file 200000\n");
  EXPECT_EQ(system.available(), 700000);
}

TEST(Available, InAContainerTheMountIsTheGroup) {
  const System system;
  system.put("proc/self/cgroup", "4:memory:/docker/0123\n");
  system.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "4000\n");
  system.put("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
  EXPECT_EQ(system.available(), 3000);
}

}  // namespace
}  // namespace galley::cpu
