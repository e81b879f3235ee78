// Operands in F32, BF16 or F16. Kernels compute in F32. Operands in F32 are read and written where they lie; others pass through buffers of
// one run of numbers, which stay in the first-level cache. Results in 16 bit are rounded once, and where they are added to what an output
// held, after that sum.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstring>
#include <utility>

#include "cpu/half.hpp"
#include "cpu/vector.hpp"

namespace galley::cpu {

/// Numbers that are converted at a time. A multiple of what LaneSum asks for.
inline constexpr int64_t run_length = 512;

/// Numbers of one run as floats.
struct Buffer {
  alignas(64) float numbers[run_length];
};

/// n numbers of `dtype` (F32, BF16 or F16), from the one with index `at` on, as floats.
inline void load(const void* data, uint32_t dtype, int64_t at, int64_t n, float* to) {
  switch (dtype) {
    case GALLEY_BF16: return widen(static_cast<const Bf16*>(data) + at, n, to);
    case GALLEY_F16: return widen(static_cast<const F16*>(data) + at, n, to);
    default: std::memcpy(to, static_cast<const float*>(data) + at, static_cast<size_t>(n) * sizeof(float));
  }
}
inline void store(const float* from, int64_t n, void* data, uint32_t dtype, int64_t at) {
  switch (dtype) {
    case GALLEY_BF16: return narrow(from, n, static_cast<Bf16*>(data) + at);
    case GALLEY_F16: return narrow(from, n, static_cast<F16*>(data) + at);
    default: std::memcpy(static_cast<float*>(data) + at, from, static_cast<size_t>(n) * sizeof(float));
  }
}

// ---- Operands -------------------------------------------------------------------------------------------------------------------

inline bool is_number(uint32_t dtype) { return dtype == GALLEY_F32 || dtype == GALLEY_BF16 || dtype == GALLEY_F16; }

/// The operands that are there are integers, or hold numbers that Input and Output take.
inline bool all_numbers(const sdk::Node& node) {
  const auto fits = [](const galley_operand* t) { return !t || is_number(t->dtype) || t->dtype == GALLEY_I32 || t->dtype == GALLEY_I64; };
  const galley_node_view& v = *node.view();
  return std::all_of(v.inputs, v.inputs + v.n_inputs, fits) && std::all_of(v.outputs, v.outputs + v.n_outputs, fits);
}

/// An operand that is read. It may be absent.
class Input {
 public:
  Input(const sdk::Node& node, uint32_t input)
      : data_(node.has(input) ? node.in(input).data : nullptr), dtype_(data_ ? node.in(input).dtype : GALLEY_F32) {}
  explicit operator bool() const { return data_; }
  bool in_place() const { return dtype_ == GALLEY_F32; }
  /// n numbers from `at` on: where they lie, or, at most a run of them, in the buffer.
  const float* read(int64_t at, int64_t n, Buffer& buffer) const {
    if (in_place()) return static_cast<const float*>(data_) + at;
    load(data_, dtype_, at, n, buffer.numbers);
    return buffer.numbers;
  }
  /// Copies any number of numbers.
  void copy(int64_t at, int64_t n, float* to) const { load(data_, dtype_, at, n, to); }

 private:
  const void* data_;
  uint32_t dtype_;
};

/// An operand that is written or added to. It may be absent.
class Output {
 public:
  Output(const sdk::Node& node, uint32_t output)
      : data_(node.has_out(output) ? node.out(output).data : nullptr),
        dtype_(data_ ? node.out(output).dtype : GALLEY_F32),
        adds_(data_ && node.accumulates(output)) {}
  explicit operator bool() const { return data_; }
  bool in_place() const { return dtype_ == GALLEY_F32; }
  bool adds() const { return adds_; }
  /// Where n results from `at` on are put or, if it adds, added: their place, or, at most a run of them, the buffer.
  float* open(int64_t at, int64_t n, Buffer& buffer) const {
    if (in_place()) return static_cast<float*>(data_) + at;
    if (adds_) load(data_, dtype_, at, n, buffer.numbers);
    return buffer.numbers;
  }
  /// Ends what `open` began.
  void close(int64_t at, int64_t n, const float* results) const {
    if (!in_place()) store(results, n, data_, dtype_, at);
  }

 private:
  void* data_;
  uint32_t dtype_;
  bool adds_;
};

// ---- Work in runs ---------------------------------------------------------------------------------------------------------------

/// The length of runs over operands: no limit where all of them are used in place.
template <class... Operands>
inline int64_t run_over(const Operands&... operands) {
  return (operands.in_place() && ...) ? INT64_MAX : run_length;
}

/// body(at, n) for the runs of [first, last).
template <class Body>
inline void in_runs(int64_t first, int64_t last, int64_t run, const Body& body) {
  while (first < last) {
    const int64_t n = last - first < run ? last - first : run;
    body(first, n);
    first += n;
  }
}

/// Output 0 from the node's first inputs, as many as `value` takes, element by element: y = value(a, b, …), added where the node
/// accumulates.
template <size_t... inputs, class Value>
inline void map(std::index_sequence<inputs...>, const sdk::Node& node, const Value& value) {
  const Input in[] = {Input(node, inputs)...};
  const Output y(node, 0);
  const int64_t run = run_over(in[inputs]..., y);
  by_access(y.adds(), [&](auto add) {
    over_elements(sdk::count(node.out(0)), [&, run](int64_t first, int64_t last) {
      const Value local = value;  // its numbers in registers: through the reference, writing y might change them
      Buffer buffers[sizeof...(inputs) + 1];
      in_runs(first, last, run, [&](int64_t at, int64_t n) {
        float* const to = y.open(at, n, buffers[sizeof...(inputs)]);
        const auto loop = [to, n, local, add](const auto*... x) {
          GALLEY_INDEPENDENT
          for (int64_t i = 0; i < n; ++i) put(add, to[i], local(x[i]...));
        };
        loop(in[inputs].read(at, n, buffers[inputs])...);
        y.close(at, n, to);
      });
    });
  });
}
template <std::invocable<float> Value>
inline void map(const sdk::Node& node, const Value& value) {
  map(std::make_index_sequence<1>(), node, value);
}
template <std::invocable<float, float> Value>
inline void map(const sdk::Node& node, const Value& value) {
  map(std::make_index_sequence<2>(), node, value);
}

}  // namespace galley::cpu
