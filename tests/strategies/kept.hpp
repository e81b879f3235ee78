// What is left of numbers that a format has kept.
#pragma once

#include <vector>

#include "galley/cpp/stored.hpp"

namespace galley::test {

/// How an update keeps what it writes: all in F32; states in dynamic8; states in companded8 and the parameter in split.
struct Kept {
  enum How { F32, Dynamic8, Split } how;

  void parameter(std::vector<double>& x) const {
    if (how == Split) through(x, sdk::kStoredSplit);
  }
  void state(std::vector<double>& x, bool with_signs) const {
    if (how == Dynamic8) through(x, with_signs ? sdk::kStoredDynamic8 : sdk::kStoredDynamic8Unsigned);
    if (how == Split) through(x, with_signs ? sdk::kStoredCompanded8 : sdk::kStoredCompanded8Unsigned);
  }

 private:
  static void through(std::vector<double>& x, sdk::StoredAs as) {
    std::vector<float> numbers(x.begin(), x.end()), first(x.size()), second(x.size());
    const sdk::Stored stored(first.data(), second.data(), as);
    const auto n = static_cast<int64_t>(x.size());
    sdk::store_stored(numbers.data(), n, stored, 0);
    sdk::load_stored(stored, 0, n, numbers.data());
    x.assign(numbers.begin(), numbers.end());
  }
};

}  // namespace galley::test
