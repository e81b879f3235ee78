#include "host/plugins/manifest.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <optional>
#include <set>

#include <toml++/toml.h>

#include "galley/abi.h"
#include "host/base/file.hpp"
#include "host/base/json.hpp"
#include "host/base/listed.hpp"
#include "host/base/nearest.hpp"
#include "host/base/toml.hpp"

namespace galley {
namespace {

const std::vector<std::string>& facet_names() {
  static const std::vector<std::string> names = {"trainable", "storage",   "compute", "gradient dtype", "gradient lifetime",
                                                 "update",    "placement", "shard",   "window",         "saved"};
  return names;
}

bool is_name(std::string_view text, std::string_view others) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !text.empty() && letter(text.front()) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return letter(c) || others.find(c) != std::string_view::npos; });
}

/// The numbers of "1.2.0"; what follows them (a "-rc1") is not compared.
std::vector<int64_t> numbers_of_version(std::string_view text) {
  std::vector<int64_t> out;
  const char *at = text.data(), *const end = at + text.size();
  for (int64_t number = 0;; ++at) {
    const auto read = std::from_chars(at, end, number);
    if (read.ec != std::errc()) return out;
    out.push_back(number);
    at = read.ptr;
    if (at == end || *at != '.') return out;
  }
}

/// Reads "example" or "example >= 1.2".
std::optional<Requirement> parse_requirement(const std::string& text) {
  Requirement out = {text.substr(0, text.find(' ')), {}, text};
  if (!is_name(out.id, "._-")) return std::nullopt;
  if (out.id.size() == text.size()) return out;
  constexpr std::string_view relation = " >= ";
  if (text.compare(out.id.size(), relation.size(), relation) != 0) return std::nullopt;
  const std::string least = text.substr(out.id.size() + relation.size());
  out.least = numbers_of_version(least);
  if (out.least.empty() || least.find_first_not_of("0123456789.") != std::string::npos) return std::nullopt;
  return out;
}

// The first thing that is wrong wins; everything after it reads as if it were absent.
class Reader {
 public:
  Reader(std::filesystem::path file) : file_(std::move(file)) {}

  Result<Manifest> read(const toml::table& root);

 private:
  void fail(const toml::node& where, std::string text) { fail(static_cast<int>(where.source().begin.line), std::move(text)); }
  void fail(int line, std::string text) {
    if (!error_) error_ = plugin_error(Place{file_.string(), line}.text() + ": " + std::move(text));
  }
  static int line_of(const toml::node& node) { return static_cast<int>(node.source().begin.line); }

  void only(const toml::table& table, const std::string& where, std::initializer_list<const char*> keys) {
    const std::vector<std::string> known(keys.begin(), keys.end());
    for (const auto& [key, value] : table) {
      const std::string name(key.str());
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      const std::string hint = did_you_mean(name, known);
      fail(static_cast<int>(key.source().begin.line), "unknown key '" + name + "' in " + where + (hint.empty() ? "" : "; " + hint));
    }
  }

  std::string string(const toml::table& table, const char* key, const std::string& where, bool required = false) {
    const toml::node* node = table.get(key);
    if (!node) {
      if (required) fail(table, where + " has no '" + key + "'");
      return {};
    }
    const auto text = node->value_exact<std::string>();
    if (!text || text->empty()) fail(*node, "'" + std::string(key) + "' must be a string that is not empty");
    return text.value_or("");
  }

  template <class T>
  std::optional<T> exact(const toml::table& table, const char* key, const char* kind) {
    const toml::node* node = table.get(key);
    if (!node) return std::nullopt;
    const auto value = node->value_exact<T>();
    if (!value) fail(*node, "'" + std::string(key) + "' must be " + kind);
    return value;
  }

  std::vector<std::string> strings(const toml::table& table, const char* key) {
    std::vector<std::string> out;
    const toml::node* node = table.get(key);
    if (!node) return out;
    const auto* array = node->as_array();
    if (!array) {
      fail(*node, "'" + std::string(key) + "' must be a list of strings");
      return out;
    }
    for (const toml::node& element : *array) {
      const auto text = element.value_exact<std::string>();
      if (!text || text->empty()) fail(element, "'" + std::string(key) + "' must be a list of strings");
      else out.push_back(*text);
    }
    return out;
  }

