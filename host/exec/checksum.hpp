// Checksums of what tensors hold: XXH3, 64 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "host/base/result.hpp"
#include "host/exec/machine.hpp"

namespace galley {

/// Bytes in pieces. One thread.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  void add(std::span<const std::byte> bytes);
  uint64_t value() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

uint64_t checksum(std::string_view text);
/// Of a whole tensor; synchronizes.
Result<uint64_t> checksum(Machine& machine, TensorId tensor);

/// 16 hexadecimal digits, lower case.
std::string hexadecimal(uint64_t value);

}  // namespace galley
