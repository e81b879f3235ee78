#include "host/family/family.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "host/base/json.hpp"
#include "host/base/nearest.hpp"
#include "host/base/tensor_files.hpp"
#include "host/family/gguf_model.hpp"
#include "host/family/lua_file.hpp"
#include "host/family/task.hpp"
#include "host/lua/convert.hpp"

namespace galley {
namespace {

/// Tensors and nodes of a model: those of Llama 3.1 405B, with its 126 layers, are some 6,000; a GPT-2 of 2,000 layers has 60,000.
constexpr size_t kMostParts = size_t{1} << 17;

/// What a build is about; the bindings find it after their first upvalue.
struct Building {
  Draft* draft = nullptr;
  const ModelConfig* model = nullptr;
  RowDocuments documents = RowDocuments::Several;
  std::optional<tensor_files::Reader> files;  // of the model, once a parameter may be missing in them
  std::vector<std::string> fresh;             // parameters that the model's files do not have
  std::set<std::string> read;                 // keys of the configuration
  Table resolved;                             // what the family has written back
};

Building& building(lua_State* L) { return *static_cast<Building*>(lua_touserdata(L, lua_upvalueindex(1))); }

galley_tensor tensor_argument(lua_State* L, int index) {
  if (!lua_isinteger(L, index)) luaL_error(L, "a tensor is wanted, got %s", luaL_typename(L, index));
  const auto t = static_cast<galley_tensor>(lua_tointeger(L, index));
  if (!building(L).draft->graph.has(t)) luaL_error(L, "no tensor %d", static_cast<int>(t));
  return t;
}

int push_tensor(lua_State* L, const Result<galley_tensor>& t) {
  if (!t) raise(L, t.error());
  lua_pushinteger(L, static_cast<lua_Integer>(*t));
  return 1;
}

Shape shape_field(lua_State* L, int table) {
  Shape shape;
  lua_getfield(L, table, "shape");
  luaL_checktype(L, -1, LUA_TTABLE);
  for (lua_Integer i = 1;; ++i) {
    lua_rawgeti(L, -1, i);
    if (lua_isnil(L, -1)) {
      lua_pop(L, 1);
      break;
    }
    if (!lua_isinteger(L, -1) || lua_tointeger(L, -1) < 1)
      luaL_error(L, "extent %d of a shape is no positive integer", static_cast<int>(i));
    shape.push_back(lua_tointeger(L, -1));
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return shape;
}

std::string string_field(lua_State* L, int table, const char* key) {
  lua_getfield(L, table, key);
  size_t n = 0;
  const char* s = lua_isstring(L, -1) ? lua_tolstring(L, -1, &n) : nullptr;
  std::string out = s ? std::string(s, n) : std::string();
  lua_pop(L, 1);
  return out;
}

bool flag_field(lua_State* L, int table, const char* key, bool otherwise) {
  lua_getfield(L, table, key);
  const bool out = lua_isnil(L, -1) ? otherwise : lua_toboolean(L, -1);
  lua_pop(L, 1);
  return out;
}

/// A list of integers, or of numbers.
void set_list(lua_State* L, const std::string& key, const List& list, AttrList* out) {
  std::vector<int64_t> whole;
  std::vector<double> numbers;
  for (const Value& v : list) {
    double x = 0;
    if (!v.number(&x)) luaL_error(L, "attribute '%s' has a %s in its list", key.c_str(), v.type_name());
    numbers.push_back(x);
    if (const auto* i = v.as<int64_t>()) whole.push_back(*i);
  }
  if (whole.size() == numbers.size()) out->set(key, std::move(whole));
  else out->set(key, std::move(numbers));
}

/// Attributes from a table of numbers, booleans, strings and lists of numbers, in the order of their keys.
AttrList attributes(lua_State* L, int index) {
  AttrList out;
  if (lua_isnoneornil(L, index)) return out;
  const Value value = to_value(L, index);
  const Table* table = value.as<Table>();
  if (!table) return out;  // an empty table
  for (const auto& [key, v] : *table) {
    if (const auto* i = v.as<int64_t>()) out.set(key, *i);
    else if (const auto* d = v.as<double>()) out.set(key, *d);
    else if (const auto* s = v.as<std::string>()) out.set(key, *s);
    else if (const auto* b = v.as<bool>()) out.set(key, static_cast<int64_t>(*b));
    else if (const auto* list = v.as<List>()) set_list(L, key, *list, &out);
    else luaL_error(L, "attribute '%s' is a %s", key.c_str(), v.type_name());
  }
  return out;
}

/// Turns init = { "random_normal", std = 0.02 } into op and attributes.
void initializer(lua_State* L, int table, GraphTensor* t) {
  lua_getfield(L, table, "init");
  const int init = lua_gettop(L);
  if (lua_istable(L, init)) {
    lua_rawgeti(L, init, 1);
    if (lua_isstring(L, -1)) t->initial.op = lua_tostring(L, -1);
    lua_pop(L, 1);
    lua_newtable(L);  // what has a name
    lua_pushnil(L);
    while (lua_next(L, init)) {
      if (lua_type(L, -2) == LUA_TSTRING) {
        lua_pushvalue(L, -2);
        lua_pushvalue(L, -2);
        lua_rawset(L, init + 1);
      }
      lua_pop(L, 1);
    }
    t->initial.attrs = attributes(L, init + 1);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  if (const std::string op = string_field(L, table, "op"); !op.empty()) t->initial.op = op;
}

/// What the model's files have of a tensor, by any of its names; null: nothing.
const tensor_files::Entry* in_files(lua_State* L, const SourceFile& source) {
  Building& b = building(L);
  if (!b.files) {
    Result<tensor_files::Reader> opened = tensor_files::Reader::open(b.model->folder);
    if (!opened) raise(L, opened.error());
    b.files.emplace(std::move(*opened));
  }
  const tensor_files::Entry* found = b.files->find(source.name);
  for (size_t i = 0; !found && i < source.aliases.size(); ++i) found = b.files->find(source.aliases[i]);
  return found;
}

/// Tables of the vocabulary have fewer rows in the files than the model where tokens have been added.
void add_rows(lua_State* L, GraphTensor* t) {
  const Building& b = building(L);
  const tensor_files::Entry* entry = b.model->added_rows > 0 ? in_files(L, t->source) : nullptr;
  if (!entry || entry->shape.empty()) return;
  Shape whole = entry->shape;
  whole[0] += b.model->added_rows;
  if (whole == t->shape) t->source.added_rows = b.model->added_rows;
}

/// Whether two tensors are there and have the same bytes.
Result<bool> equal_in(const tensor_files::Reader& files, const tensor_files::Entry* a, const tensor_files::Entry* b) {
  constexpr uint64_t most = uint64_t{1} << 18;
  if (!a || !b || a->dtype != b->dtype || a->shape != b->shape) return false;
  std::vector<std::byte> bytes[2];
  for (uint64_t done = 0; done < a->bytes; done += most) {
    for (auto* part : {&bytes[0], &bytes[1]}) part->resize(std::min(most, a->bytes - done));
    TRY_STATUS(files.read_bytes(*a, done, bytes[0]));
    TRY_STATUS(files.read_bytes(*b, done, bytes[1]));
    if (bytes[0] != bytes[1]) return false;
  }
  return true;
}

// g:has(name): whether the model's files have a tensor of that name
int has_tensor(lua_State* L) {
  SourceFile source;
  source.name = luaL_checkstring(L, 2);
  lua_pushboolean(L, !building(L).model->random && in_files(L, source) != nullptr);
  return 1;
}

// g:same(a, b): whether the model's files have both tensors, with the same numbers
int same_tensors(lua_State* L) {
  const char *first = luaL_checkstring(L, 2), *second = luaL_checkstring(L, 3);
  const Building& b = building(L);
  SourceFile source;
  source.name = first;
  bool same = !b.model->random && in_files(L, source) != nullptr;
  if (same) {
    Result<bool> equal = equal_in(*b.files, b.files->find(first), b.files->find(second));
    if (!equal) raise(L, equal.error());
    same = *equal;
  }
  lua_pushboolean(L, same);
  return 1;
}

// g:parameter { name, shape, init, decay = true, embedding = false, zero_gradient = false, aliases = {…}, hint = "…", fresh = false }:
// `aliases` are other names of the same tensor in the model's file, `hint` the next step where the file has none of its names, or several
// and they differ. Where the file has none of them, a parameter that is `fresh` begins with `init`: the head of a new task.
int make_parameter(lua_State* L) {
  luaL_checktype(L, 2, LUA_TTABLE);
  Building& b = building(L);
  GraphTensor t;
  t.name = string_field(L, 2, "name");
  t.kind = GALLEY_KIND_PARAMETER;
  t.shape = shape_field(L, 2);
  if (!flag_field(L, 2, "decay", true)) t.flags |= GALLEY_TENSOR_NO_DECAY;
  if (flag_field(L, 2, "embedding", false)) t.flags |= GALLEY_TENSOR_EMBEDDING;
  if (flag_field(L, 2, "zero_gradient", false)) t.flags |= GALLEY_TENSOR_ZERO_GRADIENT;
  if (b.model->random) {
    initializer(L, 2, &t);
  } else {
    t.source.path = b.model->folder.string();
    t.source.name = t.name;
    lua_getfield(L, 2, "aliases");
    t.source.aliases = texts_in(to_value(L, -1));
    lua_pop(L, 1);
    t.source.hint = string_field(L, 2, "hint");
    if (flag_field(L, 2, "fresh", false) && !in_files(L, t.source)) {
      b.fresh.push_back(t.name);
      t.source = {};
      initializer(L, 2, &t);
    }
    add_rows(L, &t);
  }
  return push_tensor(L, b.draft->graph.make(std::move(t)));
}

// g:constant { name, shape, init, op }
int make_constant(lua_State* L) {
  luaL_checktype(L, 2, LUA_TTABLE);
  GraphTensor t;
  t.name = string_field(L, 2, "name");
  t.kind = GALLEY_KIND_CONSTANT;
  t.shape = shape_field(L, 2);
  initializer(L, 2, &t);
  return push_tensor(L, building(L).draft->graph.make(std::move(t)));
}

/// What the data puts into an input: what its table says, or what an input of that name has.
Fill fill_of(lua_State* L, const std::string& name, const std::string& given) {
  if (given.empty() && name == "labels") return building(L).model->learning.labels;
  size_t fill = fill_named(given);
  std::string known;
  for (size_t i = 0; i < kFills; ++i) {
    if (given.empty() && name == kFillInfo[i].input) fill = i;
    const char* word = given.empty() ? kFillInfo[i].input : kFillInfo[i].name;
    if (*word) known += std::string(known.empty() ? "" : ", ") + word;
  }
  if (fill == kFills)
    luaL_error(L,
               given.empty() ? "no data fills an input '%s'; say with what: fill = …, or call it one of %s"
                             : "no data fills inputs with '%s'; known are %s",
               given.empty() ? name.c_str() : given.c_str(), known.c_str());
  return static_cast<Fill>(fill);
}

// g:input(name), or g:input { name, fill, shape, below }: a tensor that the loader fills for each micro-batch, with what `fill` names
// (host/base/fill.hpp); of I32, but F32 of values. Its numbers are `below` that. false for "first_key" where a row is one document.
int make_input(lua_State* L) {
  const bool table = lua_istable(L, 2);
  const std::string name = table ? string_field(L, 2, "name") : luaL_checkstring(L, 2);
  if (name.empty()) luaL_error(L, "an input has no name");
  if (const auto& own = building(L).draft->run.own_inputs; std::ranges::find(own, name, &OwnInput::name) != own.end())
    return push_tensor(L, building(L).draft->input(name));
  const Fill fill = fill_of(L, name, table ? string_field(L, 2, "fill") : "");
  if (fill == Fill::FirstKey && building(L).documents == RowDocuments::One) {
    lua_pushboolean(L, 0);
    return 1;
  }
  Graph& graph = building(L).draft->graph;
  if (const galley_tensor found = graph.find(name)) return push_tensor(L, found);
  GraphTensor t;
  t.name = name;
  t.kind = GALLEY_KIND_INPUT;
  t.dtype = fill == Fill::RowValues ? GALLEY_F32 : GALLEY_I32;
  t.fill = fill;
  const Extents& e = graph.extents();
  const FillExtent extent = info_of(fill).extent;
  t.shape = {e.rows};
  if (extent == FillExtent::Row) t.shape.push_back(e.length);
  if (extent == FillExtent::Target) t.shape.push_back(e.target_length);
  const Learning& learning = building(L).model->learning;
  if (extent == FillExtent::Labels && (learning.several || fill == Fill::RowValues)) t.shape.push_back(learning.classes);
  if (extent == FillExtent::Target && e.target_length == 0)
    luaL_error(L, "input '%s' is of a target, and this task has none", name.c_str());
  if (table) {
    lua_getfield(L, 2, "below");
    t.below = lua_isinteger(L, -1) ? lua_tointeger(L, -1) : 0;
    lua_getfield(L, 2, "shape");
    const bool shaped = !lua_isnil(L, -1);
    lua_pop(L, 2);
    if (shaped && shape_field(L, 2) != t.shape)
      luaL_error(L, "input '%s' is filled with '%s', which has another shape", name.c_str(), info_of(fill).name);
  }
  return push_tensor(L, graph.make(std::move(t)));
}

int get_scalar(lua_State* L) {
  const std::string name = luaL_checkstring(L, 2);
  Graph& graph = building(L).draft->graph;
  const galley_tensor found = graph.find("scalar." + name);
  if (!found) luaL_error(L, "no step scalar '%s'", name.c_str());
  return push_tensor(L, found);
}

std::vector<galley_tensor> tensor_list(lua_State* L, int table) {
  std::vector<galley_tensor> out;
  luaL_checktype(L, table, LUA_TTABLE);
  const auto n = static_cast<lua_Integer>(lua_rawlen(L, table));
  for (lua_Integer i = 1; i <= n; ++i) {
    lua_rawgeti(L, table, i);
    out.push_back(lua_isinteger(L, -1) ? tensor_argument(L, -1) : 0);
    lua_pop(L, 1);
  }
  return out;
}

// g:node(op, name, { inputs; false where absent }, { attributes }) → its outputs
int make_node(lua_State* L) {
  Graph& graph = building(L).draft->graph;
  std::vector<galley_tensor> outputs;
  if (Status name = graph.check_node_name(luaL_checkstring(L, 3)); !name) raise(L, name.error());
  auto node = graph.append(luaL_checkstring(L, 2), luaL_checkstring(L, 3), tensor_list(L, 4), attributes(L, 5), &outputs);
  if (!node) raise(L, node.error());
  for (const galley_tensor t : outputs) lua_pushinteger(L, static_cast<lua_Integer>(t));
  return static_cast<int>(outputs.size());
}

// g:loss(op, name, { inputs }): adds to the window's loss
int make_loss(lua_State* L) {
  Graph& graph = building(L).draft->graph;
  std::vector<galley_tensor> outputs = {graph.find("scalar.loss")};
  auto node = graph.append(luaL_checkstring(L, 2), luaL_checkstring(L, 3), tensor_list(L, 4), attributes(L, 5), &outputs, {true});
  if (!node) raise(L, node.error());
  return 0;
}

int set_block(lua_State* L) {
  building(L).draft->graph.author.block = luaL_checkinteger(L, 2);
  return 0;
}
int mark_block_input(lua_State* L) {
  building(L).draft->graph.tensor(tensor_argument(L, 2)).flags |= GALLEY_TENSOR_BLOCK_INPUT;
  return 0;
}
int mark_hidden(lua_State* L) {
  building(L).draft->graph.marks.hidden = tensor_argument(L, 2);
  return 0;
}
int mark_output(lua_State* L) {
  building(L).draft->graph.marks.output = tensor_argument(L, 2);
  return 0;
}
// The head is the weight of the last product in front of the logits.
int mark_logits(lua_State* L) {
  Graph& graph = building(L).draft->graph;
  graph.marks.logits = tensor_argument(L, 2);
  for (galley_node made = graph.tensor(graph.marks.logits).producer; made;) {
    const GraphNode& node = graph.node(made);
    const bool product = node.op->flags & GALLEY_OP_LINEAR;
    if (product) graph.tensor(node.inputs[1]).flags |= GALLEY_TENSOR_HEAD;
    made = product ? 0 : graph.tensor(node.inputs[0]).producer;
  }
  return 0;
}
int ignore(lua_State* L) {
  building(L).draft->ignored_files.emplace_back(luaL_checkstring(L, 2));
  return 0;
}

// config.key: remembers what was read. The values lie in the table after the second upvalue.
int config_index(lua_State* L) {
  if (lua_type(L, 2) == LUA_TSTRING && std::string_view(lua_tostring(L, 2)) != "has") building(L).read.insert(lua_tostring(L, 2));
  lua_pushvalue(L, 2);
  lua_rawget(L, lua_upvalueindex(2));
  return 1;
}

// config.key = value: what the family takes, to be read again and saved
int config_newindex(lua_State* L) {
  const std::string key = luaL_checkstring(L, 2);
  building(L).resolved[key] = to_value(L, 3);
  lua_settop(L, 3);
  lua_rawset(L, lua_upvalueindex(2));
  return 0;
}

// config:has(key): whether the file has the key, be it null, which Lua cannot tell from its absence
int config_has(lua_State* L) {
  lua_pushboolean(L, building(L).model->config.contains(luaL_checkstring(L, 2)));
  return 1;
}

/// Pushes the arguments of build(config, g).
int push_arguments(lua_State* L) {
  auto* b = static_cast<Building*>(lua_touserdata(L, 1));
  lua_newtable(L);  // config: empty, so that every read comes to config_index
  const int config = lua_gettop(L);
  push_value(L, Value(b->model->config));
  const int values = lua_gettop(L);
  lua_pushlightuserdata(L, b);
  lua_pushcclosure(L, config_has, 1);
  lua_setfield(L, values, "has");
  lua_newtable(L);
  lua_pushlightuserdata(L, b);
  lua_pushvalue(L, values);
  static constexpr luaL_Reg events[] = {{"__index", config_index}, {"__newindex", config_newindex}, {nullptr, nullptr}};
  luaL_setfuncs(L, events, 2);
  lua_setmetatable(L, config);
  lua_settop(L, config);

  static constexpr luaL_Reg verbs[] = {{"has", has_tensor},
                                       {"same", same_tensors},
                                       {"parameter", make_parameter},
                                       {"constant", make_constant},
                                       {"input", make_input},
                                       {"scalar", get_scalar},
                                       {"node", make_node},
                                       {"loss", make_loss},
                                       {"block", set_block},
                                       {"mark_block_input", mark_block_input},
                                       {"mark_hidden", mark_hidden},
                                       {"mark_logits", mark_logits},
                                       {"mark_output", mark_output},
                                       {"ignore", ignore},
                                       {nullptr, nullptr}};
  lua_newtable(L);
  lua_pushlightuserdata(L, b);
  luaL_setfuncs(L, verbs, 1);
  lua_pushinteger(L, b->draft->graph.rows());
  lua_setfield(L, -2, "rows");
  lua_pushinteger(L, b->draft->graph.length());
  lua_setfield(L, -2, "length");
  lua_pushinteger(L, b->draft->graph.extents().target_length);
  lua_setfield(L, -2, "target_length");
  lua_pushstring(L, b->model->learning.task.c_str());
  lua_setfield(L, -2, "task");
  lua_pushinteger(L, b->model->learning.classes);
  lua_setfield(L, -2, "labels");
  return 2;
}

}  // namespace

Status build_family(ModelConfig& model, const FamilyFolders& folders, RowDocuments documents, Draft& draft) {
  Family family = TRY(find_family(model.model_type, folders, model.origin));
  Sandbox& lua = *family.lua;
  // transformers has ids of its own for what is not said, whatever the vocabulary.
  if (model.folder.empty())
    for (const char* token : {"bos_token_id", "eos_token_id", "pad_token_id"}) model.config.try_emplace(token);
  Building b;
  b.draft = &draft;
  Graph& graph = draft.graph;
  b.model = &model;
  if (!model.random) draft.run.model_files = model.folder.string();
  b.documents = documents;
  lua_State* L = lua.state();
  TRY_STATUS(lua.protect(
      [](lua_State* S) -> int {
        push_family(S);
        lua_getfield(S, -1, "build");
        if (!lua_isfunction(S, -1)) luaL_error(S, "a family has a function 'build'");
        return 1;
      },
      nullptr, 1));
  TRY_STATUS(lua.protect(push_arguments, &b, 2));
  graph.author = {};
  graph.author.room = kMostParts;
  Status built = lua.call(2, 0);
  graph.author = {};
  lua_settop(L, 0);
  if (!built) {
    Error error = std::move(built).error();
    error.cause = model.origin + ": " + error.cause;
    return error;
  }
  if (model.gguf && !model.random) {
    for (auto& [key, value] : b.resolved) model.config[key] = value;
    TRY_STATUS(name_in_gguf(lua, model, draft));
  }
  std::vector<std::string> harmless = texts_in(TRY(family_field(lua, "harmless")));
  for (std::string& key : texts_in(TRY(family_field(lua, "harmless", "config")))) harmless.push_back(std::move(key));
  for (const auto& [key, value] : model.config) {
    const bool off = value.is_nil() || (value.as<bool>() && !*value.as<bool>());
    if (off || b.read.contains(key) || std::find(harmless.begin(), harmless.end(), key) != harmless.end()) continue;
    const std::vector<std::string> known(b.read.begin(), b.read.end());
    return recipe_error(model.origin + ": key '" + key + "' = " + to_json(value) +
                            " is not supported by this family, and may change what the model computes",
                        did_you_mean(key, known));
  }
  for (auto& [key, value] : b.resolved) model.config[key] = std::move(value);
  model.config["model_type"] = Value(model.model_type);
  // Whatever class the weights were saved by, what Galley trains and saves is this one. Code that came with the folder is not saved.
  model.config["architectures"] = Value(List{Value(model.architecture)});
  model.fresh = std::move(b.fresh);
  model.config.erase("auto_map");
  return ok();
}

}  // namespace galley
