#include "host/tools/gguf/naming.hpp"

#include "host/base/listed.hpp"
#include "host/family/gguf_model.hpp"
#include "host/family/task.hpp"
#include "host/lua/convert.hpp"

namespace galley {
namespace {

/// The pairs of a list `keys`.
std::vector<std::pair<std::string, Value>> keys_in(const Value& answer) {
  std::vector<std::pair<std::string, Value>> out;
  if (const auto* keys = answer.field<List>("keys"))
    for (const Value& key : *keys)
      if (const auto* pair = key.as<List>(); pair && pair->size() == 2 && (*pair)[0].as<std::string>())
        out.emplace_back(*(*pair)[0].as<std::string>(), (*pair)[1]);
  return out;
}

/// Whether the family writes GGUF files.
Result<bool> writes_gguf(Family& family) {
  bool out = false;
  TRY_STATUS(family.lua->protect(
      [](lua_State* L) -> int {
        push_gguf(L, "write");
        *static_cast<bool*>(lua_touserdata(L, 1)) = lua_isfunction(L, -1);
        return 0;
      },
      &out));
  return out;
}

/// The model types of all families that write GGUF files.
Result<std::vector<std::string>> types_that_write(const FamilyFolders& folders) {
  std::vector<std::string> out;
  for (const auto& file : TRY(family_files(folders))) {
    Family family = TRY(open_family(file, folders));
    if (TRY(writes_gguf(family))) out.insert(out.end(), family.model_types.begin(), family.model_types.end());
  }
  return out;
}

}  // namespace

Result<GgufNaming> GgufNaming::create(const std::string& model_type, const FamilyFolders& folders, const Table& config,
                                      const std::string& what) {
  GgufNaming out(TRY(find_family(model_type, folders, what)), config);
  if (!TRY(writes_gguf(out.family_)))
    return recipe_error(what + ": models of type '" + model_type + "' are not written as GGUF files",
                        "these are: " + listed(TRY(types_that_write(folders)), 20, 400) +
                            "; without --format gguf, a folder in Hugging Face's "
                            "format is written");
  struct Ask {
    const Value& config;
    Value answer;
  } ask = {out.config_, {}};
  const Status asked = out.family_.lua->protect(
      [](lua_State* L) -> int {
        auto* a = static_cast<Ask*>(lua_touserdata(L, 1));
        push_gguf(L, "write");
        push_value(L, a->config);
        lua_call(L, 1, 1);
        a->answer = to_value(L, -1);
        return 0;
      },
      &ask);
  if (!asked) return recipe_error(what + ": this model is not written as a GGUF file: " + asked.error().cause, asked.error().hint);
  out.model_.architecture = ask.answer.text_field("architecture");
  out.model_.keys = keys_in(ask.answer);
  if (const auto* vectors = ask.answer.field<Table>("tensors")) out.model_.vectors = *vectors;
  if (const auto* notes = ask.answer.field<List>("notes")) out.model_.notes = texts_in(*notes);
  return out;
}

Result<GgufNaming::Named> GgufNaming::tensor(const std::string& parameter) {
  struct Ask {
    const std::string& parameter;
    const Value& config;
    Named named;
  } ask = {parameter, config_, {}};
  TRY_STATUS(family_.lua->protect(
      [](lua_State* L) -> int {
        auto* a = static_cast<Ask*>(lua_touserdata(L, 1));
        push_gguf(L, "tensor");
        lua_pushlstring(L, a->parameter.data(), a->parameter.size());
        push_value(L, a->config);
        lua_call(L, 2, 2);
        a->named.name = luaL_checkstring(L, -2);
        a->named.form = gguf_form(to_value(L, -1));
        return 0;
      },
      &ask));
  return ask.named;
}

Result<GgufNaming::Adapter> GgufNaming::adapter(const Value& about, const Table& shapes) {
  struct Ask {
    const Value &about, &config;
    const Table& shapes;
    Value answer;
  } ask = {about, config_, shapes, {}};
  const Status asked = family_.lua->protect(
      [](lua_State* L) -> int {
        auto* a = static_cast<Ask*>(lua_touserdata(L, 1));
        push_gguf(L, "adapter");
        push_value(L, a->about);
        push_value(L, Value(a->shapes));
        push_value(L, a->config);
        lua_call(L, 3, 1);
        a->answer = to_value(L, -1);
        return 0;
      },
      &ask);
  if (!asked) return asked.error();
  Adapter out;
  out.keys = keys_in(ask.answer);
  if (const auto* tensors = ask.answer.field<Table>("tensors"))
    for (const auto& [name, pair] : *tensors)
      out.tensors[name] = {pair.text_field("name"), gguf_form(pair.field<Table>("form") ? Value(*pair.field<Table>("form")) : Value())};
  return out;
}

}  // namespace galley
