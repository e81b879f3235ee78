// One launch for many tensors: a table of their addresses is an argument of the kernel, and the blocks of all of them stand in a row. Each
// block of threads finds the tensor that it belongs to. A table that is larger than arguments may be (32 KB) becomes several launches.
//
//   struct Entry { float* p; const float* g; int64_t count; };
//   __global__ void step(GALLEY_SEGMENTS(Entry) tensors) {
//     const auto found = tensors.find(blockIdx.x);             found.entry, and found.block: which of the entry's blocks this is
//   constructor:  segments_.add({p, g, count}, blocks_of(count, kBlock));
//   run:          segments_.launch(step, kThreads, queue);     further arguments of the kernel follow
#pragma once

#include <new>
#include <type_traits>
#include <vector>

#include "galley/cuda/platform.hpp"

namespace galley::cuda {

/// The entries of one launch. Blocks are numbered from 0 in each launch.
template <class Entry>
struct SegmentsPart {
  struct Row {
    int64_t end;  ///< one after its last block
    Entry entry;
  };
  struct Found {
    const Entry& entry;
    int64_t block;  ///< of the entry, from 0
    int index;      ///< of the entry in this launch
  };
  /// Other arguments of the kernel have the rest.
  static constexpr int kRows = static_cast<int>((32764 - 512) / sizeof(Row));

  Row rows[kRows];
  int count;
  int64_t before;  ///< blocks of the launches before this one

  __host__ __device__ int64_t begin(int index) const { return index ? rows[index - 1].end : 0; }
  /// The entry of a block of the launch.
  __device__ Found find(int64_t block) const {
    int low = 0, high = count - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (rows[middle].end > block) high = middle;
      else low = middle + 1;
    }
    return {rows[low].entry, block - begin(low), low};
  }
};

// A kernel's first parameter.
#define GALLEY_SEGMENTS(Entry) GALLEY_LARGE(::galley::cuda::SegmentsPart<Entry>)

/// The tables on the host's side. Entries with no block are left out.
template <class Entry>
class Segments {
 public:
  using Part = SegmentsPart<Entry>;

  void add(const Entry& entry, int64_t blocks) {
    if (blocks <= 0) return;
    if (parts_.empty() || last().count == Part::kRows) {
      const int64_t before = this->blocks();
      parts_.emplace_back();
      last().before = before;
    }
    Part& part = last();
    new (&part.rows[part.count]) typename Part::Row{part.begin(part.count) + blocks, entry};
    ++part.count;
  }
  int64_t blocks() const { return parts_.empty() ? 0 : last().before + last().begin(last().count); }

  /// All blocks of all entries, each of so many threads.
  template <class... P, class... A>
  void launch(void (*kernel)(P...), int threads, galley_queue* queue, const A&... arguments) const {
    for (const Buffer& b : parts_) cuda::launch(kernel, {b.part().begin(b.part().count), threads}, queue, b.part(), arguments...);
  }
  /// A block for each entry: block i is entry i of the part.
  template <class... P, class... A>
  void launch_entries(void (*kernel)(P...), int threads, galley_queue* queue, const A&... arguments) const {
    for (const Buffer& b : parts_) cuda::launch(kernel, {b.part().count, threads}, queue, b.part(), arguments...);
  }

 private:
  static_assert(std::is_trivially_copyable_v<Entry>, "an entry goes to the device as bytes");
  /// A part without entries is all zeros; entries need not be able to be empty.
  struct Buffer {
    alignas(Part) unsigned char bytes[sizeof(Part)] = {};
    const Part& part() const { return *reinterpret_cast<const Part*>(bytes); }
  };
  Part& last() { return *reinterpret_cast<Part*>(parts_.back().bytes); }
  const Part& last() const { return parts_.back().part(); }

  std::vector<Buffer> parts_;
};

}  // namespace galley::cuda
