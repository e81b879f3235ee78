#include "host/tools/gguf/vocabulary.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>

#include "host/base/file.hpp"
#include "host/base/json.hpp"
#include "host/tokens/text_codec.hpp"
#include "host/tokens/tokenizer/precompiled.hpp"
#include "host/tokens/tokenizer/unicode.hpp"
#include "host/tools/gguf/pre_tokenizer_name.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

/// Types of tokens, as llama.cpp numbers them.
enum TokenKind : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
constexpr std::string_view kSpaceMark = "▁";

std::string with_spaces(std::string text) {
  for (size_t at; (at = text.find(kSpaceMark)) != std::string::npos;) text.replace(at, kSpaceMark.size(), " ");
  return text;
}

/// A pair of a merge: "a b", or ["a", "b"]. The tokenizer has been read: it is one of them.
std::pair<std::string, std::string> merge_of(const Value& value) {
  if (const auto* text = value.as<std::string>()) return {text->substr(0, text->find(' ', 1)), text->substr(text->find(' ', 1) + 1)};
  const List& pair = *value.as<List>();
  return {*pair.at(0).as<std::string>(), *pair.at(1).as<std::string>()};
}

/// A tokenizer.json, read as the ids and rules that a GGUF file has for it.
class VocabularyWriter {
 public:
  VocabularyWriter(const Value& file, const Tokenizer& tokenizer, GgufKeys* keys, std::vector<std::string>* notes)
      : file_(file), tokenizer_(tokenizer), keys_(keys), notes_(notes) {}

  Status write(int64_t vocabulary) {
    if (tokenizer_.vocabulary() > vocabulary)
      return recipe_error("the tokenizer has " + std::to_string(tokenizer_.vocabulary()) + " tokens, and the model " +
                          std::to_string(vocabulary));
    const auto* table = file_.field<Table>("model");
    const Value model = table ? Value(*table) : Value();
    const std::string type = model.text_field("type");
    if (type == "Unigram") {
      take_tokens(vocabulary);
      return write_unigram(model);
    }
    if (type != "BPE")
      return recipe_error("a tokenizer of type '" + type + "' is not written",
                          "written are 'BPE', over bytes or as SentencePiece's, and 'Unigram'");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (!model.text_field(key).empty()) return recipe_error("llama.cpp knows no '" + std::string(key) + "' of byte-pair encoding");
    if (const auto* merges = model.field<List>("merges"))
      for (const Value& merge : *merges) merges_.push_back(merge_of(merge));
    take_tokens(vocabulary);
    const auto* fallback = model.field<bool>("byte_fallback");
    const auto* ignores = model.field<bool>("ignore_merges");
    return fallback && *fallback ? write_sentencepiece() : write_bytes(ignores && *ignores);
  }

 private:
  Value part(const char* name) const {
    const auto* table = file_.field<Table>(name);
    return table ? Value(*table) : Value();
  }

  void take_tokens(int64_t vocabulary) {
    for (int64_t id = 0; id < vocabulary; ++id) {
      const std::string name = id < tokenizer_.vocabulary() ? tokenizer_.name(static_cast<TokenId>(id)) : "";
      tokens_.push_back(name.empty() ? "[PAD" + std::to_string(id) + "]" : name);
      kinds_.push_back(name.empty() ? kUnused : kNormal);
    }
    const auto* added = file_.field<List>("added_tokens");
    std::string stripping;
    for (const Value& token : added ? *added : List()) {
      const auto* id = token.field<int64_t>("id");
      if (!id || *id < 0 || *id >= vocabulary) continue;
      const auto flag = [&](const char* name) {
        const auto* value = token.field<bool>(name);
        return value && *value;
      };
      const auto at = static_cast<size_t>(*id);
      kinds_[at] = flag("special") ? kControl : kUserDefined;
      if (kinds_[at] == kUserDefined) tokens_[at] = with_spaces(tokens_[at]);
      if (stripping.empty() && (flag("lstrip") || flag("rstrip") || flag("single_word"))) stripping = tokens_[at];
    }
    if (!stripping.empty())
      notes_->push_back("llama.cpp may not take the white space around the added token '" + stripping +
                        "' ('lstrip', 'rstrip', 'single_word')");
  }