  // Calls `body` for each table of [[key]].
  void each(const toml::table& table, const char* key, const std::function<void(const toml::table&)>& body) {
    const toml::node* node = table.get(key);
    if (!node) return;
    const auto* array = node->as_array();
    if (!array) return fail(*node, "'" + std::string(key) + "' must be a list of tables: [[" + key + "]]");
    for (const toml::node& element : *array) {
      if (const auto* entry = element.as_table()) body(*entry);
      else fail(element, "'" + std::string(key) + "' must be a list of tables: [[" + key + "]]");
    }
  }

  std::string file_name(const toml::table& table, const char* key, const std::string& where, bool required) {
    std::string name = string(table, key, where, required);
    if (name.find('/') != std::string::npos || name == "." || name == "..")
      fail(*table.get(key), "'" + std::string(key) + "' must be the name of a file in the plugin's folder, not '" + name + "'");
    return name;
  }

  void read_abi(const toml::table& root, Manifest* out);
  StrategySpec read_strategy(const toml::table& table);
  StrategySpec read_source(const toml::table& table);
  void read_options(const toml::table& table, const char* header, StrategySpec* out);
  /// `of`: a strategy, or an option of one, whose fields are options too.
  OptionSpec read_option(const toml::table& table, const char* header, const std::string& of);
  void read_range(const toml::table& table, OptionSpec* out);
  std::vector<FacetRule> read_facets(const toml::table& table, const char* key, const StrategySpec& strategy);
  std::map<std::string, List> read_when(const toml::table& table, const StrategySpec& strategy);
  Against read_against(const toml::table& table, const StrategySpec& strategy);
  std::vector<MeasuredLoss> read_losses(const toml::table& table, const StrategySpec& strategy);
  FormatPromise read_promise(const toml::table& table, const Manifest& manifest);

  std::filesystem::path file_;
  std::optional<Error> error_;
};

void Reader::read_abi(const toml::table& root, Manifest* out) {
  const std::string abi = string(root, "abi", "the manifest", true);
  if (abi.empty()) return;
  const char* const end = abi.data() + abi.size();
  const auto major = std::from_chars(abi.data(), end, out->abi_major);
  if (major.ec == std::errc() && major.ptr != end && *major.ptr == '.') {
    const auto minor = std::from_chars(major.ptr + 1, end, out->abi_minor);
    if (minor.ec == std::errc() && minor.ptr == end) return;
  }
  fail(*root.get("abi"), "'abi' must be a version like \"0.3\", not '" + abi + "'");
}

