#include "host/session/several.hpp"

#include <algorithm>

namespace galley {

std::set<int64_t> planned_ranks(int64_t ranks) {
  constexpr int64_t kAll = 8;
  std::set<int64_t> out = {0, std::min<int64_t>(1, ranks - 1), ranks / 2, ranks - 1};
  for (int64_t r = 0; r < ranks && ranks <= kAll; ++r) out.insert(r);
  return out;
}

Result<std::unique_ptr<Study>> study_of_most(const std::filesystem::path& recipe, StudyOptions options) {
  options.lanes.rank = 0;
  std::unique_ptr<Study> most = TRY(study(recipe, options));
  if (std::ranges::none_of(most->program.tensors, &ProgramTensor::is_part)) return most;
  options.warn = {};  // it has been told
  options.watch = {};
  options.head_rows = most->program.head_rows;  // the run's: sums depend on it
  for (const int64_t rank : planned_ranks(options.lanes.ranks)) {
    if (rank == 0) continue;
    options.lanes.rank = rank;
    std::unique_ptr<Study> other = TRY(study(recipe, options));
    if (other->peak_memory() > most->peak_memory()) most = std::move(other);
  }
  return most;
}

}  // namespace galley
