// A tokenizer.json, from its text to the steps, the model and the tokens that it describes.
#include "host/base/file.hpp"
#include "host/base/json.hpp"
#include "host/tokens/tokenizer/fields.hpp"
#include "host/tokens/tokenizer/tokenizer.hpp"

namespace galley {
namespace {

constexpr uint64_t kLargestFile = uint64_t{256} << 20;

/// ["[SEP]", 102].
Result<TokenId> named_id(const JsonObject& object, const char* name) {
  const Value* value = object.field(name);
  const auto* pair = value ? value->as<List>() : nullptr;
  if (!pair || pair->size() != 2 || !(*pair)[0].as<std::string>())
    return object.wrong("'" + std::string(name) + "' has to be a token and its id");
  return token_id(&(*pair)[1], object.where() + "." + name);
}

/// The ids of { "SpecialToken": { "id": NAME } } in a template, whose "special_tokens" says them.
Status append_special(const JsonObject& piece, const JsonObject& object, std::vector<TokenId>* ids) {
  const std::string name = TRY(TRY(JsonObject::plain(*piece.field("SpecialToken"), piece.where())).text("id"));
  const Table& specials = *TRY(object.table("special_tokens"));
  const auto special = specials.find(name);
  if (special == specials.end()) return object.wrong("'special_tokens' does not say the ids of '" + name + "'");
  const JsonObject entry = TRY(JsonObject::plain(special->second, object.where() + ".special_tokens['" + name + "']"));
  for (const Value& id : *TRY(entry.list("ids"))) ids->push_back(TRY(token_id(&id, entry.where())));
  return ok();
}

}  // namespace

Result<Tokenizer> Tokenizer::read(const std::filesystem::path& path) {
  const Result<std::string> text = read_text(path, kLargestFile);
  if (!text) return recipe_error(text.error().cause, text.error().hint);
  return parse(*text, path.string());
}

Result<Tokenizer> Tokenizer::parse(std::string_view json, const std::string& origin) {
  const Value root = TRY(parse_json(json, origin, kManyJsonValues));
  Tokenizer out;
  out.origin_ = origin;
  TRY_STATUS(out.placed(out.read_root(root)));
  return out;
}

Status Tokenizer::read_root(const Value& root) {
  const JsonObject file = TRY(JsonObject::plain(root, "the file"));
  if (!file.field("model")) return recipe_error("there is no 'model'", "a tokenizer.json of the tokenizers library has one");
  // "truncation" and "padding" are what a program asked for that wrote the file. Lengths are the recipe's.
  normalizer_ = TRY(Normalizer::read(file.field("normalizer"), "normalizer"));
  pre_ = TRY(PreTokenizer::read(file.field("pre_tokenizer"), "pre_tokenizer"));
  decoder_ = TRY(Decoder::read(file.field("decoder"), "decoder"));
  model_ = TRY(Model::read(*file.field("model"), pre_.byte_level(), [&](TokenId id, const std::string& token) { name_token(id, token); }));
  if (file.field("added_tokens")) TRY_STATUS(read_added(*TRY(file.list("added_tokens"))));
  if (const Value* post = file.field("post_processor")) TRY_STATUS(read_post(*post, "post_processor"));
  return ok();
}

Status Tokenizer::read_added(const List& list) {
  size_t bytes = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonObject spec = TRY(JsonObject::plain(list[i], "added_tokens[" + std::to_string(i) + "]"));
    AddedToken token;
    token.id = TRY(token_id(spec.field("id"), spec.where()));
    token.content = TRY(spec.text("content"));
    token.single_word = TRY(spec.flag("single_word", false));
    token.lstrip = TRY(spec.flag("lstrip", false));
    token.rstrip = TRY(spec.flag("rstrip", false));
    token.normalized = TRY(spec.flag("normalized", false));
    token.special = TRY(spec.flag("special", false));
    bytes += token.content.size();
    if (token.content.size() > Trie::kLongestToken || bytes > AddedTokens::kMostBytes)
      return spec.wrong("the token has " + std::to_string(token.content.size()) + " bytes, and all added tokens up to it " +
                        std::to_string(bytes) + "; " + std::to_string(Trie::kLongestToken) + " and " +
                        std::to_string(AddedTokens::kMostBytes) + " are the most");
    name_token(token.id, token.content);
    if (token.special) specials_.push_back(token.id);
    if (token.normalized) normalized_.add(token, TRY(normalizer_.apply(token.content)));
    else raw_.add(token, token.content);
  }
  return ok();
}

