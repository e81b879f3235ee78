#include "host/plan/dtype.hpp"

#include <iterator>

namespace galley {

const char* dtype_name(uint32_t dtype) {
  static constexpr const char* names[] = {"?",  "F64", "F32", "F16", "BF16", "I64",     "I32",     "I16",    "I8",
                                          "U8", "U16", "U32", "U64", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"};
  return dtype < std::size(names) ? names[dtype] : "?";
}

bool is_floating(uint32_t dtype) { return dtype >= GALLEY_F64 && dtype <= GALLEY_BF16; }

uint32_t dtype_of(tensor_files::Dtype dtype) {
  using tensor_files::Dtype;
  switch (dtype) {
    case Dtype::Bool:
    case Dtype::U8: return GALLEY_U8;
    case Dtype::I8: return GALLEY_I8;
    case Dtype::I16: return GALLEY_I16;
    case Dtype::I32: return GALLEY_I32;
    case Dtype::I64: return GALLEY_I64;
    case Dtype::F16: return GALLEY_F16;
    case Dtype::BF16: return GALLEY_BF16;
    case Dtype::F32: return GALLEY_F32;
    case Dtype::F64: return GALLEY_F64;
    default: return GALLEY_U8;
  }
}

std::optional<tensor_files::Dtype> safetensors_dtype(uint32_t dtype) {
  using tensor_files::Dtype;
  switch (dtype) {
    case GALLEY_F64: return Dtype::F64;
    case GALLEY_F32: return Dtype::F32;
    case GALLEY_F16: return Dtype::F16;
    case GALLEY_BF16: return Dtype::BF16;
    case GALLEY_I64: return Dtype::I64;
    case GALLEY_I32: return Dtype::I32;
    case GALLEY_I16: return Dtype::I16;
    case GALLEY_I8: return Dtype::I8;
    case GALLEY_U8: return Dtype::U8;
    default: return std::nullopt;
  }
}

bool convertible(uint32_t from, uint32_t to) { return from == to || (is_floating(from) && is_floating(to)); }

}  // namespace galley
