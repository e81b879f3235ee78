#include "host/plan/target.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include <toml++/toml.h>

#include "host/base/file.hpp"
#include "host/base/json.hpp"
#include "host/base/nearest.hpp"

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

/// One table of the file: takes keys, remembers the first thing that is wrong.
class Reader {
 public:
  Reader(const toml::table& table, std::string_view origin) : table_(table), origin_(origin) {}

  void take(const char* key, std::string& out) {
    take<std::string>(key, "a string", out, [](const std::string& text) { return text.empty() ? "must not be empty" : ""; });
  }
  void take(const char* key, bool& out) {
    take<bool>(key, "true or false", out, [](bool) { return ""; });
  }
  void take(const char* key, int64_t& out, int64_t least, int64_t most = INT64_MAX) {
    take<int64_t>(key, "an integer", out, [&](int64_t n) -> std::string {
      if (n < least) return least == 0 ? "must not be negative" : "must be positive";
      return n > most ? "must be at most " + std::to_string(most) : "";
    });
  }
  void take(const char* key, double& out) {
    names_.emplace_back(key);
    const toml::node* node = table_.get(key);
    if (!node) return;
    const auto value = node->is_number() ? node->value<double>() : std::nullopt;
    if (!value) return fail(*node, std::string("'") + key + "' must be a number");
    if (!(*value > 0) || *value > 1e30) return fail(*node, std::string("'") + key + "' must be positive");
    out = *value;
  }
  /// The key is read by somebody else.
  const toml::node* leave(const char* key) {
    names_.emplace_back(key);
    return table_.get(key);
  }
  void fail(const toml::node& where, std::string what, std::string hint = {}) {
    fail(where.source().begin.line, std::move(what), std::move(hint));
  }

  /// After all takes: an error of one of them, or a key that none has taken.
  Status finish() {
    for (const auto& [key, node] : table_) {
      const std::string name(key.str());
      if (std::find(names_.begin(), names_.end(), name) == names_.end())
        fail(key.source().begin.line, "unknown key '" + name + "'", did_you_mean(name, names_));
    }
    if (error_) return *std::move(error_);
    return ok();
  }

 private:
  template <class T, class Check>
  void take(const char* key, const char* kind, T& out, Check&& check) {
    names_.emplace_back(key);
    const toml::node* node = table_.get(key);
    if (!node) return;
    const auto value = node->value_exact<T>();
    if (!value) return fail(*node, std::string("'") + key + "' must be " + kind);
    if (const std::string wrong = check(*value); !wrong.empty()) return fail(*node, std::string("'") + key + "' " + wrong);
    out = *value;
  }
  void fail(uint32_t line, std::string what, std::string hint) {
    if (error_ && line_ <= line) return;  // the first in the file
    line_ = line;
    error_ = recipe_error(origin_ + ":" + std::to_string(line) + ": " + std::move(what), std::move(hint));
  }

  const toml::table& table_;
  std::string origin_;
  std::vector<std::string> names_;
  std::optional<Error> error_;
  uint32_t line_ = 0;
};

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
  Reader reader(root, origin);
  reader.take("device", base.device);
  if (const auto* isa = reader.leave("isa")) {  // may be empty
    if (isa->is_string()) base.isa = **isa->as_string();
    else reader.fail(*isa, "'isa' must be a string");
  }
  reader.take("threads", base.threads, 1, kMostThreads);
  reader.take("workspace_budget", base.workspace_budget, 0);
  reader.take("peak_flops", base.peak_flops);
  reader.take("bandwidth", base.bandwidth);
  reader.take("link_bandwidth", base.link_bandwidth);
  reader.take("memory_limit", base.memory_limit, 0);
  int64_t queues = base.queues;
  reader.take("queues", queues, 1, 64);
  base.queues = static_cast<uint32_t>(queues);
  const toml::node* memories = reader.leave("memory");
  const toml::array* list = memories ? memories->as_array() : nullptr;
  if (memories && (!list || list->empty() || !list->is_homogeneous(toml::node_type::table)))
    reader.fail(*memories, "'memory' must be tables, [[memory]]");
  TRY_STATUS(reader.finish());
  if (!list) return base;

  base.memories.clear();
  for (const toml::node& entry : *list) {
    Reader table(*entry.as_table(), origin);
    MemoryClass memory;
    table.take("name", memory.name);
    table.take("alignment", memory.alignment, 1);
    if (!is_power_of_two(memory.alignment))
      table.fail(*entry.as_table()->get("alignment"), "'alignment' must be a power of two, not " + std::to_string(memory.alignment));
    table.take("host_access", memory.host_access);
    table.take("computes", memory.computes);
    TRY_STATUS(table.finish());
    if (memory.name.empty())
      return recipe_error(std::string(origin) + ":" + std::to_string(entry.source().begin.line) + ": [[memory]] has no 'name'");
    base.memories.push_back(std::move(memory));
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
