// Integer products on CUDA: on tensor cores by cuBLASLt (cuda/gemm.hpp), whose sums in I32 lie in the workspace, a piece of rows at a time,
// and are scaled behind it; by tiles of dp4a what that does not take: K or N that are no multiples of 4, and targets without the library.
//
// Tiles: a block of 128 threads makes 64 × 64 numbers of y, a thread 4 × 8 of them. In steps of 64 of k, tiles of x and W lie in shared
// memory in words of four codes, with k as their rows; while one step is multiplied, each thread has its 8 words of the next on their way.
//
// Bits. Sums are exact, so a row is the same in every split and by either way.
#include "cuda/gemm.hpp"
#include "galley/cuda/kernel.hpp"

namespace galley::cuda::linear_i8_op {
namespace {

struct Shape {
  explicit Shape(const Node& n) : R(rows(n.in(0))), K(columns(n.in(0))), N(columns(n.out(0))) {}
  int64_t R, K, N;
};

/// What a sum becomes.
struct Scales {
  explicit Scales(const Node& n) : x(n.read<float>(2)), w(n.read<float>(3)), bias(n, 4), y(n, 0) {}
  const float *x, *w;
  Reader bias;
  Writer y;

  /// n ≤ 8 sums of row r, from column j on.
  __device__ void finish(int64_t r, int64_t j, int64_t N, int n, const int (&sums)[kPack]) const {
    float numbers[kPack], add[kPack] = {};
    if (bias.there()) bias.load(j, n, add);
    const float scale = x[r];
#pragma unroll
    for (int i = 0; i < kPack; ++i) numbers[i] = i < n ? static_cast<float>(sums[i]) * (scale * w[j + i]) + add[i] : 0.0f;
    y.store(r * N + j, n, numbers);
  }
};

void check_numbers(const Node& n) {
  if (!is_number(n.out(0).dtype) || (n.has(4) && !is_number(n.in(4).dtype))) unsupported("dtypes");
}

// ---- Tiles ----------------------------------------------------------------------------------------------------------------------------

constexpr int kThreads = 128, kTile = 64, kWords = 16;  // words of four codes in a step
constexpr int kRow = kTile + 4;                         // of shared memory: rows begin in other banks, at multiples of 16 bytes
constexpr int kRows = 4, kColumns = kPack, kMine = kTile * kWords / kThreads;

/// A thread's words of a step: of one row, 4·kMine codes from `k` on; zeros behind the row and the last row.
struct Part {
  int words[kMine];

  __device__ void fetch(const int8_t* from, int64_t row, int64_t rows, int64_t k, int64_t K) {
    const int8_t* const at = from + row * K + k;
    const int64_t left = row < rows ? K - k : 0;
    if (left >= 4 * kMine && reinterpret_cast<uintptr_t>(at) % 16 == 0) {
#pragma unroll
      for (int i = 0; i < kMine; i += 4) {
        const auto four = load_vector<int, 4>(reinterpret_cast<const int*>(at) + i);
#pragma unroll
        for (int j = 0; j < 4; ++j) words[i + j] = four.at[j];
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      uint32_t word = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (4 * i + j < left) word |= static_cast<uint32_t>(static_cast<uint8_t>(at[4 * i + j])) << 8 * j;
      words[i] = static_cast<int>(word);
    }
  }
  __device__ void put(int* tile, int thread) const {
#pragma unroll
    for (int i = 0; i < kMine; ++i) tile[(thread / kTile * kMine + i) * kRow + thread % kTile] = words[i];
  }
};

__global__ void __launch_bounds__(kThreads)
    multiply_i8(const int8_t* x, const int8_t* w, Shape shape, Scales scales, int64_t tiles_across) {
  GALLEY_SHARED(int, tiles, 4 * kWords * kRow);  // of x and of W, twice
  const int thread = static_cast<int>(threadIdx.x), row = thread / (kTile / kColumns) * kRows,
            column = thread % (kTile / kColumns) * kColumns;
  const int64_t block = blockIdx.x, first_row = block / tiles_across * kTile, first_column = block % tiles_across * kTile;
  const int64_t steps = (shape.K + 4 * kWords - 1) / (4 * kWords), mine = thread / kTile * (4 * kMine);
  int sums[kRows][kColumns] = {};
  Part a, b;
  a.fetch(x, first_row + thread % kTile, shape.R, mine, shape.K);
  b.fetch(w, first_column + thread % kTile, shape.N, mine, shape.K);
  for (int64_t step = 0; step < steps; ++step) {
    int* const tile_a = tiles + (step % 2) * (2 * kWords * kRow);
    int* const tile_b = tile_a + kWords * kRow;
    a.put(tile_a, thread);
    b.put(tile_b, thread);
    __syncthreads();
    if (step + 1 < steps) {
      const int64_t k = (step + 1) * 4 * kWords + mine;
      a.fetch(x, first_row + thread % kTile, shape.R, k, shape.K);
      b.fetch(w, first_column + thread % kTile, shape.N, k, shape.K);
    }
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      const auto p = load_vector<int, 4>(tile_a + k * kRow + row);
      const auto q = load_vector<int, 4>(tile_b + k * kRow + column), s = load_vector<int, 4>(tile_b + k * kRow + column + 4);
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          sums[i][j] = __dp4a(p.at[i], q.at[j], sums[i][j]);
          sums[i][j + 4] = __dp4a(p.at[i], s.at[j], sums[i][j + 4]);
        }
    }
  }
  const int64_t at = first_column + column;
  if (at >= shape.N) return;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int64_t r = first_row + row + i;
    if (r < shape.R) scales.finish(r, at, shape.N, pack_at(at, shape.N), sums[i]);
  }
}

