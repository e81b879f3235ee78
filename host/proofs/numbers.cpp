#include "host/proofs/numbers.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

#include "host/exec/convert.hpp"
#include "host/graph/graph.hpp"
#include "host/plugins/abi.hpp"
#include "host/plugins/call.hpp"
#include "host/plugins/library.hpp"

namespace galley {
namespace {

constexpr double kF32 = 0x1p-24;
/// Roundings to F32 on the way that no operand's move shows: a largest score that is taken off, and sums of exponentials, whose roundings
/// add up where moves of the operands cancel. Attention over 256 keys of nearly equal weight came to 5.4 of them.
constexpr double kSteps = 16;

/// Of moves by a rounding of F32, and by one of 16 bit.
constexpr double kCondition = 32, kNarrowCondition = 2;
/// Sums up to here have room in these.
constexpr double kTerms = 256;
/// Sums of more than this may be of equal numbers, which are all rounded in one direction. So much room more is enough for some hundreds of them.
constexpr double kEqualTerms = 64, kMostEqual = 5;
/// Of a number after a format: the number itself, its code's, and the scale that a whole block of them shares.
constexpr double kCoded = 4;

double growth(int64_t terms) {
  const auto n = static_cast<double>(terms);
  return std::max({1.0, std::sqrt(n / kTerms), std::min(n / kEqualTerms, kMostEqual)});
}

/// Half of the distance between two numbers of a dtype, as a share of them. Kernels may compute what they write as F64 in F32.
double half_distance(uint32_t dtype) {
  switch (dtype) {
    case GALLEY_BF16: return 0x1p-8;
    case GALLEY_F16: return 0x1p-11;
    default: return kF32;
  }
}

double largest(uint32_t dtype) {
  switch (dtype) {
    case GALLEY_F16: return 65504;
    case GALLEY_BF16: return 0x1.fep127;
    case GALLEY_F32: return 0x1.fffffep127;
    default: return 1.7976931348623157e308;
  }
}

/// Below this the dtype has no more digits.
double tiny(uint32_t dtype) { return dtype == GALLEY_F16 ? 0x1p-24 : 0x1p-126; }

/// Up or down, by the pattern and the place.
double sign(int pattern, size_t input, size_t element) {
  uint64_t x = (static_cast<uint64_t>(pattern) << 56 ^ static_cast<uint64_t>(input) << 48 ^ element) + 0x9E3779B97F4A7C15ull;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ x >> 27) * 0x94D049BB133111EBull;
  return (x ^ x >> 31) & 1 ? 1 : -1;
}

void move(Numbers& numbers, double unit, int pattern, size_t input) {
  for (size_t i = 0; i < numbers.floats.size(); ++i) numbers.floats[i] *= 1 + unit * sign(pattern, input, i);
}

/// Of a row with fewer numbers, a few moves say little: a number that happens to move by nothing in all patterns, as one of a thousand
/// does, would have no room at all. Neighbours are then counted with it.
constexpr size_t kLeastRow = 16;

/// The root mean square of each row, or of so many whole rows that they have kLeastRow numbers.
std::vector<double> by_row(const std::vector<double>& values, int64_t columns) {
  std::vector<double> out(values.size());
  const auto row_width = static_cast<size_t>(std::max<int64_t>(columns, 1));
  const size_t width = (kLeastRow + row_width - 1) / row_width * row_width;
  for (size_t row = 0; row < values.size(); row += width) {
    double squares = 0;
    const size_t end = std::min(row + width, values.size());
    for (size_t i = row; i < end; ++i) squares += std::isfinite(values[i]) ? values[i] * values[i] : 0;
    std::fill(out.begin() + static_cast<std::ptrdiff_t>(row), out.begin() + static_cast<std::ptrdiff_t>(end),
              std::sqrt(squares / static_cast<double>(end - row)));
  }
  return out;
}

}  // namespace

