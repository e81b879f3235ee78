// A tokenizer.json, from its text to the steps, the model and the tokens that it describes.
#include "host/base/file.hpp"
#include "host/base/json.hpp"
#include "host/text/fields.hpp"
#include "host/text/tokenizer.hpp"

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

}  // namespace

Result<Tokenizer> Tokenizer::read(const std::filesystem::path& path) {
  const Result<std::string> text = read_text(path, kLargestFile);
  if (!text) return recipe_error(text.error().cause, text.error().hint);
  return parse(*text, path.string());
}

Result<Tokenizer> Tokenizer::parse(std::string_view json, const std::string& origin) {
  const Value root = TRY(parse_json(json, origin));
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
    before_.insert(before_.begin(), TRY(named_id(object, "cls")));
    behind_.push_back(TRY(named_id(object, "sep")));
    return ok();
  }
  if (object.type() == "TemplateProcessing") return read_template(spec, where);
  return object.unsupported({"BertProcessing", "ByteLevel", "RobertaProcessing", "Sequence", "TemplateProcessing"});
}

/// "single": special tokens around { "Sequence": … }, each { "SpecialToken": { "id": NAME } }; "special_tokens" has the ids of a name.
Status Tokenizer::read_template(const Value& spec, const std::string& where) {
  const JsonObject object = TRY(JsonObject::of(spec, where));
  std::vector<TokenId> before, behind;
  bool seen = false;
  for (const Value& value : *TRY(object.list("single"))) {
    const JsonObject piece = TRY(JsonObject::plain(value, where + ".single"));
    if (piece.field("Sequence") && !seen) {
      seen = true;
      continue;
    }
    if (!piece.field("SpecialToken")) return object.wrong("'single' has to be special tokens around one sequence");
    const std::string name = TRY(TRY(JsonObject::plain(*piece.field("SpecialToken"), piece.where())).text("id"));
    const Table& specials = *TRY(object.table("special_tokens"));
    const auto special = specials.find(name);
    if (special == specials.end()) return object.wrong("'special_tokens' does not say the ids of '" + name + "'");
    const JsonObject entry = TRY(JsonObject::plain(special->second, where + ".special_tokens['" + name + "']"));
    for (const Value& id : *TRY(entry.list("ids"))) (seen ? behind : before).push_back(TRY(token_id(&id, entry.where())));
  }
  if (!seen) return object.wrong("'single' has no sequence");
  // Of several templates, each goes around what the one before it made.
  before_.insert(before_.begin(), before.begin(), before.end());
  behind_.insert(behind_.end(), behind.begin(), behind.end());
  return ok();
}

}  // namespace galley
