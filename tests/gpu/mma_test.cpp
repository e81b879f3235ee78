// Fragments of matrices as the PTX ISA tells of them (9.7.14, "Matrix fragments for mma.m16n8k16 with floating point type", "ldmatrix"),
// written down from its formulas alone, against mma() and load_matrices() of galley/cuda/mma.hpp and what attention makes of them: every
// register of every lane.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/attention/cuda_mma.hpp"

namespace galley::cuda {
namespace {

// ---- The PTX ISA's table: where element i of a lane's fragment lies. Two elements to a register, the first in its lower half. ----
struct Place {
  int row, column;
};
/// A (16 x 16): a0 … a7 of a lane. row = groupID for a0, a1, a4, a5, else groupID + 8; column = threadID_in_group * 2 + (i & 1), and 8 more
/// for i >= 4.
constexpr Place place_in_a(int lane, int i) {
  const int group = lane >> 2, thread = lane % 4;
  return {(0 <= i && i < 2) || (4 <= i && i < 6) ? group : group + 8, i < 4 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8};
}
/// B (16 x 8): b0 … b3. row = threadID_in_group * 2 + (i & 1), and 8 more for i >= 2; column = groupID.
constexpr Place place_in_b(int lane, int i) {
  const int group = lane >> 2, thread = lane % 4;
  return {i < 2 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8, group};
}
/// C and D (16 x 8): c0 … c3. row = groupID for i < 2, else groupID + 8; column = threadID_in_group * 2 + (i & 1).
constexpr Place place_in_d(int lane, int i) {
  const int group = lane >> 2, thread = lane % 4;
  return {i < 2 ? group : group + 8, thread * 2 + (i & 1)};
}

template <class T>
uint16_t bits_of(float x) {
  T out;
  narrow(x, out);
  return out.bits;
}

/// mma() of fragments in memory, lane by lane.
struct Fragments {
  uint32_t a[32][4], b[32][2];
  float d[32][4];
};
template <class T>
__global__ void multiply_fragments(Fragments* all, int count) {
  const int lane = static_cast<int>(threadIdx.x);
  for (int k = 0; k < count; ++k) {
    float d[4];
    uint32_t a[4], b[2];
    for (int r = 0; r < 4; ++r) a[r] = all[k].a[lane][r], d[r] = all[k].d[lane][r];
    for (int r = 0; r < 2; ++r) b[r] = all[k].b[lane][r];
    mma<T>(d, a, b);
    for (int r = 0; r < 4; ++r) all[k].d[lane][r] = d[r];
  }
}

template <class T>
void expect_the_isa_of_mma() {
  // A single one in A: row i of D is row k of B, whose numbers all differ, and the rest is C, whose numbers all differ, too.
  const auto in_b = [](int k, int j) { return static_cast<float>(k * 8 + j + 1); };            // 1 … 128
  const auto in_c = [](int i, int j) { return static_cast<float>(-1000 * (i * 8 + j + 1)); };  // F32
  std::vector<Fragments> all(256);
  for (int one = 0; one < 256; ++one) {
    Fragments& f = all[static_cast<size_t>(one)];
    f = {};
    f.a[one / 8][one % 8 / 2] = static_cast<uint32_t>(bits_of<T>(1.0f)) << 16 * (one % 2);
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const Place b = place_in_b(lane, i), c = place_in_d(lane, i);
        f.b[lane][i / 2] |= static_cast<uint32_t>(bits_of<T>(in_b(b.row, b.column))) << 16 * (i % 2);
        f.d[lane][i] = in_c(c.row, c.column);
      }
    }
  }
  launch(multiply_fragments<T>, {1, 32}, nullptr, all.data(), 256);
  bool seen[16][16] = {};
  for (int one = 0; one < 256; ++one) {
    const Place a = place_in_a(one / 8, one % 8);
    seen[a.row][a.column] = true;
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        const Place d = place_in_d(lane, i);
        const float wanted = in_c(d.row, d.column) + (d.row == a.row ? in_b(a.column, d.column) : 0.0f);
        ASSERT_EQ(all[static_cast<size_t>(one)].d[lane][i], wanted)
            << "a" << one % 8 << " of lane " << one / 8 << ", d" << i << " of lane " << lane;
      }
  }
  EXPECT_EQ(std::count(&seen[0][0], &seen[0][0] + 256, true), 256);
}

TEST(Mma, HasTheFragmentsOfThePtxIsa) {
  expect_the_isa_of_mma<Bf16>();
  expect_the_isa_of_mma<F16>();
}

/// ldmatrix.x4: lane l gives the address of row l % 8 of matrix l / 8.
template <bool kTransposed>
__global__ void load_four(const uint16_t* const* rows, uint32_t (*out)[4]) {
  const int lane = static_cast<int>(threadIdx.x);
  uint32_t r[4];
  if constexpr (kTransposed) load_transposed(r, rows[lane]);
  else load_matrices(r, rows[lane]);
  for (int i = 0; i < 4; ++i) out[lane][i] = r[i];
}

