// Kernels for CUDA of an optimizer's rule (galley/cpp/rule.hpp):
//
//   add_step_kernels<AdamWRule>("adamw_step")
//     adamw_step.cuda               the steps of any number of parameters in one launch
//     adamw_step_copy.cuda          each also writes the new parameter in 16 bit: "adamw_step>copy"
//     adamw_step_stored.cuda        where operands are in a format of stored.hpp, which is read and written in the same pass
//     adamw_step_stored_copy.cuda   both
//
// A step is bound by memory. Each block finds its parameter in a table. lr, step, factor and apply are in the device's memory, so each
// block computes the rule's numbers: in double, as the CPU does, each by a warp of its own, while the other blocks of the
// multiprocessor keep the memory busy. The arithmetic of an element is that of the CPU.
#pragma once

#include "galley/cpp/rule.hpp"
#include "galley/cuda/kernel.hpp"
#include "galley/cuda/quad.hpp"
#include "galley/cuda/segments.hpp"
#include "galley/cuda/stored.hpp"

namespace galley::cuda {

namespace detail {

inline constexpr int kStepThreads = 256, kStepWarp = 32;
inline constexpr int64_t kStepBlock = 8192;  // elements: 8 quads a thread, so that the numbers cost little

/// What every step of a parameter has.
template <class Rule>
struct StepBase {
  static constexpr int kNumbers = Rule::kNumbers;

  explicit StepBase(const Node& node)
      : rule(node),
        lr(node.has(sdk::kStepRate) ? node.read<float>(sdk::kStepRate) : nullptr),
        factor(node.has(sdk::kStepFactor) ? node.read<float>(sdk::kStepFactor) : nullptr),
        step(node.read<int64_t>(sdk::kStepNumber)),
        apply(node.read<int32_t>(sdk::kStepApply)),
        count(cuda::count(node.in(sdk::kStepParameter))) {}

  Rule rule;
  const float *lr, *factor;  // no rate: 0; no factor: 1
  const int64_t* step;
  const int32_t* apply;
  int64_t count;
};

/// One parameter's step, with numbers in F32.
template <class Rule>
struct ParameterStep : StepBase<Rule> {
  explicit ParameterStep(const Node& node)
      : StepBase<Rule>(node),
        p(node.update<float>(sdk::kStepParameter)),
        gradient(node.in(sdk::kStepGradient).data),
        gradient_dtype(node.in(sdk::kStepGradient).dtype) {
    for (int k = 0; k < Rule::kStates; ++k)
      if (const uint32_t input = sdk::kStepStates + static_cast<uint32_t>(k); node.has(input)) states[k] = node.update<float>(input);
  }

