// checksum: at the bandwidth of memory. Blocks are summed by themselves; a sum of integers has no order.
#include <algorithm>
#include <cstring>

#include "cpu/vector.hpp"
#include "galley/checksum.h"
#include "galley/cpp/groups.hpp"

namespace galley::cpu::checksum_op {
namespace {

using namespace sdk;

/// Bytes that a thread takes at a time; a multiple of a word.
constexpr int64_t kBlock = 1 << 17;

/// Of any number of tensors, all their blocks in one region.
class Checksums {
 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan& plan) {
    for (const Node& n : nodes) plan.workspace_bytes += blocks_of(n) * static_cast<int64_t>(sizeof(uint64_t));
  }
  Checksums(const Nodes& nodes, const galley_kernel_setup& setup) : nodes_(nodes), partial_(static_cast<uint64_t*>(setup.workspace)) {
    for (const Node& n : nodes_) blocks_.add(blocks_of(n));
  }
  void run() const {
    blocks_.run([&](size_t i, int64_t block) {
      const Node& n = nodes_[i];
      const int64_t first = block * kBlock, bytes = std::min(count(n.in(0)) - first, kBlock);
      partial_[blocks_.begin(i) + block] = part(n, first, bytes);
    });
    for (size_t i = 0; i < nodes_.size(); ++i) {
      uint64_t sum = first_of(nodes_[i]) < 0 ? galley_checksum_begin(count(nodes_[i].in(0))) : 0;
      for (int64_t block = 0; block < blocks_of(nodes_[i]); ++block) sum += partial_[blocks_.begin(i) + block];
      std::memcpy(nodes_[i].write<int32_t>(0), &sum, sizeof sum);
    }
  }

 private:
  static int64_t first_of(const Node& n) { return n.i("first", -1); }
  /// What bytes from the byte `first` on add.
  static uint64_t part(const Node& n, int64_t first, int64_t bytes) {
    const uint8_t* x = n.read<uint8_t>(0);
    const int64_t base = std::max<int64_t>(first_of(n), 0), run = 8 * n.i("run", 0), step = n.i("step", 0);
    if (run == 0) return galley_checksum_part(x + first, bytes, base + first / 8);
    uint64_t sum = 0;
    for (int64_t at = first; at < first + bytes;) {
      const int64_t together = std::min(run - at % run, first + bytes - at);
      sum += galley_checksum_part(x + at, together, base + at / run * step + at % run / 8);
      at += together;
    }
    return sum;
  }
  static int64_t blocks_of(const Node& n) { return galley::cpu::divide_up(count(n.in(0)), kBlock); }

  Nodes nodes_;
  Blocks blocks_;
  uint64_t* partial_;
};

const bool added = add(nodes_kernel<Checksums>("checksum.cpu", "checksum"));

}  // namespace
}  // namespace galley::cpu::checksum_op
