#include "host/plan/target.hpp"

#include <array>
#include <charconv>
#include <map>
#include <utility>

#include <toml++/toml.h>

#include "host/base/file.hpp"
#include "host/base/json.hpp"
#include "host/base/option_reader.hpp"
#include "host/base/toml.hpp"

namespace galley {
namespace {

bool is_power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

/// More than machines have; a run has to start as many.
constexpr int64_t kMostThreads = 1024;

/// What is wrong with the target as a whole, or "".
std::string problem(const Target& target) {
  if (target.device.empty()) return "no device";
  if (target.memories.empty()) return "no memory class";
  if (!target.memories[0].computes) return "memory class 0, '" + target.memories[0].name + "', does not compute";
  for (size_t i = 0; i < target.memories.size(); ++i) {
    const MemoryClass& memory = target.memories[i];
    if (memory.name.empty()) return "memory class " + std::to_string(i) + " has no name";
    if (!is_power_of_two(memory.alignment))
      return "memory class '" + memory.name + "': alignment " + std::to_string(memory.alignment) + " is not a power of two";
    for (size_t j = 0; j < i; ++j)
      if (target.memories[j].name == memory.name) return "two memory classes are called '" + memory.name + "'";
  }
  return {};
}

/// A table of the file as options, and where they stand.
struct Keys {
  Table values;
  OptionContext context;

