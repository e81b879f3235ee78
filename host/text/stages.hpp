// The stages of a tokenizer.json that work on text: normalizers before, pre-tokenizers that cut it into words, decoders on the way back.
// Each is read from the file's own description; what it asks for and is not done here is an error that names it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "host/base/value.hpp"
#include "host/text/regex.hpp"

namespace galley {

/// GPT-2's alphabet writes each byte as a printable character: the bytes that a text in it stands for; nothing when some character is not
/// of it.
std::optional<std::string> bytes_of_text(std::string_view text);
/// Its 256 characters, in the order of their code points; and bytes written in it.
std::vector<std::string> byte_characters();
std::string text_of_bytes(std::string_view bytes);

class Normalizer {
 public:
  /// `spec`: the value of "normalizer"; null: none.
  static Result<Normalizer> read(const Value* spec, const std::string& where);
  bool empty() const { return stages_.empty(); }
  enum class Begin : uint8_t { Here, Before };  ///< Before: nothing is prepended, the text goes on with another
  /// `text` is UTF-8.
  std::string apply(std::string_view text, Begin begin = Begin::Here) const;

 private:
  struct Compose {};
  struct Prepend {
    std::string text;
  };
  struct Replace {
    std::string what, by;
  };
  Status add(const Value& spec, const std::string& where);
  std::vector<std::variant<Compose, Prepend, Replace>> stages_;
  double growth_ = 1;  ///< so many times as long can the stages make a text
};

class PreTokenizer {
 public:
  static Result<PreTokenizer> read(const Value* spec, const std::string& where);
  /// The words are bytes of the text, and the model's alphabet is GPT-2's.
  bool byte_level() const { return byte_level_; }

  /// What a thread needs while it cuts.
  class Work {
   public:
    explicit Work(const PreTokenizer& of);

   private:
    friend class PreTokenizer;
    std::vector<std::unique_ptr<Regex::Matches>> matches_;
    std::vector<std::string> prefixed_;
  };
  /// Calls `word` with each word in turn. `text` is UTF-8. An error where a regular expression gives up (Regex::find).
  using Words = std::function<void(std::string_view)>;
  Status cut(std::string_view text, Work& work, const Words& word) const;

 private:
  enum class Kind : uint8_t { Split, Digits, Prefix };
  struct Stage {
    Kind kind;
    std::shared_ptr<const Regex> regex;  // Split
    bool keeps = true;                   // Split: matches are words; else they are dropped
    bool individual = false;             // Digits: each digit a word
    std::string where = {};              // Split: its place in the file
  };
  Status add(const Value& spec, const std::string& where);
  Status cut(size_t stage, std::string_view text, Work& work, const Words& word) const;
  Status split(size_t stage, std::string_view text, Work& work, const Words& word) const;
  std::vector<Stage> stages_;
  bool byte_level_ = false;
};

class Decoder {
 public:
  static Result<Decoder> read(const Value* spec, const std::string& where);
  /// The text of tokens, as they stand in the vocabulary.
  std::string join(std::vector<std::string> tokens) const;

 private:
  enum class Kind : uint8_t { ByteLevel, Replace, ByteFallback, Fuse, Strip };
  struct Stage {
    Kind kind;
    std::string what, by;
    int64_t start = 0, stop = 0;
  };
  Status add(const Value& spec, const std::string& where);
  std::vector<Stage> stages_;
  double growth_ = 1;  ///< as the normalizer's
  bool none_ = true;
};

}  // namespace galley
