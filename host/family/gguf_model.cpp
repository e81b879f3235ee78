#include "host/family/gguf_model.hpp"

#include <cmath>
#include <set>
#include <span>

#include "host/base/gguf.hpp"
#include "host/base/listed.hpp"
#include "host/base/printable.hpp"
#include "host/family/lua_file.hpp"
#include "host/lua/convert.hpp"

namespace galley {

void push_gguf(lua_State* L, const char* key) {
  push_family(L);
  lua_getfield(L, -1, "gguf");
  lua_remove(L, -2);
  if (!key || !lua_istable(L, -1)) return;
  lua_getfield(L, -1, key);
  lua_remove(L, -2);
}

tensor_files::FileForm gguf_form(const Value& said) {
  const auto* form = said.as<Table>();
  const auto number = [&](const char* key, double x) {
    if (form && form->contains(key)) form->at(key).number(&x);
    return x;
  };
  const auto whole = [&](const char* key) { return static_cast<int64_t>(number(key, 1)); };
  return {whole("outer"), whole("a"), whole("b"), number("turned", 0) == 1, number("added", 0), number("scale", 1)};
}

namespace {

/// The family that reads GGUF files of an architecture; an error lists all that are read.
Result<Family> find_architecture(const std::string& architecture, const FamilyFolders& folders, const std::string& origin) {
  std::vector<std::string> known;
  for (const auto& file : TRY(family_files(folders))) {
    Family family = TRY(open_family(file, folders));
    Value read;
    TRY_STATUS(family.lua->protect(
        [](lua_State* L) -> int {
          push_gguf(L, "architectures");
          if (lua_istable(L, -1)) *static_cast<Value*>(lua_touserdata(L, 1)) = to_value(L, -1);
          return 0;
        },
        &read));
    for (const std::string& name : texts_in(read)) {
      if (name == architecture) return family;
      known.push_back(name);
    }
  }
  return recipe_error(origin + ": 'general.architecture' is '" + printable(architecture.substr(0, 100), Lines::Escape) +
                          "', which is not read from GGUF files",
                      "supported: " + listed(known, 20, 400));
}

/// The numbers of vectors in F32 that are no longer than a head, by name.
Result<Table> short_vectors(const gguf::Header& header) {
  constexpr int64_t longest = 256;
  Table out;
  for (const tensor_files::Entry& entry : header.entries) {
    if (entry.dtype != tensor_files::Dtype::F32 || entry.shape.size() != 1 || entry.shape[0] > longest) continue;
    float numbers[longest];
    const std::span<float> some(numbers, static_cast<size_t>(entry.shape[0]));
    TRY_STATUS(header.file.read_at(std::as_writable_bytes(some), entry.offset));
    // What is no number is none that anything expects.
    List list;
    for (const float x : some) list.emplace_back(std::isfinite(x) ? static_cast<double>(x) : 0.0);
    out.emplace(entry.name, std::move(list));
  }
  return out;
}

/// What a GGUF file says of its model, in the words of config.json.
Result<Table> gguf_config(Family& family, const gguf::Header& header, const std::string& origin) {
  struct Ask {
    const gguf::Header& header;
    const Table short_vectors;
    Value config;
  } ask = {header, TRY(short_vectors(header)), {}};
  const Status asked = family.lua->protect(
      [](lua_State* L) -> int {
        auto* a = static_cast<Ask*>(lua_touserdata(L, 1));
        push_gguf(L, "config");
        push_value(L, Value(a->header.metadata));
        Table shapes;
        for (const tensor_files::Entry& entry : a->header.entries) shapes[entry.name] = Value(List(entry.shape.begin(), entry.shape.end()));
        push_value(L, Value(std::move(shapes)));
        push_value(L, Value(a->short_vectors));
        lua_call(L, 3, 1);
        a->config = to_value(L, -1);
        return 0;
      },
      &ask);
  if (!asked) return recipe_error(origin + ": " + asked.error().cause, asked.error().hint);
  const Table* config = ask.config.as<Table>();
  if (!config) return recipe_error(origin + ": the family makes no configuration of it");
  Table out = *config;
  std::set<std::string> types;
  for (const tensor_files::Entry& entry : header.entries)
    if (tensor_files::in_blocks(entry.dtype)) types.insert(tensor_files::name_of(entry.dtype));
  if (!types.empty()) out[kGgufTypes] = Value(List(types.begin(), types.end()));
  return out;
}

}  // namespace

Status read_gguf_model(const std::filesystem::path& file, const FamilyFolders& folders, ModelConfig* out) {
  const gguf::Header header = TRY(gguf::read(file));
  const auto at = header.metadata.find("general.architecture");
  const auto* architecture = at == header.metadata.end() ? nullptr : at->second.as<std::string>();
  if (!architecture) return recipe_error(file.string() + ": no text 'general.architecture'", "the file does not say which model it holds");
  Family family = TRY(find_architecture(*architecture, folders, file.string()));
  out->config = TRY(gguf_config(family, header, file.string()));
  out->origin = file.string();
  out->gguf = true;
  return ok();
}

Status name_in_gguf(Sandbox& lua, const ModelConfig& model, Draft& draft) {
  struct Ask {
    const ModelConfig& model;
    Draft& draft;
  } ask = {model, draft};
  const Status named = lua.protect(
      [](lua_State* L) -> int {
        auto* a = static_cast<Ask*>(lua_touserdata(L, 1));
        push_gguf(L, "tensor");
        push_value(L, Value(a->model.config));
        const auto name = [&](const std::string& of, tensor_files::FileForm* form) {
          lua_pushvalue(L, 2);
          lua_pushlstring(L, of.data(), of.size());
          lua_pushvalue(L, 3);
          lua_call(L, 2, 2);
          std::string out = luaL_checkstring(L, -2);
          *form = gguf_form(to_value(L, -1));
          lua_pop(L, 2);
          return out;
        };
        for (galley_tensor t = 1; t <= a->draft.graph.tensor_count(); ++t) {
          GraphTensor& x = a->draft.graph.tensor(t);
          if (x.source.path.empty()) continue;
          x.source.name = name(x.source.name, &x.source.form);
          for (std::string& alias : x.source.aliases) alias = name(alias, &x.source.form);
          std::erase(x.source.aliases, x.source.name);
          x.source.hint.clear();
        }
        push_gguf(L, "ignored");
        for (const std::string& pattern : texts_in(to_value(L, -1))) a->draft.ignored_files.push_back(pattern);
        return 0;
      },
      &ask);
  if (!named) return recipe_error(model.origin + ": " + named.error().cause, named.error().hint);
  return ok();
}

}  // namespace galley
