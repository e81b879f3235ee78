// What a run of a comparison has left: its metrics, its memory, and how its model differs from another run's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/compare/arms.hpp"

namespace galley {

struct RunResult {
  std::filesystem::path directory;
  std::vector<double> losses;            ///< of the steps, from the first on
  std::vector<double> seconds;           ///< that each of them took
  std::map<int64_t, double> validation;  ///< losses, by step; 0: before the first one
  int64_t resident = 0;                  ///< the most bytes that the process of its last turn had
  int64_t skipped = 0;                   ///< steps that were not applied

  /// The mean loss of the last tenth of the steps, at least one.
  double final_loss() const;
};

Result<RunResult> read_result(const std::filesystem::path& run);

/// How one run differs from another with the same seed.
struct Difference {
  bool identical = false;                     ///< all losses and all that is exported, to the byte
  int64_t first_step = 0;                     ///< whose losses are not the same bits; 0: none
  double largest_loss = 0;                    ///< |a − b| / |b| over the steps that both have
  double largest_tensor = 0;                  ///< ‖a − b‖ / ‖b‖ over the tensors that both export
  std::string tensor;                         ///< which one that is; "": none differs
  int64_t tensors = 0, alike = 0, alone = 0;  ///< that both export; of these, to the byte; that one exports only
};

Result<Difference> difference_of(const RunResult& a, const RunResult& b);

}  // namespace galley
