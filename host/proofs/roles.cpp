#include "host/proofs/roles.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "galley/op.h"

namespace galley {
namespace {

/// Rows [first, first + n) of an operand that has `rows`, in the shape that nodes of parts have.
Numbers part_of(const galley_operand_rule& rule, const Numbers& x, int64_t rows, int64_t first, int64_t n) {
  const int64_t width = x.count() / rows;
  Numbers out = Numbers::of(x.dtype, rule.flags & GALLEY_OPERAND_SAME_ROWS ? Shape{n} : Shape{n, width});
  for (int64_t i = 0; i < n * width; ++i) {
    const auto from = static_cast<size_t>(first * width + i), to = static_cast<size_t>(i);
    if (x.floating()) out.floats[to] = x.floats[from];
    else {
      const auto bytes = static_cast<size_t>(galley_dtype_bytes(x.dtype));
      std::copy_n(x.bytes.begin() + static_cast<std::ptrdiff_t>(from * bytes), bytes,
                  out.bytes.begin() + static_cast<std::ptrdiff_t>(to * bytes));
    }
  }
  return out;
}

/// The largest difference of two lists, as a share of the second's largest number; where it is goes to `element`.
double far(const std::vector<double>& parts, const std::vector<double>& all, size_t* element) {
  double most = 0, size = 1e-300;
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::isfinite(all[i])) size = std::max(size, std::fabs(all[i]));
    const bool same = parts[i] == all[i] || (std::isnan(parts[i]) && std::isnan(all[i]));
    const double difference = same ? 0 : std::isfinite(parts[i] - all[i]) ? std::fabs(parts[i] - all[i]) : HUGE_VAL;
    if (difference > most) most = difference, *element = i;
  }
  return most / size;
}

std::vector<double> numbers_of(const Numbers& x) {
  std::vector<double> out(static_cast<size_t>(x.count()));
  for (size_t i = 0; i < out.size(); ++i) out[i] = x.at(static_cast<int64_t>(i));
  return out;
}

/// What parts give of an output: its rows one after the other, or the sum.
struct Joined {
  std::vector<double> numbers;
  void take(const Numbers& part, bool by_rows) {
    const std::vector<double> of = numbers_of(part);
    if (by_rows || numbers.empty()) return void(numbers.insert(numbers.end(), of.begin(), of.end()));
    for (size_t i = 0; i < std::min(of.size(), numbers.size()); ++i) numbers[i] += of[i];
  }
};

}  // namespace

Result<RoleCheck> check_roles(const LoneNode& node, const Values& outputs, const OpLookup& ops) {
  const galley_op& op = *node.op;
  RoleCheck out;
  int64_t rows = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (const galley_operand_rule& rule = *input_rule(&op, i); node.inputs[i] && rule.role == GALLEY_ROLE_ROWS)
      rows = rows_of(rule, node.inputs[i]->shape);
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i] && op.outputs[i]->role == GALLEY_ROLE_WHOLE) return out;
  if (rows < 2) return out;

  std::vector<Joined> joined(outputs.size());
  const int64_t cuts[] = {0, 1, 1 + (rows - 1) / 2, rows};
  for (size_t cut = 0; cut + 1 < std::size(cuts); ++cut) {
    const int64_t first = cuts[cut], n = cuts[cut + 1] - first;
    if (n == 0) continue;
    LoneNode part = node;
    part.first_row += first;
    for (size_t i = 0; i < part.inputs.size(); ++i)
      if (const galley_operand_rule& rule = *input_rule(&op, i); part.inputs[i] && rule.role == GALLEY_ROLE_ROWS)
        part.inputs[i] = part_of(rule, *node.inputs[i], rows, first, n);
    const Result<Values> made = outputs_of(part, ops);
    if (!made) {
      out.faults.push_back(
          {"", HUGE_VAL, "of rows " + std::to_string(first) + " to " + std::to_string(first + n - 1) + ": " + made.error().cause});
      return out;
    }
    for (size_t i = 0; i < outputs.size(); ++i)
      if (outputs[i] && (*made)[i]) joined[i].take(*(*made)[i], op.outputs[i]->role == GALLEY_ROLE_ROWS);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i]) continue;
    const std::vector<double> all = numbers_of(*outputs[i]);
    const std::string output = "output " + std::to_string(i) + " ('" + op.outputs[i]->name + "')";
    out.rows.emplace_back(op.outputs[i]->name);
    if (joined[i].numbers.size() != all.size()) {
      out.faults.push_back(
          {output, HUGE_VAL,
           "parts of the rows have " + std::to_string(joined[i].numbers.size()) + " numbers, all of them " + std::to_string(all.size())});
      continue;
    }
    size_t element = 0;
    const double share = far(joined[i].numbers, all, &element);
    constexpr double most = 1e-9;  // sums in double precision, in another order
    if (!(share > most)) continue;
    char text[160];
    std::snprintf(text, sizeof text, "element %zu is %.7g when the rows are computed in three parts, and %.7g when all are at once",
                  element, joined[i].numbers[element], all[element]);
    out.faults.push_back({output, share, text});
  }
  return out;
}

}  // namespace galley
