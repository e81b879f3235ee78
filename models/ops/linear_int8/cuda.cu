// linear_int8 on CUDA, of a weight in the format "int8-rows". x becomes codes first (cuda_rows.hpp). Codes are multiplied on tensor cores
// by cuBLASLt (cuda/gemm.hpp), whose sums in I32 lie in the workspace, a piece of rows at a time, and are scaled after it; by tiles of
// dp4a where that takes none: K or N that are no multiples of 4, weights that are stored (K, N), and targets without the library. Who
// scales sums adds the products of outliers' columns, in F32.
//
// Tiles: a block of 128 threads makes 64 × 64 numbers of y, a thread 4 × 8 of them. In steps of 64 of k, tiles of x and W lie in shared
// memory in words of four codes, with k as their rows; while one step is multiplied, each thread has its 8 words of the next on their way.
//
// Bits. Sums of codes are exact, so a row is the same in every split and by either way; those of outliers are in the order of their
// columns.
#include "cuda/gemm.hpp"
#include "ops/linear_int8/cuda_rows.hpp"

namespace galley::cuda::linear_int8_op {
namespace {

/// Codes of W, and how they lie: (N, K), or (K, N).
struct Weight {
  explicit Weight(const Node& n) : transposed(n.i("transposed", 0) != 0) {
    const int8_rows::Coded coded(n.in(1));
    codes = coded.codes;
    scales = coded.scales;
  }
  const int8_t* codes;
  const float* scales;
  bool transposed;
};

/// What a sum becomes.
struct Finish {
  Finish(const Node& n, const Rows& rows)
      : shape(n), w(n), x(rows.x()), outliers(rows.outliers()), scales(rows.scales()), bias(n, 2), y(n, 0) {}
  Shape shape;
  Weight w;
  Reader x;
  Outliers outliers;
  const float* scales;
  Reader bias;
  Writer y;

  /// n ≤ 8 sums of row r, from column j on.
  __device__ void operator()(int64_t r, int64_t j, int n, const int (&sums)[kPack]) const {
    float units[kPack], numbers[kPack], added[kPack] = {};
    load_numbers(w.scales + j, n, units);
    const float scale = scales[r];
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      units[i] = int8_rows::unit(units[i]);
      numbers[i] = static_cast<float>(sums[i]) * (scale * units[i]);
    }
    const int count = *outliers.count;
    for (int c = 0; c < count; ++c) {
      const int64_t k = outliers.columns[c];
      const float number = x.at(r * shape.K + k);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        const int64_t at = w.transposed ? k * shape.N + j + i : (j + i) * shape.K + k;
        added[i] = fmaf(number, i < n ? int8_rows::value(w.codes[at], units[i]) : 0.0f, added[i]);
      }
    }
    if (count > 0) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) numbers[i] += added[i];
    }
    if (bias.there()) {
      bias.load(j, n, added);
#pragma unroll
      for (int i = 0; i < kPack; ++i) numbers[i] += added[i];
    }
    y.store(r * shape.N + j, n, numbers);
  }
};

void check(const Node& n) {
  if (!int8_rows::Coded::holds(n.in(1))) unsupported("W in int8-rows only");
  if (int8_rows::Coded(n.in(1)).columns != (n.i("transposed", 0) != 0)) unsupported("scales of W that are not its outputs'");
  if (!is_number(n.in(0).dtype) || !is_number(n.out(0).dtype) || (n.has(2) && !is_number(n.in(2).dtype))) unsupported("dtypes");
}

// ---- Tiles ----------------------------------------------------------------------------------------------------------------------------

constexpr int kThreads = 128, kTile = 64, kWords = 16;  // words of four codes in a step
constexpr int kRow = kTile + 4;                         // of shared memory: rows begin in other banks, at multiples of 16 bytes
constexpr int kRows = 4, kColumns = kPack, kMine = kTile * kWords / kThreads;

/// A thread's words of a step: of one row, 4·kMine codes from `k` on; zeros after the row and the last row.
struct Part {
  int words[kMine];

  /// Of a matrix (K, rows).
  __device__ void fetch_columns(const int8_t* from, int64_t row, int64_t rows, int64_t k, int64_t K) {
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      uint32_t word = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (row < rows && k + 4 * i + j < K)
          word |= static_cast<uint32_t>(static_cast<uint8_t>(from[(k + 4 * i + j) * rows + row])) << 8 * j;
      words[i] = static_cast<int>(word);
    }
  }
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