Status call_reference(const LaunchNode& node, int64_t length, std::span<Numbers* const> inputs, std::span<Numbers* const> outputs) {
  std::vector<galley_operand> operands;
  operands.reserve(inputs.size() + outputs.size());
  const auto views = [&](std::span<Numbers* const> list, uint32_t access) {
    std::vector<const galley_operand*> out;
    for (Numbers* n : list) {
      if (!n) {
        out.push_back(nullptr);
        continue;
      }
      auto view = new_struct<galley_operand>();
      view.name = "";
      view.data = n->data();
      view.shape = n->shape.data();
      view.rank = static_cast<uint32_t>(n->shape.size());
      view.dtype = n->floating() ? GALLEY_F64 : n->dtype;
      view.access = access;
      out.push_back(&operands.emplace_back(view));
    }
    return out;
  };
  const auto in = views(inputs, GALLEY_READ), out = views(outputs, GALLEY_WRITE);
  const auto attrs = node.attrs.view();
  const galley_node_view view = node_view(node, length, in, out, attrs);
  const galley_op* const op = node.op;
  return call_plugin(
      caller_of(op, op->name), "reference", [&](galley_error* error) { return op->reference(op->self, &view, error); }, Phase::Run);
}

Numbers Numbers::of(uint32_t dtype, Shape shape) {
  Numbers out;
  out.dtype = dtype;
  out.shape = std::move(shape);
  if (is_floating(dtype)) out.floats.assign(static_cast<size_t>(out.count()), 0);
  else out.bytes.assign(static_cast<size_t>(out.count() * galley_dtype_bytes(dtype)), std::byte{0});
  return out;
}

Numbers Numbers::of(const Operand& operand) { return of(operand.dtype, operand.shape); }

Numbers Numbers::of(const Operand& operand, std::span<const std::byte> bytes) {
  Numbers out = of(operand);
  if (is_floating(operand.dtype)) convert(out.floats.data(), GALLEY_F64, bytes.data(), operand.dtype, out.count());
  else out.bytes.assign(bytes.begin(), bytes.end());
  return out;
}

namespace {

/// use(zero) with a zero of the integer dtype.
template <class Use>
auto with_integer(uint32_t dtype, const Use& use) {
  switch (dtype) {
    case GALLEY_I64: return use(int64_t{0});
    case GALLEY_U64: return use(uint64_t{0});
    case GALLEY_I32: return use(int32_t{0});
    case GALLEY_U32: return use(uint32_t{0});
    case GALLEY_I16: return use(int16_t{0});
    case GALLEY_U16: return use(uint16_t{0});
    case GALLEY_I8: return use(int8_t{0});
    default: return use(uint8_t{0});
  }
}

}  // namespace

double Numbers::at(int64_t i) const {
  if (floating()) return floats[static_cast<size_t>(i)];
  return with_integer(dtype, [&](auto number) {
    std::memcpy(&number, bytes.data() + static_cast<size_t>(i) * sizeof number, sizeof number);
    return static_cast<double>(number);
  });
}

void Numbers::set(const std::vector<double>& numbers) {
  if (floating()) {
    std::vector<std::byte> rounded(numbers.size() * static_cast<size_t>(galley_dtype_bytes(dtype)));
    convert(rounded.data(), dtype, numbers.data(), GALLEY_F64, count());
    convert(floats.data(), GALLEY_F64, rounded.data(), dtype, count());
    return;
  }
  for (size_t i = 0; i < numbers.size(); ++i)
    with_integer(dtype, [&](auto number) {
      number = static_cast<decltype(number)>(numbers[i]);
      std::memcpy(bytes.data() + i * sizeof number, &number, sizeof number);
      return 0;
    });
}

void Numbers::draw(double low, double high, std::mt19937_64& random) {
  std::vector<double> drawn(static_cast<size_t>(count()));
  for (double& x : drawn)
    x = is_floating(dtype)
            ? std::uniform_real_distribution(low, high)(random)
            : static_cast<double>(std::uniform_int_distribution<int64_t>(static_cast<int64_t>(low), static_cast<int64_t>(high))(random));
  if (!drawn.empty()) set(drawn);
}

Numbers Numbers::part(Shape in_shape, int64_t first, int64_t n) const {
  Numbers out = Numbers::of(dtype, std::move(in_shape));
  const int64_t size = floating() ? 0 : galley_dtype_bytes(dtype);
  if (floating()) std::copy_n(floats.begin() + first, n, out.floats.begin());
  else std::copy_n(bytes.begin() + first * size, n * size, out.bytes.begin());
  return out;
}

