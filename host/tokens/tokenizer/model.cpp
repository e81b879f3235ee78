#include "host/tokens/tokenizer/model.hpp"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "host/tokens/tokenizer/byte_alphabet.hpp"
#include "host/tokens/tokenizer/fields.hpp"

namespace galley {
namespace {

constexpr int64_t kLargestId = 1 << 24;

/// Reads "a b", or ["a", "b"].
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

Result<std::string> text_or(const JsonObject& object, const char* name, const char* otherwise) {
  return object.field(name) ? object.text(name) : Result<std::string>(std::string(otherwise));
}

Result<BpeOptions> bpe_options(const JsonObject& model) {
  BpeOptions out;
  out.fuse_unknown = TRY(model.flag("fuse_unk", false));
  out.byte_fallback = TRY(model.flag("byte_fallback", false));
  out.ignore_merges = TRY(model.flag("ignore_merges", false));
  out.unknown = TRY(text_or(model, "unk_token", ""));
  out.continuing = TRY(text_or(model, "continuing_subword_prefix", ""));
  out.ending = TRY(text_or(model, "end_of_word_suffix", ""));
  double dropout = 0;
  if (const Value* value = model.field("dropout"); value && (!value->number(&dropout) || dropout != 0))
    return model.wrong("'dropout' is not supported");
  return out;
}

/// The tokens of "vocab": { token: id }, as `spell` spells them; those of which it makes nothing are left out.
template <class Spell>
Result<Vocabulary> vocabulary_of(const JsonObject& model, const Model::Named& named, Spell&& spell) {
  Vocabulary out;
  for (const auto& [token, value] : *TRY(model.table("vocab"))) {
    const TokenId id = TRY(token_id(&value, "model.vocab['" + token + "']"));
    named(id, token);
    if (std::optional<std::string> key = spell(token)) out.emplace(std::move(*key), id);
  }
  return out;
}

Result<Bpe> read_bpe(const JsonObject& model, bool byte_level, const Model::Named& named) {
  BpeOptions options = TRY(bpe_options(model));
  options.by_bytes = byte_level;
  // Words of a byte-level model are looked up as the bytes that they are, not in the alphabet that the file writes them in.
  const auto as_looked_up = [&](const std::string& token) { return byte_level ? bytes_of_text(token) : std::optional(token); };
  for (std::string* affix : {&options.continuing, &options.ending}) {
    std::optional<std::string> spelled = as_looked_up(*affix);
    if (!spelled) return model.wrong("'" + *affix + "' has a character that stands for no byte");
    *affix = std::move(*spelled);
  }
  Vocabulary vocabulary = TRY(vocabulary_of(model, named, as_looked_up));
  const List& merges = *TRY(model.list("merges"));
  std::vector<std::pair<std::string, std::string>> pairs;
  for (size_t i = 0; i < merges.size(); ++i) {
    const std::string where = "model.merges[" + std::to_string(i) + "]";
    const auto pair = TRY(merge_of(merges[i], where));
    auto left = as_looked_up(pair.first), right = as_looked_up(pair.second);
    if (!left || !right) return recipe_error(where + " has a character that stands for no byte");
    pairs.emplace_back(std::move(*left), std::move(*right));
  }
  return Bpe::create(std::move(vocabulary), pairs, std::move(options));
}

/// A score as the `tokenizers` library reads it from the file: its digits as a whole number, divided by a power of ten, each rounded. That
/// may be the number beside the nearest one, and of two cuts whose scores add up to nearly the same the library takes another then.
double score_of(double exact) {
  char text[32];
  const char* const end = std::to_chars(text, text + sizeof text, std::fabs(exact), std::chars_format::scientific).ptr;
  uint64_t digits = 0;
  int64_t exponent = 0;
  const char* c = text;
  for (bool fraction = false; c < end && *c != 'e'; ++c) {
    if (*c == '.') fraction = true;
    else digits = digits * 10 + static_cast<uint64_t>(*c - '0'), exponent -= fraction;
  }
  if (c < end) exponent += std::atoll(std::string(c + 1, end).c_str());
  if (std::abs(exponent) > 308) return exact;
  const double power = std::strtod(("1e" + std::to_string(std::abs(exponent))).c_str(), nullptr), whole = static_cast<double>(digits);
  return std::copysign(exponent < 0 ? whole / power : whole * power, exact);
}

Result<Unigram> read_unigram(const JsonObject& model, const Model::Named& named) {
  UnigramOptions options;
  options.byte_fallback = TRY(model.flag("byte_fallback", false));
  if (model.field("unk_id")) options.unknown = TRY(token_id(model.field("unk_id"), "model: 'unk_id'"));
  const List& vocab = *TRY(model.list("vocab"));
  if (vocab.size() > static_cast<size_t>(kLargestId))
    return model.wrong("'vocab' has " + std::to_string(vocab.size()) + " pieces; " + std::to_string(kLargestId) + " are the most");
  Unigram::Pieces pieces;
  for (size_t i = 0; i < vocab.size(); ++i) {
    const auto* pair = vocab[i].as<List>();
    const auto* piece = pair && pair->size() == 2 ? (*pair)[0].as<std::string>() : nullptr;
    double score = 0;
    if (!piece || !(*pair)[1].number(&score)) return recipe_error("model.vocab[" + std::to_string(i) + "] is not a piece and its score");
    named(static_cast<TokenId>(i), *piece);
    pieces.emplace_back(*piece, score_of(score));
  }
  Result<Unigram> out = Unigram::create(std::move(pieces), options);
  if (!out) return model.wrong(out.error().cause);
  return out;
}

Result<WordPiece> read_wordpiece(const JsonObject& model, const Model::Named& named) {
  WordPieceOptions options;
  options.unknown = TRY(text_or(model, "unk_token", "[UNK]"));
  options.continuing = TRY(text_or(model, "continuing_subword_prefix", "##"));
  options.most_characters = TRY(model.integer("max_input_chars_per_word", options.most_characters));
  const Vocabulary vocabulary = TRY(vocabulary_of(model, named, [](const std::string& token) { return std::optional(token); }));
  Result<WordPiece> out = WordPiece::create(vocabulary, std::move(options));
  if (!out) return model.wrong(out.error().cause);
  return out;
}

Result<WordLevel> read_wordlevel(const JsonObject& model, const Model::Named& named) {
  return WordLevel(TRY(vocabulary_of(model, named, [](const std::string& token) { return std::optional(token); })),
                   TRY(model.text("unk_token")));
}

}  // namespace

Result<TokenId> token_id(const Value* value, const std::string& where) {
  const int64_t* id = value ? value->as<int64_t>() : nullptr;
  if (!id || *id < 0 || *id >= kLargestId)
    return recipe_error(where + ": an id has to be an integer in [0, " + std::to_string(kLargestId) + ")");
  return static_cast<TokenId>(*id);
}

Result<Model> Model::read(const Value& spec, bool byte_level, const Named& named) {
  const JsonObject object = TRY(JsonObject::plain(spec, "model"));
  // Old files do not say the type of their BPE or WordPiece.
  const std::string type = !object.type().empty()                     ? object.type()
                           : object.field("merges")                   ? "BPE"
                           : object.field("max_input_chars_per_word") ? "WordPiece"
                                                                      : "";
  Model out;
  if (type == "BPE") {
    Bpe bpe = TRY(read_bpe(object, byte_level, named));
    out.unknown_ = bpe.unknown();
    out.model_ = std::move(bpe);
    return out;
  }
  if (type != "Unigram" && type != "WordPiece" && type != "WordLevel")
    return object.unsupported({"BPE", "Unigram", "WordPiece", "WordLevel"});
  if (byte_level) return object.wrong("type '" + type + "' over the words of ByteLevel is not supported");
  if (type == "Unigram") {
    Unigram unigram = TRY(read_unigram(object, named));
    out.unknown_ = unigram.unknown();
    out.model_ = std::move(unigram);
  } else if (type == "WordLevel") {
    WordLevel words = TRY(read_wordlevel(object, named));
    out.unknown_ = words.unknown();
    out.model_ = std::move(words);
  } else {
    WordPiece words = TRY(read_wordpiece(object, named));
    out.unknown_ = words.unknown();
    out.model_ = std::move(words);
  }
  return out;
}

const WordIds* Model::encode(std::string_view word, Work& work) const {
  return work.cache_.get(word, [&](WordIds* out) {
    work.ended_ = Encoded::Yes;
    if (const auto* unigram = std::get_if<Unigram>(&model_)) work.ended_ = unigram->encode(word, work.unigram_, out);
    else if (const auto* words = std::get_if<WordLevel>(&model_)) work.ended_ = words->encode(word, out);
    else if (const auto* bpe = std::get_if<Bpe>(&model_)) bpe->encode(word, work.bpe_, out);
    else work.ended_ = std::get<WordPiece>(model_).encode(word, out);
    return work.ended_ == Encoded::Yes;
  });
}

Error Model::problem_of(const Work& work) {
  if (work.ended_ == Encoded::TooSlow)
    return recipe_error("model: a word takes more than " + std::to_string(Trie::kSteps) +
                        " steps a byte: the vocabulary has pieces of thousands of bytes that begin alike");
  return recipe_error("model: the text has a character that no token stands for, and there is no token for the unknown",
                      "set 'unk_id' to the id of a token");
}

}  // namespace galley
