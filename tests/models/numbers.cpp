#include "tests/models/harness.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <stdexcept>

namespace galley::test {

int64_t Tensor::count() const {
  int64_t n = 1;
  for (const int64_t extent : shape) n *= extent;
  return n;
}

bool floating(uint32_t dtype) { return dtype == GALLEY_F64 || dtype == GALLEY_F32 || dtype == GALLEY_F16 || dtype == GALLEY_BF16; }

double rounded(double value, uint32_t dtype) {
  if (dtype == GALLEY_F64 || !floating(dtype) || value == 0 || !std::isfinite(value)) return value;
  if (dtype == GALLEY_F32) return static_cast<float>(value);
  const int bits = dtype == GALLEY_F16 ? 11 : 8, smallest = dtype == GALLEY_F16 ? -14 : -126;
  const int exponent = std::max(static_cast<int>(std::bit_cast<uint64_t>(value) >> 52 & 0x7FF) - 1023, smallest);
  const double unit = std::bit_cast<double>(static_cast<uint64_t>(exponent - bits + 1 + 1023) << 52);
  constexpr double shift = 0x1.8p52;  // a sum with it has no fraction: rounded to the nearest, ties to even
  const double result = (value / unit + shift - shift) * unit;
  const double limit = dtype == GALLEY_F16 ? 65520.0 : 0x1.FFp127;
  return std::fabs(value) >= limit ? std::copysign(INFINITY, value) : result;
}
Tensor draw(uint32_t dtype, const std::vector<int64_t>& shape, std::mt19937_64& random) {
  Tensor t{dtype, shape, {}};
  for (int64_t k = t.count(); k > 0; --k) t.values.push_back(rounded(std::uniform_real_distribution(-1.0, 1.0)(random), dtype));
  return t;
}

namespace {

template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}
template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

uint16_t f16_bits(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | 0x7E00;
  value = std::fabs(rounded(value, GALLEY_F16));
  if (std::isinf(value)) return sign | 0x7C00;
  if (value < 0x1p-14) return static_cast<uint16_t>(sign | static_cast<int>(value * 0x1p24));
  const int exponent = std::ilogb(value);
  return static_cast<uint16_t>(sign | (exponent + 15) << 10 | (static_cast<int>(std::ldexp(value, 10 - exponent)) & 0x3FF));
}
double f16_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 0x3FF;
  double value = exponent == 31 ? (mantissa ? NAN : INFINITY)
                 : exponent     ? std::ldexp(1024 + mantissa, exponent - 25)
                                : std::ldexp(mantissa, -24);
  return bits & 0x8000 ? -value : value;
}

void store_as(std::byte* to, uint32_t dtype, double v) {
  switch (dtype) {
    case GALLEY_F64: return store(to, v);
    case GALLEY_F32: return store(to, static_cast<float>(v));
    case GALLEY_BF16: return store(to, static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(rounded(v, dtype))) >> 16));
    case GALLEY_F16: return store(to, f16_bits(v));
    case GALLEY_I64: return store(to, static_cast<int64_t>(v));
    case GALLEY_I32: return store(to, static_cast<int32_t>(v));
    case GALLEY_U32: return store(to, static_cast<uint32_t>(v));
    case GALLEY_I16: return store(to, static_cast<int16_t>(v));
    case GALLEY_U16: return store(to, static_cast<uint16_t>(v));
    case GALLEY_I8: return store(to, static_cast<int8_t>(v));
    default: return store(to, static_cast<uint8_t>(v));
  }
}
double load_as(const std::byte* from, uint32_t dtype) {
  switch (dtype) {
    case GALLEY_F64: return load<double>(from);
    case GALLEY_F32: return load<float>(from);
    case GALLEY_BF16: return std::bit_cast<float>(static_cast<uint32_t>(load<uint16_t>(from)) << 16);
    case GALLEY_F16: return f16_value(load<uint16_t>(from));
    case GALLEY_I64: return static_cast<double>(load<int64_t>(from));
    case GALLEY_I32: return load<int32_t>(from);
    case GALLEY_U32: return load<uint32_t>(from);
    case GALLEY_I16: return load<int16_t>(from);
    case GALLEY_U16: return load<uint16_t>(from);
    case GALLEY_I8: return load<int8_t>(from);
    default: return load<uint8_t>(from);
  }
}

constexpr int64_t guard = 64;
constexpr std::byte guard_byte{0xA5};

}  // namespace

namespace {

/// All that are there, so that an operand's address leads to the memory around it.
std::set<const Memory*>& memories() {
  static std::set<const Memory*> all;
  return all;
}

}  // namespace

Extent memory_around(const void* address) {
  const auto* at = static_cast<const std::byte*>(address);
  for (const Memory* m : memories())
    if (at >= m->data() && at < m->data() + std::max<int64_t>(m->bytes(), 1)) return {m->data() - guard, m->bytes() + 2 * guard};
  throw std::runtime_error("an operand lies outside of the tests' memory");
}

Memory::Memory(Memory&& other) noexcept : storage_(std::move(other.storage_)), data_(other.data_), bytes_(other.bytes_) {
  memories().insert(this);
}
Memory& Memory::operator=(Memory&& other) noexcept {
  storage_ = std::move(other.storage_);
  data_ = other.data_;
  bytes_ = other.bytes_;
  return *this;
}
Memory::~Memory() { memories().erase(this); }

Memory::Memory(int64_t bytes, unsigned char fill, int64_t off)
    : storage_(new std::byte[static_cast<size_t>(bytes + 3 * guard + off)]), bytes_(bytes) {
  const auto address = reinterpret_cast<uintptr_t>(storage_.get()) + guard;
  data_ = storage_.get() + guard + (64 - address % 64) % 64 + off;
  std::memset(data_ - guard, static_cast<int>(guard_byte), static_cast<size_t>(guard));
  std::memset(data_, fill, static_cast<size_t>(bytes));
  std::memset(data_ + bytes, static_cast<int>(guard_byte), static_cast<size_t>(guard));
  memories().insert(this);
}

bool Memory::intact() const {
  for (int64_t k = 0; k < guard; ++k)
    if (data_[-1 - k] != guard_byte || data_[bytes_ + k] != guard_byte) return false;
  return true;
}

Memory pack(const Tensor& t, uint32_t dtype, int64_t off) {
  const int64_t size = galley_dtype_bytes(dtype);
  Memory m(t.count() * size, 0xFF, off);
  for (size_t i = 0; i < t.values.size(); ++i) store_as(m.data() + static_cast<int64_t>(i) * size, dtype, t.values[i]);
  return m;
}

std::vector<double> unpack(const void* data, uint32_t dtype, int64_t count) {
  std::vector<double> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    values[static_cast<size_t>(i)] = load_as(static_cast<const std::byte*>(data) + i * galley_dtype_bytes(dtype), dtype);
  return values;
}

}  // namespace galley::test
