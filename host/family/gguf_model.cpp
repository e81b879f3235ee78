#include "host/family/gguf_model.hpp"

#include <cmath>
#include <set>
#include <span>
#include <tuple>

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

Result<List> ask_gguf(Sandbox& lua, const char* key, const List& arguments) {
  struct Ask {
    const char* key;
    const List& arguments;
    List answers;
  } ask = {key, arguments, {}};
  TRY_STATUS(lua.protect(
      [](lua_State* L) -> int {
        auto* a = static_cast<Ask*>(lua_touserdata(L, 1));
        push_gguf(L, a->key);
        const bool calls = lua_isfunction(L, -1);
        for (size_t i = 0; calls && i < a->arguments.size(); ++i) push_value(L, a->arguments[i]);
        if (calls) lua_call(L, static_cast<int>(a->arguments.size()), LUA_MULTRET);
        if (lua_gettop(L) < 2) lua_pushnil(L);
        for (int i = 2; i <= lua_gettop(L); ++i) a->answers.push_back(to_value(L, i));
        return 0;
      },
      &ask));
  return std::move(ask.answers);
}

std::pair<std::string, tensor_files::FileForm> gguf_name(const List& said) {
  const auto* form = said.size() > 1 ? said[1].as<Table>() : nullptr;
  const auto number = [&](const char* key, double x) {
    if (form && form->contains(key)) form->at(key).number(&x);
    return x;
  };
  const auto whole = [&](const char* key) { return static_cast<int64_t>(number(key, 1)); };
  const auto* name = said[0].as<std::string>();
  return {name ? *name : "", {whole("outer"), whole("a"), whole("b"), number("turned", 0) == 1, number("added", 0), number("scale", 1)}};
}

namespace {

/// The family that reads GGUF files of an architecture; an error lists all that are read.
Result<Family> find_architecture(const std::string& architecture, const FamilyFolders& folders, const std::string& origin) {
  std::vector<std::string> known;
  for (const auto& file : TRY(family_files(folders))) {
    Family family = TRY(open_family(file, folders));
    for (const std::string& name : texts_in(TRY(ask_gguf(*family.lua, "architectures", {})).front())) {
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
  Table shapes;
  for (const tensor_files::Entry& entry : header.entries) shapes[entry.name] = Value(List(entry.shape.begin(), entry.shape.end()));
  const Value vectors(TRY(short_vectors(header)));
  const Result<List> asked = ask_gguf(*family.lua, "config", {Value(header.metadata), Value(std::move(shapes)), vectors});
  if (!asked) return recipe_error(origin + ": " + asked.error().cause, asked.error().hint);
  const Table* config = asked->front().as<Table>();
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
  const Value config(model.config);
  const auto name = [&](std::string* of, tensor_files::FileForm* form) -> Status {
    const Result<List> said = ask_gguf(lua, "tensor", {Value(*of), config});
    if (!said) return recipe_error(model.origin + ": " + said.error().cause, said.error().hint);
    std::tie(*of, *form) = gguf_name(*said);
    return ok();
  };
  for (galley_tensor t = 1; t <= draft.graph.tensor_count(); ++t) {
    SourceFile& source = draft.graph.tensor(t).source;
    if (source.path.empty()) continue;
    TRY_STATUS(name(&source.name, &source.form));
    for (std::string& alias : source.aliases) TRY_STATUS(name(&alias, &source.form));
    std::erase(source.aliases, source.name);
    source.hint.clear();
  }
  for (const std::string& pattern : texts_in(TRY(ask_gguf(lua, "ignored", {})).front())) draft.ignored_files.push_back(pattern);
  return ok();
}

}  // namespace galley
