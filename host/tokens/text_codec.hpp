// Converts between text and the ids that a recipe's model reads, by its tokenizer or as bytes, and finds the ids that begin and end a text.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host/base/result.hpp"
#include "host/recipe/recipe.hpp"
#include "host/tokens/tokenizer/tokenizer.hpp"

namespace galley {

/// What a model's folder says about its tokens beside tokenizer.json.
struct ModelTokens {
  std::string bos, eos;  ///< bos_token and eos_token of tokenizer_config.json, else of special_tokens_map.json; "": not there
  std::string mask, pad, cls, sep, unk;  ///< and mask_token and so on
  std::vector<TokenId> eos_ids;          ///< eos_token_id of config.json
  std::vector<TokenId> stops;            ///< eos_token_id of generation_config.json
  std::map<std::string, std::string>
      chat_templates;                 ///< Jinja by name: the one of chat_template.jinja, else of tokenizer_config.json is "default"
  std::vector<std::string> specials;  ///< every token that tokenizer.json calls special, and those above
};
Result<ModelTokens> read_model_tokens(const std::filesystem::path& folder);

/// Tokens with a meaning of their own, by id; -1: there is none.
struct SpecialTokens {
  TokenId mask = -1, pad = -1, cls = -1, sep = -1, unk = -1;
  std::vector<TokenId> all;  ///< these, eos and bos, and every other that tokenizer.json calls special; sorted
};

SpecialTokens special_tokens(const Tokenizer& tokenizer, const ModelTokens& model);

/// Returns the data that says how the model reads text: the recipe's, or the first of a mix.
const DataSpec& text_data(const Recipe& recipe);
/// Returns the same, but without options if that data has no text: such a model reads text in the usual way.
DataSpec text_spec(const Recipe& recipe);
/// Returns the tokenizer.json that the data's option `tokenizer` means, whether it is there or not; "" for bytes, or if the model has no
/// folder. If reading is confined, files beside it that belong to it may be read.
Result<std::filesystem::path> tokenizer_file(const DataSpec& spec, const Recipe& recipe);
/// Returns it and the files that belong to it, by name, to be saved with a model. A link out of its folder is an error: it could be any
/// file, which would go where the model goes.
Result<std::vector<std::pair<std::string, std::string>>> tokenizer_files(const DataSpec& spec, const Recipe& recipe);

/// Gives a model that the recipe itself describes the ids of its data's tokenizer, if the recipe says none: bos_token_id, eos_token_id and
/// pad_token_id, by which other programs know where a text ends.
Status take_token_ids(Recipe& recipe);

/// Converts text to ids and back. Immutable. [thread-safe], with one Work for each thread.
class TextCodec {
 public:
  /// Opens the data's option `tokenizer`: "bytes" (a token is a byte, ids 0 … 255), "model" (tokenizer.json of the model's folder; the
  /// default) or the path of a tokenizer.json, or of its folder. The model's folder names the tokens that begin and end texts: eos_token
  /// and bos_token of tokenizer_config.json or special_tokens_map.json, else eos_token_id and bos_token_id of config.json; if there is no
  /// eos, it is the one token that the tokenizer puts after a text ([SEP]).
  static Result<TextCodec> open(const DataSpec& spec, const Recipe& recipe);

  class Work {
   public:
    explicit Work(const TextCodec& codec) {
      if (codec.tokenizer_) tokenizer_.emplace(*codec.tokenizer_);
    }

   private:
    friend class TextCodec;
    std::optional<Tokenizer::Work> tokenizer_;
  };

  /// Returns whether special tokens that stand in a text become tokens, as in transformers: the data's option `special`, but of conversations,
  /// whose messages have a rule of their own.
  bool takes_specials() const { return takes_specials_ == AddedTokens::Special::Token; }
  /// Appends the ids of a text. An error if a regular expression of the tokenizer gives up on it.
  Status encode(std::string_view text, Work& work, std::vector<TokenId>* ids, Normalizer::Begin begin = Normalizer::Begin::Here) const;
  Status encode(std::span<const Tokenizer::Segment> segments, Work& work, std::vector<TokenId>* ids, std::vector<bool>* counts) const;
  /// Appends the ids of a text between what the tokenizer puts before a text and `after`, at most `most` in all. Returns whether the text
  /// was cut.
  Result<bool> encode_whole(std::string_view text, std::span<const TokenId> after, size_t most, Work& work,
                            std::vector<TokenId>* ids) const;
  /// Returns whether encode_pair() can be called.
  bool joins_pairs() const { return tokenizer_ && !tokenizer_->pair().empty(); }
  /// Appends the ids of two texts as the tokenizer joins them, at most `most`: the longer text is cut first, as in the `tokenizers`
  /// library. Returns the index of the first id of the second type (token_type_ids).
  Result<size_t> encode_pair(std::string_view first, std::string_view second, size_t most, Work& work, std::vector<TokenId>* ids) const;
  std::string decode(std::span<const TokenId> ids) const;
  /// Returns the id of a token by its name; −1 if there is none.
  TokenId find(std::string_view token) const { return tokenizer_ ? tokenizer_->find(token) : -1; }

  /// Returns the token of an id below vocabulary(), as its file writes it.
  std::string name(TokenId id) const { return tokenizer_ ? tokenizer_->name(id) : std::to_string(id); }
  bool bytes() const { return !tokenizer_; }
  int64_t vocabulary() const { return tokenizer_ ? tokenizer_->vocabulary() : 256; }
  /// Returns what the tokenizer puts before a text (<s>).
  std::span<const TokenId> before() const { return tokenizer_ ? tokenizer_->before() : std::span<const TokenId>(); }
  /// Returns what it puts after a text (</s>, [SEP]).
  std::span<const TokenId> after() const { return tokenizer_ ? tokenizer_->after() : std::span<const TokenId>(); }
  TokenId eos() const { return eos_; }  ///< −1: there is none
  /// Returns special tokens by the names in the model's folder, else by [MASK] or <mask> and so on among tokenizer.json's special tokens.
  const SpecialTokens& special() const { return special_; }
  /// Returns every token that ends a text: eos, and those that generation_config.json names.
  const std::vector<TokenId>& stops() const { return stops_; }
  const ModelTokens& model() const { return model_; }
  /// Returns a text made of the file's bytes and the tokens above: codecs with equal identities encode equally.
  const std::string& identity() const { return identity_; }

 private:
  TextCodec() = default;

  std::optional<Tokenizer> tokenizer_;
  TokenId eos_ = -1;
  SpecialTokens special_;
  AddedTokens::Special takes_specials_ = AddedTokens::Special::Token;
  ModelTokens model_;
  std::string identity_ = "bytes";
  std::vector<TokenId> stops_;
};

}  // namespace galley
