// Turns conversations into text by chat templates: a model's own or a file's, in Jinja, those of models/lib/chat by their names, or a
// function of the recipe.
//
// Templates run in sandboxes of their own while data is prepared, one a thread, and are closed before a device is opened; the recipe's own
// Lua is closed long before. models/lib/conversation.lua says which parts of the text are learned.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host/base/result.hpp"
#include "host/base/value.hpp"
#include "host/lua/function.hpp"
#include "host/recipe/recipe.hpp"
#include "host/recipe/script.hpp"
#include "host/tokens/text_codec.hpp"

namespace galley {

/// The choice of a template, and how conversations are given to it. Immutable; refers to the recipe.
struct ChatChoice {
  const Recipe* recipe = nullptr;
  std::string called;                        ///< how messages call it: "the model's chat template"
  std::string jinja;                         ///< its text; "": the recipe's function
  std::string jinja_tools;                   ///< the text for conversations with tools, of models that have one of its own; "": the same
  std::optional<size_t> function;            ///< the number of the recipe's function
  std::string system;                        ///< the system message of conversations that have none; "": none
  std::vector<std::string> ignored;          ///< keys of messages and lines that are left out on purpose
  std::map<std::string, std::string> roles;  ///< the roles of names, beside those that are known
  Table variables;                           ///< what the template is given beside the conversation
  Table tokens;                              ///< the model's special tokens by name: "bos_token"
  std::vector<std::string> specials;         ///< special tokens that are text in a message; empty: none is
  std::string past;                          ///< "each", or "refuse"
  Value now;                                 ///< what strftime_now writes: { year, month, day }; nil: there is no such function
  std::string identity;                      ///< a text made of all of the above: equal ones render equally
};

/// Chooses a template by the data's options. Without one it is the model's own.
Result<ChatChoice> choose_chat(const DataSpec& spec, const Recipe& recipe, const ModelTokens& tokens);

/// Returns the text of the template that the recipe names for its data, to be saved with the model; nullopt if it names none, or a
/// function.
Result<std::optional<std::string>> named_chat_template(const Recipe& recipe);

/// Marks around a special token that a message has as text, in what a template writes of it: no characters, which no text holds.
inline constexpr std::string_view kMarkBegin = "\xEF\xB7\x90", kMarkEnd = "\xEF\xB7\x91";

/// Returns the names of a table for messages: "'from' and 'value'"; long lists are cut.
std::string names_in(const Table& table);

/// A conversation as a template is given it.
struct Conversation {
  List messages;  ///< tables with "role", and what else each has
  Table line;     ///< what the line has beside them: "tools", "documents", "variables"
};

/// Reads the messages of a line: a list of { role, content, … }, or of { from, value, … } with "human" and "gpt". What a template would
/// leave out is refused by name. `line` is the record that they are from, if any. Errors have no place.
Result<Conversation> conversation_of(const Value& messages, const Table& line, const ChatChoice& choice);
/// Returns the conversation of texts, as a person types them.
Result<Conversation> conversation_of(const std::vector<std::pair<std::string, std::string>>& messages, const ChatChoice& choice);

/// The text of a conversation, or of its beginning. Segments that count are the assistant's.
using ChatRow = std::vector<Tokenizer::Segment>;

/// Renders conversations with an open template. One thread at a time.
class ChatTemplate {
 public:
  static Result<std::unique_ptr<ChatTemplate>> open(const ChatChoice& choice);

  /// Returns the rows of a conversation to learn from. There are several where the template writes a turn otherwise once the conversation
  /// goes on. Errors of a recipe's function have its place.
  Result<std::vector<ChatRow>> rows(const Conversation& conversation);
  /// Returns the text after which the assistant answers.
  Result<ChatRow> prompt(const Conversation& conversation);
  /// Returns the text that ends a reply; "": the template has none, or is a function.
  const std::string& end() const { return end_; }
  const ChatChoice& choice() const { return choice_; }

 private:
  explicit ChatTemplate(const ChatChoice& choice) : choice_(choice) {}
  Status load();
  Status renew();
  Result<Value> call(const char* what, const Conversation& conversation);
  Result<ChatRow> call_function(const Conversation& conversation, bool generate);

  ChatChoice choice_;
  std::unique_ptr<RecipeScript> script_;
  std::unique_ptr<Sandbox> own_;
  std::optional<LuaFunction> function_;
  std::string end_;
};

}  // namespace galley