Result<Manifest> Reader::read(const toml::table& root) {
  Manifest out;
  out.file = file_;
  out.id = string(root, "id", "the manifest", true);
  if (!error_ && !is_name(out.id, "._-"))
    fail(*root.get("id"), "'id' must be lower-case letters, digits, '.', '_' and '-', not '" + out.id + "'");
  read_abi(root, &out);
  if (error_) return *error_;
  const std::string other = abi_problem(out.abi_major, out.abi_minor);
  if (other.empty())
    only(root, "the manifest",
         {"id", "version", "summary", "state_version", "abi", "requires", "library", "kernels", "provides", "promise", "strategy",
          "source"});
  out.version = string(root, "version", "the manifest", true);
  out.summary = string(root, "summary", "the manifest");
  out.state_version = exact<int64_t>(root, "state_version", "a whole number").value_or(1);

  for (const std::string& text : strings(root, "requires")) {
    if (const std::optional<Requirement> requirement = parse_requirement(text)) out.requirements.push_back(*requirement);
    else fail(*root.get("requires"), "'requires' must be a list like [\"example >= 1.2\"], not '" + text + "'");
  }
  out.library = out.id + ".so";
  if (const toml::node* node = root.get("library")) {
    if (const auto* table = node->as_table()) {
      only(*table, "[library]", {"plugin"});
      out.library = file_name(*table, "plugin", "[library]", true);
    } else {
      fail(*node, "'library' must be a table: [library]");
    }
  }
  each(root, "kernels", [&](const toml::table& table) {
    only(table, "[[kernels]]", {"device", "isa", "library"});
    out.kernel_libraries.push_back({string(table, "device", "[[kernels]]", true), string(table, "isa", "[[kernels]]"),
                                    file_name(table, "library", "[[kernels]]", true)});
  });
  if (const toml::node* node = root.get("provides")) {
    if (const auto* table = node->as_table()) {
      only(*table, "[provides]", {"ops", "kernels", "formats", "devices", "ranks"});
      out.ops = strings(*table, "ops");
      out.kernels = strings(*table, "kernels");
      out.formats = strings(*table, "formats");
      out.devices = strings(*table, "devices");
      out.ranks = strings(*table, "ranks");
    } else {
      fail(*node, "'provides' must be a table: [provides]");
    }
  }
  each(root, "promise", [&](const toml::table& table) { out.promises.push_back(read_promise(table, out)); });
  each(root, "strategy", [&](const toml::table& table) {
    StrategySpec strategy = read_strategy(table);
    if (out.strategy(strategy.name)) fail(table, "two strategies are called '" + strategy.name + "'");
    out.strategies.push_back(std::move(strategy));
  });
  each(root, "source", [&](const toml::table& table) {
    StrategySpec source = read_source(table);
    const auto same = [&](const StrategySpec& one) { return one.name == source.name; };
    if (std::ranges::any_of(out.sources, same)) fail(table, "two kinds of data are called '" + source.name + "'");
    out.sources.push_back(std::move(source));
  });
  if (!error_) return out;
  // What a later version of the format means is not known here: its number is the trouble, not its keys.
  if (!other.empty()) return plugin_error(Place{file_.string(), line_of(*root.get("abi"))}.text() + ": the plugin " + other);
  return *error_;
}

FormatPromise Reader::read_promise(const toml::table& table, const Manifest& manifest) {
  FormatPromise out;
  const std::string where = "[[promise]]";
  only(table, where, {"format", "block", "within", "largest", "group", "of_group", "when"});
  out.format = string(table, "format", where, true);
  if (!error_ && std::ranges::find(manifest.formats, out.format) == manifest.formats.end())
    fail(*table.get("format"), "'format' names '" + out.format + "', which is not among the formats that [provides] lists");
  const auto number = [&](const char* key, double otherwise) {
    const toml::node* node = table.get(key);
    double value = otherwise;
    if (node && (!toml_value(*node).number(&value) || !(value >= 0)))
      fail(*node, std::string("'") + key + "' must be a number of at least 0");
    return value;
  };
  out.within = number("within", 0);
  out.largest = number("largest", out.within);
  out.of_group = number("of_group", 0);
  out.group = exact<int64_t>(table, "group", "a whole number").value_or(0);
  if (out.group < 0) fail(*table.get("group"), "'group' must be at least 1");
  if (!table.get("within")) fail(table, "[[promise]] without 'within'");
  if (const toml::node* block = table.get("block")) {
    if (const auto count = block->value_exact<int64_t>(); count && *count > 0) out.block = *count;
    else if (const auto text = block->value_exact<std::string>(); text && !text->empty()) out.block_of = *text == "row" ? "" : *text;
    else fail(*block, "'block' must be a number of at least 1, \"row\", or an attribute's name");
  } else {
    fail(table, "[[promise]] without 'block'");
  }
  if (const toml::node* when = table.get("when"); when && when->as_table()) {
    for (const auto& [name, wanted] : *when->as_table()) {
      const Value given = toml_value(wanted);
      out.when[std::string(name.str())] = given.as<List>() ? *given.as<List>() : List{given};
    }
  } else if (when) {
    fail(*when, "'when' must be a table");
  }
  return out;
}

void Reader::read_options(const toml::table& table, const char* header, StrategySpec* out) {
  each(table, "option", [&](const toml::table& entry) {
    OptionSpec option = read_option(entry, header, out->name);
    if (out->option(option.name)) fail(entry, "two options of " + out->name + " are called '" + option.name + "'");
    out->options.push_back(std::move(option));
  });
}

