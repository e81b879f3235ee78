// Linear layers in BF16 by the processor's own instructions (pairs.hpp), for targets that have them: AMX, whose tiles make 16 times as many
// operations a cycle as F32, and AVX512-BF16, which makes twice as many. A target says so with its peaks, so that a plan does not depend on
// the machine that makes it. Without them, and for F16, cpu_blocked.cpp multiplies in F32.
//
// Why not oneDNN 2.6, as in F32: where memory and not arithmetic is the limit, its copies cost too much. On one thread of an Intel core
// with AMX (2 MiB of second-level cache; FMA peak 226 GF, AMX peak 3,240 GF with all operands in the first-level cache), whole products at
// 512 rows, y and dx in BF16, dW added in F32, in GF, oneDNN | this:
//     K → N                  y             dx             dW
//     768 → 768, T     1136 | 1470    1146 | 1470     937 | 1280
//     768 → 3072, T     877 | 1130     900 |  960     835 | 1100
//     3072 → 768, T     691 | 1070    1090 | 1190     875 | 1110
//     768 → 50304       769 |  940     471 |  980     644 |  800
//
// Beside F32 (the faster one of cpu.cpp and cpu_blocked.cpp), in tasks for one thread, while other programs had the machine's other
// processor (tests/bench/kernels.cpp), in GF, F32 | this:
//     rows, K → N              y             dx             dW
//     256,  768 → 768, T    168 | 1173    173 | 1118    162 | 1076
//     256,  768 → 2304, T   163 |  982    169 | 1111    150 |  875
//     256,  768 → 3072, T   156 |  950    166 |  788    142 |  916
//     256, 3072 → 768, T    147 |  801    172 |  982    157 |  990
//     256,  768 → 50304     149 |  807    126 |  832    138 |  754
//     512,  768 → 768, T    163 | 1224    167 | 1210    154 | 1089
//     512,  768 → 2304, T   158 |  986    164 | 1032    144 |  909
//     512,  768 → 3072, T   152 |  978    165 |  822    141 |  947
//     512, 3072 → 768, T    149 |  888    162 | 1011    150 |  938
//     512,  768 → 50304     149 |  850    136 |  890    146 |  846
// So BF16 is 5 to 7.5 times as fast. AVX512-BF16 makes 81 to 110 GF on this core, less than cpu_blocked.cpp: it is for processors that
// have two units for it and no tiles.
//
// On two threads of a Zen 4 (AVX512-BF16; peak 465 GF, of F32's multiply-add 232 GF) at 512 rows, GF: cut as for AMX with blocks of unequal
// size, as until here | of about one size and 768 deep, with A where it lies:
//     K → N                  y           dx           dW
//     576 → 576         326 | 401    253 | 424    366 | 396
//     576 → 1536        398 | 410    266 | 426    395 | 411
//     1536 → 576        275 | 413    363 | 417    388 | 405
//     576 → 49152       289 | 366    275 | 377     –
// Whole steps of SmolLM2-135M at B=1, S=512, in turns: LoRA 1.12 to 1.21 times as fast, all parameters 1.03 to 1.08 times.
//
// Asking for the next strip of B while tiles are multiplied (prefetcht0 in amx_block) was tried: 5 to 25 % slower in most shapes.
//
// Chains with an activation (cpu_several.cpp) are refused: they took .96 to 1.04 of their links' time without the product in memory, and
// 1.0 to 1.1 with it. Chains with a sum are not.
//
// Bits. Each sum is one chain in the order of k, in F32: the same for any number of threads and any cut. The instructions take numbers
// below the smallest normal one for 0. AMX, AVX512-BF16 and F32 add a pair's products in different ways: the result depends on which of
// them the target has.
#if defined(GALLEY_CPU_LEVEL) && GALLEY_CPU_LEVEL >= 4

#include <sys/syscall.h>
#include <unistd.h>

#include <string>

#include "cpu/peaks.hpp"
#include "ops/linear/pairs.hpp"
#include "ops/linear/products.hpp"

