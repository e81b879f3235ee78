// Rounds numbers to the block types of GGUF files: searches the scales by which a block's numbers are nearest to those that were there.
//
// The types are written down in ggml-common.h of https://github.com/ggml-org/ggml; d, m are in F16, q the code of a number:
//   Q8_0  32 numbers   d · q, q in −128 … 127                    Q5_0, Q4_0  32 numbers   d · (q − 16), d · (q − 8), 5 and 4 bits
//   Q6_K  16 · 16      d · s · (q − 32), s in 8 bits, q in 6      Q4_K        8 · 32      d · s · q − m · t, s, t in 6 bits, q in 4
#pragma once

#include <cstddef>
#include <span>

#include "host/base/tensor_files.hpp"

namespace galley {

/// Writes whole blocks of Q8_0, Q5_0, Q4_0, Q6_K or Q4_K. The numbers must be finite; those that are too large for a scale in F16 give a
/// block that tensor_files::first_broken_block() finds. The bytes depend on the numbers of a block alone. [thread-safe]
void write_blocks(tensor_files::Dtype dtype, std::span<const float> numbers, std::byte* out);

}  // namespace galley
