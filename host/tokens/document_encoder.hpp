// Encodes documents: turns a record (a text, or a line of JSON) into tokens, and marks those that count in the loss.
//
//   text     the text; eos after it
//   jsonl    { "text": … }           the text; eos after it
//   prompts  { "prompt": …, "answer": … }  both, one after the other, and eos; the answer and eos count
//   chat     { "messages": [ … ] } or { "conversations": [ … ] }  what the chat template makes of them; the assistant's turns count
//
// If the model learns something else than the next token, documents are as marks.hpp says: texts with what the tokenizer puts around them,
// prompts as source and target, each cut to what a row holds of it, texts of jsonl, or pairs of them, with their labels.
//
// `train_on = "all"` lets everything count. What the tokenizer puts before a text (<s>) goes before all but conversations, whose
// templates write it themselves. `eos = false` leaves it out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/base/result.hpp"
#include "host/recipe/recipe.hpp"
#include "host/tokens/chat.hpp"
#include "host/tokens/marks.hpp"
#include "host/tokens/text_codec.hpp"

namespace galley {

/// Encodes records. Immutable. [thread-safe], with one Work for each thread.
class DocumentEncoder {
 public:
  /// Makes the encoder that `spec` asks for, and checks its options. Refers to `codec` and `recipe`.
  static Result<DocumentEncoder> create(const DataSpec& spec, const Recipe& recipe, const TextCodec& codec);

  /// The state of a thread; made by open().
  struct Work {
    explicit Work(const TextCodec& made_for) : codec(made_for) {}
    TextCodec::Work codec;
    std::unique_ptr<ChatTemplate> chat;
    std::vector<TokenId> ids;
    std::vector<bool> counts;
    uint64_t specials = 0;  ///< special tokens that stood in texts so far
  };
  Result<std::unique_ptr<Work>> open() const;

  /// Appends the tokens of a record, and to `ends` where each document of it ends in `out`: of a conversation there may be several. `place`
  /// is that of a line of JSON: errors begin with it.
  Status encode(std::string_view record, const std::string& place, Work& work, std::vector<uint32_t>* out,
                std::vector<uint64_t>* ends) const;
  /// The position of a piece in a long text: tokens that begin a text go before the first piece, eos goes after the last.
  enum class Position : uint8_t { Only, First, Middle, Last };
  /// Appends the tokens of a piece of text, which must be UTF-8.
  Status encode_text(std::string_view text, Position position, Work& work, std::vector<uint32_t>* out) const;

  /// Returns whether two parts of a text, neither of which begins it, have the same tokens apart as together.
  Result<bool> separate(std::string_view before, std::string_view after, Work& work) const;

  /// Returns whether documents are lines of JSON.
  bool by_lines() const { return kind_ != Kind::Text; }
  /// Returns whether no token is marked kUncounted.
  bool everything_counts() const { return learning_.labels == Fill::NextTokens && (all_ || kind_ == Kind::Text || kind_ == Kind::Jsonl); }
  /// Returns a text made of everything that decides the tokens of a record.
  const std::string& identity() const { return identity_; }
  const TextCodec& codec() const { return *codec_; }

 private:
  enum class Kind : uint8_t { Text, Jsonl, Prompts, Chat };
  DocumentEncoder() = default;
  Status encode_segments(std::span<const Tokenizer::Segment> segments, Work& work, std::vector<uint32_t>* out) const;
  Result<std::string> field(const Table& record, const std::string& name, const char* option) const;
  std::vector<TokenId> after() const;
  void count_specials(Work& work) const;
  Status check_learning(const DataSpec& spec) const;
  Status check_pair(const DataSpec& spec) const;
  Status encode_whole(std::string_view text, uint64_t most, bool counts, Work& work, std::vector<uint32_t>* out) const;
  Status encode_target(const Table& record, Work& work, std::vector<uint32_t>* out) const;
  Status encode_row(const Table& record, Work& work, std::vector<uint32_t>* out) const;
  Status encode_labels(const Table& record, std::vector<uint32_t>* out) const;
  Status encode_values(const Value& values, std::vector<uint32_t>* out) const;
  Status encode_words(const Table& record, Work& work, std::vector<uint32_t>* out) const;
  Result<const Value*> value_in(const Table& record, const std::string& name, const char* option) const;
  Result<uint32_t> label_of(const Value& value) const;
  Table::const_iterator conversation_in(const Table& line) const;
  Status encode_conversation(const Table& line, Work& work, std::vector<uint32_t>* out, std::vector<uint64_t>* ends) const;

  Kind kind_ = Kind::Text;
  const TextCodec* codec_ = nullptr;
  std::optional<ChatChoice> chat_;
  std::string first_, second_;  // names of fields; "" for a conversation: one of the usual
  std::string label_, pair_;    // names of fields; pair_ "": there is one text
  Learning learning_;
  uint64_t length_ = 0, target_length_ = 0;  // where a document is cut to them
  bool all_ = false;                         // everything counts
  TokenId eos_ = -1;                         // −1: none is put
  std::string identity_;
};

}  // namespace galley
