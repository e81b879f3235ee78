// A tokenizer.json, from its text to the steps, the model and the tokens that it describes.
#include "host/base/file.hpp"
#include "host/base/json.hpp"
#include "host/text/fields.hpp"
#include "host/text/tokenizer.hpp"

namespace galley {
namespace {

constexpr uint64_t kLargestFile = uint64_t{256} << 20;
constexpr int64_t kLargestId = 1 << 24;

Result<TokenId> token_id(const Value* value, const std::string& where) {
  const int64_t* id = value ? value->as<int64_t>() : nullptr;
  if (!id || *id < 0 || *id >= kLargestId)
    return recipe_error(where + ": an id has to be an integer in [0, " + std::to_string(kLargestId) + ")");
  return static_cast<TokenId>(*id);
}

/// "a b", or ["a", "b"].
Result<std::pair<std::string, std::string>> merge_of(const Value& value, const std::string& where) {
  if (const auto* text = value.as<std::string>()) {
    const size_t space = text->find(' ');
    if (space != std::string::npos && text->find(' ', space + 1) == std::string::npos)
      return std::pair(text->substr(0, space), text->substr(space + 1));
  } else if (const auto* list = value.as<List>();
             list && list->size() == 2 && (*list)[0].as<std::string>() && (*list)[1].as<std::string>()) {
    return std::pair(*(*list)[0].as<std::string>(), *(*list)[1].as<std::string>());
  }
  return recipe_error(where + " is not a pair of tokens");
}

Result<BpeOptions> bpe_options(const JsonObject& model) {
  BpeOptions out;
  out.fuse_unknown = TRY(model.flag("fuse_unk", false));
  out.byte_fallback = TRY(model.flag("byte_fallback", false));
  out.ignore_merges = TRY(model.flag("ignore_merges", false));
  if (model.field("unk_token")) out.unknown = TRY(model.text("unk_token"));
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (model.field(name) && !TRY(model.text(name)).empty()) return model.wrong("'" + std::string(name) + "' is not supported");
  double dropout = 0;
  if (const Value* value = model.field("dropout"); value && (!value->number(&dropout) || dropout != 0))
    return model.wrong("'dropout' is not supported");
  return out;
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
  for (const char* name : {"truncation", "padding"})
    if (file.field(name)) return recipe_error(std::string(name) + " is not supported: lengths are the recipe's", "set it to null");
  normalizer_ = TRY(Normalizer::read(file.field("normalizer"), "normalizer"));
  pre_ = TRY(PreTokenizer::read(file.field("pre_tokenizer"), "pre_tokenizer"));
  decoder_ = TRY(Decoder::read(file.field("decoder"), "decoder"));
  TRY_STATUS(read_model(*file.field("model")));
  if (file.field("added_tokens")) TRY_STATUS(read_added(*TRY(file.list("added_tokens"))));
  if (const Value* post = file.field("post_processor")) TRY_STATUS(read_post(*post, "post_processor"));
  for (const std::string& token : tokens_) {
    const bool byte = token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
    const auto bytes = pre_.byte_level() ? bytes_of_text(token) : std::nullopt;
    bytes_.push_back(static_cast<uint32_t>(byte && !bytes ? 1 : bytes ? bytes->size() : token.size()));
  }
  return ok();
}

Status Tokenizer::read_model(const Value& spec) {
  const JsonObject model = TRY(JsonObject::plain(spec, "model"));
  // Old files do not say the type of their BPE.
  if (model.type() != "BPE" && (!model.type().empty() || !model.field("merges"))) return model.unsupported({"BPE"});
  BpeOptions options = TRY(bpe_options(model));
  options.by_bytes = pre_.byte_level();
  const Table& vocab = *TRY(model.table("vocab"));
  const List& merges = *TRY(model.list("merges"));
  // Words of a byte-level model are looked up as the bytes that they are, not in the alphabet that the file writes them in.
  const auto as_looked_up = [&](const std::string& token) { return options.by_bytes ? bytes_of_text(token) : std::optional(token); };
  Vocabulary vocabulary;
  for (const auto& [token, value] : vocab) {
    const TokenId id = TRY(token_id(&value, "model.vocab['" + token + "']"));
    name_token(id, token);
    if (auto key = as_looked_up(token)) vocabulary.emplace(std::move(*key), id);
  }
  std::vector<std::pair<std::string, std::string>> pairs;
  for (size_t i = 0; i < merges.size(); ++i) {
    const std::string where = "model.merges[" + std::to_string(i) + "]";
    const auto pair = TRY(merge_of(merges[i], where));
    auto left = as_looked_up(pair.first), right = as_looked_up(pair.second);
    if (!left || !right) return recipe_error(where + " has a character that stands for no byte");
    pairs.emplace_back(std::move(*left), std::move(*right));
  }
  model_ = TRY(Bpe::create(std::move(vocabulary), pairs, std::move(options)));
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
    if (token.normalized) normalized_.add(token, normalizer_.apply(token.content));
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
  if (object.type() != "TemplateProcessing") return object.unsupported({"ByteLevel", "Sequence", "TemplateProcessing"});
  return read_template(spec, where);
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