// Register i of a lane: of matrix i, row lane / 4, the numbers at lane % 4 * 2 and after it; with .trans, row and column are exchanged.
TEST(Mma, LoadsMatricesAsThePtxIsaSays) {
  alignas(16) uint16_t memory[64][8];  // rows are shuffled, so that none lies where it is asked for
  const uint16_t* rows[32];
  for (int lane = 0; lane < 32; ++lane) {
    uint16_t* const row = memory[lane * 37 % 64];
    rows[lane] = row;
    for (int c = 0; c < 8; ++c) row[c] = static_cast<uint16_t>(1000 * (lane / 8) + 100 * (lane % 8) + c);
  }
  const auto element = [](int matrix, int row, int column) { return static_cast<uint32_t>(1000 * matrix + 100 * row + column); };
  uint32_t plain[32][4], transposed[32][4];
  launch(load_four<false>, {1, 32}, nullptr, rows, plain);
  launch(load_four<true>, {1, 32}, nullptr, rows, transposed);
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i)
      for (int half = 0; half < 2; ++half) {
        const int x = lane / 4, y = lane % 4 * 2 + half;
        EXPECT_EQ(plain[lane][i] >> 16 * half & 0xFFFF, element(i, x, y)) << "lane " << lane << ", register " << i;
        EXPECT_EQ(transposed[lane][i] >> 16 * half & 0xFFFF, element(i, y, x)) << "lane " << lane << ", register " << i << ", transposed";
      }
}

// ---- What attention makes of them ----

__global__ void tell_places(int (*rows)[4], int (*columns)[4]) {
  const int lane = static_cast<int>(threadIdx.x);
  for (int e = 0; e < 4; ++e) rows[lane][e] = attention::row_of(e), columns[lane][e] = attention::column_of(e);
}
TEST(Mma, AttentionKnowsWhereSumsLie) {
  int rows[32][4], columns[32][4];
  launch(tell_places, {1, 32}, nullptr, rows, columns);
  for (int lane = 0; lane < 32; ++lane)
    for (int e = 0; e < 4; ++e) {
      EXPECT_EQ(rows[lane][e], place_in_d(lane, e).row);
      EXPECT_EQ(columns[lane][e], place_in_d(lane, e).column);
    }
}

constexpr int kD = 64, kM = 2, kJ = 8, kRows = 16 * kM, kColumns = 8 * kJ;
struct Tiles {
  alignas(16) uint16_t rows[kRows * attention::kHalfRow<kD>], columns[kColumns * attention::kHalfRow<kD>];
  float products[32][kM][kJ][4], sums[32][kM][kD / 8][4];
};
template <class T>
__global__ void of_attention(Tiles* t) {
  const int lane = static_cast<int>(threadIdx.x);
  float products[kM][kJ][4], sums[kM][kD / 8][4];
  attention::multiply<T, kD>(t->rows, t->columns, products);
  attention::clear_sums(sums);
  attention::accumulate<T, kD>(products, t->columns, sums);
  for (int m = 0; m < kM; ++m)
    for (int e = 0; e < 4; ++e) {
      for (int j = 0; j < kJ; ++j) t->products[lane][m][j][e] = products[m][j][e];
      for (int j = 0; j < kD / 8; ++j) t->sums[lane][m][j][e] = sums[m][j][e];
    }
}
/// rows · columnsᵀ, and that times columns: small whole numbers, so sums have no order.
template <class T>
void expect_products_of_attention() {
  const auto tiles = std::make_unique<Tiles>();
  const auto row = [](int i, int d) { return (i * 5 + d * 3) % 7 == 0 ? 1 : 0; };
  const auto column = [](int j, int d) { return (j * 11 + d * 2) % 13 == 0 ? (j + d) % 3 - 1 : 0; };
  for (int d = 0; d < kD; ++d) {
    for (int i = 0; i < kRows; ++i) tiles->rows[i * attention::kHalfRow<kD> + d] = bits_of<T>(static_cast<float>(row(i, d)));
    for (int j = 0; j < kColumns; ++j) tiles->columns[j * attention::kHalfRow<kD> + d] = bits_of<T>(static_cast<float>(column(j, d)));
  }
  launch(of_attention<T>, {1, 32}, nullptr, tiles.get());
  const auto product = [&](int i, int j) {
    int sum = 0;
    for (int d = 0; d < kD; ++d) sum += row(i, d) * column(j, d);
    return sum;
  };
  int nonzero = 0;
  for (int lane = 0; lane < 32; ++lane)
    for (int m = 0; m < kM; ++m)
      for (int e = 0; e < 4; ++e) {
        const Place at = place_in_d(lane, e);
        const int i = 16 * m + at.row;
        for (int j = 0; j < kJ; ++j) ASSERT_EQ(tiles->products[lane][m][j][e], static_cast<float>(product(i, 8 * j + at.column)));
        for (int j = 0; j < kD / 8; ++j) {
          int sum = 0;
          for (int k = 0; k < kColumns; ++k) sum += product(i, k) * column(k, 8 * j + at.column);
          nonzero += sum != 0;
          ASSERT_EQ(tiles->sums[lane][m][j][e], static_cast<float>(sum));
        }
      }
  EXPECT_GT(nonzero, 500);
}
TEST(Mma, AttentionMultipliesWhatItLoads) {
  expect_products_of_attention<Bf16>();
  expect_products_of_attention<F16>();
}

}  // namespace
}  // namespace galley::cuda
