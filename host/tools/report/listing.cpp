#include "host/tools/report/listing.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <vector>

#include "host/base/nearest.hpp"
#include "host/graph/graph.hpp"
#include "host/plan/target.hpp"
#include "host/plugins/abi.hpp"
#include "host/plugins/attributes.hpp"
#include "host/plugins/loader.hpp"
#include "host/recipe/declared.hpp"
#include "host/session/study.hpp"
#include "host/tokens/data_options.hpp"
#include "host/tools/report/terminal.hpp"

namespace galley {
namespace {

const char* exactness_text(Exactness e) {
  switch (e) {
    case Exactness::Bits: return "exact to the bit";
    case Exactness::Rounding: return "exact to rounding";
    case Exactness::Approximate: return "approximate";
  }
  return "";
}

/// Each option with what it does, what it takes and its default.
void print_options(const std::vector<OptionSpec>& options, int indent = 4) {
  size_t width = 0;
  for (const OptionSpec& o : options) width = std::max(width, o.name.size());
  for (const OptionSpec& o : options) {
    const std::string fallback = o.required ? "required" : o.fallback.is_nil() ? "optional" : "default " + value_text(o.fallback);
    const int name = static_cast<int>(width);
    print_lines("%*s%-*s  %s\n%*s%-*s  %s; %s\n", indent, "", name, o.name.c_str(), o.description.c_str(), indent, "", name, "",
                o.expects().c_str(), fallback.c_str());
    print_options(o.fields, indent + name + 2);
  }
}

void print_strategy(const Plugin& plugin, const StrategySpec& s) {
  print_lines("%s - %s\n", s.name.c_str(), s.summary.c_str());
  if (!s.source.empty()) print_lines("  source     %s\n", s.source.c_str());
  print_lines("  result     %s\n", exactness_text(s.exactness));
  for (const MeasuredLoss& loss : s.losses) {
    std::string when;
    for (const auto& [option, any] : loss.when) when += (when.empty() ? ", with " : ", ") + option + " = " + value_text(any.front());
    print_lines("  measured   a loss higher by %g nats%s\n", loss.nats, when.c_str());
  }
  if (const std::string against = s.against.text(); !against.empty()) print_lines("  against    %s\n", against.c_str());
  print_lines("  plugin     %s %s, %s\n", plugin.manifest.id.c_str(), plugin.manifest.version.c_str(), plugin.manifest.folder().c_str());
  if (s.options.empty()) return;
  print_lines("\n  use \"%s\" { … }\n", s.name.c_str());
  print_options(s.options);
  print_lines("\n");
}

void print_source(const Plugin& plugin, const StrategySpec& s) {
  print_lines("data.%s - %s\n  plugin     %s %s, %s\n", s.name.c_str(), s.summary.c_str(), plugin.manifest.id.c_str(),
              plugin.manifest.version.c_str(), plugin.manifest.folder().c_str());
  if (s.options.empty()) return;
  print_lines("\n  data = data.%s { … }\n", s.name.c_str());
  print_options(s.options);
  print_lines("\n");
}

void print_operands(const char* title, const galley_operand_rule* const* rules, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) {
    const galley_operand_rule& r = *rules[i];
    std::string traits = r.role == GALLEY_ROLE_ROWS ? "by rows" : r.role == GALLEY_ROLE_REDUCED ? "summed over rows" : "whole";
    if (r.flags & GALLEY_OPERAND_OPTIONAL) traits += ", optional";
    if (r.flags & GALLEY_OPERAND_VARIADIC) traits += ", any number";
    if (r.flags & GALLEY_OPERAND_INOUT) traits += ", updated in place";
    if (r.flags & GALLEY_OPERAND_ACCUMULATES) traits += ", may be added to";
    if (r.flags & GALLEY_OPERAND_NO_GRADIENT) traits += ", no gradient";
    print_lines("    %-6s %u  %-18s %s%s%s\n", title, i, r.name, traits.c_str(), r.summary ? "; " : "", r.summary ? r.summary : "");
  }
}

void print_attributes(const galley_op& op) {
  for (const galley_attr_rule* rule : attr_rules(op)) {
    std::string traits = attr_type_text(*rule);
    if (rule->flags & GALLEY_ATTR_REQUIRED) traits += ", required";
    if (rule->otherwise) traits += ", default " + attr_text(*rule->otherwise);
    print_lines("    attribute  %-18s %s%s%s\n", rule->name, traits.c_str(), rule->summary ? "; " : "", rule->summary ? rule->summary : "");
  }
}

/// The priority that a kernel answers with for the first example of its op that it takes.
std::string priority_of(const galley_op& op, const Registered<galley_kernel>& kernel, const Target& target) {
  const TargetView view(target);
  for (uint32_t c = 0; c < op.n_cases; ++c) {
    auto node = read_struct(*op.cases[c]->node);
    // An example has inputs; its outputs come from the shape rule.
    const Result<std::vector<galley_shape>> inferred = infer_shapes(&op, &node);
    if (!inferred) continue;
    const std::vector<galley_shape>& shapes = *inferred;
    std::vector<galley_operand> operands(op.n_outputs, new_struct<galley_operand>());
    std::vector<const galley_operand*> outputs;
    auto plan = new_struct<galley_kernel_plan>();
    const Status asked = call_plugin(kernel.caller(), "query", [&](galley_error* error) {
      for (uint32_t i = 0; i < op.n_outputs; ++i) {
        operands[i].name = op.outputs[i]->name;
        operands[i].shape = shapes[i].extents;
        operands[i].rank = shapes[i].rank;
        operands[i].dtype = shapes[i].dtype;
        operands[i].access = GALLEY_WRITE;
        outputs.push_back(shapes[i].dtype ? &operands[i] : nullptr);
      }
      node.outputs = outputs.data();
      node.n_outputs = op.n_outputs;
      const galley_node_view* nodes[] = {&node};
      return kernel.table->query(kernel.table->self, nodes, 1, view.get(), &plan, error);
    });
    if (asked.ok()) return ", priority " + std::to_string(plan.priority);
  }
  return "";
}

/// What authors of other plugins ask: which ops there are, what they take, and which kernels do them on the processor.
void print_ops(Plugins& plugins, const Plugin& plugin, const Target& target) {
  if (plugin.library->ops.empty()) return;
  print_lines("  ops\n");
  for (const galley_op* op : plugin.library->ops) {
    print_lines("\n  %s  %s\n", op->name, op->summary ? op->summary : "");
    print_operands("input", op->inputs, op->n_inputs);
    print_operands("output", op->outputs, op->n_outputs);
    print_attributes(*op);
    for (const auto& kernel : plugins.kernels(op->name, "cpu", target.isa))
      print_lines("    kernel %s of plugin %s%s\n", kernel.table->name, kernel.plugin->manifest.id.c_str(),
                  priority_of(*op, kernel, target).c_str());
  }
  print_lines("\n");
}

/// Kernels that stand beside no op above: of chains, and of other plugins' ops; for the processor, and what the library itself has.
void print_kernels(Plugins& plugins, const Plugin& plugin, const Target& target) {
  std::set<std::string> own;
  for (const galley_op* op : plugin.library->ops) own.insert(op->name);
  plugins.chains("cpu", target.isa);  // opens its kernels for the processor
  std::set<std::string> lines;
  const auto list = [&](const Library* library) {
    if (!library) return;
    for (const galley_kernel* kernel : library->kernels)
      if (!own.contains(kernel->op))
        lines.insert("    " + std::string(kernel->name) + "  " + kernel->op + ", device " + kernel->device +
                     (kernel->flags & GALLEY_KERNEL_GROUPS ? ", takes groups" : "") +
                     (kernel->flags & GALLEY_KERNEL_FORMATS ? ", reads formats" : ""));
  };
  list(plugin.library);
  for (const auto& [device, opened] : plugin.kernels) list(opened.library);
  if (!lines.empty()) print_lines("  kernels of chains (op>op) and of other plugins' ops\n");
  for (const std::string& line : lines) print_lines("%s\n", line.c_str());
  if (!plugin.manifest.kernel_libraries.empty()) print_lines("  libraries of kernels\n");
  for (const KernelLibrary& library : plugin.manifest.kernel_libraries)
    print_lines("    %s  device %s%s%s\n", library.library.c_str(), library.device.c_str(), library.isa.empty() ? "" : ", ",
                library.isa.c_str());
}

/// What is declared, as people call it.
struct Named {
  std::string name;
  std::string what;   ///< "a schedule"
  const char* title;  ///< over all that are such
  Declared declared;
};

/// Galley's own kinds of data, and those of the plugins that come with it.
std::vector<Declared> kinds_of_data() {
  std::vector<Declared> out = declared_data();
  const std::filesystem::path built_in[] = {find_installation().plugins};
  const auto plugins = Plugins::scan(built_in, [](const std::string&) {});
  for (const auto& plugin : plugins->all())
    for (const StrategySpec& s : plugin->manifest.sources)
      out.push_back({s.name, "data = data." + s.name + (s.options.empty() ? " { }" : " { … }"), s.summary, s.options});
  std::ranges::sort(out, {}, &Declared::name);
  return out;
}

std::vector<Named> declared_names() {
  std::vector<Named> out = {{"recipe", "the recipe itself", "Entries of a recipe", declared_recipe()},
                            {"model", "an entry of a recipe", "Entries of a recipe", declared_model()},
                            {"validate", "an entry of a recipe", "Entries of a recipe", declared_validate()},
                            {"evaluate", "an entry of a recipe", "Entries of a recipe", declared_evaluate()},
                            {"save", "an entry of a recipe", "Entries of a recipe", declared_save()},
                            {"compare", "several recipes in one", "Entries of a recipe", declared_compare()},
                            {"budget", "an entry of a comparison", "Entries of a recipe", declared_budget()}};
  for (const Declared& one : kinds_of_data()) out.push_back({"data." + one.name, "a kind of data", "Data", one});
  for (const Declared& one : declared_schedules()) out.push_back({one.name, "a schedule", "Schedules", one});
  return out;
}

}  // namespace

