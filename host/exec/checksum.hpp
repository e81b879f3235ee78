// Computes checksums of the contents of files: XXH3, 64 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace galley {

/// Computes the checksum of bytes that come in pieces. One thread. Allocates nothing.
class Checksum {
 public:
  Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  void add(std::span<const std::byte> bytes);
  uint64_t value() const;

 private:
  alignas(64) std::byte state_[576];  ///< the library's
};

uint64_t checksum(std::string_view text);

/// Returns 16 hexadecimal digits, lower case.
std::string hexadecimal(uint64_t value);

}  // namespace galley
