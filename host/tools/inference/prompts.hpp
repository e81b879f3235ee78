// Makes tokens of what a model is to go on after: texts, or conversations by a chat template.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/session/study.hpp"
#include "host/tokens/chat.hpp"
#include "host/tokens/text_codec.hpp"
#include "host/tools/inference/continuation.hpp"

namespace galley {

/// How prompts are read, beside what the recipe says.
struct PromptOptions {
  bool chat = false;                           ///< as conversations
  std::optional<std::string> chat_template{};  ///< a name or a file in the place of the recipe's
  std::optional<std::string> system{};         ///< the system message of conversations that have none
  /// Whether one that is too long is cut: of a text the model sees the last tokens, of a source the first; of a conversation the oldest turns
  /// after the system message are left out.
  bool cuts = false;
  std::function<void(const std::string&)> told{};  ///< gets a sentence for each that is cut
  std::string longer{}, cut{};                     ///< how a longer context is had, and how a prompt is cut, for hints; "": it is not
  int64_t room = 0;                                ///< tokens that a text leaves room for
};

/// Refers to the study. Used by one thread.
class Prompts {
 public:
  static Result<std::unique_ptr<Prompts>> open(const Study& study, PromptOptions options);

  const TextCodec& codec() const { return codec_; }
  /// Returns the template of conversations; null where prompts are texts.
  ChatTemplate* chat() const { return chat_.get(); }
  /// Adds what ends a text: tokens, and the text with which the template ends a reply.
  void add_stops(Stops* stops) const;

  /// Returns the tokens after which a text goes on; of a model with a decoder, those that its encoder reads. A token that the model does
  /// not know, and a prompt that is longer than the context and is not cut, are exit code Recipe.
  Result<std::vector<TokenId>> of_text(const std::string& text);
  /// Returns the tokens after which the assistant answers, with room for one more. `text`, if it is given, gets what the template has
  /// written.
  Result<std::vector<TokenId>> of_conversation(Conversation conversation, std::string* text = nullptr);
  /// Reads a line: a string, { "prompt": … }, or, of conversations, { "messages": … }. `text` gets the prompt.
  Result<std::vector<TokenId>> of_line(const Value& line, std::string* text = nullptr);

 private:
  Prompts(const Program& program, PromptOptions options, TextCodec codec)
      : program_(program), options_(std::move(options)), codec_(std::move(codec)), work_(codec_) {}
  bool has_source() const { return program_.target_length > 0; }
  Status check(std::span<const TokenId> tokens) const;
  Status check_length(size_t tokens) const;
  Error too_long(const std::string& what, size_t tokens, bool answered) const;

  const Program& program_;
  const PromptOptions options_;
  TextCodec codec_;
  TextCodec::Work work_;
  std::unique_ptr<ChatTemplate> chat_;
};

}  // namespace galley