  /// llama.cpp finds tokens by their text, which it reads up to a byte 0.
  Status put_tokens() {
    std::unordered_map<std::string_view, size_t> seen;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (tokens_[id].find('\0') != std::string::npos)
        return recipe_error("token " + std::to_string(id) + " has a byte 0 in its text, at which llama.cpp ends it");
      if (const auto [at, first] = seen.emplace(tokens_[id], id); !first)
        return recipe_error("tokens " + std::to_string(at->second) + " and " + std::to_string(id) + " are both written '" + tokens_[id] +
                            "': llama.cpp finds tokens by their text");
    }
    keys_->add("tokenizer.ggml.tokens", std::span<const std::string>(tokens_));
    keys_->add("tokenizer.ggml.token_type", std::span<const int32_t>(kinds_));
    return ok();
  }

  /// Byte-pair encoding over bytes, as GPT-2's.
  Status write_bytes(bool ignores_merges) {
    const Value normalizer = part("normalizer");
    const std::string type = normalizer.text_field("type");
    const bool empty = normalizer.is_nil() ||
                       (type == "Sequence" && normalizer.field<List>("normalizers") && normalizer.field<List>("normalizers")->empty());
    if (type == "NFC") notes_->push_back("llama.cpp does not bring texts into Unicode's form NFC, as the model's tokenizer does");
    else if (!empty) return recipe_error("llama.cpp knows no 'normalizer' of type '" + type + "' for byte-pair encoding over bytes");
    const std::string pre = TRY(pre_tokenizer_name(part("pre_tokenizer"), ignores_merges));
    keys_->add("tokenizer.ggml.model", Value("gpt2"));
    keys_->add("tokenizer.ggml.pre", Value(pre));
    TRY_STATUS(put_tokens());
    std::vector<std::string> texts;
    for (const auto& [left, right] : merges_) texts.push_back(left + " " + right);
    keys_->add("tokenizer.ggml.merges", std::span<const std::string>(texts));
    return ok();
  }

  /// SentencePiece's byte-pair encoding: a merge is as good as the token that it makes, whatever its parts.
  Status write_sentencepiece() {
    const bool prefix = TRY(prefixes_space());
    std::vector<float> scores(tokens_.size(), 0.0f);
    std::unordered_map<std::string_view, size_t> ids;
    for (size_t id = 0; id < tokens_.size(); ++id)
      if (kinds_[id] == kNormal) ids.emplace(tokens_[id], id);
    TRY_STATUS(take_scores(ids, &scores));
    std::set<std::string> bytes;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      unsigned byte = 0;
      int end = 0;
      if (tokens_[id].size() == 6 && std::sscanf(tokens_[id].c_str(), "<0x%02X>%n", &byte, &end) == 1 && end == 6) {
        kinds_[id] = kByte;
        bytes.insert(tokens_[id]);
      }
    }
    if (bytes.size() != 256)
      return recipe_error("'byte_fallback' is true, and " + std::to_string(bytes.size()) +
                          " of the 256 tokens '<0x00>' … '<0xFF>' are there");
    TRY_STATUS(put_pieces("llama", scores, prefix));
    return ok();
  }

  /// Pieces of SentencePiece's models, with what each is worth.
  Status put_pieces(const char* model, const std::vector<float>& scores, bool prefix) {
    if (const TokenId unknown = tokenizer_.unknown(); unknown >= 0) kinds_[static_cast<size_t>(unknown)] = kUnknown;
    keys_->add("tokenizer.ggml.model", Value(model));
    keys_->add("tokenizer.ggml.pre", Value("default"));
    TRY_STATUS(put_tokens());
    keys_->add("tokenizer.ggml.scores", std::span<const float>(scores));
    keys_->add("tokenizer.ggml.add_space_prefix", Value(prefix));
    return ok();
  }

  /// SentencePiece's unigram model, as T5's: the scores are the file's own.
  Status write_unigram(const Value& model) {
    std::string map;
    bool merges = false;
    const Value normalizer = part("normalizer"), pre = part("pre_tokenizer");
    const auto* steps = normalizer.field<List>("normalizers");
    for (const Value& step : steps ? *steps : normalizer.is_nil() ? List() : List{normalizer}) {
      const std::string type = step.text_field("type");
      const auto* pattern = step.field<Table>("pattern");
      const auto* left = step.field<bool>("strip_left");
      if (type == "Precompiled" && map.empty()) map = bytes_of_base64(step.text_field("precompiled_charsmap")).value_or("");
      else if (type == "Replace" && pattern && Value(*pattern).text_field("Regex") == " {2,}" && step.text_field("content") == kSpaceMark)
        merges = true;
      else if (type != "Strip" || !left || *left)
        return recipe_error("llama.cpp knows no 'normalizer' of this kind for a unigram model: " + to_json(step).substr(0, 300));
    }
    bool marks = false;
    const auto* splits = pre.field<List>("pretokenizers");
    for (const Value& step : splits ? *splits : List{pre}) {
      const std::string type = step.text_field("type"), scheme = step.text_field("prepend_scheme");
      const auto* old = step.field<bool>("add_prefix_space");
      const bool prefixes = scheme.empty() ? !old || *old : scheme == "always";
      if (type == "WhitespaceSplit") merges = true;
      else if (type == "Metaspace" && step.text_field("replacement") == kSpaceMark && prefixes) marks = true;
      else return recipe_error("llama.cpp knows no 'pre_tokenizer' of this kind for a unigram model: " + to_json(step).substr(0, 300));
    }
    if (!marks) return recipe_error("no 'pre_tokenizer' writes spaces as '▁', as llama.cpp does for a unigram model");
    // llama.cpp finds those that no piece has by the score of what it adds: the least one.
    std::vector<float> scores(tokens_.size(), -10000.0f);
    const auto* pieces = model.field<List>("vocab");
    for (size_t id = 0; pieces && id < std::min(pieces->size(), scores.size()); ++id) {
      const auto* piece = (*pieces)[id].as<List>();
      double score = 0;
      if (piece && piece->size() == 2 && (*piece)[1].number(&score)) scores[id] = static_cast<float>(score);
    }
    TRY_STATUS(put_pieces("t5", scores, true));
    keys_->add("tokenizer.ggml.remove_extra_whitespaces", Value(merges));
    if (!map.empty())
      keys_->add("tokenizer.ggml.precompiled_charsmap", std::span(reinterpret_cast<const uint8_t*>(map.data()), map.size()));
    return ok();
  }

  /// Scores by the order of merges: the best 0, the next −1. Tokens that no merge makes come last.
  Status take_scores(const std::unordered_map<std::string_view, size_t>& ids, std::vector<float>* scores) {
    const auto wrong = [](const std::string& token) {
      return recipe_error(
          "the merges of '" + token + "' are not SentencePiece's, which llama.cpp takes for a tokenizer with 'byte_fallback'",
          "llama.cpp would split texts otherwise than the model's tokenizer");
    };
    std::vector<size_t> order;
    std::unordered_map<size_t, size_t> splits;
    for (const auto& [left, right] : merges_) {
      const auto made = ids.find(left + right);
      if (made == ids.end()) return wrong(left + right);
      if (order.empty() || order.back() != made->second) {
        if (splits.contains(made->second)) return wrong(left + right);
        order.push_back(made->second);
      }
      ++splits[made->second];
    }
    float score = 0;
    for (const size_t id : order) (*scores)[id] = score--;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (kinds_[id] != kNormal) continue;
      const std::string_view text = tokens_[id];
      size_t possible = 0;
      for (size_t at = next_code_point(text).bytes; at < text.size(); at += next_code_point(text.substr(at)).bytes)
        possible += ids.contains(text.substr(0, at)) && ids.contains(text.substr(at));
      const auto found = splits.find(id);
      if (possible != (found == splits.end() ? 0 : found->second)) return wrong(tokens_[id]);
      if (found == splits.end()) (*scores)[id] = score - static_cast<float>(id);
    }
    return ok();
  }

  /// Whether a space goes before a text, and that all spaces are marked and nothing else is changed.
  Result<bool> prefixes_space() {
    bool prefix = false, marks = false;
    const Value normalizer = part("normalizer"), pre = part("pre_tokenizer");
    const auto* steps = normalizer.field<List>("normalizers");
    for (const Value& step : steps ? *steps : normalizer.is_nil() ? List() : List{normalizer}) {
      const std::string type = step.text_field("type");
      const auto* pattern = step.field<Table>("pattern");
      if (type == "Prepend" && step.text_field("prepend") == kSpaceMark) prefix = true;
      else if (type == "Replace" && pattern && Value(*pattern).text_field("String") == " " && step.text_field("content") == kSpaceMark)
        marks = true;
      else return recipe_error("llama.cpp knows no 'normalizer' of this kind for SentencePiece's encoding: " + to_json(step));
    }
    const std::string type = pre.text_field("type");
    if (type == "Metaspace" && pre.text_field("replacement") == kSpaceMark) {
      const auto* old = pre.field<bool>("add_prefix_space");
      std::string scheme = pre.text_field("prepend_scheme");
      if (scheme.empty()) scheme = !old || *old ? "always" : "never";
      marks = true;
      prefix = scheme != "never";
      if (scheme == "first")
        notes_->push_back(
            "llama.cpp puts a space before the text after a special token, too; the model's tokenizer only before the first text");
    } else if (!pre.is_nil() && !(type == "Split" && marks)) {
      return recipe_error("llama.cpp knows no 'pre_tokenizer' of this kind for SentencePiece's encoding: " + to_json(pre));
    }
    if (!marks) return recipe_error("no rule of the tokenizer writes spaces as '▁', as llama.cpp does for SentencePiece's encoding");
    return prefix;
  }

  const Value& file_;
  const Tokenizer& tokenizer_;
  GgufKeys* keys_;
  std::vector<std::string>* notes_;
  std::vector<std::string> tokens_;
  std::vector<int32_t> kinds_;
  std::vector<std::pair<std::string, std::string>> merges_;
};

