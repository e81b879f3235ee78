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
  const Result<List> asked = ask_gguf(*out.family_.lua, "write", {out.config_});
  if (!asked) return recipe_error(what + ": this model is not written as a GGUF file: " + asked.error().cause, asked.error().hint);
  const Value& answer = asked->front();
  out.model_.architecture = answer.text_field("architecture");
  out.model_.keys = keys_in(answer);
  if (const auto* vectors = answer.field<Table>("tensors")) out.model_.vectors = *vectors;
  if (const auto* notes = answer.field<List>("notes")) out.model_.notes = texts_in(*notes);
  return out;
}

Result<GgufNaming::Named> GgufNaming::tensor(const std::string& parameter) {
  const auto [name, form] = gguf_name(TRY(ask_gguf(*family_.lua, "tensor", {Value(parameter), config_})));
  return Named{name, form};
}

Result<GgufNaming::Adapter> GgufNaming::adapter(const Value& about, const Table& shapes) {
  const Value answer = TRY(ask_gguf(*family_.lua, "adapter", {about, Value(shapes), config_})).front();
  Adapter out;
  out.keys = keys_in(answer);
  if (const auto* tensors = answer.field<Table>("tensors"))
    for (const auto& [name, said] : *tensors)
      if (const auto* list = said.as<List>(); list && !list->empty()) {
        const auto [called, form] = gguf_name(*list);
        out.tensors[name] = {called, form};
      }
  return out;
}

}  // namespace galley
