#include "host/text/tokenizer.hpp"

#include <algorithm>
#include <climits>

#include "host/base/file.hpp"
#include "host/base/json.hpp"
#include "host/text/fields.hpp"

namespace galley {
namespace {

constexpr uint64_t kLargestFile = uint64_t{256} << 20;
constexpr int64_t kLargestId = 1 << 24;

const Value* field(const Table& table, const char* name) {
  const auto it = table.find(name);
  return it == table.end() || it->second.is_nil() ? nullptr : &it->second;
}

Result<TokenId> token_id(const Value* value, const std::string& where) {
  const int64_t* id = value ? value->as<int64_t>() : nullptr;
  if (!id || *id < 0 || *id >= kLargestId)
    return recipe_error(where + ": an id has to be an integer in [0, " + std::to_string(kLargestId) + ")");
  return static_cast<TokenId>(*id);
}

/// "a b", or ["a", "b"].
Result<std::pair<std::string, std::string>> merge_of(const Value& value, size_t index) {
  if (const auto* text = value.as<std::string>()) {
    const size_t space = text->find(' ');
    if (space != std::string::npos && text->find(' ', space + 1) == std::string::npos)
      return std::pair(text->substr(0, space), text->substr(space + 1));
  } else if (const auto* list = value.as<List>();
             list && list->size() == 2 && (*list)[0].as<std::string>() && (*list)[1].as<std::string>()) {
    return std::pair(*(*list)[0].as<std::string>(), *(*list)[1].as<std::string>());
  }
  return recipe_error("model.merges[" + std::to_string(index) + "] is not a pair of tokens");
}

}  // namespace

Result<Tokenizer> Tokenizer::read(const std::filesystem::path& path) {
  const std::string text = TRY(read_text(path, kLargestFile));
  return parse(text, path.string());
}

Result<Tokenizer> Tokenizer::parse(std::string_view json, const std::string& origin) {
  const Value root = TRY(parse_json(json, origin));
  Tokenizer out;
  const auto read = [&]() -> Status {
    const Table* table = root.as<Table>();
    const Value* model = table ? field(*table, "model") : nullptr;
    if (!model) return recipe_error("there is no 'model'", "a tokenizer.json of the tokenizers library has one");
    for (const char* name : {"truncation", "padding"})
      if (field(*table, name)) return recipe_error(std::string(name) + " is not supported: lengths are the recipe's", "set it to null");
    out.normalizer_ = TRY(Normalizer::read(field(*table, "normalizer"), "normalizer"));
    out.pre_ = TRY(PreTokenizer::read(field(*table, "pre_tokenizer"), "pre_tokenizer"));
    out.decoder_ = TRY(Decoder::read(field(*table, "decoder"), "decoder"));
    TRY_STATUS(out.read_model(*model));
    TRY_STATUS(out.read_added(field(*table, "added_tokens")));
    if (const Value* post = field(*table, "post_processor")) TRY_STATUS(out.read_post(*post, "post_processor"));
    for (const std::string& token : out.tokens_) {
      const bool byte = token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
      const auto bytes = out.pre_.byte_level() ? bytes_of_text(token) : std::nullopt;
      out.bytes_.push_back(static_cast<uint32_t>(byte && !bytes ? 1 : bytes ? bytes->size() : token.size()));
    }
    return ok();
  };
  Status status = read();
  if (!status) {
    Error error = std::move(status).error();
    error.cause = origin + ": " + error.cause;
    return error;
  }
  return out;
}

Status Tokenizer::read_model(const Value& spec) {
  const Table* table = spec.as<Table>();
  if (!table) return recipe_error("'model' is no object");
  // Old files do not say the type of their BPE.
  const Value* type = field(*table, "type");
  const std::string name = !type ? (table->contains("merges") ? "BPE" : "") : type->as<std::string>() ? *type->as<std::string>() : "";
  if (name != "BPE") return recipe_error("model: type '" + name + "' is not supported", "there is: BPE");
  for (const char* unsupported : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Value* value = field(*table, unsupported);
    if (value && !(value->as<std::string>() && value->as<std::string>()->empty()))
      return recipe_error(std::string("model: '") + unsupported + "' is not supported");
  }
  double dropout = 0;
  if (const Value* value = field(*table, "dropout"); value && (!value->number(&dropout) || dropout != 0))
    return recipe_error("model: 'dropout' is not supported");

  BpeOptions options;
  for (const auto& [key, flag] : {std::pair("fuse_unk", &options.fuse_unknown), std::pair("byte_fallback", &options.byte_fallback),
                                  std::pair("ignore_merges", &options.ignore_merges)}) {
    const Value* value = field(*table, key);
    if (value && !value->as<bool>()) return recipe_error(std::string("model: '") + key + "' has to be true or false");
    *flag = value && *value->as<bool>();
  }
  if (const Value* unknown = field(*table, "unk_token")) {
    if (!unknown->as<std::string>()) return recipe_error("model: 'unk_token' has to be a string");
    options.unknown = *unknown->as<std::string>();
  }
  options.by_bytes = pre_.byte_level();

  const Value *vocab = field(*table, "vocab"), *merges = field(*table, "merges");
  if (!vocab || !vocab->as<Table>()) return recipe_error("model: 'vocab' has to be an object");
  if (!merges || !merges->as<List>()) return recipe_error("model: 'merges' has to be a list");
  // Words of a byte-level model are looked up as the bytes that they are, not in the alphabet that the file writes them in.
  const auto as_looked_up = [&](const std::string& token) { return options.by_bytes ? bytes_of_text(token) : std::optional(token); };
  Vocabulary vocabulary;
  for (const auto& [token, value] : *vocab->as<Table>()) {
    const TokenId id = TRY(token_id(&value, "model.vocab['" + token + "']"));
    if (static_cast<size_t>(id) >= tokens_.size()) tokens_.resize(static_cast<size_t>(id) + 1);
    tokens_[static_cast<size_t>(id)] = token;
    if (auto key = as_looked_up(token)) vocabulary.emplace(std::move(*key), id);
  }
  std::vector<std::pair<std::string, std::string>> pairs;
  for (size_t i = 0; i < merges->as<List>()->size(); ++i) {
    auto pair = TRY(merge_of((*merges->as<List>())[i], i));
    auto left = as_looked_up(pair.first), right = as_looked_up(pair.second);
    if (!left || !right) return recipe_error("model.merges[" + std::to_string(i) + "] has a character that stands for no byte");
    pairs.emplace_back(std::move(*left), std::move(*right));
  }
  model_ = TRY(Bpe::create(std::move(vocabulary), pairs, std::move(options)));
  return ok();
}

Status Tokenizer::read_added(const Value* spec) {
  if (!spec) return ok();
  if (!spec->as<List>()) return recipe_error("'added_tokens' has to be a list");
  for (size_t i = 0; i < spec->as<List>()->size(); ++i) {
    const std::string where = "added_tokens[" + std::to_string(i) + "]";
    const Table* table = (*spec->as<List>())[i].as<Table>();
    if (!table) return recipe_error(where + " is no object");
    const Value* content = field(*table, "content");
    if (!content || !content->as<std::string>()) return recipe_error(where + ": 'content' has to be a string");
    AddedToken token;
    token.id = TRY(token_id(field(*table, "id"), where));
    token.content = *content->as<std::string>();
    for (const auto& [key, flag] :
         {std::pair("single_word", &token.single_word), std::pair("lstrip", &token.lstrip), std::pair("rstrip", &token.rstrip),
          std::pair("normalized", &token.normalized), std::pair("special", &token.special)}) {
      const Value* value = field(*table, key);
      if (value && !value->as<bool>()) return recipe_error(where + ": '" + key + "' has to be true or false");
      *flag = value && *value->as<bool>();
    }
    const auto at = static_cast<size_t>(token.id);
    if (at >= tokens_.size()) tokens_.resize(at + 1);
    tokens_[at] = token.content;
    if (token.normalized) normalized_.add(token, normalizer_.apply(token.content));
    else raw_.add(token, token.content);
  }
  return ok();
}

Status Tokenizer::read_post(const Value& spec, const std::string& where) {
  const Part part = TRY(Part::of(spec, where));
  if (part.type() == "ByteLevel") return ok();  // moves offsets only
  if (part.type() == "Sequence") {
    const List* list = TRY(part.list("processors"));
    for (size_t i = 0; i < list->size(); ++i) TRY_STATUS(read_post((*list)[i], where + ".processors[" + std::to_string(i) + "]"));
    return ok();
  }
  if (part.type() != "TemplateProcessing") return part.unsupported({"ByteLevel", "Sequence", "TemplateProcessing"});
  const List* single = TRY(part.list("single"));
  const Value* specials = part.field("special_tokens");
  bool seen = false;
  std::vector<TokenId> before, behind;
  for (const Value& piece : *single) {
    const Table* table = piece.as<Table>();
    const Value* sequence = table ? field(*table, "Sequence") : nullptr;
    const Value* special = table ? field(*table, "SpecialToken") : nullptr;
    if (sequence && !seen) {
      seen = true;
      continue;
    }
    const Value* id = special && special->as<Table>() ? field(*special->as<Table>(), "id") : nullptr;
    if (!id || !id->as<std::string>()) return part.wrong("'single' has to be special tokens around one sequence");
    const std::string& name = *id->as<std::string>();
    const Value* entry = specials && specials->as<Table>() ? field(*specials->as<Table>(), name.c_str()) : nullptr;
    const Value* ids = entry && entry->as<Table>() ? field(*entry->as<Table>(), "ids") : nullptr;
    if (!ids || !ids->as<List>()) return part.wrong("'special_tokens' does not say the ids of '" + name + "'");
    for (const Value& value : *ids->as<List>()) (seen ? behind : before).push_back(TRY(token_id(&value, where)));
  }
  if (!seen) return part.wrong("'single' has no sequence");
  // Of several, each goes around what the one before it made.
  before_.insert(before_.begin(), before.begin(), before.end());
  behind_.insert(behind_.end(), behind.begin(), behind.end());
  return ok();
}

/// Which tokens lie where, and which of that counts. Places are bytes of the whole text; `counting` is in order.
struct Tokenizer::Spans {
  std::span<const TextSpan> counting;
  std::vector<bool>* counts;
  size_t begin = 0;  ///< of the piece that is being encoded, in the whole text

