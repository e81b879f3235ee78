// How far the tensors of two folders are from each other.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "host/base/result.hpp"

namespace galley {

/// Of a tensor a beside a tensor b of the same name and shape. All norms are Euclidean, in F64.
struct TensorDistance {
  double difference = 0;  ///< ‖a − b‖; infinite where they are no numbers (codes) and other bytes, or not finite
  double norm = 0;        ///< ‖b‖
  double moved = 0;       ///< ‖b − o‖, of the origin's tensor; 0 without one
  bool alike = false;     ///< the same dtype and bytes
};

struct Distances {
  std::map<std::string, TensorDistance> tensors;  ///< that both have
  std::string alone;                              ///< one that only a or only b has; "": there is none
};

/// Of all safetensors files in or below folder `a`, beside those of `b`; `origin`: what both began from, "" for nothing.
Result<Distances> tensor_distances(const std::filesystem::path& a, const std::filesystem::path& b,
                                   const std::filesystem::path& origin = {});

}  // namespace galley
