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
#include "host/plugins/abi.hpp"
#include "host/plugins/call.hpp"
#include "host/plugins/library.hpp"

namespace galley {
namespace {

bool is_power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

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
    if (memory.capacity < 0) return "memory class '" + memory.name + "' has a capacity of " + std::to_string(memory.capacity) + " bytes";
    if (!(memory.in_bandwidth > 0 && memory.out_bandwidth > 0))
      return "memory class '" + memory.name + "' has a bandwidth that is not positive";
    for (size_t j = 0; j < i; ++j)
      if (target.memories[j].name == memory.name) return "two memory classes are called '" + memory.name + "'";
  }
  if (target.peaks.empty()) return "no peak";
  for (const Peak& peak : target.peaks)
    if (!(peak.flops > 0)) return "a peak of '" + peak.name + "' that is not positive";
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
  void take(const char* key, int64_t& out, int64_t least) {
    take<int64_t>(key, "an integer", out,
                  [&](int64_t n) { return n < least ? least == 0 ? "must not be negative" : "must be positive" : ""; });
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

/// A number of F32, or a table by arithmetic.
void take_peaks(Reader& reader, Target* out) {
  const toml::node* node = reader.leave("peak_flops");
  if (!node) return;
  const auto peak = [&](std::string name, const toml::node& value) {
    const auto number = value.is_number() ? value.value<double>() : std::nullopt;
    const std::string what = name == "f32" && &value == node ? "'peak_flops'" : "'peak_flops." + name + "'";
    if (!number) return reader.fail(value, what + " must be a number");
    if (!(*number > 0) || *number > 1e30) return reader.fail(value, what + " must be positive");
    out->peaks.push_back({std::move(name), *number});
  };
  const toml::table* table = node->as_table();
  if (table && table->empty()) return reader.fail(*node, "'peak_flops' must not be empty");
  out->peaks.clear();
  if (!table) return peak("f32", *node);
  for (const auto& [name, value] : *table) peak(std::string(name.str()), value);  // in the order of their names
}

void take_libraries(Reader& reader, Target* out) {
  const toml::node* node = reader.leave("libraries");
  if (!node) return;
  const toml::table* table = node->as_table();
  if (!table) return reader.fail(*node, "'libraries' must be a table of versions: { cublaslt = \"13.0\" }");
  out->libraries.clear();
  for (const auto& [name, value] : *table) {
    if (!value.is_string()) return reader.fail(value, "'libraries." + std::string(name.str()) + "' must be a string");
    out->libraries.push_back({std::string(name.str()), **value.as_string()});
  }
}

std::string number_text(double value) {
  std::array<char, 32> buffer;
  std::string text(buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

}  // namespace

double Target::peak_flops(std::string_view arithmetic) const {
  const Peak* f32 = nullptr;
  for (const Peak& peak : peaks) {
    if (peak.name == arithmetic) return peak.flops;
    if (peak.name == "f32") f32 = &peak;
  }
  return f32 ? f32->flops : 1e11;
}

TargetView::TargetView(const Target& target) : view_(new_struct<galley_target>()) {
  for (const Peak& peak : target.peaks) {
    auto& out = peaks_.emplace_back(new_struct<galley_peak>());
    out.name = peak.name.c_str();
    out.flops = peak.flops;
  }
  for (const MemoryClass& memory : target.memories) {
    auto& out = memories_.emplace_back(new_struct<galley_target_memory>());
    out.name = memory.name.c_str();
    out.capacity = memory.capacity;
    out.in_bandwidth = memory.in_bandwidth;
    out.out_bandwidth = memory.out_bandwidth;
  }
  for (const LibraryVersion& library : target.libraries) {
    auto& out = libraries_.emplace_back(new_struct<galley_library>());
    out.name = library.name.c_str();
    out.version = library.version.c_str();
  }
  for (const auto& peak : peaks_) peak_pointers_.push_back(&peak);
  for (const auto& memory : memories_) memory_pointers_.push_back(&memory);
  for (const auto& library : libraries_) library_pointers_.push_back(&library);
  view_.device = target.device.c_str();
  view_.isa = target.isa.c_str();
  view_.threads = target.threads;
  view_.workspace_budget = target.workspace_budget;
  view_.peaks = peak_pointers_.data();
  view_.memories = memory_pointers_.data();
  view_.libraries = library_pointers_.data();
  view_.n_peaks = static_cast<uint32_t>(peaks_.size());
  view_.n_memories = static_cast<uint32_t>(memories_.size());
  view_.n_libraries = static_cast<uint32_t>(libraries_.size());
}

Result<Target> describe_target(const galley_device& device) {
  const std::string name = device.kind ? device.kind : "";
  const auto wrong_with = [&](const std::string& what) {
    return plugin_error("device '" + name + "' describes this machine with " + what);
  };
  Target target;
  target.device = name;
  for (uint32_t i = 0; i < device.n_memories; ++i) {
    const galley_memory_class& memory = *device.memories[i];
    target.memories.push_back({memory.name ? memory.name : "", memory.alignment, memory.host_access != 0, memory.computes != 0});
  }
  target.queues = device.n_queues;
  const TargetView defaults(target);
  galley_target described = *defaults.get();  // what the device leaves alone stays as it is
  TRY_STATUS(call_plugin(
      caller_of(&device, name.c_str()), "describe", [&](galley_error* error) { return device.describe(&described, error); }, Phase::Run));

  Target out = target;
  // A device may run another one's kernels: then its target says which.
  out.device = described.device ? described.device : name;
  out.isa = described.isa ? described.isa : "";
  out.threads = described.threads;
  out.workspace_budget = described.workspace_budget;
  out.peaks.clear();
  for (uint32_t i = 0; i < described.n_peaks; ++i) {
    const std::string problem_ = struct_problem(described.peaks[i]);
    if (!problem_.empty() || !described.peaks[i]->name) return wrong_with("a peak that " + (problem_.empty() ? "has no name" : problem_));
    out.peaks.push_back({described.peaks[i]->name, described.peaks[i]->flops});
  }
  std::sort(out.peaks.begin(), out.peaks.end(), [](const Peak& a, const Peak& b) { return a.name < b.name; });
  for (uint32_t i = 0; i < described.n_memories; ++i) {
    if (const std::string problem_ = struct_problem(described.memories[i]); !problem_.empty())
      return wrong_with("a memory that " + problem_);
    const galley_target_memory& memory = *described.memories[i];
    const auto known =
        std::find_if(out.memories.begin(), out.memories.end(), [&](const MemoryClass& m) { return memory.name && m.name == memory.name; });
    if (known == out.memories.end())
      return wrong_with("the memory '" + std::string(memory.name ? memory.name : "") + "', which it does not have");
    known->capacity = memory.capacity;
    known->in_bandwidth = memory.in_bandwidth;
    known->out_bandwidth = memory.out_bandwidth;
  }
  for (uint32_t i = 0; i < described.n_libraries; ++i) {
    const galley_library* library = described.libraries[i];
    if (const std::string problem_ = struct_problem(library); !problem_.empty()) return wrong_with("a library that " + problem_);
    if (!library->name || !library->version) return wrong_with("a library without name or version");
    out.libraries.push_back({library->name, library->version});
  }
  std::sort(out.libraries.begin(), out.libraries.end(), [](const LibraryVersion& a, const LibraryVersion& b) { return a.name < b.name; });
  std::string wrong = problem(out);
  if (wrong.empty() && out.threads < 1) wrong = std::to_string(out.threads) + " threads";
  if (wrong.empty() && out.queues < 1) wrong = "no queue";
  if (wrong.empty() && out.workspace_budget < 0) wrong = "a workspace budget of " + std::to_string(out.workspace_budget) + " bytes";
  if (!wrong.empty()) return wrong_with(wrong);
  return out;
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
  reader.take("threads", base.threads, 1);
  reader.take("workspace_budget", base.workspace_budget, 0);
  take_peaks(reader, &base);
  // Shorthands: of class 0, and of all others in both directions.
  double bandwidth = 0, link = 0;
  reader.take("bandwidth", bandwidth);
  reader.take("link_bandwidth", link);
  for (size_t i = 0; i < base.memories.size(); ++i)
    if (const double one = i == 0 ? bandwidth : link; one > 0) base.memories[i].in_bandwidth = base.memories[i].out_bandwidth = one;
  take_libraries(reader, &base);
  reader.take("memory_limit", base.memory_limit, 0);
  int64_t queues = base.queues;
  reader.take("queues", queues, 1);
  if (queues > 64) reader.fail(*root.get("queues"), "'queues' must be at most 64");
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
    table.take("capacity", memory.capacity, 0);
    table.take("in_bandwidth", memory.in_bandwidth);
    table.take("out_bandwidth", memory.out_bandwidth);
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
  std::string peaks, libraries;
  for (const Peak& peak : target.peaks) peaks += (peaks.empty() ? "" : ", ") + json_quote(peak.name) + " = " + number_text(peak.flops);
  for (const LibraryVersion& l : target.libraries)
    libraries += (libraries.empty() ? "" : ", ") + json_quote(l.name) + " = " + json_quote(l.version);
  line("peak_flops", "{ " + peaks + " }");
  if (!libraries.empty()) line("libraries", "{ " + libraries + " }");
  line("queues", std::to_string(target.queues));
  line("memory_limit", std::to_string(target.memory_limit));
  for (const MemoryClass& memory : target.memories) {
    out += "\n[[memory]]\n";
    line("name", json_quote(memory.name));
    line("alignment", std::to_string(memory.alignment));
    line("host_access", flag(memory.host_access));
    line("computes", flag(memory.computes));
    line("capacity", std::to_string(memory.capacity));
    line("in_bandwidth", number_text(memory.in_bandwidth));
    line("out_bandwidth", number_text(memory.out_bandwidth));
  }
  return out;
}

}  // namespace galley