  float* p;
  const void* gradient;
  float* states[sdk::kMostStates] = {};
  void* copy = nullptr;  // what the chain's second link writes
  uint32_t gradient_dtype, copy_dtype = 0;
};

/// What the threads of a block share: in registers, it would leave room for too few of them.
template <class Step>
struct StepShared {
  Step step;
  int64_t begin, end;  // elements
  float factor, numbers[Step::kNumbers];
};

/// Shared memory has no constructors.
template <class Step>
struct alignas(StepShared<Step>) StepRoom {
  unsigned char bytes[sizeof(StepShared<Step>)];
};

/// Fills what the threads of a block share, each number by a warp of its own. A barrier follows.
template <class Step>
__device__ inline void find_step(const SegmentsPart<Step>& steps, StepShared<Step>* shared) {
  const int warp = static_cast<int>(threadIdx.x) / kStepWarp;
  if (threadIdx.x % kStepWarp != 0 || warp >= Step::kNumbers) return;
  const auto found = steps.find(blockIdx.x);
  const Step& s = found.entry;
  shared->numbers[warp] = s.rule.number(warp, s.lr ? static_cast<double>(*s.lr) : 0, *s.step);
  if (warp != 0) return;
  shared->step = s;
  shared->begin = found.block * kStepBlock;
  shared->end = s.count - shared->begin < kStepBlock ? s.count : shared->begin + kStepBlock;
  shared->factor = s.factor ? *s.factor : 1;
}

/// The n ≤ 4 elements from `at` on.
template <class Rule, int variant>
__device__ inline void step_quad(const StepShared<ParameterStep<Rule>>& shared, int64_t at, int n) {
  constexpr unsigned used = Rule::states(variant);
  const ParameterStep<Rule>& s = shared.step;
  float p[kQuad], gradient[kQuad], states[sdk::kMostStates][kQuad] = {};
  load_quad(s.p + at, n, p);
#pragma unroll
  for (int k = 0; k < Rule::kStates; ++k)
    if (used >> k & 1u) load_quad(s.states[k] + at, n, states[k]);
  load_quad(s.gradient, s.gradient_dtype, at, n, gradient);  // the last one: it waits for what it converts
#pragma unroll
  for (int i = 0; i < kQuad; ++i) {
    float own[sdk::kMostStates] = {states[0][i], states[1][i], states[2][i]};
    s.rule.template element<variant>(shared.numbers, shared.factor * gradient[i], p[i], own);
#pragma unroll
    for (int k = 0; k < Rule::kStates; ++k) states[k][i] = own[k];
  }
  store_quad(s.p + at, n, p);
#pragma unroll
  for (int k = 0; k < Rule::kStates; ++k)
    if (used >> k & 1u) store_quad(s.states[k] + at, n, states[k]);
  if (s.copy) store_quad(s.copy, s.copy_dtype, at, n, p);
}

template <class Rule, int variant = 0>
__device__ inline void step_block(int which, const StepShared<ParameterStep<Rule>>& shared) {
  if constexpr (variant + 1 < Rule::kVariants)
    if (which != variant) return step_block<Rule, variant + 1>(which, shared);
  const int64_t end = shared.end;
  for (int64_t at = shared.begin + threadIdx.x * kQuad; at < end; at += kStepThreads * kQuad)
    step_quad<Rule, variant>(shared, at, quad_at(at, end));
}

template <class Rule>
__global__ void __launch_bounds__(kStepThreads) parameter_steps(GALLEY_SEGMENTS(ParameterStep<Rule>) steps) {
  GALLEY_SHARED(StepRoom<ParameterStep<Rule>>, room, 1);
  auto* const shared = reinterpret_cast<StepShared<ParameterStep<Rule>>*>(room);
  find_step(steps, shared);
  __syncthreads();
  const ParameterStep<Rule>& s = shared->step;
  if (*s.apply) return step_block<Rule>(s.rule.variant(*s.step), *shared);
  if (!s.copy) return;
  const int64_t end = shared->end;
  for (int64_t at = shared->begin + threadIdx.x * kQuad; at < end; at += kStepThreads * kQuad) {
    float p[kQuad];
    load_quad(s.p + at, quad_at(at, end), p);
    store_quad(s.copy, s.copy_dtype, at, quad_at(at, end), p);
  }
}

// ---- Operands in formats ----------------------------------------------------------------------------------------------------------------

// A warp takes 256 numbers at a time, a block of dynamic8: a lane has the quads 4 · lane and 128 + 4 · lane.
inline constexpr int kStepUnit = 256, kUnitQuads = kStepUnit / (kQuad * kStepWarp), kLaneNumbers = kUnitQuads * kQuad;
inline constexpr int kGroup = sdk::companded8::kGroup;

template <class Rule>
struct StoredStep : StepBase<Rule> {
  explicit StoredStep(const Node& node) : StepBase<Rule>(node), p(node.in(sdk::kStepParameter)), gradient(node.in(sdk::kStepGradient)) {
    for (int k = 0; k < Rule::kStates; ++k)
      if (const uint32_t input = sdk::kStepStates + static_cast<uint32_t>(k); node.has(input)) states[k] = Stored(node.in(input));
  }