class Tiles {
 public:
  static void query(const Node& n, const galley_target&, galley_kernel_plan& plan) {
    check_numbers(n);
    plan.priority = 0;
  }
  Tiles(const Node& n, const galley_kernel_setup&) : x_(n.read<int8_t>(0)), w_(n.read<int8_t>(1)), shape_(n), scales_(n) {}
  void run(galley_queue* queue) const {
    const int64_t across = blocks_of(shape_.N, kTile);
    launch(multiply_i8, {blocks_of(shape_.R, kTile) * across, kThreads}, queue, x_, w_, shape_, scales_, across);
  }

 private:
  const int8_t *x_, *w_;
  Shape shape_;
  Scales scales_;
};

// ---- cuBLASLt -------------------------------------------------------------------------------------------------------------------------

constexpr int64_t kPieceBytes = int64_t{64} << 20, kLeastRows = 256;  // of sums; fewer rows would leave a GPU idle

/// A thread scales eight sums of a row, whose length is a multiple of 4, in pieces that begin at `first`.
__global__ void __launch_bounds__(256) scale_sums(const int* from, Scales scales, int64_t first, int64_t rows, int64_t N, int64_t packs) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x, r = at / packs, j = at % packs * kPack;
  if (r >= rows) return;
  const int n = pack_at(j, N);
  int sums[kPack] = {};
#pragma unroll
  for (int k = 0; k < kPack; k += 4)
    if (k < n) {
      const auto four = load_vector<int, 4>(from + r * N + j + k);
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[k + i] = four.at[i];
    }
  scales.finish(first + r, j, N, n, sums);
}

class Library {
 public:
  static void query(const Node& n, const galley_target& target, galley_kernel_plan& plan) {
    check_numbers(n);
    const Shape shape(n);
    const int64_t piece = piece_rows(shape);
    const Matmul p = product(shape, piece);
    if (const char* reason = Gemm::refusal(p, target)) unsupported(reason);
    plan.workspace_bytes = sum_bytes(shape, piece) + Gemm::workspace_bytes(p, 1, target);
    plan.priority = 1;
  }

  Library(const Node& n, const galley_kernel_setup& setup) : shape_(n), scales_(n), piece_(piece_rows(shape_)) {
    char* const memory = aligned_workspace(setup.workspace);
    sums_ = reinterpret_cast<int*>(memory);
    galley_kernel_setup rest = setup;
    rest.workspace = memory + piece_ * shape_.N * static_cast<int64_t>(sizeof(int));
    for (int64_t first = 0; first < shape_.R; first += piece_) {
      Matmul p = product(shape_, std::min(piece_, shape_.R - first));
      p.a = n.read<int8_t>(0) + first * shape_.K;
      p.b = n.read<int8_t>(1);
      p.c = sums_;
      gemms_.emplace_back(n.name(), std::vector<Matmul>{p}, rest);
    }
  }
  void run(galley_queue* queue) const {
    const int64_t packs = blocks_of(shape_.N, kPack);
    for (size_t i = 0; i < gemms_.size(); ++i) {
      const int64_t first = static_cast<int64_t>(i) * piece_, rows = std::min(piece_, shape_.R - first);
      gemms_[i].run(queue);
      launch(scale_sums, {blocks_of(rows * packs, 256), 256}, queue, sums_, scales_, first, rows, shape_.N, packs);
    }
  }

 private:
  static int64_t piece_rows(const Shape& s) { return std::min(s.R, std::max(kLeastRows, kPieceBytes / (s.N * int64_t{sizeof(int)}))); }
  static int64_t sum_bytes(const Shape& s, int64_t piece) { return kWorkspaceAlignment + piece * s.N * static_cast<int64_t>(sizeof(int)); }
  static Matmul product(const Shape& s, int64_t rows) {
    Matmul p;
    p.m = rows;
    p.n = s.N;
    p.k = s.K;
    p.b_transposed = true;
    p.dtype = GALLEY_I8;
    p.c_dtype = GALLEY_I32;
    p.compute = Compute::I32;
    return p;
  }

  Shape shape_;
  Scales scales_;
  int64_t piece_;
  int* sums_;
  std::vector<Gemm> gemms_;
};

const bool added = add(kernel_of<Tiles>("linear_i8.cuda", "linear_i8")) && add(kernel_of<Library>("linear_i8.cublaslt", "linear_i8"));

}  // namespace
}  // namespace galley::cuda::linear_i8_op
