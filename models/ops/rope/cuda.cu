// rope: x (R, H·D) turned by cos and sin from row position_ids[r] of the table (P, T) in F32; pairs are (i, i + T/2) of a head, columns
// from T on are copied, and so are heads that do not turn. A thread turns eight pairs of up to four heads, for which it reads cos and sin once; the table comes from the
// cache. Both halves of a pair are read before either is written: in place is legal. Bound by memory. A position that the table does not
// have fails the launch.
//
// rope_table: cos and sin of position · angle. The angles come from the host in double, as parts of a turn, and with the arguments of the
// launch; the device takes whole turns off in double before anything else, so that far positions are as exact as near ones.
#include <algorithm>

#include "cuda/packed.hpp"
#include "ops/rope/angles.hpp"

namespace galley::cuda::rope_op {
namespace {

constexpr int kThreads = 256, kHeads = 4, kAhead = 2;  // heads of a thread; fetched at a time

struct Rope {
  Reader x, table;
  const int32_t* ids;
  Writer y;
  int64_t R, P, units;              // units: threads of a row
  int heads, D, T, turning, packs;  // packs of a head: those that turn, all
  int cycle, turns;                 // of each `cycle` heads, the first `turns` turn
  float sign;

  /// Pairs c … c + n of the heads from `head` on, of row r.
  __device__ void turn(int64_t r, int head, int c, int n) const {
    const int half = T / 2;
    float cos[kPack], sin[kPack];
    const int64_t id = ids[r];
    table.load(id * T + c, n, cos);
    table.load(id * T + half + c, n, sin);
#pragma unroll
    for (int i = 0; i < kPack; ++i) sin[i] *= sign;
    const int end = head + kHeads < heads ? head + kHeads : heads;
    for (int h = head; h < end; h += kAhead) {
      Packed left[kAhead], right[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (h + k >= end) continue;
        left[k] = fetch(x, at(r, h + k) + c, n);
        right[k] = fetch(x, at(r, h + k) + half + c, n);
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (h + k >= end) continue;
        float a[kPack], b[kPack];
        unpack(left[k], x.dtype, a);
        unpack(right[k], x.dtype, b);
        const bool turned = (h + k) % cycle < turns;
#pragma unroll
        for (int i = 0; i < kPack; ++i) {
          if (!turned) continue;
          const float first = a[i], second = b[i];
          a[i] = fmaf(first, cos[i], -(second * sin[i]));
          b[i] = fmaf(second, cos[i], first * sin[i]);
        }
        y.store(at(r, h + k) + c, n, a);
        y.store(at(r, h + k) + half + c, n, b);
      }
    }
  }
  __device__ void copy(int64_t r, int head, int c, int n) const {
    for (int h = head; h < head + kHeads && h < heads; ++h) {
      float numbers[kPack];
      x.load(at(r, h) + c, n, numbers);
      y.store(at(r, h) + c, n, numbers);
    }
  }
  __device__ int64_t at(int64_t r, int head) const { return (r * heads + head) * D; }
};

__global__ void __launch_bounds__(kThreads) rope_rows(Rope rope) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, r = thread / rope.units;
  if (r >= rope.R) return;
  if (rope.ids[r] < 0 || rope.ids[r] >= rope.P) return refuse("a position that the table does not have");
  const int unit = static_cast<int>(thread % rope.units), head = unit / rope.packs * kHeads, pack = unit % rope.packs;
  if (pack < rope.turning) rope.turn(r, head, pack * kPack, pack_at(pack * kPack, rope.T / 2));
  else rope.copy(r, head, rope.T + (pack - rope.turning) * kPack, pack_at(rope.T + (pack - rope.turning) * kPack, rope.D));
}

void rope(const Node& n, void*, galley_queue* queue) {
  Rope rope = {};
  rope.x = Reader(n, 0);
  rope.table = Reader(n, 2);
  rope.ids = n.read<int32_t>(1);
  rope.y = Writer(n, 0);
  rope.R = rows(n.in(0));
  rope.P = n.in(2).shape[0];
  rope.heads = static_cast<int>(n.i("heads", 0));
  rope.D = static_cast<int>(n.i("head_dim", 0));
  rope.T = static_cast<int>(columns(n.in(2)));
  rope.turning = static_cast<int>(blocks_of(rope.T / 2, kPack));
  rope.packs = rope.turning + static_cast<int>(blocks_of(rope.D - rope.T, kPack));
  rope.units = blocks_of(rope.heads, kHeads) * rope.packs;
  rope.cycle = static_cast<int>(n.i("cycle", 1));
  rope.turns = static_cast<int>(n.i("turning", 1));
  rope.sign = n.i("inverse", 0) ? -1.0f : 1.0f;
  launch(rope_rows, {blocks_of(rope.R * rope.units, kThreads), kThreads}, queue, rope);
}

bool supported(const Node& n) { return all_numbers(n) && columns(n.in(0)) <= int64_t{1} << 30; }

// ---- The table ------------------------------------------------------------------------------------------------------------------------

/// cos and sin of `turns` full turns, each to about 1e-13: Taylor's polynomials on an eighth of a turn to either side.
__device__ void cos_and_sin(double turns, double& cos, double& sin) {
  const double part = turns - rint(turns), quarter = rint(4 * part);  // −2 … 2
  const double x = (part - 0.25 * quarter) * 6.283185307179586477, z = x * x;
  double s = 1.0 / 6227020800, c = 1.0 / 87178291200;
  s = fma(s, z, -1.0 / 39916800);
  s = fma(s, z, 1.0 / 362880);
  s = fma(s, z, -1.0 / 5040);
  s = fma(s, z, 1.0 / 120);
  s = fma(s, z, -1.0 / 6);
  s = fma(s * z, x, x);
  c = fma(-c, z, 1.0 / 479001600);
  c = fma(c, z, -1.0 / 3628800);
  c = fma(c, z, 1.0 / 40320);
  c = fma(c, z, -1.0 / 720);
  c = fma(c, z, 1.0 / 24);
  c = fma(c, z, -0.5);
  c = fma(c, z, 1.0);
  const int turned = static_cast<int>(quarter) & 3;
  cos = turned == 0 ? c : turned == 1 ? -s : turned == 2 ? -c : s;
  sin = turned == 0 ? s : turned == 1 ? c : turned == 2 ? -s : -c;
}

/// Turns a position, of as many pairs as one launch takes.
struct Turns {
  static constexpr int kMost = 256;
  double of[kMost];
};

/// Pairs first … first + pairs of each row of the table (P, 2·half).
__global__ void __launch_bounds__(kThreads)
    fill_table(float* table, Turns turns, int64_t P, int64_t half, int64_t first, int pairs, double size) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, p = thread / pairs;
  if (p >= P) return;
  const int i = static_cast<int>(thread % pairs);
  double cos, sin;
  cos_and_sin(static_cast<double>(p) * turns.of[i], cos, sin);
  table[2 * p * half + first + i] = static_cast<float>(size * cos);
  table[(2 * p + 1) * half + first + i] = static_cast<float>(size * sin);
}

void rope_table(const Node& n, void*, galley_queue* queue) {
  galley::models::rope_tables(n, [&](const galley::models::Angles& angles, int64_t row, int64_t P) {
    const int64_t half = angles.D / 2;
    float* const table = n.write<float>(0) + row * angles.D;
    for (int64_t first = 0; first < half; first += Turns::kMost) {
      const auto pairs = static_cast<int>(std::min<int64_t>(half - first, Turns::kMost));
      Turns turns = {};
      for (int i = 0; i < pairs; ++i) turns.of[i] = angles(first + i) / 6.283185307179586477;
      launch(fill_table, {blocks_of(P * pairs, kThreads), kThreads}, queue, table, turns, P, half, first, pairs, angles.size);
    }
  });
}

bool table_supported(const Node& n) { return n.out(0).dtype == GALLEY_F32; }

const bool added =
    add(kernel<rope, supported>("rope.cuda", "rope")) && add(kernel<rope_table, table_supported>("rope_table.cuda", "rope_table"));

}  // namespace
}  // namespace galley::cuda::rope_op
