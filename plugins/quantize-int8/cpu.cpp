// Packing of "int8-rows" on the compute threads, unpacking, and its codec. Packing takes whole rows at a time, or strips of columns where these have the scales.
#include <algorithm>

#include "galley/cpp/codec.hpp"
#include "galley/cpp/int8_rows.hpp"

namespace {

using namespace galley::sdk;

constexpr int64_t kRun = 512;     // numbers at a time, which stay in the first-level cache
constexpr int64_t kStrip = 64;    // columns of a task where they have the scales
constexpr int64_t kTask = 65536;  // numbers of a task, about

float in_f16(float x) { return int8_rows::in_f16(int8_rows::within(x)); }

/// body(first, last) for rows that make up a task.
template <class Body>
void by_rows(int64_t rows, int64_t columns, const Body& body) {
  const int64_t at_once = std::max<int64_t>(1, kTask / std::max<int64_t>(columns, 1));
  parallel((rows + at_once - 1) / at_once, [&](int64_t task) { body(task * at_once, std::min(rows, (task + 1) * at_once)); });
}

void pack_rows(const float* x, int64_t R, int64_t C, int8_t* codes, float* scales) {
  by_rows(R, C, [=](int64_t first, int64_t last) {
    float rounded[kRun];
    for (int64_t r = first; r < last; ++r) {
      uint32_t most = 0;
      const auto in_runs = [&](const auto& body) {
        for (int64_t c = 0; c < C; c += kRun) {
          const int64_t n = std::min(kRun, C - c);
          for (int64_t i = 0; i < n; ++i) rounded[i] = in_f16(x[r * C + c + i]);
          body(c, n);
        }
      };
      in_runs([&](int64_t, int64_t n) {
        for (int64_t i = 0; i < n; ++i) most = std::max(most, int8_rows::magnitude_bits(rounded[i]));
      });
      scales[r] = int8_rows::magnitude(most);
      const float by = int8_rows::inverse(scales[r]);
      in_runs([&](int64_t c, int64_t n) {
        for (int64_t i = 0; i < n; ++i) codes[r * C + c + i] = int8_rows::code(rounded[i], by);
      });
    }
  });
}

void pack_columns(const float* x, int64_t R, int64_t C, int8_t* codes, float* scales) {
  parallel((C + kStrip - 1) / kStrip, [=](int64_t strip) {
    const int64_t c = strip * kStrip, n = std::min(kStrip, C - c);
    uint32_t most[kStrip] = {};
    for (int64_t r = 0; r < R; ++r)
      for (int64_t i = 0; i < n; ++i) most[i] = std::max(most[i], int8_rows::magnitude_bits(in_f16(x[r * C + c + i])));
    float by[kStrip] = {};
    for (int64_t i = 0; i < n; ++i) {
      scales[c + i] = int8_rows::magnitude(most[i]);
      by[i] = int8_rows::inverse(scales[c + i]);
    }
    for (int64_t r = 0; r < R; ++r)
      for (int64_t i = 0; i < n; ++i) codes[r * C + c + i] = int8_rows::code(in_f16(x[r * C + c + i]), by[i]);
  });
}

void pack(const Node& node, void*) {
  const galley_operand& x = node.in(0);
  const auto make = node.i("columns", 0) ? pack_columns : pack_rows;
  make(node.read<float>(0), rows(x), columns(x), node.write<int8_t>(0), node.write<float>(1));
}

const bool registered = add_codec<int8_rows::Coded>(int8_rows::kName) && add(kernel<pack>("int8_rows_pack.cpu", "int8_rows_pack")) &&
                        add(unpack_kernel<int8_rows::Coded>("int8_rows_unpack.cpu", "int8_rows_unpack"));

}  // namespace

GALLEY_PLUGIN("quantize-int8", "1.0.0");