void add_ids(const fs::path& folder, const Tokenizer& tokenizer, const ModelTokens& model, GgufKeys* keys,
             std::vector<std::string>* notes) {
  const SpecialTokens special = special_tokens(tokenizer, model);
  const auto before = tokenizer.before(), after = tokenizer.after();
  const Result<Value> config = read_json(folder / "config.json");
  const auto* configured = config ? config->field<int64_t>("bos_token_id") : nullptr;
  TokenId bos = tokenizer.find(model.bos), eos = tokenizer.find(model.eos);
  if (bos < 0 && configured && *configured >= 0 && *configured < tokenizer.vocabulary()) bos = static_cast<TokenId>(*configured);
  if (bos < 0 && before.size() == 1) bos = before[0];
  std::vector<TokenId> ends = model.eos_ids;
  ends.insert(ends.end(), model.stops.begin(), model.stops.end());
  std::erase_if(ends, [&](TokenId id) { return id >= tokenizer.vocabulary(); });
  if (eos < 0 && !ends.empty()) eos = ends[0];
  if (eos < 0 && after.size() == 1) eos = after[0];
  const auto put = [&](const char* name, TokenId id) {
    if (id >= 0) keys->add("tokenizer.ggml." + std::string(name) + "_token_id", Value(static_cast<int64_t>(id)));
  };
  put("bos", bos);
  put("eos", eos);
  // llama.cpp ends a text at these as well.
  const char* const more[] = {"eot", "eom"};
  size_t named = 0;
  std::set<TokenId> seen = {eos};
  for (const TokenId id : ends)
    if (seen.insert(id).second && named < std::size(more)) put(more[named++], id);
  put("unknown", special.unk >= 0 ? special.unk : tokenizer.unknown());
  put("seperator", special.sep);
  put("padding", special.pad);
  put("cls", special.cls);
  put("mask", special.mask);
  const bool begins = before.size() == 1 && before[0] == bos, finishes = after.size() == 1 && after[0] == eos;
  keys->add("tokenizer.ggml.add_bos_token", Value(begins));
  keys->add("tokenizer.ggml.add_eos_token", Value(finishes));
  if (begins != !before.empty() || finishes != !after.empty())
    notes->push_back("the model's tokenizer puts tokens around a text that are not bos and eos: llama.cpp does not");
  if (eos < 0) notes->push_back("no file says which token ends a text: llama.cpp takes one of its own for it");
}

}  // namespace

