#include "host/exec/checksum.hpp"

#define XXH_STATIC_LINKING_ONLY  // the state's size, so that it needs no allocation of the library's own
#include <xxhash.h>

namespace galley {

struct Checksum::Impl {
  XXH3_state_t state;
};

Checksum::Checksum() : impl_(std::make_unique<Impl>()) { XXH3_64bits_reset(&impl_->state); }
Checksum::~Checksum() = default;

void Checksum::add(std::span<const std::byte> bytes) { XXH3_64bits_update(&impl_->state, bytes.data(), bytes.size()); }
uint64_t Checksum::value() const { return XXH3_64bits_digest(&impl_->state); }

uint64_t checksum(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

Result<uint64_t> checksum(Machine& machine, TensorId tensor) {
  Checksum sum;
  TRY_STATUS(machine.show(tensor, [&](std::span<const std::byte> bytes) -> Status {
    sum.add(bytes);
    return ok();
  }));
  return sum.value();
}

std::string hexadecimal(uint64_t value) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (size_t i = 16; i-- > 0; value >>= 4) text[i] = digits[value & 15];
  return text;
}

}  // namespace galley