  Stored p, gradient, states[sdk::kMostStates], copy;
};

/// Code books in shared memory: what codes stand for, without their scale.
struct StepBooks {
  float with_signs[256], without[256], companded[256], companded_unsigned[256];
};

/// Each thread of a block makes an entry of each. A barrier follows.
__device__ inline void fill_books(StepBooks* books) {
  static_assert(kStepThreads == 256, "a thread for each entry");
  const int code = static_cast<int>(threadIdx.x);
  books->with_signs[code] = sdk::dynamic8::value(code, true);
  books->without[code] = sdk::dynamic8::value(code, false);
  books->companded[code] = sdk::companded8::entry(static_cast<uint8_t>(code), true);
  books->companded_unsigned[code] = sdk::companded8::entry(static_cast<uint8_t>(code), false);
}

/// Of an operand that is in no format.
__device__ inline uint32_t dtype_of(const Stored& stored) {
  return stored.as == kStoredBf16 ? GALLEY_BF16 : stored.as == kStoredF16 ? GALLEY_F16 : GALLEY_F32;
}

/// How many of a lane's numbers in quad q of the unit that begins at `unit` there are.
__device__ inline int lane_quad(int64_t unit, int64_t end, int q, int64_t* at) {
  *at = unit + q * (kStepUnit / kUnitQuads) + static_cast<int>(threadIdx.x % kStepWarp) * kQuad;
  return *at < end ? quad_at(*at, end) : 0;
}

/// Four codes, or the n of them that are there.
__device__ inline Vector<uint8_t, kQuad> load_codes(const void* data, int64_t at, int n) {
  const uint8_t* const codes = static_cast<const uint8_t*>(data) + at;
  Vector<uint8_t, kQuad> four = {};
  if (n == kQuad && reinterpret_cast<uintptr_t>(codes) % kQuad == 0) return load_vector<uint8_t, kQuad>(codes);
#pragma unroll
  for (int i = 0; i < kQuad; ++i)
    if (i < n) four.at[i] = codes[i];
  return four;
}
__device__ inline void store_codes(void* data, int64_t at, int n, const Vector<uint8_t, kQuad>& four) {
  uint8_t* const codes = static_cast<uint8_t*>(data) + at;
  if (n == kQuad && reinterpret_cast<uintptr_t>(codes) % kQuad == 0) return store_vector(codes, four);
#pragma unroll
  for (int i = 0; i < kQuad; ++i)
    if (i < n) codes[i] = four.at[i];
}

/// The code book of a format; NULL: it has none.
__device__ inline const float* entries_of(uint32_t as, const StepBooks& books) {
  return as == kStoredDynamic8             ? books.with_signs
         : as == kStoredDynamic8Unsigned   ? books.without
         : as == kStoredCompanded8         ? books.companded
         : as == kStoredCompanded8Unsigned ? books.companded_unsigned
                                           : nullptr;
}
__device__ inline bool is_dynamic8(uint32_t as) { return as == kStoredDynamic8 || as == kStoredDynamic8Unsigned; }

__device__ inline void load_unit(const Stored& from, const StepBooks& books, int64_t unit, int64_t end, float (&to)[kLaneNumbers]) {
  const float* const entries = entries_of(from.as, books);
#pragma unroll
  for (int q = 0; q < kUnitQuads; ++q) {
    int64_t at;
    const int n = lane_quad(unit, end, q, &at);
    float quad[kQuad] = {};
    if (entries) {
      const float scale = n == 0                 ? 0.0f
                          : is_dynamic8(from.as) ? static_cast<const float*>(from.side)[unit / kStepUnit]
                                                 : sdk::companded8::value_of(static_cast<const uint16_t*>(from.side)[at / kGroup]);
      const Vector<uint8_t, kQuad> four = load_codes(from.data, at, n);
#pragma unroll
      for (int i = 0; i < kQuad; ++i) quad[i] = i < n ? entries[four.at[i]] * scale : 0.0f;
    } else if (from.as == kStoredSplit) {
      load_quad(from.data, GALLEY_BF16, at, n, quad);
      const Vector<uint8_t, kQuad> four = load_codes(from.side, at, n);
#pragma unroll
      for (int i = 0; i < kQuad; ++i)
        quad[i] = sdk::split::value(static_cast<uint16_t>(__float_as_uint(quad[i]) >> 16), static_cast<int8_t>(four.at[i]));
    } else {
      load_quad(from.data, dtype_of(from), at, n, quad);
    }
#pragma unroll
    for (int i = 0; i < kQuad; ++i) to[q * kQuad + i] = quad[i];
  }
}

/// The largest magnitude, as bits, among the numbers `from[begin]` to `from[begin + count − 1]` of `lanes` neighbouring lanes.
template <int begin, int count, int lanes>
__device__ inline uint32_t most_of(const float (&from)[kLaneNumbers]) {
  uint32_t most = 0;
#pragma unroll
  for (int i = begin; i < begin + count; ++i) {
    const uint32_t m = sdk::dynamic8::magnitude_bits(from[i]);
    most = m > most ? m : most;
  }
#pragma unroll
  for (int other = lanes / 2; other > 0; other /= 2) {
    const uint32_t m = __shfl_xor_sync(~0u, most, other);
    most = m > most ? m : most;
  }
  return most;
}

__device__ inline void store_dynamic8(const Stored& to, int64_t unit, int64_t end, const float (&from)[kLaneNumbers]) {
  const bool with_signs = to.as == kStoredDynamic8;
  const float absmax = __uint_as_float(most_of<0, kLaneNumbers, kStepWarp>(from)), by = sdk::dynamic8::inverse(absmax);
  if (threadIdx.x % kStepWarp == 0) static_cast<float*>(to.side)[unit / kStepUnit] = absmax;
#pragma unroll
  for (int q = 0; q < kUnitQuads; ++q) {
    int64_t at;
    const int n = lane_quad(unit, end, q, &at);
    Vector<uint8_t, kQuad> four;
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      const float x = from[q * kQuad + i];
      four.at[i] = with_signs ? sdk::dynamic8::code<true>(x, by) : sdk::dynamic8::code<false>(x, by);
    }
    store_codes(to.data, at, n, four);
  }
}

/// A group of 32 numbers is a quad of eight lanes.
__device__ inline void store_companded8(const Stored& to, int64_t unit, int64_t end, const float (&from)[kLaneNumbers]) {
  const bool with_signs = to.as == kStoredCompanded8;
  static_assert(kUnitQuads == 2);
  const uint32_t most[kUnitQuads] = {most_of<0, kQuad, kGroup / kQuad>(from), most_of<kQuad, kQuad, kGroup / kQuad>(from)};
#pragma unroll
  for (int q = 0; q < kUnitQuads; ++q) {
    int64_t at;
    const int n = lane_quad(unit, end, q, &at);
    const uint16_t scale = sdk::companded8::scale(most[q]);
    const float by = sdk::companded8::inverse(scale);
    if (n && at % kGroup == 0) static_cast<uint16_t*>(to.side)[at / kGroup] = scale;
    Vector<uint8_t, kQuad> four;
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      const float x = from[q * kQuad + i];
      four.at[i] = with_signs ? sdk::companded8::code<true>(x, by) : sdk::companded8::code<false>(x, by);
    }
    store_codes(to.data, at, n, four);
  }
}

