// The CUDA device's own code over the tests' CUDA runtime: captures that come to nothing, and which libraries it says are there.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "galley/cuda/platform.hpp"
#include "models/devices/cuda/machine.hpp"
#include "models/devices/cuda/vendor.hpp"
#include "models/devices/cuda/work.hpp"
#include "tests/setting.hpp"

namespace galley::cuda {
namespace {

namespace fs = std::filesystem;

using test::Setting;

struct Opened {
  Opened() {
    target.device = "cuda";
    target.isa = "sm_80";
    options.target = &target;
    options.n_events = 2;
    device = std::make_unique<Device>(options, "sm_80");
  }
  galley_target target = sdk::fresh<galley_target>();
  galley_device_options options = sdk::fresh<galley_device_options>();
  std::unique_ptr<Device> device;
};

// What the host does where a capture ends with an error: it launches the same work piece by piece. Events that were recorded before the
// capture still say when that work was done.
TEST(Device, WaitsForWhatWasRecordedBeforeACaptureThatFailed) {
  Opened opened;
  Device& device = *opened.device;
  device.record(1, 1);
  device.capture();
  device.record(0, 1);
  device.record(0, 2);
  {
    const Setting broken("GALLEY_EMULATED_CAPTURE", "0");
    EXPECT_THROW((void)device.end_capture(), sdk::Failure);
  }
  EXPECT_NO_THROW(device.wait(0, 1));
  EXPECT_NO_THROW(device.await(1));
  EXPECT_NO_THROW(device.await(2)) << "it was never recorded, but in that capture";
  // The next capture is none of its business.
  device.capture();
  device.record(0, 2);
  device.wait(2, 2);
  const std::unique_ptr<galley_capture> run = device.end_capture();
  device.replay(*run);
  EXPECT_NO_THROW(device.await(2));
  EXPECT_NO_THROW(device.synchronize());
}

// Each process of a machine takes the GPU of its number; where it sees one alone, that one.
TEST(Device, TakesTheGpuOfItsNumber) {
  const auto said = [](const char* devices, uint32_t index) {
    const Setting setting("GALLEY_EMULATED_DEVICES", devices);
    galley_target target = sdk::fresh<galley_target>();
    target.device = "cuda";
    target.isa = "sm_80";
    auto options = sdk::fresh<galley_device_options>();
    options.target = &target;
    options.index = index;
    try {
      const Device device(options, "sm_80");
    } catch (const sdk::Failure& failure) {
      return std::string(failure.what());
    }
    return std::string();
  };
  EXPECT_EQ(said("1", 0), "");
  EXPECT_EQ(said("1", 5), "");
  EXPECT_EQ(said("4", 3), "");
  EXPECT_EQ(said("4", 4), "GPU 4 is asked for, and 4 are seen");
}

struct Rows {
  int64_t count;
  const float* rows[2];
};
void read_rows(Rows, const float*) {}
void read_nothing(int) {}

// A GPU ends with an illegal address where a kernel reads what only the host has; an emulated kernel would read it.
TEST(Device, RefusesALaunchWithAnAddressOfTheHost) {
  Opened opened;
  const auto* device = static_cast<const float*>(opened.device->allocate(0, 4096));
  const auto* pinned = static_cast<const float*>(opened.device->allocate(1, 4096));
  auto* const queue = reinterpret_cast<galley_queue*>(opened.device->stream(0));
  const auto said = [&](const Rows& rows, const float* last) {
    try {
      launch(read_rows, {1, 32}, queue, rows, last);
    } catch (const sdk::Failure& failure) {
      return std::string(failure.what());
    }
    return std::string();
  };
  static const float of_the_program[4] = {};
  const std::vector<float> heap(4);
  const float stack[4] = {};
  EXPECT_EQ(said({2, {device, pinned}}, device + 1023), "");
  EXPECT_EQ(said({0, {nullptr, nullptr}}, nullptr), "");
  EXPECT_NE(said({2, {device, heap.data()}}, device).find("argument 1 of a launch has an address of the host's memory, in byte 16"),
            std::string::npos);
  EXPECT_NE(said({2, {of_the_program, device}}, device).find("argument 1 of a launch has an address of the host's memory, in byte 8"),
            std::string::npos);
  EXPECT_NE(said({2, {device, device}}, stack).find("argument 2 of a launch has an address of the host's memory, in byte 0"),
            std::string::npos);
  auto setup = sdk::fresh<galley_kernel_setup>();
  setup.queue = queue;
  const void* const table[] = {device, heap.data()};
  EXPECT_THROW(upload(setup, const_cast<float*>(device), table, sizeof table), sdk::Failure);
  EXPECT_NO_THROW(upload(setup, const_cast<float*>(device), table, sizeof(void*)));
  EXPECT_NO_THROW(opened.device->synchronize());
}

// sm_86, sm_89 and sm_120 give a block 99 KiB of shared memory, sm_80 and sm_90 more: a kernel has to do with the least.
TEST(Device, RefusesALaunchThatNotEveryGpuTakes) {
  const auto said = [](const Grid& grid) {
    try {
      launch(read_nothing, grid, nullptr, 0);
    } catch (const sdk::Failure& failure) {
      return std::string(failure.what());
    }
    return std::string();
  };
  allow_shared(read_nothing, 100 << 10);
  EXPECT_EQ(said({1, 32, 99 << 10}), "");
  EXPECT_NE(said({1, 32, (99 << 10) + 16}).find("a launch that not every GPU takes: 1 blocks of 32 threads with 101392 bytes"),
            std::string::npos);
  EXPECT_NE(said({1, 1056}).find("a launch that not every GPU takes: 1 blocks of 1056 threads"), std::string::npos);
}

TEST(Device, NamesADriverThatIsTooOld) {
  const auto said = [](const char* driver) {
    const Setting setting("GALLEY_EMULATED_DRIVER", driver);
    galley_target target = sdk::fresh<galley_target>();
    try {
      describe(&target);
    } catch (const sdk::Failure& failure) {
      return std::string(failure.what()) + " " + failure.hint;
    }
    return std::string();
  };
  EXPECT_NE(said("12040").find("is too old: it is for CUDA 12.4, and CUDA 13.0 is needed"), std::string::npos) << said("12040");
  EXPECT_NE(said("0").find("no NVIDIA GPU can be used here"), std::string::npos) << said("0");
}

// A target that lists cuDNN without NVRTC has kernels that cannot run.
TEST(Vendor, TakesCudnnOnlyWithTheCompilerThatItNeeds) {
  const fs::path stub = fs::path(std::getenv("GALLEY_BINARY")) / "tests" / "stubs" / "libcudnn.so.9";
  ASSERT_TRUE(fs::exists(stub));
  const fs::path home = fs::path(testing::TempDir()) / "cudnn-without-nvrtc";
  fs::remove_all(home);
  fs::create_directories(home / "nvidia/cudnn/lib");
  const fs::path copy = home / "nvidia/cudnn/lib/libcudnn.so.9";
  fs::copy(stub, copy);
  const Setting cudnn("GALLEY_CUDNN", copy.string());
  EXPECT_EQ(find_cudnn().version, "9.20.1");
  EXPECT_EQ(find_cudnn().missing, "libnvrtc.so.77");
  {
    const Setting named("GALLEY_NVRTC", stub.string());
    EXPECT_EQ(find_cudnn().missing, "");
  }
  {
    const Setting none("GALLEY_CUDNN", "");
    EXPECT_EQ(find_cudnn().version, "");
  }
  // Where NVIDIA's packages for Python have it.
  fs::create_directories(home / "nvidia/cuda_nvrtc/lib");
  fs::copy(stub, home / "nvidia/cuda_nvrtc/lib/libnvrtc.so.77");
  EXPECT_EQ(find_cudnn().missing, "");
}

}  // namespace
}  // namespace galley::cuda
