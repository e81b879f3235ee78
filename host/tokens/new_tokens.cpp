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

/// Those that a tokenizer.json does not list, with their ids.
Result<std::vector<Numbered>> numbered(std::span<const NewToken> tokens, const std::string& text, const std::string& origin) {
  const Value file = TRY(parse_json(text, origin, kManyJsonValues));
  const Tokenizer tokenizer = TRY(Tokenizer::parse(text, origin));
  std::set<std::string> known;
  if (const auto* listed = file.field<List>("added_tokens"))
    for (const Value& one : *listed) known.insert(one.text_field("content"));
  std::vector<Numbered> out;
  auto next = static_cast<TokenId>(tokenizer.vocabulary());
  for (const NewToken& token : tokens) {
    if (!known.insert(token.text).second) continue;
    const TokenId there = tokenizer.find(token.text);
    out.push_back({token, there >= 0 ? there : next++});
  }
  return out;
}

/// A file's object, changed; what is none stays what it is.
Status change(std::string* text, const std::string& origin, const std::function<void(Table*)>& how) {
  Value value = TRY(parse_json(*text, origin, kManyJsonValues));
  if (auto* table = std::get_if<Table>(&value)) how(table);
  *text = to_json(value, 2) + "\n";
  return ok();
}

Status add(const std::vector<Numbered>& tokens, std::string* tokenizer, const std::string& origin) {
  return change(tokenizer, origin, [&](Table* file) {
    List listed;
    if (auto* given = std::get_if<List>(&(*file)["added_tokens"])) listed = std::move(*given);
    for (const auto& [token, id] : tokens) {
      Table entry = described(token);
      entry["id"] = Value(int64_t{id});
      listed.emplace_back(std::move(entry));
    }
    std::ranges::stable_sort(listed, {}, [](const Value& one) { return one.field<int64_t>("id") ? *one.field<int64_t>("id") : 0; });
    (*file)["added_tokens"] = Value(std::move(listed));
  });
}

}  // namespace

Result<std::string> with_new_tokens(std::string tokenizer, std::span<const NewToken> tokens, const std::string& origin) {
  if (tokens.empty()) return tokenizer;
  if (const auto fresh = TRY(numbered(tokens, tokenizer, origin)); !fresh.empty()) TRY_STATUS(add(fresh, &tokenizer, origin));
  return tokenizer;
}

Status add_new_tokens(std::span<const NewToken> tokens, std::vector<std::pair<std::string, std::string>>* files) {
  const auto named = [&](const char* name) { return std::ranges::find(*files, name, &std::pair<std::string, std::string>::first); };
  const auto tokenizer = named("tokenizer.json");
  if (tokens.empty() || tokenizer == files->end()) return ok();
  const std::vector<Numbered> fresh = TRY(numbered(tokens, tokenizer->second, tokenizer->first));
  if (fresh.empty()) return ok();
  TRY_STATUS(add(fresh, &tokenizer->second, tokenizer->first));
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
