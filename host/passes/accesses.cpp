#include "host/passes/accesses.hpp"

#include <numeric>

namespace galley {

Accesses::Accesses(const Outline::Code& code, const Originals& source, size_t tensors)
    : region_(source.instructions.size(), 0), widest_(tensors, 0) {
  uint32_t region = 0;
  for (uint32_t entry = 0; entry < region_.size(); ++entry) {
    const Instruction& i = *source.instructions[entry];
    const bool kernel = i.launch() && i.queue == 0;
    region_[entry] = kernel ? region : entry;
    if (!kernel) region = entry + 1;
    first_.push_back(accesses_.size());
    const TensorId* id = code.of(code.entries[entry]).data();
    for (const auto* operands : {&i.inputs, &i.outputs})
      for (const Operand& o : *operands) {
        if (!o.present()) continue;
        const uint32_t access = o.access | o.later;
        accesses_.push_back({entry, *id++, o.offset, o.offset + o.bytes(), (access & GALLEY_READ) != 0, (access & GALLEY_WRITE) != 0});
        int64_t& widest = widest_[static_cast<size_t>(accesses_.back().tensor)];
        if (kernel) widest = std::max(widest, o.bytes());
      }
  }
  first_.push_back(accesses_.size());
  readers_ = index(&Access::reads);
  writers_ = index(&Access::writes);
}

Accesses::Index Accesses::index(bool Access::*counts) const {
  Index out;
  out.first.assign(widest_.size() + 1, 0);
  for (const Access& access : accesses_) out.first[static_cast<size_t>(access.tensor) + 1] += access.*counts;
  std::partial_sum(out.first.begin(), out.first.end(), out.first.begin());
  out.accesses.resize(out.first.back());
  std::vector<uint32_t> next = out.first;
  for (uint32_t k = 0; k < accesses_.size(); ++k)
    if (accesses_[k].*counts) out.accesses[next[static_cast<size_t>(accesses_[k].tensor)]++] = k;
  const auto place = [&](uint32_t k) { return std::tuple(region_[accesses_[k].entry], accesses_[k].begin, k); };
  for (size_t t = 0; t < widest_.size(); ++t)
    if (out.first[t + 1] - out.first[t] > 1)
      std::ranges::sort(out.accesses.begin() + out.first[t], out.accesses.begin() + out.first[t + 1], {}, place);
  return out;
}

}  // namespace galley
