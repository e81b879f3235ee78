// What a format's author writes for CUDA: a type that reads an operand (galley/cpp/codec.hpp), and a function that launches the making of
// its numbers.
//
//   void unpack(const SixBit& from, int64_t n, uint32_t dtype, void* to, galley_queue* queue);   // all n numbers, each rounded once
//   const bool added = add_codec<SixBit, unpack>("six-bit") && add(unpack_kernel<SixBit, unpack>("six_bit_unpack.cuda", "six_bit_unpack"));
//
// The type is copied to the device as it is. Kernels of any op then have the numbers made in their workspace.
#pragma once

#include "galley/cpp/codec.hpp"
#include "galley/cuda/kernel.hpp"

namespace galley::cuda {

namespace detail {

template <class From, void (*Unpack)(const From&, int64_t, uint32_t, void*, galley_queue*)>
void unpack_node(const Node& node, void*, galley_queue* queue) {
  const galley_operand& out = node.out(0);
  Unpack(From(sdk::unpacked_output(node)), count(out), out.dtype, out.data, queue);
}
inline bool into_numbers(const Node& node) { return is_number(node.out(0).dtype); }

}  // namespace detail

/// Adds a codec for CUDA.
template <class From, void (*Unpack)(const From&, int64_t, uint32_t, void*, galley_queue*)>
bool add_codec(const char* format) {
  galley_codec c = sdk::detail::codec_of<From>(format, kDevice);
  c.decode = [](const void* state, int64_t first, int64_t n, uint32_t dtype, void* to, galley_queue* queue, galley_error* error) noexcept {
    return sdk::guard(error, [&] {
      if (first || !is_number(dtype)) unsupported("a part of an operand, or another dtype");
      Unpack(*static_cast<const From*>(state), n, dtype, to, queue);
    });
  };
  return add(c);
}

/// The unpack op.
template <class From, void (*Unpack)(const From&, int64_t, uint32_t, void*, galley_queue*)>
galley_kernel unpack_kernel(const char* name, const char* op) {
  return kernel<detail::unpack_node<From, Unpack>, detail::into_numbers>(name, op);
}

}  // namespace galley::cuda