__device__ inline void store_split(const Stored& to, int64_t unit, int64_t end, const float (&from)[kLaneNumbers]) {
#pragma unroll
  for (int q = 0; q < kUnitQuads; ++q) {
    int64_t at;
    const int n = lane_quad(unit, end, q, &at);
    Vector<uint8_t, kQuad> corrections;
    float rounded[kQuad];
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      const float x = from[q * kQuad + i];
      const uint16_t y = sdk::split::rounded(x);
      corrections.at[i] = static_cast<uint8_t>(sdk::split::correction(x, y));
      rounded[i] = __uint_as_float(static_cast<uint32_t>(y) << 16);
    }
    store_quad(to.data, GALLEY_BF16, at, n, rounded);
    store_codes(to.side, at, n, corrections);
  }
}

/// Numbers that are not there are 0. All lanes of the warp come by.
__device__ inline void store_unit(const Stored& to, int64_t unit, int64_t end, const float (&from)[kLaneNumbers]) {
  if (is_dynamic8(to.as)) return store_dynamic8(to, unit, end, from);
  if (to.as == kStoredCompanded8 || to.as == kStoredCompanded8Unsigned) return store_companded8(to, unit, end, from);
  if (to.as == kStoredSplit) return store_split(to, unit, end, from);
#pragma unroll
  for (int q = 0; q < kUnitQuads; ++q) {
    int64_t at;
    const int n = lane_quad(unit, end, q, &at);
    float quad[kQuad];
#pragma unroll
    for (int i = 0; i < kQuad; ++i) quad[i] = from[q * kQuad + i];
    store_quad(to.data, dtype_of(to), at, n, quad);
  }
}

template <class Rule, int variant = 0>
__device__ inline void step_unit(int which, const StepShared<StoredStep<Rule>>& shared, const StepBooks& books, int64_t unit,
                                 float (&p)[kLaneNumbers]) {
  if constexpr (variant + 1 < Rule::kVariants)
    if (which != variant) return step_unit<Rule, variant + 1>(which, shared, books, unit, p);
  constexpr unsigned used = Rule::states(variant);
  const StoredStep<Rule>& s = shared.step;
  float gradient[kLaneNumbers], states[sdk::kMostStates][kLaneNumbers] = {};
#pragma unroll
  for (int k = 0; k < Rule::kStates; ++k)
    if (used >> k & 1u) load_unit(s.states[k], books, unit, shared.end, states[k]);
  load_unit(s.gradient, books, unit, shared.end, gradient);
#pragma unroll
  for (int i = 0; i < kLaneNumbers; ++i) {
    float own[sdk::kMostStates] = {states[0][i], states[1][i], states[2][i]};
    s.rule.template element<variant>(shared.numbers, shared.factor * gradient[i], p[i], own);
#pragma unroll
    for (int k = 0; k < Rule::kStates; ++k) states[k][i] = own[k];
  }
  store_unit(s.p, unit, shared.end, p);
#pragma unroll
  for (int k = 0; k < Rule::kStates; ++k)
    if (used >> k & 1u) store_unit(s.states[k], unit, shared.end, states[k]);
}

