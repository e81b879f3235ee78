// What a format's author writes for the CPU: a type that reads an operand, and functions of runs of numbers.
//
//   struct SixBit {                                    // trivially copyable, at most GALLEY_CODEC_STATE bytes
//     explicit SixBit(const galley_operand&);          // addresses of components (NULL at plan time), options; throws for others
//     int64_t unit() const;                            // encode is given whole units, but for the operand's end
//   };
//   template <class To>                                // float, Bf16 or F16
//   void decode(const SixBit&, int64_t first, int64_t n, To* to);            // any range; each number is rounded once
//   void encode(const SixBit&, int64_t first, int64_t n, const float* from);
//
//   const bool added = add_codec<SixBit>("six-bit") && add(pack_kernel<SixBit>("six_bit_pack.cpu", "six_bit_pack")) &&
//                      add(unpack_kernel<SixBit>("six_bit_unpack.cpu", "six_bit_unpack"));
//
// Without unit() and encode, kernels read the format only. The codec serves kernels of any op; the two kernels are those of the format's
// ops, whose attributes are the format's options and "dtype".
#pragma once

#include <algorithm>

#include "galley/cpp/half.hpp"
#include "galley/cpp/plugin.hpp"
#include "galley/cpp/stored.hpp"

namespace galley::sdk {

/// The tensor of a pack or an unpack node as an operand in the format.
inline galley_operand packed_operand(const Node& node, const galley_operand& numbers, const galley_operand* const* components, uint32_t n) {
  galley_operand t = operand(nullptr, numbers.shape, numbers.rank, numbers.dtype, numbers.access, numbers.name);
  t.format = node.view()->op;
  t.components = components;
  t.n_components = n;
  t.attrs = node.view()->attrs;
  t.n_attrs = node.view()->n_attrs;
  return t;
}
inline galley_operand unpacked_output(const Node& node) {
  return packed_operand(node, node.out(0), node.view()->inputs, node.view()->n_inputs);
}
inline galley_operand packed_input(const Node& node) {
  return packed_operand(node, node.in(0), node.view()->outputs, node.view()->n_outputs);
}

namespace detail {

/// Whether a format's type has unit().
template <class From, class = void>
inline constexpr bool kWrites = false;
template <class From>
inline constexpr bool kWrites<From, std::void_t<decltype(std::declval<const From&>().unit())>> = true;

template <class From>
void decode_as(const From& from, int64_t first, int64_t n, uint32_t dtype, void* to) {
  switch (dtype) {
    case GALLEY_F32: return decode(from, first, n, static_cast<float*>(to));
    case GALLEY_BF16: return decode(from, first, n, static_cast<Bf16*>(to));
    case GALLEY_F16: return decode(from, first, n, static_cast<F16*>(to));
    default: unsupported("numbers in this dtype");
  }
}

/// The part of a codec's table that does not depend on the device.
template <class From>
galley_codec codec_of(const char* format, const char* device) {
  static_assert(std::is_trivially_copyable_v<From> && sizeof(From) <= GALLEY_CODEC_STATE && alignof(From) <= 16);
  galley_codec c = fresh<galley_codec>();
  c.format = format;
  c.device = device;
  c.open = [](void*, const galley_operand* t, void* state, int64_t* unit, galley_error* error) noexcept {
    return guard(error, [&] {
      if (!galley_operand_understood(t)) unsupported("an operand of which more is said than this plugin knows");
      const auto* const from = new (state) From(*t);
      if constexpr (kWrites<From>) *unit = from->unit();
    });
  };
  return c;
}

inline constexpr int64_t kCodecPiece = 16384;  ///< numbers of a task

template <class From>
void unpack_node(const Node& node, void*) {
  const From from(unpacked_output(node));
  const galley_operand& out = node.out(0);
  const int64_t n = count(out);
  parallel((n + kCodecPiece - 1) / kCodecPiece, [&](int64_t piece) {
    const int64_t first = piece * kCodecPiece;
    decode_as(from, first, std::min(kCodecPiece, n - first), out.dtype,
              static_cast<char*>(out.data) + first * galley_dtype_bytes(out.dtype));
  });
}

/// Numbers in F32, or in 16 bit if units divide a tile.
template <class From>
bool packs(const Node& node) {
  return Stored::takes(node.in(0)) && (Stored(node.in(0)).in_place() || kStoredTile % From(packed_input(node)).unit() == 0);
}
template <class From>
void pack_node(const Node& node, void*) {
  const From to(packed_input(node));
  const Stored numbers(node.in(0));
  const int64_t n = count(node.in(0)), units = std::max<int64_t>(1, kCodecPiece / to.unit()), size = units * to.unit();
  parallel((n + size - 1) / size, [&](int64_t piece) {
    const int64_t begin = piece * size, end = std::min(n, begin + size);
    if (numbers.in_place()) return encode(to, begin, end - begin, numbers.load(begin, end - begin, nullptr));
    alignas(64) float room[kStoredTile];
    for (int64_t at = begin; at < end; at += kStoredTile) {
      const int64_t some = std::min(kStoredTile, end - at);
      encode(to, at, some, numbers.load(at, some, room));
    }
  });
}

}  // namespace detail

/// Adds a codec for the CPU.
template <class From>
bool add_codec(const char* format, const char* device = GALLEY_KERNEL_DEVICE) {
  galley_codec c = detail::codec_of<From>(format, device);
  c.decode = [](const void* state, int64_t first, int64_t n, uint32_t dtype, void* to, galley_queue*, galley_error* error) noexcept {
    return guard(error, [&] { detail::decode_as(*static_cast<const From*>(state), first, n, dtype, to); });
  };
  if constexpr (detail::kWrites<From>)
    c.encode = [](const void* state, int64_t first, int64_t n, const float* from, galley_queue*, galley_error* error) noexcept {
      return guard(error, [&] { encode(*static_cast<const From*>(state), first, n, from); });
    };
  return add(c);
}

/// The unpack op on the compute threads.
template <class From>
galley_kernel unpack_kernel(const char* name, const char* op) {
  return kernel<detail::unpack_node<From>>(name, op);
}
/// The pack op on the compute threads.
template <class From>
galley_kernel pack_kernel(const char* name, const char* op) {
  return kernel<detail::pack_node<From>, detail::packs<From>>(name, op);
}

}  // namespace galley::sdk
