// Turns conversations into text by chat templates, which are Lua (models/lib/chat/*.lua say what one is).
//
// Templates run in sandboxes of their own while data is prepared, one a thread, and are closed before a device is opened; the recipe's own
// Lua is closed long before.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/base/value.hpp"
#include "host/lua/function.hpp"
#include "host/recipe/recipe.hpp"
#include "host/recipe/script.hpp"
#include "host/tokens/text_codec.hpp"

namespace galley {

/// Says for which conversations a model's own template writes the same as the template as which it was recognised.
struct ChatCoverage {
  std::vector<std::string> roles;   ///< roles whose messages are the same
  std::vector<std::string> traits;  ///< traits of conversations in which the two differ: models/lib/conversation/recognise.lua names them
};

/// The choice of a template. Immutable; refers to the recipe.
struct ChatChoice {
  const Recipe* recipe = nullptr;
  std::string name;                     ///< the name of one of Galley's own; "": the recipe's function
  std::optional<size_t> function;       ///< the number of the recipe's function
  std::string system;                   ///< the system message of conversations that have none; "": none
  std::vector<std::string> ignored;     ///< keys of messages and lines that are left out on purpose
  std::optional<ChatCoverage> covered;  ///< given if the model's own template was recognised
  std::string identity;                 ///< a text made of the template's text and all of the above: equal ones render equally
};

/// Chooses a template by the data's options `template` (a name, or a function of the recipe), `system` and `ignore`; without a template,
/// the one that writes the same as the model's own. If there is none, the error shows how to name one.
Result<ChatChoice> choose_chat(const DataSpec& spec, const Recipe& recipe, const ModelTokens& tokens);

/// Returns the names of a table for messages: "'from' and 'value'"; long lists are cut.
std::string names_in(const Table& table);

/// A message of a conversation.
struct Message {
  std::string role, content;
  Table more = {};  ///< its other keys, unless there is nothing in them (null, "", {}, [], false)
};

/// Reads a JSON value as messages: a list of { role, content }, or of { from, value } with "human" and "gpt". A recipe's own template may
/// take messages without content. Errors have no place.
Result<std::vector<Message>> messages_of(const Value& value, const ChatChoice& choice);

/// Renders conversations with an open template. One thread at a time.
class ChatTemplate {
 public:
  static Result<std::unique_ptr<ChatTemplate>> open(const ChatChoice& choice);

  enum class Generate : uint8_t { No, Yes };  ///< Yes: the assistant goes on after the text
  /// Renders messages, and marks replies as counting. `line` is the record that they are from, if any. It is an error if Galley's templates
  /// would leave something out (other keys of messages, the tools of a line), or if the model's own template writes something else. Errors
  /// of the script have its place.
  Result<std::vector<Tokenizer::Segment>> render(const std::vector<Message>& messages, Generate generate, const Table& line = {});
  /// Returns the names of the tokens that end a reply.
  const std::vector<std::string>& stops() const { return stops_; }

 private:
  explicit ChatTemplate(const ChatChoice& choice) : choice_(choice) {}
  Status load();
  Status check(const std::vector<Message>& messages, const Table& line) const;

  ChatChoice choice_;
  std::unique_ptr<RecipeScript> script_;
  std::unique_ptr<Sandbox> own_;
  std::optional<LuaFunction> function_;
  std::vector<std::string> stops_;
};

}  // namespace galley
