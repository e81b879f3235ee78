// linear_int8 on CUDA, of a weight in the format "int8-rows". x becomes codes first (cuda_rows.hpp). Codes are multiplied on tensor cores
// by cuBLASLt (cuda/gemm.hpp); by tiles of dp4a where that takes none: K or N that are no multiples of 4, weights that are stored (K, N),
// and targets without the library. Sums in I32 lie in the workspace, a piece of rows at a time, and become y after it (cuda_finish.hpp).
//
// Tiles: a block of 128 threads makes 64 × 64 numbers of y, a thread 4 × 8 of them. In steps of 64 of k, tiles of x and W lie in shared
// memory in words of four codes, with k as their rows; while one step is multiplied, each thread has its 8 words of the next on their way.
//
// Bits. Sums of codes are exact, so a row is the same in every split and by either way.
#include "cuda/gemm.hpp"
#include "ops/linear_int8/cuda_finish.hpp"

namespace galley::cuda::linear_int8_op {
namespace {

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
__global__ void __launch_bounds__(kThreads, 4)
    multiply_codes(const int8_t* x, const int8_t* w, Shape shape, int* to, int64_t tiles_across) {
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
  const int n = pack_at(first_column + column, shape.N);
  int* at = to + (first_row + row) * shape.N + first_column + column;
#pragma unroll
  for (int i = 0; i < kRows; ++i, at += shape.N) {
    if (first_row + row + i >= shape.R) return;
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
      if (j < n) at[j] = sums[i][j];
  }
}

/// Sums of some rows of codes.
void multiply_by_tiles(const int8_t* x, const Weight& w, const Shape& shape, int* to, galley_queue* queue) {
  const int64_t across = blocks_of(shape.N, kTile);
  launch(w.transposed ? multiply_codes<true> : multiply_codes<false>, {blocks_of(shape.R, kTile) * across, kThreads}, queue, x, w.codes,
         shape, to, across);
}

// ---- The kernels ----------------------------------------------------------------------------------------------------------------------

constexpr int64_t kPieceBytes = int64_t{64} << 20, kLeastRows = 256;  // of sums; fewer rows would leave a GPU idle

template <bool by_library>
class Product {
 public:
  static void query(const Node& n, const galley_target& target, galley_kernel_plan& plan) {
    check(n);
    const Shape shape(n);
    int64_t of_library = 0;
    if constexpr (by_library) {
      if (n.i("transposed", 0)) unsupported("weights that are stored (K, N)");
      const Matmul p = product(shape, piece_rows(shape));
      if (const char* reason = Gemm::refusal(p, target)) unsupported(reason);
      of_library = Gemm::workspace_bytes(p, 1, target);
    }
    Room room(nullptr);  // counts only
    const Rows rows(n, Rows::Makes::Codes, room);
    room.take<int>(piece_rows(shape) * shape.N);
    plan.workspace_bytes = room.bytes() + of_library;
    plan.priority = by_library ? 2 : 1;
  }

  Product(const Node& n, const galley_kernel_setup& setup) : Product(n, setup, Room(setup.workspace)) {}
  void run(galley_queue* queue) const {
    rows_.run(queue);
    Shape shape = finish_.shape;
    for (int64_t i = 0, first = 0; first < finish_.shape.R; ++i, first += piece_) {
      shape.R = std::min(piece_, finish_.shape.R - first);
      if (gemms_.empty()) multiply_by_tiles(rows_.codes() + first * shape.K, finish_.w, shape, sums_, queue);
      else gemms_[static_cast<size_t>(i)].run(queue);
      (finish_.w.transposed ? finish_rows<true> : finish_rows<false>)(finish_, sums_, first, shape.R, queue);
    }
  }

 private:
  Product(const Node& n, const galley_kernel_setup& setup, Room&& room)
      : rows_(n, Rows::Makes::Codes, room),
        finish_(n, rows_),
        piece_(piece_rows(finish_.shape)),
        sums_(room.take<int>(piece_ * finish_.shape.N)) {
    if constexpr (by_library) make_gemms(n, setup, room.take<char>(0));
  }
  void make_gemms(const Node& n, galley_kernel_setup setup, void* workspace) {
    const Shape& shape = finish_.shape;
    setup.workspace = workspace;
    try {
      for (int64_t first = 0; first < shape.R; first += piece_) {
        Matmul p = product(shape, std::min(piece_, shape.R - first));
        p.a = rows_.codes() + first * shape.K;
        p.b = finish_.w.codes;
        p.c = sums_;
        gemms_.emplace_back(n.name(), std::vector<Matmul>{p}, setup);
      }
    } catch (const NoAlgorithm& none) {
      none.warn("Galley's own tiles make the product, which takes longer");
      gemms_.clear();
    }
  }
  static int64_t piece_rows(const Shape& s) {
    const int64_t most = std::max(kLeastRows, kPieceBytes / (s.N * int64_t{sizeof(int)}) / kFinishRows * kFinishRows);
    return std::min(s.R, most);
  }
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

const bool added = add(kernel_of<Product<false>>("linear_int8.cuda", "linear_int8", GALLEY_KERNEL_FORMATS)) &&
                   add(kernel_of<Product<true>>("linear_int8.cublaslt", "linear_int8", GALLEY_KERNEL_FORMATS));

}  // namespace
}  // namespace galley::cuda::linear_int8_op
