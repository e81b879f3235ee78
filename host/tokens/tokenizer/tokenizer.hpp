// Reads a tokenizer.json of the `tokenizers` library, and turns text into the same ids and back.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host/base/result.hpp"
#include "host/tokens/tokenizer/added_tokens.hpp"
#include "host/tokens/tokenizer/decoder.hpp"
#include "host/tokens/tokenizer/model.hpp"
#include "host/tokens/tokenizer/normalizer.hpp"
#include "host/tokens/tokenizer/pre_tokenizer.hpp"

namespace galley {

class JsonObject;

/// Immutable. [thread-safe], with a Work a thread.
class Tokenizer {
 public:
  /// Reads the file. A rule that is not supported is an error that names it, exit code Recipe.
  static Result<Tokenizer> read(const std::filesystem::path& path);
  static Result<Tokenizer> parse(std::string_view json, const std::string& origin);

  class Work {
   public:
    explicit Work(const Tokenizer& tokenizer) : steps_(tokenizer.pre_) {}

   private:
    friend class Tokenizer;
    PreTokenizer::Work steps_;
    Model::Work model_;
  };

  enum class Around : uint8_t { Nothing, Template };  ///< Template: the tokens that the post-processor puts around a text
  struct Encoding {
    Around around = Around::Nothing;
    AddedTokens::Special special = AddedTokens::Special::Token;
    Normalizer::Begin begin = Normalizer::Begin::Here;  ///< Before: the text goes on with one that was cut
  };
  /// Appends the ids of `text`, which is UTF-8. An error where a regular expression of the file gives up on it,
  /// or a character is unknown and no token stands for such; `out` is of no use then.
  Status encode(std::string_view text, Encoding how, Work& work, std::vector<TokenId>* out) const;

  /// A part of a document: a template's own text, or somebody's, in which special tokens are text and not control.
  struct Segment {
    std::string text;      ///< UTF-8
    bool control = false;  ///< of the template
    bool counts = false;   ///< in the loss
  };
  /// Appends the ids of the segments' texts together, as of one text, and for each whether a part of it lies in a segment that counts.
  Status encode(std::span<const Segment> segments, Work& work, std::vector<TokenId>* ids, std::vector<bool>* counts) const;

  /// The ids that the post-processor puts before a text, and after it.
  std::span<const TokenId> before() const { return before_; }
  std::span<const TokenId> after() const { return after_; }
  /// How two texts are joined: pieces in order, of which one is each text. Types are 0, and from some piece on 1. Empty: the file does not
  /// say, or says it in a way that is not supported.
  struct PairPiece {
    int8_t text = -1;  ///< 0, 1: that text; −1: a token
    int8_t type = 0;   ///< token_type_ids
    TokenId id = -1;
  };
  std::span<const PairPiece> pair() const { return pair_; }
  /// Added tokens that are special: control, and not text.
  std::span<const TokenId> specials() const { return specials_; }
  /// The model's token for what it does not know; -1: there is none.
  TokenId unknown() const { return model_.unknown(); }
  /// The id of a token, as decode() would write it; -1: there is none.
  TokenId find(std::string_view token) const;
  /// The token of an id below vocabulary(), as the file writes it.
  const std::string& name(TokenId id) const { return tokens_[static_cast<size_t>(id)]; }

  /// Ids that are no tokens are left out.
  std::string decode(std::span<const TokenId> ids) const;

  /// Returns one more than the largest id.
  int64_t vocabulary() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  Status read_root(const Value& root);
  Status read_added(const List& list);
  void name_token(TokenId id, const std::string& text);
  Status read_post(const Value& spec, const std::string& where);
  Status read_template(const Value& spec, const std::string& where);
  Status read_pair(const JsonObject& object);
  void set_pair(std::vector<PairPiece> pair);
  class TextEncoder;
  Status placed(Status status) const;

  std::string origin_;  // begins the text of errors
  Normalizer normalizer_;
  PreTokenizer pre_;
  Model model_;
  Decoder decoder_;
  AddedTokens raw_, normalized_;
  std::vector<std::string> tokens_;      // by id, as the file writes them; "" where there is none
  std::vector<TokenId> specials_;        // added tokens that are special, in the file's order
  std::vector<TokenId> before_, after_;  // what the template puts around one text
  std::vector<PairPiece> pair_ = {{0, 0, -1}, {1, 1, -1}};
  bool templated_ = false;  // a template has said how
};

}  // namespace galley
