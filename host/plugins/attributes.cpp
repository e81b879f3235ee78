#include "host/plugins/attributes.hpp"

#include <algorithm>
#include <cstdio>

#include "host/base/nearest.hpp"

namespace galley {
namespace {

constexpr galley_attr_rule hosts(const char* name, uint32_t type, const char* summary, uint64_t flags = 0) {
  return {sizeof(galley_attr_rule), 1, name, type, 0, flags, nullptr, summary};
}
constexpr galley_attr_rule dtype = hosts("dtype", GALLEY_ATTR_STRING, "in which outputs of any dtype are written");
constexpr galley_attr_rule tf32 = hosts("tf32", GALLEY_ATTR_I64, "1: products of F32 may be made in TF32", GALLEY_ATTR_ADVICE);
constexpr galley_attr_rule stream = hosts("stream", GALLEY_ATTR_STRING, "keys random numbers in the place of the node's name");
constexpr galley_attr_rule seed = hosts("seed", GALLEY_ATTR_I64, "the run's");
constexpr galley_attr_rule axis = hosts("axis", GALLEY_ATTR_STRING, "the axis of ranks along which it exchanges", GALLEY_ATTR_REQUIRED);

const char* type_name(uint32_t type) {
  constexpr const char* names[] = {"nothing", "I64", "F64", "string"};
  return names[type <= GALLEY_ATTR_STRING ? type : 0];
}

}  // namespace

std::vector<const galley_attr_rule*> attr_rules(const galley_op& op) {
  std::vector<const galley_attr_rule*> out(op.attrs, op.attrs + op.n_attrs);
  const auto add = [&](bool holds, const galley_attr_rule& rule) {
    const bool own = std::any_of(out.begin(), out.end(), [&](const auto* r) { return galley_same_text(r->name, rule.name); });
    if (holds && !own) out.push_back(&rule);
  };
  const bool any = std::any_of(op.outputs, op.outputs + op.n_outputs, [](const auto* r) { return r->flags & GALLEY_OPERAND_ANY_DTYPE; });
  add(any, dtype);
  add(op.flags & GALLEY_OP_LOW, tf32);
  const bool draws = std::any_of(op.inputs, op.inputs + op.n_inputs, [](const auto* r) { return galley_same_text(r->name, "random"); });
  add(draws || op.n_inputs == 0, stream);
  add(op.n_inputs == 0, seed);
  add(op.flags & GALLEY_OP_EXCHANGE, axis);
  return out;
}

std::string attrs_problem(const galley_op& op, std::span<const galley_attr* const> attrs) {
  const std::vector<const galley_attr_rule*> rules = attr_rules(op);
  for (const galley_attr* attr : attrs) {
    const auto at = std::ranges::find_if(rules, [&](const auto* rule) { return galley_same_text(rule->name, attr->name); });
    if (at == rules.end()) {
      std::vector<std::string> names;
      for (const galley_attr_rule* rule : rules) names.emplace_back(rule->name);
      const std::string guess = did_you_mean(attr->name, names);
      return std::string(op.name) + " has no attribute '" + attr->name + "'" + (guess.empty() ? "" : ": " + guess);
    }
    const galley_attr_rule& rule = **at;
    const bool counts = rule.flags & GALLEY_ATTR_LIST || rule.type == GALLEY_ATTR_STRING || attr->count == 1;
    const bool same = attr->type == rule.type || (rule.type == GALLEY_ATTR_F64 && attr->type == GALLEY_ATTR_I64);
    if (!same || !counts)
      return std::string(op.name) + ": the attribute '" + attr->name + "' is " + (same ? std::to_string(attr->count) + " × " : "") +
             type_name(attr->type) + ", and the op declares " + attr_type_text(rule);
  }
  for (const galley_attr_rule* rule : rules)
    if (rule->flags & GALLEY_ATTR_REQUIRED &&
        std::none_of(attrs.begin(), attrs.end(), [&](const galley_attr* attr) { return galley_same_text(attr->name, rule->name); }))
      return std::string(op.name) + ": the attribute '" + rule->name + "' is missing";
  return {};
}

std::string attr_type_text(const galley_attr_rule& rule) {
  return std::string(type_name(rule.type)) + (rule.flags & GALLEY_ATTR_LIST ? "s" : "");
}

std::string attr_text(const galley_attr& a) {
  if (a.type == GALLEY_ATTR_STRING) return std::string(static_cast<const char*>(a.data), a.count);
  std::string out;
  char text[32];
  for (uint64_t i = 0; i < a.count; ++i) {
    if (a.type == GALLEY_ATTR_F64) std::snprintf(text, sizeof text, "%.9g", static_cast<const double*>(a.data)[i]);
    else std::snprintf(text, sizeof text, "%lld", static_cast<long long>(static_cast<const int64_t*>(a.data)[i]));
    out += (i ? "," : "") + std::string(text);
  }
  return out;
}

}  // namespace galley
