// A device with memory of its own for the tests' launches. GALLEY_TEST_DEVICE names the library of its plugin: a GPU's
// (plugins/cuda/cuda.so), or the emulated one's, which the host cannot touch either.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "galley/galley.h"

namespace galley::test {

/// Bytes of this process that a launch may touch, guards included.
struct Extent {
  std::byte* begin = nullptr;
  int64_t bytes = 0;
};

class TestDevice {
 public:
  /// Null where the environment names none. Ends the program with a message where it cannot be opened.
  static TestDevice* get();
  /// What the device says of itself.
  const galley_target& target() const { return target_; }

  /// prepare, enqueue as often as `times` says, release: with a copy of `memory` on the device and operands that point there. After it
  /// the copies are back.
  galley_status launch(const galley_kernel& kernel, const std::vector<const galley_node_view*>& nodes, galley_kernel_setup setup,
                       const std::vector<Extent>& memory, int times, galley_error* error);

 private:
  struct Moved;
  explicit TestDevice(const galley_device& device);
  struct Copy {
    Extent here;
    int64_t offset = 0;  ///< in the arena
  };
  galley_status move(bool in, galley_error* error) const;
  void* there(const void* here) const;

  const galley_device& device_;
  galley_target target_;
  void* handle_ = nullptr;
  std::byte* arena_ = nullptr;
  std::vector<Copy> copies_;
};

}  // namespace galley::test
