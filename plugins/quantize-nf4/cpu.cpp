// four_bit_pack, four_bit_unpack and the codec of four-bit. Tasks are blocks of 16,384 numbers, which begin where blocks of any size and nested ones of 64 do.
// Measured on one thread of an AMD core with 512-bit vectors, beside other programs, in ns a number with 512-bit | 256-bit vectors:
// unpacked to F32 .08 | .11, to BF16 .08 | .12, to F16 .11 | .19; packed .8 | 2.7, which is the comparisons with 15 bounds. The mean of
// absmax takes 12 ns for each of them, .2 a number: its chains are as PyTorch's.
#include <algorithm>

#include "four_bit_codes.hpp"
#include "galley/cpp/codec.hpp"
#include "state_number.hpp"

namespace {

using namespace galley::sdk;
namespace four_bit = galley::four_bit;

constexpr int64_t kTask = 16384;  // numbers

four_bit::Options options_of(const Node& node) { return {node.view()->attrs, node.view()->n_attrs}; }
bool in_f32(const Node& node) { return node.in(0).dtype == GALLEY_F32; }

/// With double quantization: room for absmax before it is coded.
int64_t pack_workspace(const Node& node, const galley_target&) {
  const four_bit::Options options = options_of(node);
  return options.doubled ? options.blocks(count(node.in(0))) * static_cast<int64_t>(sizeof(float)) : 0;
}
void pack(const Node& node, void* workspace) {
  const four_bit::Options options = options_of(node);
  const int64_t n = count(node.in(0)), blocks = options.blocks(n);
  const float* const x = node.read<float>(0);
  uint8_t* const codes = node.write<uint8_t>(0);
  float* const absmax = options.doubled ? static_cast<float*>(workspace) : node.write<float>(1);
  parallel(four_bit::divided(n, kTask), [&](int64_t task) {
    for (int64_t at = task * kTask; at < std::min(n, (task + 1) * kTask); at += options.block)
      absmax[at / options.block] = four_bit::encode(x + at, std::min(options.block, n - at), options.block, options.type, codes + at / 2);
  });
  if (!options.doubled) return;
  const float offset = *node.write<float>(3) = four_bit::offset_of(absmax, blocks);
  float* const nested = node.write<float>(2);
  uint8_t* const nested_codes = node.write<uint8_t>(1);
  parallel(options.nested(n), [&](int64_t k) {
    const int64_t at = k * four_bit::kNested;
    nested[k] = four_bit::encode_nested(absmax + at, std::min(four_bit::kNested, blocks - at), offset, nested_codes + at);
  });
}

// What is saved beside codes, for others to read.
void table(const Node& node, void*) {
  const galley_attr* values = galley_attr_find(node.view(), "values");
  std::copy_n(static_cast<const double*>(values->data), values->count, node.write<float>(0));
}
void state(const Node& node, void*) {
  const galley_attr* text = galley_attr_find(node.view(), "text");
  uint8_t* const to = std::copy_n(static_cast<const char*>(text->data), text->count, node.write<uint8_t>(0));
  if (!node.has(0)) return;
  galley::four_bit_folder::write_number(*node.read<float>(0), to);
  to[galley::four_bit_folder::kNumberBytes] = '}';
}
bool any(const Node&) { return true; }

const bool registered =
    add(kernel<table, any>("four_bit_table.cpu", "four_bit_table")) && add(kernel<state, any>("four_bit_state.cpu", "four_bit_state")) &&
    add(kernel<pack, in_f32, pack_workspace>("four_bit_pack.cpu", "four_bit_pack")) && add_codec<four_bit::Coded>(four_bit::kName) &&
    add(unpack_kernel<four_bit::Coded>("four_bit_unpack.cpu", "four_bit_unpack"));

}  // namespace

GALLEY_PLUGIN("quantize-nf4", "1.0.0");
