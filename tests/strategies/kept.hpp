// What is left of numbers that a format has kept.
#pragma once

#include <vector>

#include "plugins/eight-bit/codec.hpp"
#include "plugins/split-states/codec.hpp"

namespace galley::test {

/// How an update keeps what it writes: all in F32; states in dynamic8; states in companded8 and the parameter in split.
struct Kept {
  enum How { F32, Dynamic8, Split } how;

  void parameter(std::vector<double>& x) const {
    if (how != Split) return;
    std::vector<uint16_t> rounded(x.size());
    std::vector<int8_t> corrections(x.size());
    through(x, split_states::Split(rounded.data(), corrections.data()));
  }
  void state(std::vector<double>& x, bool with_signs) const {
    std::vector<uint8_t> codes(x.size());
    std::vector<float> absmax(x.size());
    std::vector<uint16_t> scales(x.size());
    if (how == Dynamic8) through(x, eight_bit::Dynamic8(codes.data(), absmax.data(), with_signs));
    if (how == Split) through(x, split_states::Companded8(codes.data(), scales.data(), with_signs));
  }

 private:
  template <class Format>
  static void through(std::vector<double>& x, const Format& format) {
    std::vector<float> numbers(x.begin(), x.end());
    const auto n = static_cast<int64_t>(x.size());
    encode(format, 0, n, numbers.data());
    decode(format, 0, n, numbers.data());
    x.assign(numbers.begin(), numbers.end());
  }
};

}  // namespace galley::test