  bool touches(size_t from, size_t to) const {
    const auto it = std::partition_point(counting.begin(), counting.end(), [&](const TextSpan& s) { return s.end <= from; });
    return it != counting.end() && it->begin < std::max(to, from + 1);
  }
};

/// A piece between added tokens of the raw text.
void Tokenizer::encode_piece(std::string_view text, Encoding how, std::span<const TextSpan> plain, Work& work, std::vector<TokenId>* out,
                             Spans* spans) const {
  std::string changed;
  // Spans of the piece in what the normalizer makes of it: as much of it as the text before their borders becomes.
  std::vector<TextSpan> moved_plain, moved_counting;
  const auto move = [&](std::span<const TextSpan> from, std::vector<TextSpan>* to) {
    const auto place = [&](size_t at) {
      const size_t inside = at <= spans->begin ? 0 : std::min(at - spans->begin, text.size());
      return normalizer_.empty() ? inside : inside == text.size() ? changed.size() : normalizer_.apply(text.substr(0, inside)).size();
    };
    for (const TextSpan& span : from)
      if (span.begin < spans->begin + text.size() && span.end > spans->begin) to->push_back({place(span.begin), place(span.end)});
  };
  if (!normalizer_.empty()) changed = normalizer_.apply(text, how.begin);
  if (spans) {
    move(spans->counting, &moved_counting);
    if (normalized_.has_special()) move(plain, &moved_plain);
  }
  if (!normalizer_.empty()) text = changed;

  const Spans inside = {moved_counting, nullptr, 0};
  size_t at = 0;  // behind the tokens so far
  const auto tell = [&](size_t first) {
    for (size_t i = first; i < out->size(); ++i) {
      const size_t end = at + bytes_of((*out)[i]);
      spans->counts->push_back(inside.touches(at, end));
      at = end;
    }
  };
  size_t done = 0;
  const auto words = [&](size_t begin, size_t end) {
    pre_.cut(text.substr(begin, end - begin), work.steps_, [&](std::string_view word) {
      const size_t first = out->size();
      model_.encode(word, work.cache_, out);
      if (!spans) return;
      // Words are parts of the text, but for a space put before it.
      if (word.data() >= text.data() && word.data() < text.data() + text.size()) at = static_cast<size_t>(word.data() - text.data());
      tell(first);
    });
  };
  for (AddedTokens::Found found; normalized_.find(text, done, how.special, moved_plain, &found); done = found.end) {
    words(done, found.begin);
    out->push_back(found.token->id);
    if (spans) spans->counts->push_back(inside.touches(found.begin, found.end));
  }
  words(done, text.size());
}

void Tokenizer::encode_text(std::string_view text, Encoding how, std::span<const TextSpan> plain, Work& work, std::vector<TokenId>* out,
                            Spans* spans) const {
  size_t done = 0;
  const auto piece = [&](size_t end) {
    if (spans) spans->begin = done;
    if (end > done) encode_piece(text.substr(done, end - done), how, plain, work, out, spans);
    how.begin = Normalizer::Begin::Here;
  };
  for (AddedTokens::Found found; raw_.find(text, done, how.special, plain, &found); done = found.end) {
    piece(found.begin);
    out->push_back(found.token->id);
    if (spans) spans->counts->push_back(spans->touches(found.begin, found.end));
  }
  piece(text.size());
}

void Tokenizer::encode(std::string_view text, Encoding how, Work& work, std::vector<TokenId>* out) const {
  if (how.around == Around::Template) out->insert(out->end(), before_.begin(), before_.end());
  encode_text(text, how, {}, work, out, nullptr);
  if (how.around == Around::Template) out->insert(out->end(), behind_.begin(), behind_.end());
}

void Tokenizer::encode(std::span<const Segment> segments, Work& work, std::vector<TokenId>* ids, std::vector<bool>* counts) const {
  std::string text;
  std::vector<TextSpan> plain, counting;
  const auto add = [&](std::vector<TextSpan>* to, size_t begin) {
    if (begin == text.size()) return;
    if (!to->empty() && to->back().end == begin) to->back().end = text.size();
    else to->push_back({begin, text.size()});
  };
  for (const Segment& segment : segments) {
    const size_t begin = text.size();
    text += segment.text;
    if (!segment.control) add(&plain, begin);
    if (segment.counts) add(&counting, begin);
  }
  Spans spans = {counting, counts, 0};
  encode_text(text, {}, plain, work, ids, &spans);
}

TokenId Tokenizer::find(std::string_view token) const {
  const auto it = std::find(tokens_.begin(), tokens_.end(), token);
  return token.empty() || it == tokens_.end() ? -1 : static_cast<TokenId>(it - tokens_.begin());
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  std::vector<std::string> tokens;
  for (const TokenId id : ids) {
    const auto at = static_cast<size_t>(id);
    if (id < 0 || at >= tokens_.size() || tokens_[at].empty()) continue;
    tokens.push_back(tokens_[at]);
  }
  return decoder_.join(std::move(tokens));
}

}  // namespace galley
