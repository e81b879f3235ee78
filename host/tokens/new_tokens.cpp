#include "host/tokens/new_tokens.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "host/base/json.hpp"
#include "host/tokens/tokenizer/tokenizer.hpp"

namespace galley {
namespace {

struct Numbered {
  NewToken token;
  TokenId id = 0;
};

Table described(const NewToken& token) {
  return {{"content", Value(token.text)}, {"single_word", Value(false)},         {"lstrip", Value(false)},
          {"rstrip", Value(false)},       {"normalized", Value(!token.special)}, {"special", Value(token.special)}};
}

/// A file's object, changed; what is none stays what it is.
Status change(std::string* text, const std::string& origin, const std::function<void(Table*)>& how) {
  Value value = TRY(parse_json(*text, origin, kManyJsonValues));
  if (auto* table = std::get_if<Table>(&value)) how(table);
  *text = to_json(value, 2) + "\n";
  return ok();
}

/// Adds those tokens that a tokenizer.json does not list, and returns them with their ids.
Result<std::vector<Numbered>> add(std::span<const NewToken> tokens, std::string* text, const std::string& origin) {
  Value file = TRY(parse_json(*text, origin, kManyJsonValues));
  const Tokenizer tokenizer = TRY(Tokenizer::parse(*text, origin));
  Value& added = std::get<Table>(file)["added_tokens"];  // an object, or else no tokenizer
  if (added.is_nil()) added = Value(List());
  List& listed = std::get<List>(added);
  std::set<std::string> known;
  for (const Value& one : listed) known.insert(one.text_field("content"));
  std::vector<Numbered> out;
  auto next = static_cast<TokenId>(tokenizer.vocabulary());
  for (const NewToken& token : tokens) {
    if (!known.insert(token.text).second) continue;
    const TokenId there = tokenizer.find(token.text);
    out.push_back({token, there >= 0 ? there : next++});
    Table entry = described(token);
    entry["id"] = Value(int64_t{out.back().id});
    listed.emplace_back(std::move(entry));
  }
  if (out.empty()) return out;
  std::ranges::stable_sort(listed, {}, [](const Value& one) { return one.field<int64_t>("id") ? *one.field<int64_t>("id") : 0; });
  *text = to_json(file, 2) + "\n";
  return out;
}

}  // namespace

Result<std::string> with_new_tokens(std::string tokenizer, std::span<const NewToken> tokens, const std::string& origin) {
  if (!tokens.empty()) TRY(add(tokens, &tokenizer, origin));
  return tokenizer;
}

Status add_new_tokens(std::span<const NewToken> tokens, std::vector<std::pair<std::string, std::string>>* files) {
  const auto named = [&](const char* name) { return std::ranges::find(*files, name, &std::pair<std::string, std::string>::first); };
  const auto tokenizer = named("tokenizer.json");
  if (tokens.empty() || tokenizer == files->end()) return ok();
  const std::vector<Numbered> fresh = TRY(add(tokens, &tokenizer->second, tokenizer->first));
  if (fresh.empty()) return ok();
  if (const auto about = named("tokenizer_config.json"); about != files->end())
    TRY_STATUS(change(&about->second, about->first, [&](Table* table) {
      const auto listed = table->find("added_tokens_decoder");
      auto* by_id = listed == table->end() ? nullptr : std::get_if<Table>(&listed->second);
      if (!by_id) return;
      for (const auto& [token, id] : fresh) by_id->insert_or_assign(std::to_string(id), Value(described(token)));
    }));
  if (const auto ids = named("added_tokens.json"); ids != files->end())
    TRY_STATUS(change(&ids->second, ids->first, [&](Table* table) {
      for (const auto& [token, id] : fresh) table->insert_or_assign(token.text, Value(int64_t{id}));
    }));
  return ok();
}

Result<std::vector<NewToken>> tokens_beyond(const std::filesystem::path& tokenizer, const std::filesystem::path& of) {
  std::map<int64_t, NewToken> by_id;
  std::set<std::string> known;
  const auto each = [](const std::filesystem::path& path, const auto& take) -> Status {
    const Value file = TRY(read_json(path, uint64_t{256} << 20, kManyJsonValues));
    const auto* listed = file.field<List>("added_tokens");
    for (size_t i = 0; listed && i < listed->size(); ++i) take((*listed)[i]);
    return ok();
  };
  TRY_STATUS(each(of, [&](const Value& one) { known.insert(one.text_field("content")); }));
  TRY_STATUS(each(tokenizer, [&](const Value& one) {
    const auto* id = one.field<int64_t>("id");
    const auto* special = one.field<bool>("special");
    if (const std::string text = one.text_field("content"); id && !known.contains(text)) by_id[*id] = {text, special && *special};
  }));
  std::vector<NewToken> out;
  for (auto& [id, token] : by_id) out.push_back(std::move(token));
  return out;
}

}  // namespace galley