void Tokenizer::name_token(TokenId id, const std::string& text) {
  const auto at = static_cast<size_t>(id);
  if (at >= tokens_.size()) tokens_.resize(at + 1);
  tokens_[at] = text;
}

Status Tokenizer::read_post(const Value& spec, const std::string& where) {
  const JsonObject object = TRY(JsonObject::of(spec, where));
  if (object.type() == "ByteLevel") return ok();  // moves offsets only
  if (object.type() == "Sequence") {
    const List& steps = *TRY(object.list("processors"));
    for (size_t i = 0; i < steps.size(); ++i) TRY_STATUS(read_post(steps[i], where + ".processors[" + std::to_string(i) + "]"));
    return ok();
  }
  if (object.type() == "BertProcessing" || object.type() == "RobertaProcessing") {
    const TokenId cls = TRY(named_id(object, "cls")), sep = TRY(named_id(object, "sep"));
    before_.insert(before_.begin(), cls);
    after_.push_back(sep);
    constexpr PairPiece first = {0, 0, -1};
    if (object.type() == "BertProcessing") set_pair({{-1, 0, cls}, first, {-1, 0, sep}, {1, 1, -1}, {-1, 1, sep}});
    else set_pair({{-1, 0, cls}, first, {-1, 0, sep}, {-1, 0, sep}, {1, 0, -1}, {-1, 0, sep}});
    return ok();
  }
  if (object.type() == "TemplateProcessing") return read_template(spec, where);
  return object.unsupported({"BertProcessing", "ByteLevel", "RobertaProcessing", "Sequence", "TemplateProcessing"});
}

/// Reads "single", special tokens around { "Sequence": … }, and "pair", such around two.
Status Tokenizer::read_template(const Value& spec, const std::string& where) {
  const JsonObject object = TRY(JsonObject::of(spec, where));
  std::vector<TokenId> before, after;
  bool seen = false;
  for (const Value& value : *TRY(object.list("single"))) {
    const JsonObject piece = TRY(JsonObject::plain(value, where + ".single"));
    if (piece.field("Sequence") && !seen) {
      seen = true;
      continue;
    }
    if (!piece.field("SpecialToken")) return object.wrong("'single' has to be special tokens around one sequence");
    TRY_STATUS(append_special(piece, object, seen ? &after : &before));
  }
  if (!seen) return object.wrong("'single' has no sequence");
  // Of several templates, each goes around what the one before it made.
  before_.insert(before_.begin(), before.begin(), before.end());
  after_.insert(after_.end(), after.begin(), after.end());
  return read_pair(object);
}

Status Tokenizer::read_pair(const JsonObject& object) {
  if (!object.field("pair")) {
    set_pair({});
    return ok();
  }
  std::vector<PairPiece> pair;
  size_t seen[2] = {0, 0};
  bool usual = true;
  for (const Value& value : *TRY(object.list("pair"))) {
    const JsonObject piece = TRY(JsonObject::plain(value, object.where() + ".pair"));
    const bool text = piece.field("Sequence") != nullptr;
    if (!text && !piece.field("SpecialToken")) return object.wrong("'pair' has to be special tokens around two sequences");
    const JsonObject what = TRY(JsonObject::plain(*piece.field(text ? "Sequence" : "SpecialToken"), piece.where()));
    const int64_t type = TRY(what.integer("type_id", 0));
    usual &= (type == 0 || type == 1) && (pair.empty() || type >= pair.back().type);
    std::vector<TokenId> ids;
    if (text) {
      const bool second = TRY(what.text("id")) == "B";
      ++seen[second];
      pair.push_back({static_cast<int8_t>(second), static_cast<int8_t>(type), -1});
    } else {
      TRY_STATUS(append_special(piece, object, &ids));
    }
    for (const TokenId id : ids) pair.push_back({-1, static_cast<int8_t>(type), id});
  }
  set_pair(usual && seen[0] == 1 && seen[1] == 1 ? std::move(pair) : std::vector<PairPiece>());
  return ok();
}

void Tokenizer::set_pair(std::vector<PairPiece> pair) {
  pair_ = templated_ ? std::vector<PairPiece>() : std::move(pair);
  templated_ = true;
}

}  // namespace galley
