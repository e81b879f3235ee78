// One launch for many tensors: a table of their addresses in the kernel's constants, and the blocks of all of them in a row. Each block of
// threads finds the tensor that it belongs to.
//
//   struct Entry { float* p; const float* g; int64_t count; };
//   query:        plan.constants_bytes = Segments<Entry>::bytes(nodes.size());
//   constructor:  segments_.add({p, g, count}, blocks_of(count, kBlock)); …; segments_.upload(setup);
//   run:          launch(step, {segments_.blocks(), kThreads}, queue, segments_.view());
//   kernel:       const auto [entry, block] = view.find(blockIdx.x);
#pragma once

#include <vector>

#include "galley/cuda/platform.hpp"

namespace galley::cuda {

inline int64_t blocks_of(int64_t count, int64_t block) { return (count + block - 1) / block; }

template <class Entry>
struct SegmentsView {
  struct Row {
    int64_t end;  ///< one behind its last block
    Entry entry;
  };
  struct Found {
    const Entry& entry;
    int64_t block;  ///< of the entry, from 0
    int index;
  };
  const Row* rows = nullptr;
  int count = 0;

  /// The entry of a block of the launch.
  __device__ Found find(int64_t block) const {
    int low = 0, high = count - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (rows[middle].end > block) high = middle;
      else low = middle + 1;
    }
    return {rows[low].entry, block - (low ? rows[low - 1].end : 0), low};
  }
};

/// The table on the host's side. Entries with no block are left out.
template <class Entry>
class Segments {
 public:
  using View = SegmentsView<Entry>;
  static int64_t bytes(size_t entries) { return static_cast<int64_t>(entries * sizeof(typename View::Row)); }

  void add(const Entry& entry, int64_t blocks) {
    if (blocks > 0) rows_.push_back({this->blocks() + blocks, entry});
  }
  int64_t blocks() const { return rows_.empty() ? 0 : rows_.back().end; }
  /// Into the constants, from byte `at` on. Once, after the last entry.
  void upload(const galley_kernel_setup& setup, int64_t at = 0) {
    view_.rows = reinterpret_cast<const typename View::Row*>(static_cast<char*>(setup.constants) + at);
    view_.count = static_cast<int>(rows_.size());
    if (!rows_.empty())
      cuda::upload(setup, static_cast<char*>(setup.constants) + at, rows_.data(), rows_.size() * sizeof(typename View::Row));
  }
  const View& view() const { return view_; }

 private:
  std::vector<typename View::Row> rows_;
  View view_;
};

}  // namespace galley::cuda
