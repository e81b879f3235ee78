// `galley plugins --json`: what plugins provide, for programs: options of strategies, contracts of ops.
#include <cstdio>

#include "host/base/json.hpp"
#include "host/plugins/attributes.hpp"
#include "host/tools/report/listing.hpp"

namespace galley {
namespace {

struct NamedFlag {
  uint64_t flag;
  const char* name;
};

List names_of(uint64_t flags, std::initializer_list<NamedFlag> all) {
  List out;
  for (const NamedFlag& named : all)
    if (flags & named.flag) out.emplace_back(std::string(named.name));
  return out;
}

Value text_or_nil(const char* text) { return text ? Value(std::string(text)) : Value(); }

Value operand(const galley_operand_rule& rule) {
  constexpr const char* roles[] = {"whole", "rows", "reduced"};
  Table out;
  out["name"] = std::string(rule.name);
  out["role"] = std::string(roles[rule.role]);
  out["flags"] = names_of(rule.flags, {{GALLEY_OPERAND_OPTIONAL, "optional"},
                                       {GALLEY_OPERAND_INOUT, "inout"},
                                       {GALLEY_OPERAND_ACCUMULATES, "accumulates"},
                                       {GALLEY_OPERAND_VARIADIC, "variadic"},
                                       {GALLEY_OPERAND_NO_GRADIENT, "no_gradient"},
                                       {GALLEY_OPERAND_SAME_ROWS, "same_rows"},
                                       {GALLEY_OPERAND_COMPUTE, "compute"},
                                       {GALLEY_OPERAND_ANY_DTYPE, "any_dtype"}});
  if (rule.alias >= 0) out["alias"] = int64_t{rule.alias};
  if (rule.summary) out["summary"] = std::string(rule.summary);
  return out;
}

Value operands(const galley_operand_rule* const* rules, uint32_t n) {
  List out;
  for (uint32_t i = 0; i < n; ++i) out.push_back(operand(*rules[i]));
  return out;
}

Value attribute(const galley_attr_rule& rule) {
  Table out;
  out["name"] = std::string(rule.name);
  out["type"] = attr_type_text(rule);
  out["required"] = (rule.flags & GALLEY_ATTR_REQUIRED) != 0;
  if (rule.flags & GALLEY_ATTR_STOPS) out["stops_gradient"] = true;
  out["default"] = rule.otherwise ? Value(attr_text(*rule.otherwise)) : Value();
  out["summary"] = text_or_nil(rule.summary);
  return out;
}

Value contract(const galley_op& op) {
  constexpr const char* grains[] = {"none", "element", "block", "row", "tensor"};
  Table out;
  out["name"] = std::string(op.name);
  out["summary"] = text_or_nil(op.summary);
  out["inputs"] = operands(op.inputs, op.n_inputs);
  out["outputs"] = operands(op.outputs, op.n_outputs);
  List attributes;
  for (const galley_attr_rule* rule : attr_rules(op)) attributes.push_back(attribute(*rule));
  out["attributes"] = std::move(attributes);
  out["flags"] = names_of(op.flags, {{GALLEY_OP_RANDOM, "random"},
                                     {GALLEY_OP_TRAINING_ONLY, "training_only"},
                                     {GALLEY_OP_LOSS, "loss"},
                                     {GALLEY_OP_LINEAR, "linear"},
                                     {GALLEY_OP_LOW, "low"},
                                     {GALLEY_OP_PRIVATE, "private"},
                                     {GALLEY_OP_EXCHANGE, "exchange"},
                                     {GALLEY_OP_ROUNDS, "rounds"},
                                     {GALLEY_OP_LOAD_ON_HOST, "load_on_host"},
                                     {GALLEY_OP_FULL, "full"}});
  out["grain"] = std::string(grains[op.grain]);
  if (op.grain == GALLEY_GRAIN_BLOCK) out["grain_block"] = op.grain_block;
  out["gradient"] = op.gradient != nullptr;
  return out;
}

Value format(const galley_format& f) {
  Table out;
  out["name"] = std::string(f.name);
  if (f.pack_op) out["pack_op"] = std::string(f.pack_op);
  out["unpack_op"] = std::string(f.unpack_op);
  out["exact"] = (f.flags & GALLEY_FORMAT_EXACT) != 0;
  out["trainable"] = (f.flags & GALLEY_FORMAT_TRAINABLE) != 0;
  out["flags"] =
      names_of(f.flags, {{GALLEY_FORMAT_STOCHASTIC, "stochastic"}, {GALLEY_FORMAT_PLAIN, "plain"}, {GALLEY_FORMAT_ROUNDED, "rounded"}});
  return out;
}

Value option(const OptionSpec& o) {
  Table out;
  out["name"] = o.name;
  out["type"] = option_type_names()[static_cast<size_t>(o.type)];
  out["takes"] = o.expects();
  out["required"] = o.required;
  out["default"] = o.fallback;
  out["schedule"] = o.schedule;
  out["summary"] = o.description;
  List fields;
  for (const OptionSpec& field : o.fields) fields.push_back(option(field));
  if (!fields.empty()) out["fields"] = std::move(fields);
  return out;
}

Value strategy(const StrategySpec& s) {
  Table out;
  out["name"] = s.name;
  out["summary"] = s.summary;
  out["source"] = s.source;
  out["exactness"] = std::string(exactness_name(s.exactness));
  if (const std::string against = s.against.text(); !against.empty()) out["against"] = against;
  List options;
  for (const OptionSpec& o : s.options) options.push_back(option(o));
  out["options"] = std::move(options);
  return out;
}

}  // namespace

Status print_plugins_json(Plugins& plugins, const std::string& name) {
  List all;
  for (const auto& p : plugins.all()) {
    const Manifest& manifest = p->manifest;
    if (!name.empty() && manifest.id != name && !manifest.strategy(name)) continue;
    TRY_STATUS(plugins.load(*p));
    Table out;
    out["id"] = manifest.id;
    out["version"] = manifest.version;
    out["summary"] = manifest.summary;
    out["folder"] = manifest.folder().string();
    List strategies, sources, ops, formats;
    for (const StrategySpec& s : manifest.sources) {
      Table source = {{"name", Value("data." + s.name)}, {"summary", Value(s.summary)}};
      List options;
      for (const OptionSpec& o : s.options) options.push_back(option(o));
      source["options"] = std::move(options);
      sources.push_back(std::move(source));
    }
    for (const StrategySpec& s : manifest.strategies) strategies.push_back(strategy(s));
    for (const galley_op* op : p->library->ops) ops.push_back(contract(*op));
    for (const galley_format* f : p->library->formats) formats.push_back(format(*f));
    out["strategies"] = std::move(strategies);
    if (!sources.empty()) out["sources"] = std::move(sources);
    out["ops"] = std::move(ops);
    out["formats"] = std::move(formats);
    all.push_back(std::move(out));
  }
  std::printf("%s\n", to_json(Value(std::move(all)), 2).c_str());
  return ok();
}

}  // namespace galley
