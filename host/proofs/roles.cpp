#include "host/proofs/roles.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "galley/op.h"

namespace galley {
namespace {

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

/// The rule of an operand that the node writes; null: it does not. Outputs after inputs.
const galley_operand_rule* written(const LoneNode& node, const Made& all, size_t k) {
  const size_t n = node.inputs.size();
  if (k >= n) return all.outputs[k - n] ? output_rule(node.op, k - n) : nullptr;
  return node.inputs[k] && updates_input(node.op, k) ? input_rule(node.op, k) : nullptr;
}
const Numbers& numbers_of(const Made& made, size_t k) {
  return k < made.inputs.size() ? *made.inputs[k] : *made.outputs[k - made.inputs.size()];
}
std::string operand_text(const LoneNode& node, size_t k, const char* name) {
  const size_t n = node.inputs.size();
  return (k < n ? "input " + std::to_string(k) : "output " + std::to_string(k - n)) + " ('" + name + "')";
}

/// Cuts what is by rows into parts [cuts[i], cuts[i + 1]) of `what`, by shape_of(rule, x, n), and compares.
template <class ShapeOf>
Result<RoleCheck> check_parts(const LoneNode& node, const Made& all, const OpLookup& ops, const std::vector<int64_t>& cuts,
                              const std::string& what, const ShapeOf& shape_of) {
  const galley_op& op = *node.op;
  const size_t operands = all.inputs.size() + all.outputs.size();
  RoleCheck out;
  std::vector<Joined> joined(operands);
  const int64_t whole = cuts.back();
  for (size_t cut = 0; cut + 1 < cuts.size(); ++cut) {
    const int64_t first = cuts[cut], n = cuts[cut + 1] - first;
    if (n == 0) continue;
    LoneNode part = node;
    part.first_row += first;
    for (size_t i = 0; i < part.inputs.size(); ++i)
      if (const galley_operand_rule& rule = *input_rule(&op, i); part.inputs[i] && rule.role == GALLEY_ROLE_ROWS) {
        const int64_t width = node.inputs[i]->count() / whole;
        part.inputs[i] = node.inputs[i]->part(shape_of(rule, *node.inputs[i], n), first * width, n * width);
      }
    const Result<Made> made = made_by(part, ops);
    if (!made) {
      out.faults.push_back(
          {"", HUGE_VAL, "of " + what + " " + std::to_string(first) + " to " + std::to_string(first + n - 1) + ": " + made.error().cause});
      return out;
    }
    for (size_t k = 0; k < operands; ++k)
      if (const galley_operand_rule* rule = written(node, all, k)) joined[k].take(numbers_of(*made, k), rule->role == GALLEY_ROLE_ROWS);
  }
  for (size_t k = 0; k < operands; ++k) {
    const galley_operand_rule* rule = written(node, all, k);
    if (!rule) continue;
    const std::vector<double> is = numbers_of(numbers_of(all, k));
    const std::string operand = operand_text(node, k, rule->name);
    out.cut.emplace_back(rule->name);
    if (joined[k].numbers.size() != is.size()) {
      out.faults.push_back({operand, HUGE_VAL,
                            "parts of the " + what + " have " + std::to_string(joined[k].numbers.size()) + " numbers, all of them " +
                                std::to_string(is.size())});
      continue;
    }
    size_t element = 0;
    const double share = far(joined[k].numbers, is, &element);
    constexpr double most = 1e-9;  // sums in double precision, in another order
    if (!(share > most)) continue;
    char text[160];
    std::snprintf(text, sizeof text, "element %zu is %.7g when the %s are computed in three parts, and %.7g when all are at once", element,
                  joined[k].numbers[element], what.c_str(), is[element]);
    out.faults.push_back({operand, share, text});
  }
  return out;
}

/// Whether everything that the node writes is by rows or summed over them.
bool is_cut(const LoneNode& node, const Made& all) {
  bool any = false;
  for (size_t k = 0; k < all.inputs.size() + all.outputs.size(); ++k)
    if (const galley_operand_rule* rule = written(node, all, k)) {
      if (rule->role == GALLEY_ROLE_WHOLE) return false;
      any = true;
    }
  return any;
}

}  // namespace

Result<RoleCheck> check_roles(const LoneNode& node, const Made& all, const OpLookup& ops) {
  int64_t rows = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (const galley_operand_rule& rule = *input_rule(node.op, i); node.inputs[i] && rule.role == GALLEY_ROLE_ROWS)
      rows = rows_of(rule, node.inputs[i]->shape);
  if (rows < 2 || !is_cut(node, all)) return RoleCheck();
  return check_parts(node, all, ops, {0, 1, 1 + (rows - 1) / 2, rows}, "rows",
                     [&](const galley_operand_rule& rule, const Numbers& x, int64_t n) {
                       return rule.flags & GALLEY_OPERAND_SAME_ROWS ? Shape{n} : Shape{n, x.count() / rows};
                     });
}

Result<RoleCheck> check_grain(const LoneNode& node, const Made& all, const OpLookup& ops) {
  const galley_op& op = *node.op;
  if ((op.grain != GALLEY_GRAIN_ELEMENT && op.grain != GALLEY_GRAIN_BLOCK) || !is_cut(node, all)) return RoleCheck();
  int64_t count = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (node.inputs[i] && input_rule(&op, i)->role == GALLEY_ROLE_ROWS) {
      if (count > 0 && node.inputs[i]->count() != count) return RoleCheck();  // scales of blocks, which are cut otherwise
      count = node.inputs[i]->count();
    }
  const int64_t grain = op.grain == GALLEY_GRAIN_BLOCK ? std::max<int64_t>(op.grain_block, 1) : 1;
  const int64_t first = grain, second = count / grain / 2 * grain;
  if (second <= first || second >= count) return RoleCheck();
  return check_parts(node, all, ops, {0, first, second, count}, "elements",
                     [](const galley_operand_rule&, const Numbers&, int64_t n) { return Shape{n}; });
}

}  // namespace galley