StrategySpec Reader::read_source(const toml::table& table) {
  StrategySpec out;
  out.line = line_of(table);
  out.name = string(table, "name", "[[source]]", true);
  if (!error_ && !is_name(out.name, "_"))
    fail(*table.get("name"), "'name' must be lower-case letters, digits and '_', as data.NAME is written, not '" + out.name + "'");
  const std::string where = "source '" + out.name + "'";
  only(table, where, {"name", "summary", "option"});
  out.summary = string(table, "summary", where, true);
  read_options(table, "[[source.option]]", &out);
  return out;
}

StrategySpec Reader::read_strategy(const toml::table& table) {
  StrategySpec out;
  out.line = line_of(table);
  out.name = string(table, "name", "[[strategy]]", true);
  if (error_) return out;
  if (!is_name(out.name, "._-"))
    fail(*table.get("name"), "'name' must be lower-case letters, digits, '.', '_' and '-', not '" + out.name + "'");
  const std::string where = "strategy '" + out.name + "'";
  only(table, where,
       {"name", "summary", "source", "exactness", "against", "option", "provides", "needs", "config", "loss", "control", "always"});
  out.summary = string(table, "summary", where, true);
  out.source = string(table, "source", where);
  const std::string exactness = string(table, "exactness", where, true);
  if (exactness == "bits") out.exactness = Exactness::Bits;
  else if (exactness == "rounding") out.exactness = Exactness::Rounding;
  else if (exactness == "approximate") out.exactness = Exactness::Approximate;
  else if (!error_) fail(*table.get("exactness"), "'exactness' must be 'bits', 'rounding' or 'approximate', not '" + exactness + "'");
  read_options(table, "[[strategy.option]]", &out);
  out.provides = read_facets(table, "provides", out);
  out.needs = read_facets(table, "needs", out);
  out.against = read_against(table, out);
  out.losses = read_losses(table, out);
  out.config = strings(table, "config");
  out.control = exact<bool>(table, "control", "true or false").value_or(false);
  out.always = exact<bool>(table, "always", "true or false").value_or(false);
  return out;
}

void Reader::read_range(const toml::table& table, OptionSpec* out) {
  if (const toml::node* node = table.get("range")) {
    const auto text = node->value_exact<std::string>();
    if (table.get("min") || table.get("max")) fail(*node, "'range' stands beside neither 'min' nor 'max'");
    if (!text) return fail(*node, "'range' must be a string like \"[0, 1)\"");
    const Result<Range> range = Range::parse(*text);
    if (!range) return fail(*node, "'range': " + range.error().cause);
    out->range = *range;
  }
  for (const char* key : {"min", "max"}) {
    const toml::node* node = table.get(key);
    double bound = 0;
    if (!node) continue;
    if (!toml_value(*node).number(&bound)) return fail(*node, "'" + std::string(key) + "' must be a number");
    (*key == 'm' && key[1] == 'i' ? out->range.low : out->range.high) = bound;
  }
}