template <class Rule>
__global__ void __launch_bounds__(kStepThreads, 2) stored_steps(GALLEY_SEGMENTS(StoredStep<Rule>) steps) {
  GALLEY_SHARED(StepRoom<StoredStep<Rule>>, room, 1);
  GALLEY_SHARED(StepBooks, books, 1);
  auto* const shared = reinterpret_cast<StepShared<StoredStep<Rule>>*>(room);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kStepWarp;
  fill_books(books);
  find_step(steps, shared);
  __syncthreads();
  const StoredStep<Rule>& s = shared->step;
  const bool applies = *s.apply != 0;
  if (!applies && !s.copy.data) return;
  const int variant = s.rule.variant(*s.step);
  for (int64_t unit = shared->begin + warp * kStepUnit; unit < shared->end; unit += kStepThreads / kStepWarp * kStepUnit) {
    float p[kLaneNumbers];
    load_unit(s.p, *books, unit, shared->end, p);
    if (applies) step_unit<Rule>(variant, *shared, *books, unit, p);
    if (s.copy.data) store_unit(s.copy, unit, shared->end, p);
  }
}

// ---- What the host calls ----------------------------------------------------------------------------------------------------------------

template <int threads>
__global__ void __launch_bounds__(threads) convert_units(Stored from, Stored to, int64_t count) {
  GALLEY_SHARED(StepBooks, books, 1);
  fill_books(books);
  __syncthreads();
  const int64_t unit = (static_cast<int64_t>(blockIdx.x) * (threads / kStepWarp) + threadIdx.x / kStepWarp) * kStepUnit;
  if (unit >= count) return;  // a whole warp
  float numbers[kLaneNumbers];
  load_unit(from, *books, unit, count, numbers);
  store_unit(to, unit, count, numbers);
}

/// Steps alone (links = 1), or each followed by a copy (links = 2). `stored`: with operands in formats.
template <class Rule, size_t links, bool stored>
class ParameterSteps {
  static_assert(sdk::detail::check_rule<Rule>());

 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan&) {
    for (size_t i = 0; i < nodes.size(); i += links) {
      sdk::detail::check_step<Rule>(nodes[i], stored, Stored::takes);
      if constexpr (links > 1) sdk::detail::check_step_copy(nodes[i], nodes[i + 1]);
    }
  }
  ParameterSteps(const Nodes& nodes, const galley_kernel_setup&) {
    for (size_t i = 0; i < nodes.size(); i += links) {
      Step s(nodes[i]);
      if constexpr (links > 1) {
        const galley_operand& copy = nodes[i + 1].out(0);
        if constexpr (stored) {
          s.copy = Stored(copy);
        } else {
          s.copy = copy.data;
          s.copy_dtype = copy.dtype;
        }
      }
      steps_.add(s, blocks_of(s.count, kStepBlock));
    }
  }
  void run(galley_queue* queue) const {
    if constexpr (stored) steps_.launch(stored_steps<Rule>, kStepThreads, queue);
    else steps_.launch(parameter_steps<Rule>, kStepThreads, queue);
  }

 private:
  using Step = std::conditional_t<stored, StoredStep<Rule>, ParameterStep<Rule>>;
  Segments<Step> steps_;
};

}  // namespace detail

/// Copies n numbers from one way of lying to another.
inline void convert_stored(const Stored& from, const Stored& to, int64_t n, galley_queue* queue) {
  constexpr int threads = detail::kStepThreads, numbers = threads / detail::kStepWarp * detail::kStepUnit;
  launch(detail::convert_units<threads>, {blocks_of(n, numbers), threads}, queue, from, to, n);
}

/// Adds the kernels of `op`, whose inputs are those of sdk::StepInput and the rule's states.
template <class Rule>
bool add_step_kernels(const char* op, std::initializer_list<sdk::KnownOp> known = {}) {
  return sdk::detail::add_steps(op, kDevice, known, [](const char* name, const char* ops, auto links, auto stored) {
    return nodes_kernel<detail::ParameterSteps<Rule, links(), stored()>>(name, ops);
  });
}

}  // namespace galley::cuda
