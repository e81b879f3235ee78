// Numbers of q8 on the CPU: the codec, by which kernels of any op read weights in this format, and the kernels of the two ops, which are made
// of the same functions.
#include <galley/cpp/codec.hpp>

#include <algorithm>
#include <cmath>

namespace {

using namespace galley::sdk;

/// A tensor in q8, as it is in memory.
struct Numbers {
  explicit Numbers(const galley_operand& t)
      : codes(static_cast<int8_t*>(t.components[0]->data)),
        absmax(static_cast<float*>(t.components[1]->data)),
        block(option(t, "block", 64)) {}
  int64_t unit() const { return block; }

  int8_t* codes;
  float* absmax;
  int64_t block;
};

/// body(begin, end, block) for each block, or what there is of it in the range.
template <class Body>
void each_block(int64_t block, int64_t first, int64_t n, const Body& body) {
  for (const int64_t last = first + n; first < last;) {
    const int64_t b = first / block, end = std::min((b + 1) * block, last);
    body(first, end, b);
    first = end;
  }
}

template <class To>
void decode(const Numbers& from, int64_t first, int64_t n, To* to) {
  each_block(from.block, first, n, [&](int64_t begin, int64_t end, int64_t b) {
    const float scale = from.absmax[b] / 127.0f;
    for (int64_t i = begin; i < end; ++i) from_float(static_cast<float>(from.codes[i]) * scale, to[i - first]);
  });
}

void encode(const Numbers& to, int64_t first, int64_t n, const float* from) {
  each_block(to.block, first, n, [&](int64_t begin, int64_t end, int64_t b) {
    float most = 0;
    for (int64_t i = begin; i < end; ++i) most = std::max(most, std::fabs(from[i - first]));
    const float scale = most > 0 ? 127.0f / most : 0;
    for (int64_t i = begin; i < end; ++i) to.codes[i] = static_cast<int8_t>(std::nearbyint(from[i - first] * scale));
    to.absmax[b] = most;
  });
}

const bool registered = add_codec<Numbers>("q8") && add(pack_kernel<Numbers>("q8_pack.cpu", "q8_pack")) &&
                        add(unpack_kernel<Numbers>("q8_unpack.cpu", "q8_unpack"));

}  // namespace

GALLEY_PLUGIN("q8", "1.0.0");