OptionSpec Reader::read_option(const toml::table& table, const char* header, const std::string& of) {
  OptionSpec out;
  out.line = line_of(table);
  out.name = string(table, "name", header, true);
  if (error_) return out;
  const std::string where = "option '" + out.name + "' of " + of;
  if (!is_name(out.name, "_")) fail(*table.get("name"), "the name of " + where + " must be lower-case letters, digits and '_'");
  only(table, where,
       {"name", "type", "default", "range", "min", "max", "choices", "length", "schedule", "required", "description", "aliases", "field",
        "matches"});
  out.description = string(table, "description", where, true);
  const std::string type = string(table, "type", where, true);
  if (error_) return out;

  const auto& types = option_type_names();
  const auto found = std::find(types.begin(), types.end(), type);
  if (found == types.end()) {
    const std::string hint = did_you_mean(type, types);
    fail(*table.get("type"), "unknown type '" + type + "' of " + where + (hint.empty() ? "" : "; " + hint));
    return out;
  }
  out.type = static_cast<OptionType>(found - types.begin());
  const bool numeric = out.type == OptionType::Integer || out.type == OptionType::Number, list = out.type == OptionType::Numbers;
  const auto meant_for = [&](const char* key, bool here) {
    if (table.get(key) && !here)
      fail(*table.get(key), "'" + std::string(key) + "' means nothing for " + where + ", which is of type " + type);
  };
  meant_for("range", numeric || list);
  meant_for("min", numeric || list);
  meant_for("max", numeric || list);
  const bool field = std::string_view(header) == "[[strategy.option.field]]", tables = out.type == OptionType::Tables;
  meant_for("schedule", numeric && !field);
  meant_for("field", tables && !field);
  meant_for("choices", out.type == OptionType::Choice || out.type == OptionType::Number);
  meant_for("length", list || out.type == OptionType::Strings);
  meant_for("matches", list || out.type == OptionType::Strings);

  read_range(table, &out);
  out.choices = strings(table, "choices");
  out.aliases = strings(table, "aliases");
  out.matches = string(table, "matches", where);
  static const std::vector<std::string> of_names = {"parameters", "trained", "states", "nodes"}, of_numbers = {"tokens"};
  const std::vector<std::string>& subjects = list ? of_numbers : of_names;
  if (!out.matches.empty() && std::find(subjects.begin(), subjects.end(), out.matches) == subjects.end())
    fail(*table.get("matches"),
         "'matches' of " + where + " is '" + out.matches + "'; of " + type + " there are " + listed(subjects, subjects.size()));
  out.length = exact<int64_t>(table, "length", "a whole number").value_or(0);
  out.schedule = exact<bool>(table, "schedule", "true or false").value_or(false);
  out.required = exact<bool>(table, "required", "true or false").value_or(false);
  if (out.type == OptionType::Choice && out.choices.empty()) fail(table, where + " has no 'choices'");
  each(table, "field", [&](const toml::table& entry) { out.fields.push_back(read_option(entry, "[[strategy.option.field]]", where)); });
  if (tables && out.fields.empty()) fail(table, where + " has no 'field'");
  if (const toml::node* node = table.get("default")) {
    if (out.required) fail(*node, where + " is required and so has no default");
    const Result<Value> value = out.accept(toml_value(*node));
    if (!value) fail(*node, "the default of " + where + " " + value.error().cause);
    else out.fallback = *value;
  }
  return out;
}

std::vector<FacetRule> Reader::read_facets(const toml::table& table, const char* key, const StrategySpec& strategy) {
  std::vector<FacetRule> out;
  each(table, key, [&](const toml::table& entry) {
    FacetRule rule;
    const std::string where = std::string("'") + key + "' of " + strategy.name;
    only(entry, where, {"facet", "value", "when"});
    rule.facet = string(entry, "facet", where, true);
    const auto& facets = facet_names();
    if (!error_ && std::find(facets.begin(), facets.end(), rule.facet) == facets.end()) {
      const std::string hint = did_you_mean(rule.facet, facets);
      fail(*entry.get("facet"), "unknown facet '" + rule.facet + "' in " + where + (hint.empty() ? "" : "; " + hint));
    }
    const toml::node* value = entry.get("value");
    if (value) rule.value = toml_value(*value);
    else if (std::string_view(key) == "provides") fail(entry, where + " has no 'value'");
    if (rule.value.as<List>() || rule.value.as<Table>() || rule.value.as<double>())
      fail(*value, "the value of a facet is a string, a whole number or a boolean");
    rule.when = read_when(entry, strategy);
    out.push_back(std::move(rule));
  });
  return out;
}

