// A tokenizer.json of the `tokenizers` library: text to ids and back, the same ids.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host/base/result.hpp"
#include "host/text/added_tokens.hpp"
#include "host/text/bpe.hpp"
#include "host/text/steps.hpp"

namespace galley {

/// Immutable. [thread-safe], with a Work a thread.
class Tokenizer {
 public:
  /// What the file asks for and is not supported is an error that names it, exit code Recipe.
  static Result<Tokenizer> read(const std::filesystem::path& path);
  static Result<Tokenizer> parse(std::string_view json, const std::string& origin);

  class Work {
   public:
    explicit Work(const Tokenizer& tokenizer) : steps_(tokenizer.pre_) {}

   private:
    friend class Tokenizer;
    PreTokenizer::Work steps_;
    Bpe::Cache cache_;
  };

  enum class Around : uint8_t { Nothing, Template };  ///< Template: the tokens that the post-processor puts around a text
  struct Encoding {
    Around around = Around::Nothing;
    AddedTokens::Special special = AddedTokens::Special::Token;
  };
  /// Appends the ids of `text`, which is UTF-8.
  void encode(std::string_view text, Encoding how, Work& work, std::vector<TokenId>* out) const;

  /// Ids that are no tokens are left out.
  std::string decode(std::span<const TokenId> ids) const;

  /// One more than the largest id.
  int64_t vocabulary() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  Status read_model(const Value& spec);
  Status read_added(const Value* spec);
  Status read_post(const Value& spec, const std::string& where);
  void encode_piece(std::string_view text, Encoding how, Work& work, std::vector<TokenId>* out) const;

  Normalizer normalizer_;
  PreTokenizer pre_;
  Bpe model_;
  Decoder decoder_;
  AddedTokens raw_, normalized_;
  std::vector<std::string> tokens_;       // by id, as the file writes them; "" where there is none
  std::vector<TokenId> before_, behind_;  // what the template puts around one text
};

}  // namespace galley
