// Memory for windows that no plan holds: those that are counted or shown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "host/data/window.hpp"

namespace galley {

/// Owns so many bytes, aligned as a window's have to be. Used by one thread at a time.
class WindowMemory {
 public:
  explicit WindowMemory(uint64_t bytes = 0) : size_(bytes), memory_(bytes + BatchLayout::kAlignment) {}
  std::span<std::byte> bytes() {
    const auto past = reinterpret_cast<uintptr_t>(memory_.data()) % BatchLayout::kAlignment;
    return std::span(memory_).subspan(past ? BatchLayout::kAlignment - past : 0, size_);
  }

 private:
  size_t size_;
  std::vector<std::byte> memory_;
};

}  // namespace galley