std::map<std::string, List> Reader::read_when(const toml::table& table, const StrategySpec& strategy) {
  std::map<std::string, List> out;
  const toml::node* when = table.get("when");
  if (!when) return out;
  const auto* conditions = when->as_table();
  if (!conditions) {
    fail(*when, "'when' must be a table: { option = value }");
    return out;
  }
  for (const auto& [name, wanted] : *conditions) {
    const OptionSpec* option = strategy.option(name.str());
    if (!option) {
      fail(wanted, "'when' names '" + std::string(name.str()) + "', which is no option of " + strategy.name);
      continue;
    }
    const Value given = toml_value(wanted);
    List& any = out[option->name];
    for (const Value& element : given.as<List>() ? *given.as<List>() : List{given}) {
      const Result<Value> accepted = option->accept(element);
      if (accepted) any.push_back(*accepted);
      else fail(wanted, "'when': '" + option->name + "' " + accepted.error().cause);
    }
  }
  return out;
}

Against Reader::read_against(const toml::table& table, const StrategySpec& strategy) {
  Against out;
  const toml::node* node = table.get("against");
  if (!node) return out;
  const std::string where = "'against' of " + strategy.name;
  const auto arm = [&](const toml::node& at) {
    const std::string text = at.value_exact<std::string>().value_or("");
    if (text == "without") out.arm = Against::Arm::Without;
    else if (text == "gradients") out.arm = Against::Arm::Gradients;
    else if (text == "start") out.arm = Against::Arm::Start;
    else fail(at, where + " must be 'without', 'gradients' or 'start'" + (text.empty() ? ", or a table" : ", not '" + text + "'"));
  };
  const auto* entry = node->as_table();
  if (!entry) {
    arm(*node);
    return out;
  }
  only(*entry, where, {"arm", "instead", "batch", "within", "when", "unless"});
  if (static_cast<bool>(entry->get("arm")) == static_cast<bool>(entry->get("instead"))) {
    fail(*node, where + " has either an 'arm' or an 'instead'");
    return out;
  }
  if (const toml::node* given = entry->get("arm")) arm(*given);
  out.strategy = string(*entry, "instead", where);
  if (!out.strategy.empty()) out.arm = Against::Arm::Instead;
  out.batch = string(*entry, "batch", where);
  if (!out.batch.empty()) {
    const OptionSpec* option = strategy.option(out.batch);
    if (!option || option->type != OptionType::Integer)
      fail(*entry->get("batch"), "'batch' names '" + out.batch + "', which is no integer option of " + strategy.name);
  }
  if (const toml::node* within = entry->get("within")) {
    const auto bound = [&](const toml::node& at) -> std::optional<double> {
      double number = 0;
      if (!toml_value(at).number(&number) || !(number > 0)) fail(at, "'within' must be a number above 0");
      else if (strategy.exactness != Exactness::Approximate) fail(at, "'within' is of strategies that are 'approximate'");
      return number;
    };
    if (const toml::table* each_one = within->as_table()) {
      only(*each_one, "'within' of " + strategy.name, {"loss", "gradients"});
      if (const toml::node* loss = each_one->get("loss")) out.within_loss = bound(*loss);
      if (const toml::node* gradients = each_one->get("gradients")) out.within = bound(*gradients);
    } else {
      out.within = out.within_loss = bound(*within);
    }
  }
  out.when = read_when(*entry, strategy);
  out.unless = strings(*entry, "unless");
  for (const std::string& name : out.unless)
    if (!strategy.option(name)) fail(*entry->get("unless"), "'unless' names '" + name + "', which is no option of " + strategy.name);
  return out;
}

std::vector<MeasuredLoss> Reader::read_losses(const toml::table& table, const StrategySpec& strategy) {
  std::vector<MeasuredLoss> out;
  const toml::node* node = table.get("loss");
  if (!node) return out;
  const auto nats_of = [&](const toml::node* at, const toml::node& place) {
    double nats = 0;
    if (!at || !toml_value(*at).number(&nats) || !(nats >= 0)) fail(place, "a 'loss' is a number of nats of at least 0");
    return nats;
  };
  if (!node->as_array()) {
    out.push_back({nats_of(node, *node), {}});
    return out;
  }
  each(table, "loss", [&](const toml::table& entry) {
    only(entry, "'loss' of " + strategy.name, {"nats", "when"});
    out.push_back({nats_of(entry.get("nats"), entry), read_when(entry, strategy)});
  });
  return out;
}

}  // namespace