double unit_of(const Instruction& code, const LaunchNode& node) {
  double unit = kF32;
  for (size_t i = 0; i < node.inputs.count; ++i) {
    const galley_operand_rule* rule = input_rule(node.op, i);
    const Operand& o = code.inputs_of(node)[i];
    if (!rule || !o.given() || !is_floating(o.dtype)) continue;
    if (rule->flags & GALLEY_OPERAND_COMPUTE) unit = std::max(unit, half_distance(o.dtype));
    if (o.inner) unit = std::max(unit, half_distance(o.dtype));  // what lies between two links may be rounded, or not
  }
  const galley_attr* tf32 = node.attrs.find("tf32");
  return tf32 && unit <= kF32 ? 0x1p-11 : unit;
}

bool can_move(const Instruction& code) {
  return std::ranges::any_of(code.launch()->nodes, [&](const LaunchNode& node) {
    return std::ranges::any_of(code.inputs_of(node), [](const Operand& o) { return o.given() && is_floating(o.dtype); });
  });
}

int64_t terms_of(const Instruction& code, const LaunchNode& node, size_t k, bool output) {
  const galley_operand_rule* rule = output ? output_rule(node.op, k) : input_rule(node.op, k);
  const Operand& made = (output ? code.outputs_of(node) : code.inputs_of(node))[k];
  if (node.op->grain == GALLEY_GRAIN_ELEMENT) return 1;
  if (node.op->grain == GALLEY_GRAIN_BLOCK) return node.op->grain_block;
  int64_t most = 1;
  for (const Operand& o : code.inputs_of(node)) {
    if (!o.given()) continue;
    const int64_t count = elements(o.shape), columns = o.shape.empty() ? 1 : o.shape.back();
    most = std::max(most, columns);
    if (node.op->grain == GALLEY_GRAIN_ROW || !rule || rule->role == GALLEY_ROLE_ROWS || count == 0) continue;
    most = std::max({most, count / columns, count / std::max<int64_t>(elements(made.shape), 1)});
  }
  return most;
}

const galley_op* without_reference(const Launch& launch) {
  for (const LaunchNode& node : launch.nodes)
    if (!node.op->reference) return node.op;
  return nullptr;
}

namespace {

Result<Numbers> unpacked(const Instruction& code, const Operand& operand, int64_t length, std::vector<Numbers> components,
                         const galley_op* op) {
  const OperandFormat& format = *operand.format;
  if (!op || !op->reference) return plugin_error("format '" + format.name + "' has no op with a reference that unpacks it");
  std::vector<Numbers*> inputs;
  for (Numbers& n : components) inputs.push_back(&n);
  Numbers out = Numbers::of(operand);
  Numbers* const outputs[] = {&out};
  AttrList attrs = format.attrs;
  attrs.set("dtype", dtype_text(operand.dtype));
  TRY_STATUS(call_reference({code.name, op, attrs}, length, inputs, outputs));
  // What reads 16 bits reads them rounded, wherever they are unpacked.
  if (operand.dtype == GALLEY_BF16 || operand.dtype == GALLEY_F16) {
    std::vector<uint16_t> rounded(out.floats.size());
    convert(rounded.data(), operand.dtype, out.floats.data(), GALLEY_F64, out.count());
    convert(out.floats.data(), GALLEY_F64, rounded.data(), operand.dtype, out.count());
  }
  return out;
}

}  // namespace

Result<Numbers> unpacked(const Instruction& code, const Operand& operand, int64_t length, const Reading& read, const FindFormat& formats) {
  std::vector<Numbers> components;
  for (size_t k = 0; k < operand.format->count; ++k) components.push_back(TRY(read(code.inputs[operand.format->first + k])));
  return unpacked(code, operand, length, std::move(components), formats ? formats(operand.format->name).unpack : nullptr);
}

