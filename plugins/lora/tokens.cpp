#include "tokens.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "galley/cpp/patterns.hpp"

namespace galley::lora {
namespace {

using peft::ends_with;
using peft::Json;
using peft::Module;
using sdk::Attrs;
using sdk::Graph;
using sdk::GraphReader;
using sdk::invalid;

constexpr const char *kOption = "trainable_token_indices", *kModules = "trainable_token_modules";
constexpr const char *kDelta = ".token_adapter.trainable_tokens_delta", *kList = ".token_adapter.token_indices";

std::vector<int64_t> ids_of(const sdk::Options& options, const char* name) {
  std::vector<int64_t> out;
  for (const double id : options.numbers(name)) {
    if (!(id >= 0 && id < 2147483648.0) || std::floor(id) != id)
      invalid("'" + std::string(name) + "' has to hold ids of tokens, whole numbers from 0 on");
    out.push_back(static_cast<int64_t>(id));
  }
  return out;
}

/// A table that tokens are looked up in: the nodes that do so, and what they make.
struct Lookup {
  std::string module;
  galley_tensor table;
  std::vector<galley_node> nodes;
  bool of_input;  // by the ids of the model's input
};

std::vector<Lookup> lookups(const GraphReader& graph) {
  std::vector<Lookup> out;
  for (galley_node n = graph.next_node(0, GALLEY_NODES_MODEL); n; n = graph.next_node(n, GALLEY_NODES_MODEL)) {
    const galley_node_info node = graph.node(n);
    if (!galley_same_text(node.op, "embedding") || graph.info(node.inputs[1]).kind != GALLEY_KIND_PARAMETER) continue;
    const galley_tensor_info table = graph.info(node.inputs[1]), ids = graph.info(node.inputs[0]);
    auto at = std::find_if(out.begin(), out.end(), [&](const Lookup& known) { return known.table == node.inputs[1]; });
    if (at == out.end()) at = out.insert(out.end(), {sdk::module_of(table.name), node.inputs[1], {}, false});
    at->nodes.push_back(n);
    at->of_input = at->of_input || galley_same_text(ids.name, "input_ids");
  }
  return out;
}

const galley_attr* attr_of(const galley_node_info& node, const char* name) {
  for (uint32_t i = 0; i < node.n_attrs; ++i)
    if (galley_same_text(node.attrs[i]->name, name)) return node.attrs[i];
  return nullptr;
}

}  // namespace

/// Where the rows of one parameter are read.
struct Tokens::Place {
  const Of* of;
  std::string module;               // whose name the parameter has
  galley_tensor table = 0;          // whose rows it holds
  std::vector<galley_node> looked;  // the nodes that look tokens up
  bool in_head = false;             // whether logits are made with it
  Module head = {};                 // where they are
  uint64_t kind() const { return looked.empty() ? GALLEY_TENSOR_HEAD : GALLEY_TENSOR_EMBEDDING; }
};

Tokens::Tokens(const sdk::Options& options) : where_(std::string("'") + kOption + "'") {
  if (options.given(kOption) && options.given(kModules))
    invalid(std::string("give '") + kOption + "', the rows of the embedding, or '" + kModules + "', rows by module, and not both");
  if (options.given(kOption)) modules_.push_back({"", ids_of(options, kOption)});
  if (options.given(kModules)) where_ = std::string("'") + kModules + "'";
  for (const sdk::Options& entry : options.tables(kModules)) modules_.push_back({entry.string("module"), ids_of(entry, "indices")});
  check_ids();
}

Tokens::Tokens(const peft::Key& key) {
  if (!key) return;
  where_ = key.place();
  const auto list = [&](const Json& value) {
    std::vector<int64_t> out;
    if (!value.is_array()) key.wrong("has to be a list of ids, or an object of such lists by module");
    for (const Json& id : value) {
      if (!id.is_number_integer() || id < 0 || id > 2147483647) key.wrong("has to hold ids of tokens, whole numbers from 0 on");
      out.push_back(id.get<int64_t>());
    }
    return out;
  };
  if (key.value().is_object())
    for (const auto& [module, ids] : key.value().items()) modules_.push_back({module, list(ids)});
  else modules_.push_back({"", list(key.value())});
  check_ids();
}

void Tokens::check_ids() const {
  for (const Of& of : modules_) {
    if (of.ids.empty()) invalid(where_ + " is an empty list", "name the ids of the tokens to train, or leave it out");
    std::set<int64_t> seen;
    for (const int64_t id : of.ids)
      if (!seen.insert(id).second) invalid(where_ + " has the id " + std::to_string(id) + " twice", "name each token once");
  }
}

std::vector<Tokens::Place> Tokens::places(const GraphReader& graph) const {
  std::vector<Place> out;
  if (modules_.empty()) return out;
  const std::vector<Lookup> tables = lookups(graph);
  const std::vector<Module> modules = peft::linear_modules(graph);
  const auto head = std::find_if(modules.begin(), modules.end(), [](const Module& m) { return m.head; });
  std::vector<std::string> names;
  for (const Lookup& table : tables) names.push_back(table.module);
  if (head != modules.end()) names.push_back(head->name);
  for (const Of& of : modules_) {
    const auto named = [&](const std::string& module) { return ends_with(module, of.module); };
    const auto at =
        std::find_if(tables.begin(), tables.end(), [&](const Lookup& x) { return of.module.empty() ? x.of_input : named(x.module); });
    Place place = {&of, "", 0, {}, false, {}};
    if (at != tables.end()) {
      place.module = at->module, place.table = at->table, place.looked = at->nodes;
    } else if (head != modules.end() && !of.module.empty() && named(head->name)) {
      place.module = head->name, place.table = head->weight, place.in_head = true, place.head = *head;
    } else {
      invalid(where_ + ": no embedding and no head is called '" + of.module + "'; " + sdk::nearest_names(of.module, names));
    }
    for (const Place& other : out)
      if (other.module == place.module) invalid(where_ + " names " + place.module + " twice", "put all its ids into one list");
    out.push_back(std::move(place));
  }
  // A head that is the embedding has the embedding's rows, unless it has others of its own.
  for (Place& place : out) {
    if (place.in_head || head == modules.end() || !head->tied || head->weight != place.table) continue;
    const auto own = std::find_if(out.begin(), out.end(), [](const Place& other) { return other.in_head; });
    if (own != out.end() && own->of->ids != place.of->ids) continue;
    place.in_head = true, place.head = *head;
    if (own != out.end()) out.erase(own);
    break;
  }
  return out;
}

void Tokens::adapt(sdk::ModelGraph& graph, peft::Parts& parts, const std::vector<const Module*>& adapted,
                   const std::function<std::string(const std::string&)>& saved_with) const {
  for (const Place& place : places(graph)) {
    const std::vector<int64_t>& ids = place.of->ids;
    const galley_tensor_info table = graph.info(place.table);
    const auto n = static_cast<int64_t>(ids.size()), rows = table.shape[0], C = table.shape[1];
    for (const int64_t id : ids)
      if (id >= rows)
        invalid(where_ + " has the id " + std::to_string(id) + ", but " + place.module + " has " + std::to_string(rows) + " rows",
                "ids go from 0 to " + std::to_string(rows - 1));
    for (const std::string& module : {place.module, place.in_head ? place.head.name : place.module}) {
      if (const std::string whole = saved_with(module); !whole.empty())
        invalid(where_ + ": rows of " + module + " are to be trained, and 'modules_to_save' trains '" + whole + "' whole",
                "leave out one of the two");
      if (std::any_of(adapted.begin(), adapted.end(), [&](const Module* m) { return m->name == module; }))
        invalid(where_ + ": rows of " + module + " are to be trained, which has matrices of the adapter, too: PEFT takes one of the two",
                "leave it out of 'targets', or out of " + where_);
    }
    if (place.in_head && place.head.bias)
      invalid(where_ + ": the head " + place.head.name +
              " has a bias, which PEFT leaves out where rows of a head are trained: it would read another model");
    for (const galley_node node : place.looked)
      if (const std::string reader = graph.GraphReader::node(node).name; reader != place.module && !place.in_head)
        invalid(where_ + ": the table of " + place.module + " is read by " + reader +
                ", which PEFT leaves as it is unless the head shares it, too");

    const std::string prefix = peft::prefixed(place.module);
    const std::string list = prefix + kList;
    const std::vector<int64_t> shape = {n};
    Attrs attrs;
    attrs.list("tokens", ids);
    galley_tensor_desc d = Graph::described(list, GALLEY_KIND_CONSTANT, GALLEY_I32, shape);
    d.initializer = "token_list";
    d.attrs = attrs.data();
    d.n_attrs = attrs.count();
    const galley_tensor tokens = graph.make(d);
    // A token need not be in every batch.
    const galley_tensor delta =
        parts.make(prefix + kDelta, {n, C}, place.kind() | GALLEY_TENSOR_ZERO_GRADIENT, {"embedding", {tokens, place.table}});
    for (const galley_node at : place.looked) {
      const galley_node_info node = graph.GraphReader::node(at);
      Attrs of_rows;
      if (const galley_attr* padding = attr_of(node, "padding")) of_rows.copy(*padding);
      const std::string name = peft::prefixed(node.name) + ".token_adapter";
      graph.replace(node.outputs[0],
                    graph.node("put_token_rows", name.c_str(), {node.outputs[0], node.inputs[0], tokens, delta}, of_rows)[0]);
    }
    if (!place.in_head) continue;
    const std::string name = peft::prefixed(place.head.name) + ".token_adapter";
    const galley_tensor z = graph.node("linear", (name + ".rows").c_str(), {place.head.x, delta})[0];
    graph.replace(place.head.y, graph.node("put_token_columns", name.c_str(), {place.head.y, tokens, z})[0]);
  }
}

void Tokens::merge(sdk::ExportGraph& graph, peft::Merge& into) const {
  for (const Place& place : places(graph)) {
    const std::string prefix = peft::prefixed(place.module);
    const galley_tensor value = graph.node("set_token_rows", (prefix + ".merged_rows").c_str(),
                                           {place.table, graph.find(prefix + kList), graph.find(prefix + kDelta)})[0];
    if (place.looked.empty()) into.weight(place.head, value);
    else graph.export_as(place.table, value);
  }
}

Json Tokens::config(const GraphReader& graph) const {
  if (modules_.empty()) return nullptr;
  if (modules_.front().module.empty()) return modules_.front().ids;
  Json out = Json::object();
  for (const Place& place : places(graph)) out[place.module] = place.of->ids;
  return out;
}

}  // namespace galley::lora
