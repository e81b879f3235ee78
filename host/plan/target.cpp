#include "host/plan/target.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <mutex>
#include <utility>

#include <toml++/toml.h>

#include "host/base/file.hpp"
#include "host/base/json.hpp"
#include "host/base/nearest.hpp"
#include "host/base/option_reader.hpp"
#include "host/base/printable.hpp"
#include "host/base/toml.hpp"
#include "host/plugins/abi.hpp"
#include "host/plugins/call.hpp"
#include "host/plugins/isa.hpp"
#include "host/plugins/library.hpp"

namespace galley {
namespace {

bool is_power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

/// More than machines have; a run has to start as many.
constexpr int64_t kMostThreads = 1024;

/// A queue's role is its place in this list, plus 1.
constexpr std::array<const char*, 4> queue_names = {"compute", "in", "out", "exchange"};

/// More than any device asks for. Offsets in a class are rounded up to it.
constexpr int64_t kMostAlignment = int64_t{1} << 30;

/// What is wrong with a link that comes after `before`, or "".
std::string order_problem(const Link& before, const Link& link) {
  if (before.name == link.name) return "two links are called '" + link.name + "'";
  if (before.ranks == 0) return "link '" + link.name + "' comes after '" + before.name + "', which joins all processes";
  if (link.ranks != 0 && link.ranks <= before.ranks)
    return "link '" + link.name + "' joins " + std::to_string(link.ranks) + " processes, and '" + before.name + "' before it " +
           std::to_string(before.ranks) + "; the nearest comes first, and each joins more than the one before it";
  return {};
}

/// What is wrong with the target as a whole, or "".
std::string problem(const Target& target) {
  if (target.device.empty()) return "no device";
  std::vector<std::string> names = {target.device, target.isa};  // tables and messages show them
  for (const MemoryClass& memory : target.memories) names.push_back(memory.name);
  for (const Peak& peak : target.peaks) names.push_back(peak.name);
  for (const LibraryVersion& library : target.libraries) names.insert(names.end(), {library.name, library.version});
  for (const Link& link : target.links) names.push_back(link.name);
  for (const std::string& name : names)
    if (printable(name, Lines::Escape) != name) return "a control character in the name '" + printable(name, Lines::Escape) + "'";
  if (target.memories.empty()) return "no memory class";
  if (!target.memories[0].computes) return "memory class 0, '" + target.memories[0].name + "', does not compute";
  for (size_t i = 0; i < target.memories.size(); ++i) {
    const MemoryClass& memory = target.memories[i];
    if (memory.name.empty()) return "memory class " + std::to_string(i) + " has no name";
    if (!is_power_of_two(memory.alignment))
      return "memory class '" + memory.name + "': alignment " + std::to_string(memory.alignment) + " is not a power of two";
    if (memory.alignment > kMostAlignment)
      return "memory class '" + memory.name + "': alignment " + std::to_string(memory.alignment) + " is more than " +
             std::to_string(kMostAlignment);
    if (memory.capacity < 0) return "memory class '" + memory.name + "' has a capacity of " + std::to_string(memory.capacity) + " bytes";
    if (!(memory.in_bandwidth > 0 && memory.out_bandwidth > 0))
      return "memory class '" + memory.name + "' has a bandwidth that is not positive";
    for (size_t j = 0; j < i; ++j)
      if (target.memories[j].name == memory.name) return "two memory classes are called '" + memory.name + "'";
  }
  if (std::none_of(target.memories.begin(), target.memories.end(), [](const MemoryClass& m) { return m.host_access; }))
    return "no memory class that the host can reach";
  if (target.queues.empty()) return "no queue";
  if (target.queues[0] != Queue::Compute) return "queue 0 that does not compute";
  if (target.peaks.empty()) return "no peak";
  for (const Peak& peak : target.peaks)
    if (!(peak.flops > 0)) return "a peak of '" + peak.name + "' that is not positive";
  for (size_t i = 0; i < target.links.size(); ++i) {
    const Link& link = target.links[i];
    if (link.name.empty()) return "link " + std::to_string(i) + " has no name";
    if (link.ranks < 0 || link.ranks == 1) return "link '" + link.name + "' joins " + std::to_string(link.ranks) + " processes";
    if (!(link.bandwidth > 0)) return "link '" + link.name + "' has a bandwidth that is not positive";
    if (!(link.latency >= 0)) return "link '" + link.name + "' has a latency that is negative";
    if (i == 0) continue;
    if (const std::string wrong = order_problem(target.links[i - 1], link); !wrong.empty()) return wrong;
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

constexpr Range kSpeed = {0, 1e30, true, false};
constexpr Range kLatency = {0, 60};  // seconds

/// A number of F32, or a table by arithmetic, which comes in the order of its names.
Result<std::vector<Peak>> read_peaks(const toml::node& node, const OptionReader& reader, std::string_view origin) {
  std::vector<Peak> out;
  const toml::table* table = node.as_table();
  if (!table) {
    out.push_back({"f32", TRY(reader.number("peak_flops", kSpeed)).value_or(0)});
    return out;
  }
  const Keys keys(*table, origin, "'peak_flops'");
  const OptionReader peaks(keys.values, keys.context);
  for (const auto& [name, value] : keys.values) out.push_back({name, TRY(peaks.number(name, kSpeed)).value_or(0)});
  if (out.empty()) return reader.wrong("peak_flops", "a number, or a table of numbers: { f32 = 1e12, bf16 = 2e12 }");
  return out;
}

Result<std::vector<LibraryVersion>> read_libraries(const toml::node& node, const OptionReader& reader, std::string_view origin) {
  std::vector<LibraryVersion> out;
  const toml::table* table = node.as_table();
  if (!table) return reader.wrong("libraries", "a table of versions: { cublaslt = \"13.0\" }");
  const Keys keys(*table, origin, "'libraries'");
  const OptionReader libraries(keys.values, keys.context);
  for (const auto& [name, value] : keys.values) out.push_back({name, TRY(libraries.text(name)).value_or("")});
  return out;
}

Result<MemoryClass> read_memory(const OptionReader& reader) {
  TRY_STATUS(reader.only({"name", "alignment", "host_access", "computes", "capacity", "in_bandwidth", "out_bandwidth"}));
  MemoryClass memory;
  memory.name = TRY(reader.text("name")).value_or("");
  if (memory.name.empty()) return reader.missing("name", "name = \"spill\"");
  memory.alignment = TRY(reader.integer("alignment", 1)).value_or(memory.alignment);
  if (!is_power_of_two(memory.alignment)) return reader.wrong("alignment", "a power of two");
  memory.host_access = TRY(reader.boolean("host_access")).value_or(memory.host_access);
  memory.computes = TRY(reader.boolean("computes")).value_or(memory.computes);
  memory.capacity = TRY(reader.integer("capacity", 0)).value_or(memory.capacity);
  memory.in_bandwidth = TRY(reader.number("in_bandwidth", kSpeed)).value_or(memory.in_bandwidth);
  memory.out_bandwidth = TRY(reader.number("out_bandwidth", kSpeed)).value_or(memory.out_bandwidth);
  return memory;
}

Result<Link> read_link(const OptionReader& reader) {
  TRY_STATUS(reader.only({"name", "ranks", "bandwidth", "latency"}));
  Link link;
  link.name = TRY(reader.text("name")).value_or("");
  if (link.name.empty()) return reader.missing("name", "name = \"network\"");
  link.ranks = TRY(reader.integer("ranks", 0)).value_or(0);
  if (link.ranks == 1) return reader.wrong("ranks", "2 or more processes that it joins, or 0 for all");
  const auto bandwidth = TRY(reader.number("bandwidth", kSpeed));
  if (!bandwidth)
    return reader.missing("bandwidth", "bandwidth = 4.5e10, in bytes a second that one process sends while it receives as many");
  link.bandwidth = *bandwidth;
  link.latency = TRY(reader.number("latency", kLatency)).value_or(0);
  return link;
}

/// Those of a file; of `before` if it says nothing of links and of memories.
Result<std::vector<Link>> read_links(const toml::table& root, const OptionReader& reader, std::string_view origin,
                                     std::vector<Link> before) {
  const toml::node* links = root.get("link");
  if (!links) return root.contains("memory") ? std::vector<Link>() : std::move(before);
  const toml::array* list = links->as_array();
  if (!list || (!list->empty() && !list->is_homogeneous(toml::node_type::table)))
    return reader.error("link", "'link' must be tables, [[link]]");
  std::vector<Link> out;
  for (const toml::node& entry : *list) {
    const Keys keys(*entry.as_table(), origin, "[[link]]");
    const OptionReader one(keys.values, keys.context);
    Link link = TRY(read_link(one));
    const std::string wrong = out.empty() ? "" : order_problem(out.back(), link);
    if (!wrong.empty()) return one.error("ranks", wrong);
    out.push_back(std::move(link));
  }
  return out;
}

std::string toml_number(double value) {
  std::array<char, 32> buffer;
  std::string text(buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

}  // namespace

std::string Target::products() const {
  std::string out;
  for (const Peak& peak : peaks)
    if (peak.name != "f32") out += (out.empty() ? "" : ", ") + peak.name + " " + std::to_string(std::llround(peak.flops / peak_flops()));
  return out;
}

double Target::peak_flops(std::string_view arithmetic) const {
  const Peak* f32 = nullptr;
  for (const Peak& peak : peaks) {
    if (peak.name == arithmetic) return peak.flops;
    if (peak.name == "f32") f32 = &peak;
  }
  return f32 ? f32->flops : 1e11;
}

uint32_t Target::queue_for(Queue role) const {
  const auto at = std::find(queues.begin(), queues.end(), role);
  return at == queues.end() ? 0 : static_cast<uint32_t>(at - queues.begin());
}

uint32_t Target::host_memory() const {
  const auto at = std::find_if(memories.begin(), memories.end(), [](const MemoryClass& m) { return m.host_access; });
  return static_cast<uint32_t>(at - memories.begin());
}

const Link* Target::link_for(int64_t ranks) const {
  const auto at = std::ranges::find_if(links, [&](const Link& link) { return link.joins(ranks); });
  return at == links.end() ? nullptr : &*at;
}

Target Target::of_host() const {
  Target out = *this;
  out.device = "cpu";
  out.isa = cpu_isa();
  out.peaks = Target().peaks;  // of this processor, a plan for another machine must not depend
  out.libraries.clear();
  return out;
}

TargetView::TargetView(Target target) : target_(std::move(target)), view_(new_struct<galley_target>()) {
  for (const Peak& peak : target_.peaks) {
    auto& out = peaks_.emplace_back(new_struct<galley_peak>());
    out.name = peak.name.c_str();
    out.flops = peak.flops;
  }
  for (const MemoryClass& memory : target_.memories) {
    auto& out = memories_.emplace_back(new_struct<galley_target_memory>());
    out.name = memory.name.c_str();
    out.capacity = memory.capacity;
    out.in_bandwidth = memory.in_bandwidth;
    out.out_bandwidth = memory.out_bandwidth;
  }
  for (const LibraryVersion& library : target_.libraries) {
    auto& out = libraries_.emplace_back(new_struct<galley_library>());
    out.name = library.name.c_str();
    out.version = library.version.c_str();
  }
  for (const Link& link : target_.links) {
    auto& out = links_.emplace_back(new_struct<galley_link>());
    out.name = link.name.c_str();
    out.ranks = link.ranks;
    out.bandwidth = link.bandwidth;
    out.latency = link.latency;
  }
  for (const auto& peak : peaks_) peak_pointers_.push_back(&peak);
  for (const auto& memory : memories_) memory_pointers_.push_back(&memory);
  for (const auto& library : libraries_) library_pointers_.push_back(&library);
  for (const auto& link : links_) link_pointers_.push_back(&link);
  view_.device = target_.device.c_str();
  view_.isa = target_.isa.c_str();
  view_.threads = target_.threads;
  view_.workspace_budget = target_.workspace_budget;
  view_.flags = target_.deterministic ? 0 : GALLEY_TARGET_MAY_VARY;
  view_.peaks = peak_pointers_.data();
  view_.memories = memory_pointers_.data();
  view_.libraries = library_pointers_.data();
  view_.links = link_pointers_.data();
  view_.n_peaks = static_cast<uint32_t>(peaks_.size());
  view_.n_memories = static_cast<uint32_t>(memories_.size());
  view_.n_libraries = static_cast<uint32_t>(libraries_.size());
  view_.n_links = static_cast<uint32_t>(links_.size());
}

Result<Target> describe_target(const galley_device& device) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);  // until the device's words are copied
  const std::string name = device.kind ? device.kind : "";
  const auto wrong_with = [&](const std::string& what) {
    return plugin_error("device '" + name + "' describes this machine with " + what);
  };
  Target target;
  target.device = name;
  for (uint32_t i = 0; i < device.n_memories; ++i) {
    const galley_memory_class& memory = *device.memories[i];
    target.memories.push_back({memory.name ? memory.name : "", memory.alignment, (memory.flags & GALLEY_MEMORY_HOST_ACCESS) != 0,
                               (memory.flags & GALLEY_MEMORY_COMPUTES) != 0});
  }
  target.synchronous = device.flags & GALLEY_DEVICE_SYNCHRONOUS;
  target.queues.clear();
  for (uint32_t i = 0; i < device.n_queues; ++i) target.queues.push_back(static_cast<Queue>(device.queues[i]->role));
  const TargetView defaults(target);
  galley_target described = *defaults.get();  // what the device leaves alone stays as it is
  Caller caller = caller_of(&device, name.c_str());
  caller.strategy = "device '" + name + "'";
  TRY_STATUS(call_plugin(caller, "describe", [&](galley_error* error) { return device.describe(device.self, &described, error); }));

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
  for (uint32_t i = 0; i < described.n_links; ++i) {
    const galley_link* link = described.links[i];
    if (const std::string problem_ = struct_problem(link); !problem_.empty()) return wrong_with("a link that " + problem_);
    out.links.push_back({link->name ? link->name : "", link->ranks, link->bandwidth, link->latency});
  }
  std::string wrong = problem(out);
  if (wrong.empty() && out.threads < 1) wrong = std::to_string(out.threads) + " threads";
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
  const Keys keys(root, origin, "the target");
  const OptionReader reader(keys.values, keys.context);
  TRY_STATUS(reader.only({"device", "isa", "threads", "workspace_budget", "peak_flops", "libraries", "bandwidth", "link_bandwidth",
                          "memory_limit", "queues", "synchronous", "memory", "link"}));
  base.device = TRY(reader.text("device")).value_or(base.device);
  if (base.device.empty()) return reader.wrong("device", "the name of a device");
  base.isa = TRY(reader.text("isa")).value_or(base.isa);  // may be empty
  base.threads = TRY(reader.integer("threads", 1, kMostThreads)).value_or(base.threads);
  base.workspace_budget = TRY(reader.integer("workspace_budget", 0)).value_or(base.workspace_budget);
  if (const toml::node* peaks = root.get("peak_flops")) base.peaks = TRY(read_peaks(*peaks, reader, origin));
  if (const toml::node* libraries = root.get("libraries")) base.libraries = TRY(read_libraries(*libraries, reader, origin));
  // These are shorthands: for class 0, and for all others in both directions.
  const auto bandwidth = TRY(reader.number("bandwidth", kSpeed)), link = TRY(reader.number("link_bandwidth", kSpeed));
  for (size_t i = 0; i < base.memories.size(); ++i)
    if (const auto one = i == 0 ? bandwidth : link) base.memories[i].in_bandwidth = base.memories[i].out_bandwidth = *one;
  base.memory_limit = TRY(reader.integer("memory_limit", 0)).value_or(base.memory_limit);
  base.synchronous = TRY(reader.boolean("synchronous")).value_or(base.synchronous);
  if (const auto names = TRY(reader.texts("queues"))) {
    base.queues.clear();
    for (const std::string& name : *names) {
      const auto* const at = std::find(queue_names.begin(), queue_names.end(), name);
      if (at == queue_names.end() || (base.queues.empty() && name != "compute"))
        return reader.wrong("queues", "'compute', 'in', 'out' and 'exchange', the first 'compute'");
      base.queues.push_back(static_cast<Queue>(at - queue_names.begin() + 1));
    }
  }
  base.links = TRY(read_links(root, reader, origin, std::move(base.links)));
  const toml::node* memories = root.get("memory");
  if (!memories) {
    if (const std::string wrong = problem(base); !wrong.empty()) return recipe_error(std::string(origin) + ": " + wrong);
    return base;
  }
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

Result<std::optional<Target>> read_whole_target(const std::filesystem::path& path) {
  const Result<std::string> text = read_text(path, 1u << 20);
  if (!text) return recipe_error(text.error().cause, text.error().hint);
  const toml::parse_result parsed = toml::parse(*text, path.string());
  if (parsed)
    for (const char* key : {"device", "isa", "threads", "peak_flops", "queues", "synchronous", "memory"})
      if (!parsed.table().contains(key)) return std::optional<Target>();
  return std::optional(TRY(parse_target(*text, path.string(), Target())));
}

std::vector<std::string> target_names(const std::filesystem::path& shipped) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(shipped, error))
    if (entry.path().extension() == ".toml") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::filesystem::path> find_target(const std::string& name, const std::filesystem::path& shipped) {
  std::error_code error;
  if (std::filesystem::is_regular_file(name, error)) return std::filesystem::path(name);
  const std::filesystem::path own = shipped / (name + ".toml");
  if (name.find('/') == std::string::npos && std::filesystem::is_regular_file(own, error)) return own;
  const std::vector<std::string> names = target_names(shipped);
  std::string list;
  for (const std::string& n : names) list += (list.empty() ? "" : ", ") + n;
  const std::string guess = did_you_mean(name, names);
  return recipe_error("--target " + name + ": there is no such file, and no such target" + (guess.empty() ? "" : "; " + guess),
                      "a TOML file, or one of: " + list);
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
  for (const Peak& peak : target.peaks) peaks += (peaks.empty() ? "" : ", ") + json_quote(peak.name) + " = " + toml_number(peak.flops);
  for (const LibraryVersion& l : target.libraries)
    libraries += (libraries.empty() ? "" : ", ") + json_quote(l.name) + " = " + json_quote(l.version);
  line("peak_flops", "{ " + peaks + " }");
  if (!libraries.empty()) line("libraries", "{ " + libraries + " }");
  std::string queues;
  for (const Queue queue : target.queues) queues += (queues.empty() ? "" : ", ") + json_quote(queue_names[static_cast<size_t>(queue) - 1]);
  line("queues", "[" + queues + "]");
  line("synchronous", target.synchronous ? "true" : "false");
  line("memory_limit", std::to_string(target.memory_limit));
  for (const MemoryClass& memory : target.memories) {
    out += "\n[[memory]]\n";
    line("name", json_quote(memory.name));
    line("alignment", std::to_string(memory.alignment));
    line("host_access", flag(memory.host_access));
    line("computes", flag(memory.computes));
    line("capacity", std::to_string(memory.capacity));
    line("in_bandwidth", toml_number(memory.in_bandwidth));
    line("out_bandwidth", toml_number(memory.out_bandwidth));
  }
  for (const Link& link : target.links) {
    out += "\n[[link]]\n";
    line("name", json_quote(link.name));
    line("ranks", std::to_string(link.ranks));
    line("bandwidth", toml_number(link.bandwidth));
    line("latency", toml_number(link.latency));
  }
  return out;
}

}  // namespace galley
