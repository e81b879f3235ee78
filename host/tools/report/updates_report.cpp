#include "host/tools/report/updates_report.hpp"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "host/base/units.hpp"
#include "host/tools/report/columns.hpp"

namespace galley {
namespace {

/// Parameters of which the same holds.
struct Updates {
  std::string by;  ///< "": frozen
  int64_t parameters = 0, numbers = 0;
  std::vector<std::string> names;  ///< each kind once
};

void add(std::vector<Updates>& all, const std::string& by, const std::string& name, int64_t numbers) {
  auto at = std::find_if(all.begin(), all.end(), [&](const Updates& u) { return u.by == by; });
  if (at == all.end()) at = all.insert(all.end(), Updates{by, 0, 0, {}});
  ++at->parameters;
  at->numbers += numbers;
  const std::string kind = without_numbers(name);
  if (std::find(at->names.begin(), at->names.end(), kind) == at->names.end()) at->names.push_back(kind);
}

/// By updates, in the order of parameters; frozen ones last.
std::vector<Updates> updates_of(const Program& program) {
  std::vector<Updates> out;
  for (const Trained& t : program.trained)
    if (!t.updated_by.empty()) add(out, t.updated_by, t.name, t.count);
  if (out.empty()) return out;
  for (size_t i = 0; i < program.frozen_numbers.size(); ++i)
    if (const int64_t numbers = program.frozen_numbers[i])
      add(out, "", program.tensors[static_cast<size_t>(program.frozen[i])].name, numbers);
  return out;
}

/// Bytes of gradients and of states that a number which is trained has, on average.
std::pair<double, double> bytes_a_number(const Program& program) {
  double numbers = 0, gradients = 0, states = 0;
  for (const Trained& t : program.trained) {
    numbers += static_cast<double>(t.count);
    if (t.gradient != no_tensor) gradients += static_cast<double>(program.tensors[static_cast<size_t>(t.gradient)].bytes);
  }
  for (const ProgramTensor& t : program.tensors)
    if (t.owner == Owner::States) states += static_cast<double>(t.bytes);
  return {gradients / std::max(numbers, 1.0), states / std::max(numbers, 1.0)};
}

/// Returns as many names as fit into a line.
std::string names_text(const std::vector<std::string>& all, int columns) {
  std::string names;
  size_t shown = 0;
  for (const std::string& name : all) {
    if (shown && names.size() + name.size() + 20 > static_cast<size_t>(std::max(columns, 60))) break;
    names += (shown++ ? ", " : "") + name;
  }
  if (shown < all.size()) names += " and " + std::to_string(all.size() - shown) + " more";
  return names;
}

/// What one strategy saves in one file of its own.
struct Besides {
  std::string made_by, file;
  int64_t parameters = 0, numbers = 0, bytes = 0;
  std::vector<std::string> names;  ///< each kind once
};

std::vector<Besides> beside_the_model(const Program& program) {
  std::vector<Besides> out;
  for (const Apart& a : program.apart) {
    auto at = std::find_if(out.begin(), out.end(), [&](const Besides& p) { return p.made_by == a.made_by && p.file == a.file; });
    if (at == out.end()) at = out.insert(at, {a.made_by, a.file, 0, 0, 0, {}});
    ++at->parameters;
    at->numbers += a.count;
    at->bytes += a.bytes;
    const std::string kind = without_numbers(a.name);
    if (std::find(at->names.begin(), at->names.end(), kind) == at->names.end()) at->names.push_back(kind);
  }
  return out;
}

}  // namespace

std::string without_numbers(const std::string& name) {
  std::string out;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t dot = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, dot - begin);
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    out += (begin ? "." : "") + (number ? "*" : part);
    begin = dot + 1;
  }
  return out;
}

std::string apart_text(const Program& program, int columns) {
  std::string out;
  for (const Besides& p : beside_the_model(program))
    out += "    " + p.made_by + ": " + count_text(static_cast<double>(p.numbers)) + " parameters in " + std::to_string(p.parameters) +
           (p.parameters == 1 ? " tensor, " : " tensors, ") + bytes_text(p.bytes) + ", in " + p.file + "\n      " +
           names_text(p.names, columns) + "\n";
  return out.empty() ? out : "  beside the model\n" + out + "\n";
}

Value apart_json(const Program& program) {
  List out;
  for (const Besides& p : beside_the_model(program)) {
    List names;
    for (const std::string& name : p.names) names.emplace_back(name);
    out.emplace_back(Table{{"by", Value(p.made_by)},
                           {"file", Value(p.file)},
                           {"parameters", Value(p.parameters)},
                           {"numbers", Value(p.numbers)},
                           {"bytes", Value(p.bytes)},
                           {"names", Value(std::move(names))}});
  }
  return Value(std::move(out));
}

std::string updates_text(const Program& program, int columns) {
  std::string out;
  const std::vector<Updates> all = updates_of(program);
  size_t width = 40;
  for (const Updates& u : all) width = std::max(width, display_width(u.by));
  width = std::min(width, static_cast<size_t>(std::max(columns - 40, 40)));
  for (const Updates& u : all) {
    char head[256];
    std::snprintf(head, sizeof head, "    %s %10s in %lld tensor%s", left_in(u.by.empty() ? "frozen" : u.by, width).c_str(),
                  count_text(static_cast<double>(u.numbers)).c_str(), static_cast<long long>(u.parameters), u.parameters == 1 ? "" : "s");
    out += head;
    if (u.by.empty()) {
      const auto [gradients, states] = bytes_a_number(program);
      const auto saved = [&](double bytes) { return bytes_text(static_cast<int64_t>(bytes * static_cast<double>(u.numbers))); };
      out += "; trained, they would take " + saved(gradients) + " of gradients and " + saved(states) + " of states";
    }
    out += "\n      " + names_text(u.names, columns) + "\n";
  }
  return out.empty() ? out : "  updates\n" + out + "\n";
}

std::string formats_text(const Program& program, int columns) {
  std::string out;
  for (const InFormat& s : program.in_formats) {
    char line[256];
    std::snprintf(line, sizeof line, "    %s %8s in %lld tensor%s, %s, %.3g bits each\n",
                  left_in(s.format, static_cast<size_t>(std::clamp(columns - 56, 24, 40))).c_str(),
                  count_text(static_cast<double>(s.count)).c_str(), static_cast<long long>(s.tensors), s.tensors == 1 ? "" : "s",
                  bytes_text(s.bytes).c_str(), 8 * static_cast<double>(s.bytes) / static_cast<double>(std::max<int64_t>(s.count, 1)));
    out += line;
  }
  return out.empty() ? out : "  stored in formats\n" + out + "\n";
}

Value updates_json(const Program& program) {
  List out;
  for (const Updates& u : updates_of(program)) {
    List names;
    for (const std::string& name : u.names) names.emplace_back(name);
    out.emplace_back(Table{{"by", u.by.empty() ? Value() : Value(u.by)},
                           {"parameters", Value(u.parameters)},
                           {"numbers", Value(u.numbers)},
                           {"names", Value(std::move(names))}});
  }
  return Value(std::move(out));
}

}  // namespace galley