bool Requirement::met_by(const std::string& version) const { return numbers_of_version(version) >= least; }

namespace {

bool fulfilled(const std::map<std::string, List>& when, const Table& options) {
  return std::all_of(when.begin(), when.end(), [&](const auto& condition) {
    const auto found = options.find(condition.first);
    return found != options.end() && std::find(condition.second.begin(), condition.second.end(), found->second) != condition.second.end();
  });
}

}  // namespace

bool FacetRule::holds(const Table& options) const { return fulfilled(when, options); }

bool Against::holds(const Table& options, const Table& given) const {
  return fulfilled(when, options) && std::none_of(unless.begin(), unless.end(), [&](const auto& name) { return given.contains(name); });
}

std::string Against::text() const {
  std::string out;
  switch (arm) {
    case Arm::None: return out;
    case Arm::Without: out = "the same recipe without it"; break;
    case Arm::Gradients: out = "the loss and the gradients of the same recipe without it"; break;
    case Arm::Start: out = "the loss of the model without it, before the first update"; break;
    case Arm::Instead: out = "the same recipe with " + strategy; break;
  }
  if (!batch.empty()) out += ", whose batch is `" + batch + "` times as large";
  const auto number = [](double x) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", x);
    return std::string(text);
  };
  if (within && within_loss && *within == *within_loss) {
    out += ", within " + number(*within);
  } else {
    if (within_loss) out += ", losses within " + number(*within_loss);
    if (within) out += ", gradients within " + number(*within);
  }
  for (const auto& [name, any] : when) {
    out += ", if `" + name + "` is ";
    for (size_t i = 0; i < any.size(); ++i) out += (i == 0 ? "" : " or ") + to_json(any[i]);
  }
  for (size_t i = 0; i < unless.size(); ++i) out += (i == 0 ? ", unless `" : " or `") + unless[i] + "`";
  if (!unless.empty()) out += " is given";
  return out;
}

double StrategySpec::loss(const Table& given) const {
  const auto found = std::find_if(losses.begin(), losses.end(), [&](const MeasuredLoss& l) { return fulfilled(l.when, given); });
  return found == losses.end() ? 0 : found->nats;
}

const OptionSpec* StrategySpec::option(std::string_view option_name) const {
  const auto found = std::find_if(options.begin(), options.end(), [&](const OptionSpec& o) { return o.name == option_name; });
  return found == options.end() ? nullptr : &*found;
}

const StrategySpec* Manifest::strategy(std::string_view name) const {
  const auto found = std::find_if(strategies.begin(), strategies.end(), [&](const StrategySpec& s) { return s.name == name; });
  return found == strategies.end() ? nullptr : &*found;
}

std::string abi_problem(uint32_t major, uint32_t minor) {
  const auto text = [](uint32_t a, uint32_t b) { return std::to_string(a) + "." + std::to_string(b); };
  // A draft breaks with the one before; of a released version lower minor numbers run too.
  if (major == GALLEY_ABI_MAJOR && (major == 0 ? minor == GALLEY_ABI_MINOR : minor <= GALLEY_ABI_MINOR)) return {};
  const bool drafts = major == 0 || GALLEY_ABI_MAJOR == 0;
  return "needs ABI " + text(major, minor) + ", this Galley has " + text(GALLEY_ABI_MAJOR, GALLEY_ABI_MINOR) +
         (drafts ? ": drafts do not mix, build it again with this version's SDK" : "");
}

Result<Manifest> parse_manifest(std::string_view text, const std::filesystem::path& file) {
  const toml::parse_result parsed = toml::parse(text, file.string());
  if (!parsed) {
    const auto& error = parsed.error();
    return plugin_error(Place{file.string(), static_cast<int>(error.source().begin.line)}.text() + ": " + std::string(error.description()));
  }
  return Reader(file).read(parsed.table());
}

Result<Manifest> read_manifest(const std::filesystem::path& file) {
  Result<std::string> text = read_text(file, 1u << 20);
  if (!text) return plugin_error(text.error().cause);
  return parse_manifest(*text, std::filesystem::absolute(file).lexically_normal());
}

}  // namespace galley