Result<Numbers> kept_of(const Instruction& code, const Operand& operand, int64_t length, Numbers numbers, const FindFormat& formats) {
  const FormatOps ops = formats ? formats(operand.format->name) : FormatOps();
  if (!ops.pack || !ops.pack->reference) return numbers;
  std::vector<Numbers> components;
  for (size_t k = 0; k < operand.format->count; ++k) components.push_back(Numbers::of(code.inputs[operand.format->first + k]));
  std::vector<Numbers*> outputs;
  for (Numbers& n : components) outputs.push_back(&n);
  Numbers* const inputs[] = {&numbers};
  TRY_STATUS(call_reference({code.name, ops.pack, operand.format->attrs}, length, inputs, outputs));
  return unpacked(code, operand, length, std::move(components), ops.unpack);
}

Result<std::vector<Made>> evaluate(const Instruction& code, int64_t length, const Reading& read, const FindFormat& formats, int moved) {
  std::vector<Made> out;
  std::map<uint32_t, Numbers> between;                        // without memory
  std::map<std::pair<TensorId, int64_t>, Numbers> in_memory;  // what a link has written that others read too
  size_t number = 0;
  for (const LaunchNode& node : code.launch()->nodes) {
    const double unit = unit_of(code, node);
    const std::span<const Operand> read_by = code.inputs_of(node), written_by = code.outputs_of(node);
    Made& made = out.emplace_back();
    std::vector<Numbers*> inputs, outputs;
    for (const Operand& o : read_by) {
      auto& numbers = made.inputs.emplace_back();
      if (o.inner) {
        const auto lost = between.find(o.inner);
        const auto kept = in_memory.find({o.tensor, o.offset});
        if (o.present() ? kept == in_memory.end() : lost == between.end())
          return plugin_error("nothing makes what lies between two links of '" + node.name + "'");
        numbers = o.present() ? kept->second : lost->second;
      } else if (o.format) {
        numbers = TRY(unpacked(code, o, length, read, formats));
      } else if (o.present()) {
        numbers = TRY(read(o));
      }
      if (numbers && moved) move(*numbers, unit, moved, number);
      ++number;
    }
    for (const Operand& o : written_by) {
      auto& numbers = made.outputs.emplace_back();
      if (o.present() || o.inner) numbers = Numbers::of(o);
    }
    for (auto& n : made.inputs) inputs.push_back(n ? &*n : nullptr);
    for (auto& n : made.outputs) outputs.push_back(n ? &*n : nullptr);
    TRY_STATUS(call_reference(node, length, inputs, outputs));
    if (code.launch()->links < 2) continue;
    const auto pass_on = [&](const Operand& o, const Numbers& numbers) {
      if (o.present()) in_memory[{o.tensor, o.offset}] = numbers;
      else if (o.inner) between[o.inner] = numbers;
    };
    for (size_t i = 0; i < read_by.size(); ++i)
      if (read_by[i].access & GALLEY_WRITE) pass_on(read_by[i], *made.inputs[i]);
    for (size_t k = 0; k < written_by.size(); ++k)
      if (made.outputs[k]) pass_on(written_by[k], *made.outputs[k]);
  }
  return out;
}

std::vector<double> bounds(uint32_t dtype, const Numbers& expected, std::span<const Numbers* const> moved, const Numbers* before,
                           Rounding rounding) {
  const auto count = static_cast<size_t>(expected.count());
  std::vector<double> moves(count, 0), out(count);
  for (const Numbers* m : moved)
    for (size_t i = 0; i < count; ++i) moves[i] = std::max(moves[i], std::fabs(m->floats[i] - expected.floats[i]));
  const int64_t columns = expected.shape.empty() ? 1 : expected.shape.back();
  const std::vector<double> row_moves = by_row(moves, columns), row_sizes = by_row(expected.floats, columns);
  const double g = growth(rounding.terms), round = half_distance(dtype);
  const double c = kCondition * g * kF32 / rounding.unit + (rounding.unit > kF32 ? kNarrowCondition : 0);
  for (size_t i = 0; i < count; ++i) {
    const double was = before ? std::fabs(before->floats[i]) : 0, is = expected.floats[i];
    out[i] = c * (moves[i] + row_moves[i]) + round * (std::fabs(before ? is + before->floats[i] : is) + was) +
             kSteps * g * kF32 * (row_sizes[i] + std::fabs(is) + was) + tiny(dtype);
  }
  return out;
}

