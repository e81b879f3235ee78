// Operands of the kernels that kernels.cpp times, with random numbers, and how it compares what two of them have computed.
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "galley/cpp/half.hpp"
#include "galley/cpp/plugin.hpp"

namespace galley::bench {

struct Shape {
  uint32_t dtype;  // 0: absent
  std::vector<int64_t> extents;
};

inline bool is_floating(uint32_t dtype) {
  return dtype == GALLEY_F32 || dtype == GALLEY_BF16 || dtype == GALLEY_F16 || dtype == GALLEY_F64;
}

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<void, Free>;
// On a cache line and in huge pages, as in the arena: oneDNN is a quarter slower on some shapes that are not.
inline Memory huge(int64_t bytes) {
  constexpr int64_t page = int64_t{2} << 20;
  const auto whole = static_cast<size_t>((bytes + page) / page * page);
  Memory memory(std::aligned_alloc(page, whole));
  madvise(memory.get(), whole, MADV_HUGEPAGE);
  std::memset(memory.get(), 0, whole);
  return memory;
}
struct Operands {
  Operands() = default;
  Operands(std::vector<Shape> of, uint32_t access)
      : shapes(std::move(of)), data(shapes.size()), operands(shapes.size()), pointers(shapes.size()) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      if (!shapes[i].dtype) continue;
      const int64_t n = count(i);
      data[i] = huge(n * galley_dtype_bytes(shapes[i].dtype));
      operands[i] = galley::sdk::operand(data[i].get(), shapes[i].extents.data(), static_cast<uint32_t>(shapes[i].extents.size()),
                                         shapes[i].dtype, access);
      pointers[i] = &operands[i];
    }
    draw();
  }
  /// The same numbers each time.
  void draw() const {
    for (size_t i = 0; i < shapes.size(); ++i) {
      if (!shapes[i].dtype) continue;
      const int64_t n = count(i);
      auto* begin = static_cast<float*>(data[i].get());
      uint32_t random = static_cast<uint32_t>(n);
      const auto draw = [&](auto* numbers) {
        for (int64_t k = 0; k < n; ++k)
          galley::sdk::from_float(static_cast<float>((random = random * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1.0f, numbers[k]);
      };
      if (shapes[i].dtype == GALLEY_F32) draw(begin);
      if (shapes[i].dtype == GALLEY_BF16) draw(reinterpret_cast<galley::sdk::Bf16*>(begin));
      if (shapes[i].dtype == GALLEY_F16) draw(reinterpret_cast<galley::sdk::F16*>(begin));
    }
  }
  /// All floating-point numbers, one operand after the other.
  std::vector<double> numbers() const {
    std::vector<double> all;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const auto add = [&](const auto* x) {
        for (int64_t k = 0; k < count(i); ++k) all.push_back(static_cast<double>(galley::sdk::to_float(x[k])));
      };
      const void* begin = data[i].get();
      if (shapes[i].dtype == GALLEY_F32) add(static_cast<const float*>(begin));
      if (shapes[i].dtype == GALLEY_BF16) add(static_cast<const galley::sdk::Bf16*>(begin));
      if (shapes[i].dtype == GALLEY_F16) add(static_cast<const galley::sdk::F16*>(begin));
      if (shapes[i].dtype == GALLEY_F64)
        all.insert(all.end(), static_cast<const double*>(begin), static_cast<const double*>(begin) + count(i));
    }
    return all;
  }
  /// The same in F64, as references take them.
  Operands wide(uint32_t access) const {
    std::vector<Shape> to = shapes;
    for (Shape& shape : to)
      if (is_floating(shape.dtype)) shape.dtype = GALLEY_F64;
    Operands out(to, access);
    const std::vector<double> all = numbers();
    const double* next = all.data();
    for (size_t i = 0; i < shapes.size(); ++i) {
      if (!shapes[i].dtype) continue;
      const auto bytes = static_cast<size_t>(count(i) * galley_dtype_bytes(to[i].dtype));
      std::memcpy(out.data[i].get(), is_floating(shapes[i].dtype) ? static_cast<const void*>(next) : data[i].get(), bytes);
      if (is_floating(shapes[i].dtype)) next += count(i);
    }
    return out;
  }
  bool in_16_bit() const {
    return std::any_of(shapes.begin(), shapes.end(), [](const Shape& x) { return x.dtype == GALLEY_BF16 || x.dtype == GALLEY_F16; });
  }
  int64_t count(size_t i) const {
    int64_t n = 1;
    for (const int64_t extent : shapes[i].extents) n *= extent;
    return n;
  }
  std::vector<Shape> shapes;
  std::vector<Memory> data;
  std::vector<galley_operand> operands;
  std::vector<const galley_operand*> pointers;
};

/// Ends the program where numbers are further apart than a share of their norm: kernels sum in F32 in another order, and operands in 16 bit
/// are rounded at other places.
inline void compare(const std::string& what, const std::vector<double>& made, const std::vector<double>& right, bool in_16_bit) {
  double apart = 0, size = 0;
  for (size_t i = 0; i < right.size() && i < made.size(); ++i) {
    apart += (made[i] - right[i]) * (made[i] - right[i]);
    size += right[i] * right[i];
  }
  if (made.size() == right.size() && std::sqrt(apart) <= (in_16_bit ? 2e-2 : 1e-4) * std::sqrt(size)) return;
  std::fprintf(stderr, "%s: other numbers, apart by %.1e of their size\n", what.c_str(), std::sqrt(apart / size));
  std::exit(1);
}

}  // namespace galley::bench