Status print_plugins(const std::vector<std::filesystem::path>& plugin_path, const std::string& name, bool json) {
  const std::filesystem::path built_in[] = {find_installation().plugins};
  const auto plugins = Plugins::scan(plugin_search_path(built_in, plugin_path), {});
  if (plugins->all().empty())
    return run_error("there is no plugin in '" + built_in[0].string() + "' and none elsewhere: Galley can do nothing without them",
                     "keep the program beside its folder 'plugins', or give --plugin-path");
  if (json) return print_plugins_json(*plugins, name);
  if (name.empty()) {
    int width = 0;
    for (const auto& p : plugins->all()) {
      width = std::max(width, static_cast<int>(p->manifest.id.size()));
      for (const StrategySpec& s : p->manifest.strategies) width = std::max(width, static_cast<int>(s.name.size()));
      for (const StrategySpec& s : p->manifest.sources) width = std::max(width, static_cast<int>(s.name.size() + 5));
    }
    print_lines("%-*s  %-8s %s\n", width, "strategy", "version", "what it does");
    for (const auto& p : plugins->all())
      for (const StrategySpec& s : p->manifest.strategies)
        print_lines("%-*s  %-8s %s\n", width, s.name.c_str(), p->manifest.version.c_str(), s.summary.c_str());
    const char* title = "data";
    for (const auto& p : plugins->all())
      for (const StrategySpec& s : p->manifest.sources) {
        if (title) print_lines("\n%-*s  %-8s %s\n", width, title, "version", "what it is");
        title = nullptr;
        print_lines("%-*s  %-8s %s\n", width, ("data." + s.name).c_str(), p->manifest.version.c_str(), s.summary.c_str());
      }
    print_lines("\n%-*s  %-8s %s\n", width, "plugin", "version", "folder");
    for (const auto& p : plugins->all())
      print_lines("%-*s  %-8s %s\n", width, p->manifest.id.c_str(), p->manifest.version.c_str(), p->manifest.folder().c_str());
    print_lines("\ngalley plugins NAME shows the options of a strategy, and the ops and kernels of a plugin.\n");
    return ok();
  }
  std::vector<std::string> names;
  bool found = false;
  for (const auto& p : plugins->all()) {
    names.push_back(p->manifest.id);
    for (const StrategySpec& s : p->manifest.strategies) {
      names.push_back(s.name);
      if (s.name != name && p->manifest.id != name) continue;
      print_strategy(*p, s);
      found = true;
    }
    for (const StrategySpec& s : p->manifest.sources) {
      names.push_back("data." + s.name);
      if ("data." + s.name != name && p->manifest.id != name) continue;
      print_source(*p, s);
      found = true;
    }
    if (p->manifest.id == name && !found) {
      print_lines("%s %s - %s\n  folder     %s\n", p->manifest.id.c_str(), p->manifest.version.c_str(), p->manifest.summary.c_str(),
                  p->manifest.folder().c_str());
      found = true;
    }
    if (p->manifest.id == name) {
      TRY_STATUS(plugins->load(*p));
      const Registered<galley_device> device = plugins->device("cpu");
      const Target target = device ? TRY(describe_target(*device.table)) : Target();
      print_ops(*plugins, *p, target);
      print_kernels(*plugins, *p, target);
    }
  }
  if (found) return ok();
  for (const Named& one : declared_names())
    if (one.name == name)
      return recipe_error("'" + name + "' is " + one.what + " and no plugin or strategy", "galley recipe " + name + " shows what it takes");
  return recipe_error("no plugin or strategy '" + name + "'", did_you_mean(name, names));
}

Status print_recipe(const std::string& name) {
  const std::vector<Named> all = declared_names();
  const char* title = "";
  bool found = false;
  for (const Named& one : all) {
    if (!name.empty() && one.name != name) continue;
    if (name.empty() && std::string_view(title) != one.title) print_lines("%s%s\n\n", found ? "\n" : "", title = one.title);
    print_lines("  %s - %s\n    %s\n", one.name.c_str(), one.declared.summary.c_str(), one.declared.written.c_str());
    if (!one.declared.options.empty()) print_lines("\n");
    print_options(one.declared.options);
    print_lines("\n");
    found = true;
  }
  if (name.empty())
    print_lines(
        "An option that may be a schedule takes one of these, or a function of the step (from 1) and the number of steps that returns a "
        "number.\narg(NAME, DEFAULT) is set by --set NAME=VALUE. galley plugins NAME shows the options of a strategy.\n");
  if (found) return ok();
  std::vector<std::string> names;
  names.reserve(std::size(all));
  for (const Named& one : all) names.push_back(one.name);
  const std::string near = did_you_mean(name, names);
  return recipe_error("a recipe has no '" + name + "'", near.empty() ? "galley recipe lists all; strategies: galley plugins" : near);
}

}  // namespace galley
