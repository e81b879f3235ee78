#include "host/exec/checksum.hpp"

#define XXH_STATIC_LINKING_ONLY  // the state's size, so that it can lie here and not on the heap
#include <xxhash.h>

#include <new>

namespace galley {
namespace {

XXH3_state_t* state_of(std::byte* bytes) { return std::launder(reinterpret_cast<XXH3_state_t*>(bytes)); }

}  // namespace

Checksum::Checksum() {
  static_assert(sizeof(XXH3_state_t) <= sizeof state_ && alignof(XXH3_state_t) <= 64);
  XXH3_64bits_reset(new (state_) XXH3_state_t);
}

void Checksum::add(std::span<const std::byte> bytes) { XXH3_64bits_update(state_of(state_), bytes.data(), bytes.size()); }
uint64_t Checksum::value() const { return XXH3_64bits_digest(state_of(const_cast<std::byte*>(state_))); }

uint64_t checksum(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

std::string hexadecimal(uint64_t value) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (size_t i = 16; i-- > 0; value >>= 4) text[i] = digits[value & 15];
  return text;
}

}  // namespace galley
