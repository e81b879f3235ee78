// Reads what a run of a comparison has left: its metrics, its memory, and how its model differs from another run's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/tools/compare/arms.hpp"

namespace galley {

/// The differences of a run from another with the same seed.
struct Difference {
  bool identical = false;          ///< all losses and all that is exported, to the byte
  int64_t first_step = 0;          ///< whose losses are not the same bits; 0: none
  double largest_loss = 0;         ///< |a − b| / |b| over the steps that both have
  double largest_tensor = 0;       ///< ‖a − b‖ / ‖b‖ over the tensors that both export
  std::string tensor;              ///< which one that is; "": none differs
  int64_t tensors = 0, alike = 0;  ///< that both export; of these, to the byte
  bool alone = false;              ///< there are tensors that one exports only
};

struct RunResult {
  std::filesystem::path directory;
  std::vector<double> losses;            ///< of the steps, from the first on
  std::vector<double> seconds;           ///< that each of them took
  std::map<int64_t, double> validation;  ///< losses, by step; 0: before the first one
  int64_t resident = 0;                  ///< the most bytes that the process of its last turn had
  std::vector<int64_t> skipped;          ///< steps that were not applied
  int64_t positions = 0;                 ///< of all steps: what a budget of tokens counts
  int64_t tokens = 0;                    ///< of these, that count in the loss
  /// What difference_of() has found, and of which other run: comparisons that look after each seed ask again.
  mutable std::optional<std::pair<std::filesystem::path, Difference>> known = {};

  /// Returns the mean loss of the last tenth of the steps, at least of one.
  double final_loss() const;
  /// The median time of a step in each of `turns` turns, without the turn's first one; nothing of a turn that has no other.
  std::vector<std::optional<double>> turn_seconds(int64_t turns) const;
};

/// Also of two that are no numbers.
bool same_bits(double a, double b);
/// Returns |a − b| / |b|: 0 if they are equal, infinity if that is not finite.
double relative_difference(double a, double b);

Result<RunResult> read_result(const std::filesystem::path& run);
/// Of a run that is over, after all of these steps or the one with which a strategy has ended it, whose metrics and model are what it has
/// left (run_result.hpp). Else an error that names the file.
Result<RunResult> verified_result(const std::filesystem::path& run, int64_t steps);

/// Reads the tensors of both, once: `a` keeps what it found.
Result<Difference> difference_of(const RunResult& a, const RunResult& b);

}  // namespace galley
