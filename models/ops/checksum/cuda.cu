// checksum (galley/checksum.h) of the bytes of each tensor, I32 (2), by TensorSums: 64 KiB a block of threads, 16 bytes at a time; bound by
// reading x once. A sum of integers has no order.
#include "cuda/tensor_sums.hpp"
#include "galley/checksum.h"

namespace galley::cuda::checksum_op {
namespace {

struct Bytes {
  using Sum = uint64_t;
  static constexpr int kTaken = 16, kStride = kSumThreads * kTaken;  // bytes that a thread takes at a time: two words
  static constexpr int kLoads = 4, kRounds = 4;
  static constexpr int64_t kPart = kRounds * kLoads * kStride;
  static void check(const Node& n) {
    if (n.in(0).dtype != GALLEY_U8 || n.out(0).dtype != GALLEY_I32) unsupported("dtypes or shapes");
    if (n.i("run", 0) && galley::cuda::count(n.in(0)) / 8 >= UINT32_MAX) unsupported("so many words in runs");
  }
  explicit Bytes(const Node& n)
      : x(n.read<uint8_t>(0)),
        count(galley::cuda::count(n.in(0))),
        first_word(n.i("first", -1) < 0 ? 0 : n.i("first", -1)),
        run(n.i("run", 0) ? static_cast<uint32_t>(n.i("run", 0)) : UINT32_MAX),
        skipped(n.i("run", 0) ? n.i("step", 0) - n.i("run", 0) : 0),
        base(n.i("first", -1) < 0 ? galley_checksum_begin(count) : 0),
        y(n.write<int32_t>(0)) {}

  __device__ uint64_t part(int64_t first) const {
    const int64_t end = count - first < kPart ? count : first + kPart;
    uint64_t sum = 0;
    int64_t at = first + static_cast<int64_t>(threadIdx.x) * kTaken;
    const bool aligned = reinterpret_cast<uintptr_t>(x) % kTaken == 0;
    if (aligned && end - first == kPart) {
#pragma unroll 1
      for (int round = 0; round < kRounds; ++round, at += kLoads * kStride) {
        Vector<uint64_t, 2> words[kLoads];
#pragma unroll
        for (int k = 0; k < kLoads; ++k) words[k] = load_vector<uint64_t, 2>(reinterpret_cast<const uint64_t*>(x + at + k * kStride));
#pragma unroll
        for (int k = 0; k < kLoads; ++k) sum += mixed(words[k].at[0], at + k * kStride) + mixed(words[k].at[1], at + k * kStride + 8);
      }
      return sum;
    }
    for (; at < end; at += kStride) {
      if (aligned && at + kTaken <= end) {
        const Vector<uint64_t, 2> words = load_vector<uint64_t, 2>(reinterpret_cast<const uint64_t*>(x + at));
        sum += mixed(words.at[0], at) + mixed(words.at[1], at + 8);
      } else {
        for (int64_t word = at; word < end && word < at + kTaken; word += 8) sum += mixed(assembled(word), word);
      }
    }
    return sum;
  }
  __device__ void finish(uint64_t sum) const {
    sum += base;
    y[0] = static_cast<int32_t>(static_cast<uint32_t>(sum));
    y[1] = static_cast<int32_t>(static_cast<uint32_t>(sum >> 32));
  }

  /// Of the word that begins at byte `at`.
  __device__ uint64_t mixed(uint64_t word, int64_t at) const {
    const int64_t i = at / 8;  // divided as 32 bits, and without a branch: either takes 8 more registers, and a block of threads with them
    return galley_checksum_mix(word, static_cast<uint64_t>(first_word + i + static_cast<uint32_t>(i) / run * skipped) + 1);
  }
  /// The word there, byte by byte: the last one may be short, and x may lie anywhere.
  __device__ uint64_t assembled(int64_t at) const {
    uint64_t word = 0;
    for (int k = 0; k < 8; ++k)
      if (at + k < count) word |= static_cast<uint64_t>(x[at + k]) << 8 * k;
    return word;
  }

  const uint8_t* x;
  int64_t count;
  int64_t first_word;  // of the tensor, with which a part begins
  uint32_t none = 0;   // where there would be padding, which holds anything; before `run`, as both would look like an address otherwise
  uint32_t run;        // so many of its words lie together in the tensor,
  int64_t skipped;     // and so many of others are between them
  uint64_t base;       // what the tensor's length adds; 0 for a part
  int32_t* y;
};

const bool added = add(nodes_kernel<TensorSums<Bytes>>("checksum.cuda", "checksum"));

}  // namespace
}  // namespace galley::cuda::checksum_op
