#include <cstdio>
#include <set>

#include "host/base/json.hpp"
#include "host/proofs/reference.hpp"

namespace galley {

int64_t ReferenceReport::rules_held() const {
  int64_t sum = 0;
  for (const auto& [op, count] : rules) sum += count;
  return sum;
}

std::string ReferenceReport::text() const {
  int64_t outputs = 0, numbers = 0;
  const Count* worst = nullptr;
  std::set<std::string> ops;
  for (const auto& [key, count] : compared) {
    outputs += count.outputs;
    numbers += count.numbers;
    ops.insert(key.first);
    if (!worst || count.worst > worst->worst) worst = &count;
  }
  std::string text = "reference: " + std::to_string(outputs) + " outputs of " + std::to_string(ops.size()) + " ops, " +
                     std::to_string(numbers) + " numbers, " + std::to_string(copies) + " copies and " + std::to_string(files) +
                     " tensors of files are right";
  if (worst) {
    char share[32];
    std::snprintf(share, sizeof share, "%.2f", worst->worst);
    text += std::string("; the largest error is ") + share + " of its bound, in " + worst->at;
  }
  for (const auto& [op, n] : without) text += "; op '" + op + "' has no reference (" + std::to_string(n) + " times)";
  if (const int64_t held = rules_held(); held > 0) text += "; " + std::to_string(held) + " gradient rules are those of finite differences";
  else text += "; not covered: gradient rules, which `galley certify` and `galley check` hold";
  return text;
}

std::string ReferenceReport::json() const {
  const auto counts = [](const std::map<std::string, int64_t>& of) {
    Table out;
    for (const auto& [name, n] : of) out[name] = Value(n);
    return Value(std::move(out));
  };
  std::map<std::string, Table> ops;
  for (const auto& [key, count] : compared)
    ops[key.first][dtype_text(key.second)] = Value(Table{
        {"outputs", Value(count.outputs)}, {"numbers", Value(count.numbers)}, {"worst", Value(count.worst)}, {"at", Value(count.at)}});
  Table by_op;
  for (auto& [op, dtypes] : ops) by_op[op] = Value(std::move(dtypes));
  return to_json(Value(Table{{"copies", Value(copies)},
                             {"files", Value(files)},
                             {"segments", counts(segments)},
                             {"without", counts(without)},
                             {"ops", Value(std::move(by_op))}}),
                 1) +
         "\n";
}

}  // namespace galley