namespace galley::cpu {
namespace {

using sdk::Node;

struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

__attribute__((target("amx-tile,amx-bf16"))) void amx_block(int64_t steps, pairs::Strip a, const char* b, float* sums, bool adds) {
  constexpr int64_t row = pairs::strip * sizeof(float);
  float* const below = sums + 16 * pairs::strip;
  if (adds) {
    _tile_loadd(0, sums, row);
    _tile_loadd(1, sums + 16, row);
    _tile_loadd(2, below, row);
    _tile_loadd(3, below + 16, row);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (; steps > 0; --steps, a.data += a.next, b += 2 * pairs::tile_bytes) {
    _tile_loadd(4, a.data, a.row);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + pairs::tile_bytes, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a.data + a.below, a.row);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, row);
  _tile_stored(1, sums + 16, row);
  _tile_stored(2, below, row);
  _tile_stored(3, below + 16, row);
}

__attribute__((target("amx-tile"))) void begin_tiles() {
  static constexpr TileShapes shapes;  // in memory: the compiler believes that only its first bytes are read
  _tile_loadconfig(&shapes);
}
__attribute__((target("amx-tile"))) void end_tiles() { _tile_release(); }

__attribute__((target("avx512bf16"))) void avx512_block(int64_t steps, pairs::Strip a, const char* b, float* sums, bool adds) {
  constexpr int64_t at_once = 8;  // 16 sums, 2 of B, 1 of A
  for (int64_t first = 0; first < pairs::strip; first += at_once) {
    const char* from = a.data + (first < 16 ? first * a.row : a.below + (first - 16) * a.row);
    float* const to = sums + first * pairs::strip;
    __m512 sum[at_once][2];
    for (int64_t r = 0; r < at_once; ++r)
      for (int64_t h = 0; h < 2; ++h) sum[r][h] = adds ? _mm512_load_ps(to + r * pairs::strip + 16 * h) : _mm512_setzero_ps();
    for (int64_t s = 0; s < steps; ++s)
      for (int64_t i = 0; i < 16; ++i) {
        const char* const row = b + s * 2 * pairs::tile_bytes + i * 64;
        const auto left = (__m512bh)_mm512_load_si512(row), right = (__m512bh)_mm512_load_si512(row + pairs::tile_bytes);
        for (int64_t r = 0; r < at_once; ++r) {
          int pair;
          std::memcpy(&pair, from + r * a.row + s * a.next + 4 * i, sizeof pair);
          const auto x = (__m512bh)_mm512_set1_epi32(pair);
          sum[r][0] = _mm512_dpbf16_ps(sum[r][0], x, left);
          sum[r][1] = _mm512_dpbf16_ps(sum[r][1], x, right);
        }
      }
    for (int64_t r = 0; r < at_once; ++r)
      for (int64_t h = 0; h < 2; ++h) _mm512_store_ps(to + r * pairs::strip + 16 * h, sum[r][h]);
  }
}

// The system gives tiles to programs that ask for them: once, for all threads.
bool tiles_allowed() {
  constexpr long ask = 0x1023, tiles = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool allowed = syscall(SYS_arch_prctl, ask, tiles) == 0;
  return allowed;
}

// What the two kinds of instructions differ in.
struct Amx {
  static constexpr double least = least_of_tiles;
  static constexpr pairs::Costs costs = {.of_operation = 0.5e-12,
                                         .of_copied_number = 0.06e-9,
                                         .of_far_number = 0.08e-9,
                                         .of_near_number = 0.02e-9,
                                         .of_decoded_number = 0.1e-9,
                                         .of_few_tasks = 1.2,
                                         .good_depth = 256,
                                         .most_depth = 512,
                                         .shared_row = 1024};
  static constexpr int64_t priority = 2;
  static constexpr pairs::Block block = amx_block;
  static bool here() { return tiles_allowed(); }
  Amx() { begin_tiles(); }
  ~Amx() { end_tiles(); }
  Amx(const Amx&) = delete;
  Amx& operator=(const Amx&) = delete;
};
struct Avx512 {
  static constexpr double least = least_of_pairs;
  static constexpr pairs::Costs costs = {.of_operation = 5e-12,
                                         .of_copied_number = 0.12e-9,
                                         .of_far_number = 0.18e-9,
                                         .of_near_number = 0.02e-9,
                                         .of_decoded_number = 0.1e-9,
                                         .of_few_tasks = 1.08,
                                         .good_depth = 768,
                                         .most_depth = 768,
                                         .shared_row = 0};
  static constexpr int64_t priority = 1;
  static constexpr pairs::Block block = avx512_block;
  static bool here() { return __builtin_cpu_supports("avx512bf16"); }
};

template <class Instructions>
class Pairs : public Product {
 public:
  static Offer offer(const Node& node, const galley_target& target, Links links) {
    if (!all_numbers(node) || node.in(0).dtype != GALLEY_BF16 || node.in(1).dtype != GALLEY_BF16) return {"operands in BF16 only"};
    if (!reads_weight(node)) return {"another format"};
    if (bf16_per_f32(target) < Instructions::least) return {"the target's peak of bf16 says that it has no such instructions"};
    if (links == Links::Two) return {"apart is as fast"};
    if (links == Links::Sum && node.out(0).dtype == GALLEY_F16) return {"a sum in F16"};
    const pairs::Cut cut = pairs::cut(product_of(node), target.threads, Instructions::costs);
    return {nullptr, cut.tasks, cut.lane_bytes()};
  }
  Pairs(const Node& node, const galley_target& target, const std::optional<Activation>& sum)
      : product_(product_of(node)), cut_(pairs::cut(product_, target.threads, Instructions::costs)) {
    if (sum) {
      product_.addend = sum->addend();
      product_.c = sum->sum();
    }
    check_processor(node, Instructions::here());
  }
  void task(int64_t task, int64_t, void* memory) const override {
    [[maybe_unused]] const Instructions begun;
    multiply(product_, cut_, Instructions::block, task, memory);
  }
  static constexpr Way way = {Instructions::priority, offer,
                              [](const Node& node, const galley_target& target, int64_t, const std::optional<Activation>& sum) {
                                return std::unique_ptr<Product>(std::make_unique<Pairs>(node, target, sum));
                              }};

 private:
  Multiply product_;
  pairs::Cut cut_;
};

const bool added = add_way<Pairs<Amx>::way>({"linear.amx", "linear_dx.amx", "linear_dw.amx"}) &&
                   add_way<Pairs<Avx512>::way>({"linear.avx512_bf16", "linear_dx.avx512_bf16", "linear_dw.avx512_bf16"});

}  // namespace
}  // namespace galley::cpu

#endif
