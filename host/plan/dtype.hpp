// The dtypes of operands and those of safetensors files.
#pragma once

#include <cstdint>
#include <optional>

#include "galley/tensor.h"
#include "host/base/tensor_files.hpp"

namespace galley {

/// "F32"; "dtype 77" cannot come: an unknown one is "?".
const char* dtype_name(uint32_t dtype);

bool is_floating(uint32_t dtype);

/// The dtype as GALLEY_…; Bool is U8.
/// What is in blocks is bytes.
uint32_t dtype_of(tensor_files::Dtype dtype);
/// As it is written to a file; nullopt for dtypes that safetensors does not have (U16, U32).
std::optional<tensor_files::Dtype> safetensors_dtype(uint32_t dtype);

/// Whether a tensor of a file can be read into an operand: both floating, or both the same.
bool convertible(uint32_t from, uint32_t to);

}  // namespace galley
