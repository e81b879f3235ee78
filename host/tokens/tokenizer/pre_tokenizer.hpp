// The pre-tokenizer of a tokenizer.json cuts a text into words. It is read from the file's description; a rule that is not supported is an
// error that names it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "host/base/value.hpp"
#include "host/tokens/tokenizer/fields.hpp"
#include "host/tokens/tokenizer/metaspace.hpp"
#include "host/tokens/tokenizer/regex.hpp"

namespace galley {

class PreTokenizer {
 public:
  static Result<PreTokenizer> read(const Value* spec, const std::string& where);
  /// The words are bytes of the text, and the model's alphabet is GPT-2's.
  bool byte_level() const { return byte_level_; }

  /// What a thread needs while it cuts.
  class Work {
   public:
    explicit Work(const PreTokenizer& of);
    /// Where in the text a byte of the word at hand, or its end, comes from; `at` does not go back within a word.
    const char* source(const char* at);

   private:
    friend class PreTokenizer;
    /// What a stage has made of a text.
    struct Written {
      std::string text;
      std::string_view of;
      size_t put = 0;           // bytes before it
      size_t space = 1;         // bytes of a space of `of`
      size_t at = 0, from = 0;  // found last: places in both
      size_t source(size_t place);
    };
    std::vector<std::unique_ptr<Regex::Matches>> matches_;  // by stage; null: it needs none
    std::vector<Written> written_;                          // by stage
  };
  /// Where a text begins: at the beginning of all; after a place where that was cut; after something else, such as an added token.
  enum class Start : uint8_t { Text, Cut, Inside };
  /// Calls `word` with each word in turn. `text` is UTF-8. Nothing is put before a text that begins at a cut. An error where a regular
  /// expression gives up (Regex::find).
  using Words = std::function<void(std::string_view)>;
  Status cut(std::string_view text, Start start, Work& work, const Words& word) const;

 private:
  enum class Kind : uint8_t { Split, Spaces, Punctuation, Delimiter, Digits, Words, Prefix, Metaspace };
  enum class Behavior : uint8_t { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };
  struct Stage {
    Kind kind = Kind::Split;
    Behavior behavior = Behavior::Isolated;
    bool inverted = false;               // Split: what lies between matches is taken for the matches
    std::shared_ptr<const Regex> regex;  // Split
    std::string where;                   // Split: its place in the file
    std::string text;                    // Delimiter: the character; Metaspace: what stands for a space
    Prepend prepend = Prepend::Never;    // Metaspace
    bool splits = true;                  // Metaspace
  };
  class Splitter;
  static Result<Behavior> behavior_of(const JsonObject& object, const char* otherwise);
  Status add(const Value& spec, const std::string& where);
  Status add_regex(const JsonObject& object, const std::string& pattern, Stage stage);
  Status cut(size_t stage, std::string_view text, Start start, Work& work, const Words& word) const;
  Status split(size_t stage, std::string_view text, Start start, Work& work, const Words& word) const;
  Status metaspace(size_t stage, std::string_view text, Start start, Work& work, const Words& word) const;
  std::vector<Stage> stages_;
  bool byte_level_ = false;
};

}  // namespace galley
