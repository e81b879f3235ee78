#include "host/passes/room.hpp"

#include <algorithm>
#include <numeric>

namespace galley {

Room::Room(const Outline& outline, const Target& target)
    : outline_(outline), target_(target), timeline_(timeline_of(outline)), lives_(find_lifetimes(outline)) {
  live_.assign(target.memories.size(), std::vector<int64_t>(static_cast<size_t>(timeline_.end) + 1, 0));
  least_.assign(target.memories.size(), 0);
  for (size_t t = 0; t < lives_.size(); ++t) {
    if (!lives_[t].used()) continue;
    const Outline::Tensor& tensor = outline.tensors[t];
    const int64_t bytes = rounded(tensor.bytes, tensor.memory);
    live_[tensor.memory][static_cast<size_t>(lives_[t].first)] += bytes;
    live_[tensor.memory][static_cast<size_t>(lives_[t].last) + 1] -= bytes;
  }
  for (size_t memory = 0; memory < live_.size(); ++memory) {
    std::partial_sum(live_[memory].begin(), live_[memory].end(), live_[memory].begin());
    least_[memory] = *std::max_element(live_[memory].begin(), live_[memory].end());
  }
}

int64_t Room::rounded(int64_t bytes, uint32_t memory) const { return round_up(bytes, target_.memories[memory].alignment); }

int64_t Room::born(TensorId tensor, int32_t moment) const {
  const auto t = static_cast<size_t>(tensor);
  return lives_[t].first == moment && outline_.tensors[t].life != Life::Run ? rounded(outline_.tensors[t].bytes, outline_.tensors[t].memory)
                                                                            : 0;
}

bool Room::fits(uint32_t memory, int32_t first, int32_t last, int64_t bytes) const {
  const auto begin = live_[memory].begin();
  return std::all_of(begin + first, begin + last + 1, [&](int64_t live) { return live + bytes <= least_[memory]; });
}

void Room::take(uint32_t memory, int32_t first, int32_t last, int64_t bytes) {
  for (int32_t m = first; m <= last; ++m) live_[memory][static_cast<size_t>(m)] += bytes;
}

}  // namespace galley