Status add_vocabulary(const fs::path& folder, int64_t vocabulary, GgufKeys* keys, std::vector<std::string>* notes) {
  const fs::path path = folder / "tokenizer.json";
  std::error_code error;
  if (!fs::exists(path, error)) {
    keys->add("tokenizer.ggml.model", Value("no_vocab"));
    notes->push_back("the model has no tokenizer.json, and so the file has no tokenizer: programs can give it ids, and no text");
    return ok();
  }
  const std::string text = TRY(read_text(path, uint64_t{256} << 20));
  const Value file = TRY(parse_json(text, "tokenizer.json", kManyJsonValues));
  const Tokenizer tokenizer = TRY(Tokenizer::parse(text, "tokenizer.json"));
  VocabularyWriter writer(file, tokenizer, keys, notes);
  if (Status written = writer.write(vocabulary); !written)
    return recipe_error("tokenizer.json: " + written.error().cause, written.error().hint);
  const ModelTokens model = TRY(read_model_tokens(folder));
  add_ids(folder, tokenizer, model, keys, notes);
  std::vector<std::string> others;
  for (const auto& [name, chat] : model.chat_templates) {
    if (name != "default") others.push_back(name);
    keys->add(name == "default" ? "tokenizer.chat_template" : "tokenizer.chat_template." + name, Value(chat));
  }
  if (!others.empty()) keys->add("tokenizer.chat_templates", std::span<const std::string>(others));
  return ok();
}

}  // namespace galley