std::string beyond(const Worst& worst) {
  char text[80] = "";
  if (worst.bound > 0 && std::isfinite(worst.share))
    std::snprintf(text, sizeof text, " ± %.2g, so the error is %.2g times its bound", worst.bound, worst.share);
  else if (worst.bound > 0) std::snprintf(text, sizeof text, " ± %.2g", worst.bound);
  return text;
}

Worst compare(const Numbers& got, const Numbers& expected, std::span<const Numbers* const> moved, const Numbers* before, Rounding rounding,
              std::span<const Numbers> kept) {
  Worst worst;
  const auto count = static_cast<size_t>(got.count());
  const auto note = [&](size_t i, double share, double bound) {
    if (share <= worst.share && worst.element >= 0) return;
    worst = {share, static_cast<int64_t>(i), got.at(static_cast<int64_t>(i)), expected.at(static_cast<int64_t>(i)), bound};
  };
  if (!got.floating()) {
    for (size_t i = 0; i < count; ++i) {
      const auto at = static_cast<int64_t>(i);
      double low = expected.at(at), high = low;
      for (const Numbers* m : moved) low = std::min(low, m->at(at)), high = std::max(high, m->at(at));
      if (got.at(at) < low || got.at(at) > high) note(i, INFINITY, 0);
    }
    return worst;
  }
  const std::vector<double> all = bounds(got.dtype, expected, moved, before, rounding);
  for (size_t i = 0; i < count; ++i) {
    const double wanted = expected.floats[i] + (before ? before->floats[i] : 0), is = got.floats[i];
    if (is == wanted || (std::isnan(is) && std::isnan(wanted))) continue;
    double bound = all[i];
    if (!kept.empty()) {
      double lost = 0;
      for (const Numbers& k : kept) lost = std::max(lost, std::fabs(k.floats[i] - expected.floats[i]));
      bound = kCoded * bound + lost;
    }
    if (!std::isfinite(is) || !std::isfinite(wanted) || !std::isfinite(bound)) {
      // Beyond the largest number of the dtype lies an infinity.
      const bool over = std::isfinite(wanted) && std::isinf(is) && std::fabs(wanted) + bound >= largest(got.dtype) && is * wanted > 0;
      const bool lost = !std::isfinite(wanted) && !std::isfinite(is);
      const bool near = std::isinf(wanted) && std::fabs(is) >= largest(got.dtype);
      if (!over && !lost && !near && std::isfinite(bound)) note(i, INFINITY, bound);
      continue;
    }
    note(i, std::fabs(is - wanted) / bound, bound);
  }
  return worst;
}

Expected expected_of(const Instruction& code, const std::vector<std::vector<Made>>& ways, size_t node, size_t k, bool output) {
  const auto numbers = [&](size_t way) { return &*(output ? ways[way][node].outputs : ways[way][node].inputs)[k]; };
  const Launch& launch = *code.launch();
  Expected out = {numbers(0), {}, {unit_of(code, launch.nodes[node]), terms_of(code, launch.nodes[node], k, output)}};
  for (size_t way = 1; way < ways.size(); ++way) out.moved.push_back(numbers(way));
  // In a chain, what one link rounds goes on to the next ones.
  if (launch.links > 1)
    for (const LaunchNode& other : launch.nodes) out.rounding.unit = std::max(out.rounding.unit, unit_of(code, other));
  return out;
}

Result<Worst> compare(const Instruction& code, const Operand& operand, int64_t length, const Numbers& got, const Expected& expected,
                      const Numbers* was, const FindFormat& formats) {
  std::vector<Numbers> kept;
  if (operand.format) {
    const std::vector<double> off = bounds(got.dtype, *expected.numbers, expected.moved, nullptr, expected.rounding);
    for (const double way : {0.0, 1.0, -1.0}) {
      Numbers shifted = *expected.numbers;
      for (size_t i = 0; i < off.size(); ++i)
        if (double& x = shifted.floats[i]; std::isfinite(off[i])) x += way * std::copysign(std::min(off[i], std::fabs(x)), x);
      kept.push_back(TRY(kept_of(code, operand, length, std::move(shifted), formats)));
    }
  }
  return compare(got, *expected.numbers, expected.moved, was, expected.rounding, kept);
}

}  // namespace galley
