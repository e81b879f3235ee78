// Computes an instruction as its ops define it: by their references, in double precision, on numbers of any dtype.
//
// How far a kernel may be from its reference: it takes its operands as they are, but rounds on the way to its results. So the reference is
// evaluated again on operands that are each moved by a rounding unit of the dtype that the node computes in, up or down, in
// `kMoved` fixed patterns: how far a result moves then is its condition. A product that cancels, a norm of small numbers and an update near
// zero get the room that they need and no more. With m the largest move of an element, and M the root mean square of its row's moves (of
// several rows, where one has fewer than 16 numbers),
//
//   bound = c · (m + M) + r · (|expected| + |what it is added to|) + 16f · g · (|expected| + |what it is added to| + size of the row),
//
// where r is the rounding of the dtype that is written and f the unit of F32: kernels compute in F32. c is 32g for a node that computes in
// F32, and 2 (and 32g units of F32) for one in 16 bit.
//
// g is for sums. A kernel may add n numbers one after the other, and each addition rounds what the sum has come to. If their signs are
// mixed, that comes to √(n/6) units of the root of the sum of their squares, and in the worst of a million results to five times that; a
// move of their factors is 1.4 of this root, whatever n is. If they have one sign, or are few beside what they are added to, it comes to
// √n/3 units of the sum. So beyond 256 numbers the bound grows as √n: g = √(n/256). But where a text repeats a token, the numbers of its rows
// are equal, and all are rounded in one direction: of 256 rows, of which most were dashes, that came to 40 units of the sum. So g is at least
// n/64, up to 5: enough for some hundreds of equal numbers, and TF32 still shows in a sum of a thousand. How many numbers a result may be a
// sum of is what the op says (terms_of()). A sum in several parts, as most kernels make it, is rounded less.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "host/base/result.hpp"
#include "host/plan/program.hpp"

namespace galley {

inline constexpr int kMoved = 3;

/// The numbers of an operand: floating ones as doubles, others as they are.
struct Numbers {
  uint32_t dtype = GALLEY_F32;
  Shape shape;
  std::vector<double> floats;
  std::vector<std::byte> bytes;

  static Numbers of(const Operand& operand);       ///< zeros
  static Numbers of(uint32_t dtype, Shape shape);  ///< zeros
  static Numbers of(const Operand& operand, std::span<const std::byte> bytes);
  bool floating() const { return !floats.empty() || bytes.empty(); }
  int64_t count() const { return elements(shape); }
  void* data() { return floating() ? static_cast<void*>(floats.data()) : bytes.data(); }
  /// Returns element i as a number, whatever its dtype.
  double at(int64_t i) const;
  /// Sets all numbers, floating ones rounded to the dtype.
  void set(const std::vector<double>& numbers);
  /// Draws all numbers from [low, high]: whole ones where the dtype is of whole numbers.
  void draw(double low, double high, std::mt19937_64& random);
  /// Returns numbers [first, first + n), in this shape.
  Numbers part(Shape in_shape, int64_t first, int64_t n) const;
};

/// Calls the reference of a node's op on these operands; null for an absent one.
Status call_reference(const LaunchNode& node, int64_t length, std::span<Numbers* const> inputs, std::span<Numbers* const> outputs);

/// What the nodes of an instruction make, by node: outputs, and inputs that they update.
struct Made {
  std::vector<std::optional<Numbers>> inputs, outputs;
};

/// Returns what an instruction reads: the numbers of an operand that has memory.
using Reading = std::function<Result<Numbers>(const Operand&)>;
/// The ops of a format whose operands kernels read and write as they are stored. Null if there is no such op, or none that always rounds to
/// the nearest.
struct FormatOps {
  const galley_op *pack = nullptr, *unpack = nullptr;
};
using FindFormat = std::function<FormatOps(const std::string& format)>;

/// Returns the first op of the launch without a reference; null if all have one.
const galley_op* without_reference(const Launch& launch);

/// Returns whether moved operands can make a difference: whether a floating one is read.
bool can_move(const Instruction& code);
/// Evaluates all nodes of an instruction, one after the other. `moved`: 0, or the pattern in which operands are moved, 1 to kMoved.
Result<std::vector<Made>> evaluate(const Instruction& code, int64_t length, const Reading& read, const FindFormat& formats, int moved);
/// Returns the numbers of an operand in a format.
Result<Numbers> unpacked(const Instruction& code, const Operand& operand, int64_t length, const Reading& read, const FindFormat& formats);
/// Returns what the operand's format keeps of numbers; the numbers themselves if it has no op that says so.
Result<Numbers> kept_of(const Instruction& code, const Operand& operand, int64_t length, Numbers numbers, const FindFormat& formats);

/// The largest error, as a share of its bound, and where it is.
struct Worst {
  double share = 0;
  int64_t element = -1;
  double got = 0, expected = 0, bound = 0;
};
/// " ± 2e-07, so the error is 31 times its bound"; nothing of a number that has to be equal.
std::string beyond(const Worst& worst);

/// Says how a node rounds: in which unit, and how many numbers its result may be a sum of.
struct Rounding {
  double unit = 0;
  int64_t terms = 1;
};

/// Returns by how much each number of this dtype may be off from the reference's numbers: `expected` for operands as they are, `moved` for
/// moved ones. `before` is what they are added to; null if they are written.
std::vector<double> bounds(uint32_t dtype, const Numbers& expected, std::span<const Numbers* const> moved, const Numbers* before,
                           Rounding rounding);
/// Compares numbers with those of the reference. If `got` has gone through a format, `kept` is what the format keeps of `expected` and of
/// numbers as far away as the bounds let them be: the code of a number that is off is the nearest one to it, and so is the scale that a
/// block shares.
Worst compare(const Numbers& got, const Numbers& expected, std::span<const Numbers* const> moved, const Numbers* before, Rounding rounding,
              std::span<const Numbers> kept = {});

/// What references say of an operand that a node of an instruction has written.
struct Expected {
  const Numbers* numbers;
  std::vector<const Numbers*> moved;
  Rounding rounding;
};
/// `ways`: of evaluate(), by `moved`. `node`: its number in the instruction, of which operand `k`, an output or an updated input, is meant.
Expected expected_of(const Instruction& code, const std::vector<std::vector<Made>>& ways, size_t node, size_t k, bool output);
/// Compares an operand with that. `got`: its numbers, whatever its format. `was`: what has been added to; null if it is written.
Result<Worst> compare(const Instruction& code, const Operand& operand, int64_t length, const Numbers& got, const Expected& expected,
                      const Numbers* was, const FindFormat& formats);

/// Returns the unit in which a node rounds what it computes: that of its operands in COMPUTE, else that of F32.
double unit_of(const Instruction& code, const LaunchNode& node);
/// Returns the most numbers that a number of operand `k`, an output or an updated input, can be a sum of.
int64_t terms_of(const Instruction& code, const LaunchNode& node, size_t k, bool output);

}  // namespace galley
