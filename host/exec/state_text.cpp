#include "host/exec/state_text.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include <toml++/toml.h>

#include "host/base/json.hpp"
#include "host/exec/checksum.hpp"

namespace galley {
namespace {

constexpr std::string_view kChecksumLine = "# checksum of the lines above: ";

std::optional<uint64_t> hexadecimal_value(std::string_view text) {
  uint64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != 16 || read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

// Reads keys until one is wrong; then everything reads as empty.
class Fields {
 public:
  Fields(const toml::table& table, std::string place) : table_(table), place_(std::move(place)) {}

  template <class T>
  T get(const char* key) {
    const std::optional<T> value = table_[key].value<T>();
    if (!value && !wrong_) wrong_ = key;
    return value.value_or(T());
  }
  uint64_t bits(const char* key) {
    const auto value = hexadecimal_value(get<std::string>(key));
    if (!value && !wrong_) wrong_ = key;
    return value.value_or(0);
  }
  Status status() const { return wrong_ ? Status(run_error(place_ + ": '" + wrong_ + "' is missing or of another type")) : ok(); }

 private:
  const toml::table& table_;
  std::string place_;
  const char* wrong_ = nullptr;
};

}  // namespace

std::string state_text(const StateInfo& info, const std::map<std::string, uint64_t>& checksums) {
  std::string text = "# Where a run was after step " + std::to_string(info.attempted) + ": `galley resume` continues from here.\n";
  const auto line = [&](const char* key, const std::string& value) { text += std::string(key) + " = " + value + "\n"; };
  line("format", std::to_string(kStateFormat));
  line("attempted", std::to_string(info.attempted));
  line("applied", std::to_string(info.applied));
  line("next_window", std::to_string(info.next_window));
  std::string names;
  for (const std::string& name : info.without_gradient) names += (names.empty() ? "" : ", ") + json_quote(name);
  line("without_gradient", "[" + names + "]");
  if (!info.ended.empty()) line("ended", json_quote(info.ended));
  const ValidationRecord& v = info.validation;
  if (v.best_step > 0)
    line("validation", "{ best_step = " + std::to_string(v.best_step) + ", best = " + to_json(Value(v.best)) +
                           ", reference = " + to_json(Value(v.reference)) + ", without = " + std::to_string(v.without) + " }");
  line("device", json_quote(info.device));
  line("isa", json_quote(info.isa));
  line("products", json_quote(info.products));
  line("head_rows", std::to_string(info.head_rows));
  if (info.lanes > 1) line("lanes", std::to_string(info.lanes));
  line("data", json_quote(hexadecimal(info.data)));
  line("recipe", json_quote(info.recipe));
  std::vector<PluginStamp> plugins = info.plugins;
  std::sort(plugins.begin(), plugins.end(), [](const PluginStamp& a, const PluginStamp& b) { return a.id < b.id; });
  for (const PluginStamp& plugin : plugins) {
    text += "\n[[plugin]]\n";
    line("id", json_quote(plugin.id));
    line("version", json_quote(plugin.version));
    line("state_version", std::to_string(plugin.state_version));
  }
  const auto write_checksums = [&](const char* title, const std::map<std::string, uint64_t>& tensors) {
    text += std::string("\n[") + title + "]\n";
    for (const auto& [name, sum] : tensors) line(json_quote(name).c_str(), json_quote(hexadecimal(sum)));
  };
  write_checksums("weights", info.weights);
  write_checksums("checksums", checksums);
  return text + std::string(kChecksumLine) + hexadecimal(checksum(text)) + "\n";
}

Result<StateText> parse_state(std::string_view text, const std::filesystem::path& file) {
  const std::string place = file.string();
  const char* const hint = "this state is damaged; delete its folder, and the run continues from the state before it";
  const size_t last = text.rfind(kChecksumLine);
  if (last == std::string_view::npos) return run_error(place + ": the line with its checksum is missing", hint);
  const std::string_view body = text.substr(0, last);
  const std::string sum = hexadecimal(checksum(body));
  if (text.substr(last + kChecksumLine.size()) != sum + "\n")
    return run_error(place + ": the checksum is not " + sum + ", so the file has changed", hint);

  const toml::parse_result parsed = toml::parse(body, place);
  if (!parsed) return run_error(place + ": " + std::string(parsed.error().description()), hint);
  const toml::table& root = parsed.table();
  Fields fields(root, place);
  const auto format = fields.get<int64_t>("format");
  TRY_STATUS(fields.status());
  if (format != kStateFormat) {
    return run_error(
        place + ": the state has format " + std::to_string(format) + ", this Galley reads format " + std::to_string(kStateFormat),
        "resume it with the version that saved it");
  }
  StateText out;
  out.info.attempted = fields.get<int64_t>("attempted");
  out.info.applied = fields.get<int64_t>("applied");
  out.info.next_window = fields.get<int64_t>("next_window");
  out.info.device = fields.get<std::string>("device");
  out.info.isa = fields.get<std::string>("isa");
  out.info.products = fields.get<std::string>("products");
  out.info.head_rows = root["head_rows"].value_or<int64_t>(-1);  // states of earlier versions do not say
  out.info.lanes = root["lanes"].value_or<int64_t>(1);
  out.info.ended = root["ended"].value_or<std::string>("");
  out.info.data = fields.bits("data");
  out.info.recipe = fields.get<std::string>("recipe");
  TRY_STATUS(fields.status());
  const toml::array* names = root["without_gradient"].as_array();
  if (!names) return run_error(place + ": 'without_gradient' is missing", hint);
  for (const toml::node& name : *names) out.info.without_gradient.push_back(name.value<std::string>().value_or(""));
  if (const toml::table* validation = root["validation"].as_table()) {
    Fields said(*validation, place + ": validation");
    out.info.validation = {said.get<int64_t>("best_step"), said.get<double>("best"), said.get<double>("reference"),
                           said.get<int64_t>("without")};
    TRY_STATUS(said.status());
  }
  if (const toml::array* plugins = root["plugin"].as_array()) {
    for (const toml::node& node : *plugins) {
      if (!node.is_table()) return run_error(place + ": 'plugin' is not a list of tables", hint);
      Fields plugin(*node.as_table(), place + ": plugin");
      out.info.plugins.push_back({plugin.get<std::string>("id"), plugin.get<std::string>("version"), plugin.get<int64_t>("state_version")});
      TRY_STATUS(plugin.status());
    }
  }
  const auto read_checksums = [&](const char* title, std::map<std::string, uint64_t>* to) -> Status {
    const toml::table* checksums = root[title].as_table();
    if (!checksums) return run_error(place + ": '" + title + "' is missing", hint);
    for (const auto& [name, value] : *checksums) {
      const auto bits = hexadecimal_value(value.value<std::string_view>().value_or(""));
      if (!bits) return run_error(place + ": the checksum of '" + std::string(name.str()) + "' is not 16 hexadecimal digits", hint);
      (*to)[std::string(name.str())] = *bits;
    }
    return ok();
  };
  TRY_STATUS(read_checksums("weights", &out.info.weights));
  TRY_STATUS(read_checksums("checksums", &out.checksums));
  return out;
}

Status check_state(const StateInfo& saved, const StateInfo& now, const std::filesystem::path& state) {
  const auto differ = [&](const std::string& what, const std::string& then, const std::string& today, const char* hint) -> Status {
    return recipe_error(state.string() + ": cannot resume: " + what + " was " + then + " and is " + today + " now", hint);
  };
  if (saved.device != now.device)
    return differ("the device", "'" + saved.device + "'", "'" + now.device + "'", "resume on a machine of the same kind");
  if (saved.isa != now.isa) {
    return differ("the instruction set", "'" + saved.isa + "'", "'" + now.isa + "'",
                  "kernels of another one round differently; resume on a machine with the same");
  }
  if (saved.products != now.products) {
    return differ("the speed of matrix products beside F32", "'" + saved.products + "'", "'" + now.products + "'",
                  "the machine has other instructions for them, which round differently; resume on one with the same");
  }
  std::map<std::string, const PluginStamp*> plugins;
  for (const PluginStamp& plugin : now.plugins) plugins[plugin.id] = &plugin;
  for (const PluginStamp& plugin : saved.plugins) {
    const auto at = plugins.find(plugin.id);
    if (at == plugins.end())
      return recipe_error(state.string() + ": cannot resume: plugin '" + plugin.id + "' " + plugin.version + " is not there any more");
    if (at->second->state_version != plugin.state_version) {
      return differ("the state version of plugin '" + plugin.id + "'",
                    std::to_string(plugin.state_version) + " (version " + plugin.version + ")",
                    std::to_string(at->second->state_version) + " (version " + at->second->version + ")",
                    "its states mean something else now; use the version that saved them");
    }
    plugins.erase(at);
  }
  if (!plugins.empty())
    return recipe_error(state.string() + ": cannot resume: plugin '" + plugins.begin()->first + "' had no part in this run before");
  if (saved.recipe != now.recipe) return differ("the recipe", saved.recipe, now.recipe, "resume continues with the recipe as it was");
  if (saved.head_rows >= 0 && saved.head_rows != now.head_rows)
    return differ("the number of rows in a chunk of the head and loss", std::to_string(saved.head_rows), std::to_string(now.head_rows),
                  "sums depend on it: 'head_rows' in run.toml has to be what it was");
  if (saved.lanes != now.lanes)
    return differ("the number of lanes", std::to_string(saved.lanes), std::to_string(now.lanes),
                  "sums depend on it: 'lanes' in run.toml has to be what it was");
  if (saved.data != now.data)
    return differ("the data", hexadecimal(saved.data), hexadecimal(now.data), "a file that the recipe reads has changed since");
  return check_weights(saved, now, state);
}

Status check_weights(const StateInfo& saved, const StateInfo& now, const std::filesystem::path& state) {
  for (const auto& [name, sum] : saved.weights) {
    const auto at = now.weights.find(name);
    if (at == now.weights.end() || at->second != sum) {
      return recipe_error(state.string() + ": cannot resume: the base model has changed: its weight '" + name + "' is not what it was",
                          "put the model's files back as they were, or begin a new run");
    }
  }
  return ok();
}

}  // namespace galley
