// Translates between the dtypes of operands and those of files.
#pragma once

#include <cstdint>
#include <optional>

#include "galley/tensor.h"
#include "host/base/tensor_files.hpp"

namespace galley {

/// Returns "F32", or "?" for an unknown dtype.
const char* dtype_name(uint32_t dtype);

bool is_floating(uint32_t dtype);

/// Returns a file's dtype as GALLEY_…. Bool becomes U8, and formats of blocks become bytes.
uint32_t dtype_of(tensor_files::Dtype dtype);
/// Returns the dtype that safetensors writes; nullopt for dtypes that it does not have (U16, U32).
std::optional<tensor_files::Dtype> safetensors_dtype(uint32_t dtype);

/// Returns whether a tensor of a file can be read into an operand: both floating, or both the same.
bool convertible(uint32_t from, uint32_t to);

}  // namespace galley
