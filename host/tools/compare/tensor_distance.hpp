// Computes how far the tensors of two folders are from each other.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "host/base/result.hpp"

namespace galley {

/// The distance of a tensor a from a tensor b of the same name and shape. All norms are Euclidean, in F64.
struct TensorDistance {
  double difference = 0;  ///< ‖a − b‖; infinite where they are no numbers and other bytes, or not finite
  double norm = 0;        ///< ‖b‖
  double other = 0;       ///< ‖a‖
  double moved = 0;       ///< ‖b − o‖, of the origin's tensor; 0 without one
  bool alike = false;     ///< the same dtype and bytes
  bool numbers = true;    ///< of both; false: codes
};

struct Distances {
  std::map<std::string, TensorDistance> tensors;  ///< that both have
  std::string alone;                              ///< one that only a or only b has; "": there is none
};

using TensorFiles = std::vector<std::filesystem::path>;
/// Returns all safetensors files in or below a folder.
Result<TensorFiles> tensor_files_below(const std::filesystem::path& folder);

/// Compares all tensors in the files `a` with those in `b`; both began as those in `origin`.
Result<Distances> tensor_distances(const TensorFiles& a, const TensorFiles& b, const TensorFiles& origin = {});

}  // namespace galley