template <bool transposed>
__global__ void __launch_bounds__(kThreads) multiply_codes(const int8_t* x, Finish finish, int64_t tiles_across) {
  const Shape shape = finish.shape;
  const int8_t* const w = finish.w.codes;
  GALLEY_SHARED(int, tiles, 4 * kWords * kRow);  // of x and of W, twice
  const int thread = static_cast<int>(threadIdx.x), row = thread / (kTile / kColumns) * kRows,
            column = thread % (kTile / kColumns) * kColumns;
  const int64_t block = blockIdx.x, first_row = block / tiles_across * kTile, first_column = block % tiles_across * kTile;
  const int64_t steps = (shape.K + 4 * kWords - 1) / (4 * kWords), mine = thread / kTile * (4 * kMine);
  int sums[kRows][kColumns] = {};
  Part a, b;
  a.fetch(x, first_row + thread % kTile, shape.R, mine, shape.K);
  if constexpr (transposed) b.fetch_columns(w, first_column + thread % kTile, shape.N, mine, shape.K);
  else b.fetch(w, first_column + thread % kTile, shape.N, mine, shape.K);
  for (int64_t step = 0; step < steps; ++step) {
    int* const tile_a = tiles + (step % 2) * (2 * kWords * kRow);
    int* const tile_b = tile_a + kWords * kRow;
    a.put(tile_a, thread);
    b.put(tile_b, thread);
    __syncthreads();
    if (step + 1 < steps) {
      const int64_t k = (step + 1) * 4 * kWords + mine;
      a.fetch(x, first_row + thread % kTile, shape.R, k, shape.K);
      if constexpr (transposed) b.fetch_columns(w, first_column + thread % kTile, shape.N, k, shape.K);
      else b.fetch(w, first_column + thread % kTile, shape.N, k, shape.K);
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
    if (r < shape.R) finish(r, at, pack_at(at, shape.N), sums[i]);
  }
}

/// y of the codes of x, by tiles.
void multiply_by_tiles(const Rows& rows, const Finish& finish, galley_queue* queue) {
  const int64_t across = blocks_of(finish.shape.N, kTile);
  launch(finish.w.transposed ? multiply_codes<true> : multiply_codes<false>, {blocks_of(finish.shape.R, kTile) * across, kThreads}, queue,
         rows.codes(), finish, across);
}

class Tiles {
 public:
  static void query(const Node& n, const galley_target&, galley_kernel_plan& plan) {
    check(n);
    Room room(nullptr);  // counts only
    const Rows rows(n, Rows::Makes::Codes, room);
    plan.workspace_bytes = room.bytes();
    plan.priority = 1;
  }
  Tiles(const Node& n, const galley_kernel_setup& setup) : Tiles(n, Room(setup.workspace)) {}
  void run(galley_queue* queue) const {
    rows_.run(queue);
    multiply_by_tiles(rows_, finish_, queue);
  }

 private:
  Tiles(const Node& n, Room&& room) : rows_(n, Rows::Makes::Codes, room), finish_(n, rows_) {}
  Rows rows_;
  Finish finish_;
};

// ---- cuBLASLt -------------------------------------------------------------------------------------------------------------------------

constexpr int64_t kPieceBytes = int64_t{64} << 20, kLeastRows = 256;  // of sums; fewer rows would leave a GPU idle

/// A thread scales eight sums of a row, whose length is a multiple of 4, in pieces that begin at `first`.
__global__ void __launch_bounds__(256) scale_sums(const int* from, Finish finish, int64_t first, int64_t rows, int64_t packs) {
  const int64_t N = finish.shape.N;
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
  finish(first + r, j, n, sums);
}

class Library {
 public:
  static void query(const Node& n, const galley_target& target, galley_kernel_plan& plan) {
    check(n);
    if (n.i("transposed", 0)) unsupported("weights that are stored (K, N)");
    const Shape shape(n);
    const int64_t piece = piece_rows(shape);
    const Matmul p = product(shape, piece);
    if (const char* reason = Gemm::refusal(p, target)) unsupported(reason);
    Room room(nullptr);  // counts only
    const Rows rows(n, Rows::Makes::Codes, room);
    room.take<int>(piece * shape.N);
    plan.workspace_bytes = room.bytes() + Gemm::workspace_bytes(p, 1, target);
    plan.priority = 2;
  }

  Library(const Node& n, const galley_kernel_setup& setup) : Library(n, setup, Room(setup.workspace)) {}
  void run(galley_queue* queue) const {
    const Shape& shape = finish_.shape;
    const int64_t packs = blocks_of(shape.N, kPack);
    rows_.run(queue);
    if (gemms_.empty()) multiply_by_tiles(rows_, finish_, queue);
    for (size_t i = 0; i < gemms_.size(); ++i) {
      const int64_t first = static_cast<int64_t>(i) * piece_, rows = std::min(piece_, shape.R - first);
      gemms_[i].run(queue);
      launch(scale_sums, {blocks_of(rows * packs, 256), 256}, queue, sums_, finish_, first, rows, packs);
    }
  }

 private:
  Library(const Node& n, const galley_kernel_setup& setup, Room&& room)
      : rows_(n, Rows::Makes::Codes, room),
        finish_(n, rows_),
        piece_(piece_rows(finish_.shape)),
        sums_(room.take<int>(piece_ * finish_.shape.N)) {
    const Shape& shape = finish_.shape;
    galley_kernel_setup rest = setup;
    rest.workspace = room.take<char>(0);
    try {
      for (int64_t first = 0; first < shape.R; first += piece_) {
        Matmul p = product(shape, std::min(piece_, shape.R - first));
        p.a = rows_.codes() + first * shape.K;
        p.b = finish_.w.codes;
        p.c = sums_;
        gemms_.emplace_back(n.name(), std::vector<Matmul>{p}, rest);
      }
    } catch (const NoAlgorithm& none) {
      none.warn("Galley's own tiles make the product, which takes longer");
      gemms_.clear();
    }
  }
  static int64_t piece_rows(const Shape& s) { return std::min(s.R, std::max(kLeastRows, kPieceBytes / (s.N * int64_t{sizeof(int)}))); }
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

  Rows rows_;
  Finish finish_;
  int64_t piece_;
  int* sums_;
  std::vector<Gemm> gemms_;  ///< of pieces; none where tiles make the product
};

const bool added = add(kernel_of<Tiles>("linear_int8.cuda", "linear_int8", GALLEY_KERNEL_FORMATS)) &&
                   add(kernel_of<Library>("linear_int8.cublaslt", "linear_int8", GALLEY_KERNEL_FORMATS));

}  // namespace
}  // namespace galley::cuda::linear_int8_op