  Keys(const toml::table& table, std::string_view origin, std::string owner) : context{.place = {}, .owner = std::move(owner)} {
    std::map<std::string, int> lines;
    for (const auto& [key, node] : table) {
      values[std::string(key.str())] = toml_value(node);
      lines[std::string(key.str())] = static_cast<int>(key.source().begin.line);
    }
    const Place whole = {std::string(origin), static_cast<int>(table.source().begin.line)};
    context.place = [lines = std::move(lines), whole](const std::string& name) {
      const auto line = lines.find(name);
      return line == lines.end() ? whole : Place{whole.file, line->second};
    };
  }
};

Result<MemoryClass> read_memory(const OptionReader& reader) {
  TRY_STATUS(reader.only({"name", "alignment", "host_access", "computes"}));
  MemoryClass memory;
  memory.name = TRY(reader.text("name")).value_or("");
  if (memory.name.empty()) return reader.missing("name", "name = \"spill\"");
  memory.alignment = TRY(reader.integer("alignment", 1)).value_or(memory.alignment);
  if (!is_power_of_two(memory.alignment)) return reader.wrong("alignment", "a power of two");
  memory.host_access = TRY(reader.boolean("host_access")).value_or(memory.host_access);
  memory.computes = TRY(reader.boolean("computes")).value_or(memory.computes);
  return memory;
}

std::string number_text(double value) {
  std::array<char, 32> buffer;
  std::string text(buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

}  // namespace

galley_target Target::view() const {
  galley_target out = {};
  out.size = static_cast<uint32_t>(sizeof(galley_target));
  out.revision = 1;
  out.device = device.c_str();
  out.isa = isa.c_str();
  out.threads = threads;
  out.workspace_budget = workspace_budget;
  out.peak_flops = peak_flops;
  out.bandwidth = bandwidth;
  out.link_bandwidth = link_bandwidth;
  return out;
}

Result<Target> describe_target(const galley_device& device) {
  const std::string name = device.kind ? device.kind : "";
  Target target;
  target.device = name;
  galley_target described = target.view();  // what the device leaves alone stays as it is
  galley_error error = GALLEY_ERROR_INIT;
  if (device.describe(&described, &error) != GALLEY_OK) {
    error.text[sizeof(error.text) - 1] = 0;
    return plugin_error("device '" + name + "' cannot describe this machine: " + error.text);
  }
  // A device may run another one's kernels: then its target says which.
  const std::string kernels = described.device ? described.device : name;
  target.device = kernels;
  target.isa = described.isa ? described.isa : "";
  target.threads = described.threads;
  target.workspace_budget = described.workspace_budget;
  target.peak_flops = described.peak_flops;
  target.bandwidth = described.bandwidth;
  target.link_bandwidth = described.link_bandwidth;
  target.queues = device.n_queues;
  for (uint32_t i = 0; i < device.n_memories; ++i) {
    const galley_memory_class& memory = *device.memories[i];
    target.memories.push_back({memory.name ? memory.name : "", memory.alignment, memory.host_access != 0, memory.computes != 0});
  }
  std::string wrong = problem(target);
  if (wrong.empty() && target.threads < 1) wrong = std::to_string(target.threads) + " threads";
  if (wrong.empty() && target.queues < 1) wrong = "no queue";
  if (wrong.empty() && target.workspace_budget < 0) wrong = "a workspace budget of " + std::to_string(target.workspace_budget) + " bytes";
  if (wrong.empty() && !(target.peak_flops > 0 && target.bandwidth > 0 && target.link_bandwidth > 0))
    wrong = "a speed that is not positive";
  if (!wrong.empty()) return plugin_error("device '" + name + "' describes this machine with " + wrong);
  return target;
}

Result<Target> parse_target(std::string_view text, std::string_view origin, Target base) {
  const toml::parse_result parsed = toml::parse(text, origin);
  if (!parsed)
    return recipe_error(std::string(origin) + ":" + std::to_string(parsed.error().source().begin.line) + ": " +
                        std::string(parsed.error().description()));
  const toml::table& root = parsed.table();
  const Keys keys(root, origin, "the target");
  const OptionReader reader(keys.values, keys.context);
  TRY_STATUS(reader.only(
      {"device", "isa", "threads", "workspace_budget", "peak_flops", "bandwidth", "link_bandwidth", "memory_limit", "queues", "memory"}));
  base.device = TRY(reader.text("device")).value_or(base.device);
  if (base.device.empty()) return reader.wrong("device", "the name of a device");
  base.isa = TRY(reader.text("isa")).value_or(base.isa);  // may be empty
  base.threads = TRY(reader.integer("threads", 1, kMostThreads)).value_or(base.threads);
  base.workspace_budget = TRY(reader.integer("workspace_budget", 0)).value_or(base.workspace_budget);
  const Range speed = {0, 1e30, true, false};
  base.peak_flops = TRY(reader.number("peak_flops", speed)).value_or(base.peak_flops);
  base.bandwidth = TRY(reader.number("bandwidth", speed)).value_or(base.bandwidth);
  base.link_bandwidth = TRY(reader.number("link_bandwidth", speed)).value_or(base.link_bandwidth);
  base.memory_limit = TRY(reader.integer("memory_limit", 0)).value_or(base.memory_limit);
  base.queues = static_cast<uint32_t>(TRY(reader.integer("queues", 1, 64)).value_or(base.queues));
  const toml::node* memories = root.get("memory");
  if (!memories) return base;
  const toml::array* list = memories->as_array();
  if (!list || list->empty() || !list->is_homogeneous(toml::node_type::table))
    return reader.error("memory", "'memory' must be tables, [[memory]]");
  base.memories.clear();
  for (const toml::node& entry : *list) {
    const Keys entries(*entry.as_table(), origin, "[[memory]]");
    base.memories.push_back(TRY(read_memory(OptionReader(entries.values, entries.context))));
  }
  if (const std::string wrong = problem(base); !wrong.empty())
    return recipe_error(std::string(origin) + ":" + std::to_string(list->source().begin.line) + ": " + wrong);
  return base;
}

Result<Target> read_target(const std::filesystem::path& path, Target base) {
  const Result<std::string> text = read_text(path, 1u << 20);
  if (!text) return recipe_error(text.error().cause, text.error().hint);
  return parse_target(*text, path.string(), std::move(base));
}

std::string target_toml(const Target& target) {
  std::string out;
  auto line = [&](const char* key, const std::string& value) { out += std::string(key) + " = " + value + "\n"; };
  auto flag = [](bool value) { return value ? "true" : "false"; };
  line("device", json_quote(target.device));  // TOML's basic strings escape as JSON's do
  line("isa", json_quote(target.isa));
  line("threads", std::to_string(target.threads));
  line("workspace_budget", std::to_string(target.workspace_budget));
  line("peak_flops", number_text(target.peak_flops));
  line("bandwidth", number_text(target.bandwidth));
  line("link_bandwidth", number_text(target.link_bandwidth));
  line("queues", std::to_string(target.queues));
  line("memory_limit", std::to_string(target.memory_limit));
  for (const MemoryClass& memory : target.memories) {
    out += "\n[[memory]]\n";
    line("name", json_quote(memory.name));
    line("alignment", std::to_string(memory.alignment));
    line("host_access", flag(memory.host_access));
    line("computes", flag(memory.computes));
  }
  return out;
}

}  // namespace galley
