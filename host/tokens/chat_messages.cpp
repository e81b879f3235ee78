// Conversations as people's files have them, as templates take them.
#include <algorithm>
#include <array>
#include <string_view>

#include "host/base/json.hpp"
#include "host/tokens/chat.hpp"

namespace galley {
namespace {

bool among(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// null, "", {}, [], false: how data sets write what a message or a line does not have.
bool is_nothing(const Value& value) {
  if (const auto* text = value.as<std::string>()) return text->empty() || *text == "[]";
  if (const auto* list = value.as<List>()) return list->empty();
  if (const auto* table = value.as<Table>()) return table->empty() || (table->size() == 1 && table->contains(kKeyOrder));
  return value.is_nil() || (value.as<bool>() && !*value.as<bool>());
}

/// Returns "'name' and 'weight'".
std::string quoted(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < names.size(); ++i) out += (i == 0 ? "'" : i + 1 == names.size() ? " and '" : ", '") + names[i] + "'";
  return out;
}

constexpr const char* kForms =
    "a message is { \"role\": …, \"content\": … }, or ShareGPT's { \"from\": …, \"value\": … }; other keys have to be renamed in the file";

/// What a message says beside its role and content, for which a template needs no name: whether it is learned, and which call it answers.
const std::vector<std::string> kOfItself = {"role", "content", "weight", "train", "id", "tool_call_id"};
/// Whose messages every template is taken to know.
const std::vector<std::string> kRoles = {"system", "user", "assistant", "tool"};
/// One thing under three names, of which a template reads one.
const std::vector<std::string> kReasoning = {"reasoning_content", "reasoning", "thinking"};
/// What chat templates are given beside the messages. Other keys of a line (its source, its number) say nothing to a model.
constexpr const char* kContext[] = {"tools", "functions", "documents"};

/// Whether a template's text has a name in it.
bool mentions(const ChatChoice& choice, const std::string& name) {
  const auto in = [&](const std::string& key) {
    return choice.jinja.find(key) != std::string::npos || choice.jinja_tools.find(key) != std::string::npos;
  };
  return choice.function || in(name) || (among(kReasoning, name) && std::ranges::any_of(kReasoning, in));
}

Error left_out(const ChatChoice& choice, const std::string& whose, const std::vector<std::string>& keys) {
  std::string list;
  for (const std::string& key : keys) list += (list.empty() ? "\"" : ", \"") + key + "\"";
  return recipe_error(whose + " has " + quoted(keys) + ", which " + choice.called + " does not write",
                      "leave it out on purpose with ignore = { " + list + " }, or name a template that writes it");
}

/// A text of JSON where a list or table belongs, as data sets with columns of texts have it.
Value parsed(const Value& value) {
  const auto* text = value.as<std::string>();
  if (!text) return value;
  Result<Value> out = parse_json(*text, "", kMostJsonValues, KeyOrder::Listed);
  return out && (out->as<List>() || out->as<Table>()) ? *std::move(out) : value;
}

std::string role_of(const std::string& name, const ChatChoice& choice) {
  if (const auto it = choice.roles.find(name); it != choice.roles.end()) return it->second;
  return name == "human" ? "user" : name == "gpt" ? "assistant" : name;
}

bool is_content(const Value& value) { return value.as<std::string>() || value.as<List>(); }

Result<Value> message_of(const Value& value, size_t number, const ChatChoice& choice) {
  const std::string which = "message " + std::to_string(number + 1);
  const Table* given = value.as<Table>();
  if (!given) return recipe_error(which + " is " + value.type_name() + " where { role, content } belongs");
  Table out;
  for (const auto& [key, part] : *given)
    if (!part.is_nil() && !among(choice.ignored, key) && (!choice.function || !is_nothing(part))) out.emplace(key, part);
  // Takes a key under the one name or the other.
  const auto rename = [&](const char* name, const char* other) {
    if (given->contains(name) || !out.contains(other)) return;
    out.insert_or_assign(name, std::move(out.at(other)));
    out.erase(other);
  };
  rename("role", "from");
  rename("content", "value");
  const auto role = out.find("role");
  const auto* given_role = role == out.end() ? nullptr : role->second.as<std::string>();
  const std::string name = given_role ? *given_role : "";
  if (name.empty()) return recipe_error(which + " has no 'role' that is a string; it has " + names_in(*given), kForms);
  role->second = Value(role_of(name, choice));
  if (choice.function) {
    out.try_emplace("content", "");
    return Value(std::move(out));
  }
  if (const std::string& said = *role->second.as<std::string>(); !among(kRoles, said) && !mentions(choice, said))
    return recipe_error(which + " has the role '" + shortened(said) + "', which " + choice.called + " does not name",
                        "say whose it is: roles = { [\"" + shortened(name) + "\"] = \"assistant\" }");
  // A turn that only calls tools has null: what the recipe leaves out on purpose leaves a turn without a text.
  const bool calls = std::ranges::any_of(*given, [&](const auto& e) { return among(choice.ignored, e.first) && !is_nothing(e.second); });
  if (calls) out.try_emplace("content", "");
  const auto content = out.find("content");
  const bool says_else = given->contains("tool_calls") || std::ranges::any_of(kReasoning, [&](auto& key) { return out.contains(key); });
  if (content == out.end() ? !says_else : !is_content(content->second))
    return recipe_error(which + " has no 'content' that is a string or a list of parts; it has " + names_in(*given), kForms);
  std::vector<std::string> unread;
  for (const auto& [key, part] : out)
    if (key != kKeyOrder && !is_nothing(part) && !among(kOfItself, key) && !(key == "name" && out.contains("tool_call_id")) &&
        !mentions(choice, key))
      unread.push_back(key);
  if (!unread.empty()) return left_out(choice, which, unread);
  return Value(std::move(out));
}

std::string role_in(const Value& message) { return message.text_field("role"); }

/// What the line says for the system, and what the recipe does.
Status add_system(const Table& line, const ChatChoice& choice, List* messages) {
  std::string system = choice.system;
  const bool said = role_in(messages->front()) == "system";
  if (const auto it = line.find("system"); it != line.end() && !is_nothing(it->second) && !among(choice.ignored, "system")) {
    const auto* text = it->second.as<std::string>();
    if (!text) return recipe_error(std::string("'system' of the line is ") + it->second.type_name() + " where a string belongs");
    if (said && messages->front().text_field("content") != *text)
      return recipe_error("the line has a 'system', and its first message is another",
                          "leave one out: ignore = { \"system\" }, or change the file");
    system = *text;
  }
  if (!system.empty() && !said) messages->insert(messages->begin(), Value(Table{{"role", Value("system")}, {"content", Value(system)}}));
  return ok();
}

/// What the template is given beside the messages.
Result<Table> context_of(const Table& line, const ChatChoice& choice) {
  Table out, variables;
  std::vector<std::string> unread;
  for (const char* key : kContext) {
    const auto it = line.find(key);
    if (it == line.end() || is_nothing(it->second) || among(choice.ignored, key)) continue;
    if (!mentions(choice, key)) unread.emplace_back(key);
    else if (std::string_view(key) == "functions") variables.emplace(key, parsed(it->second));
    else out.emplace(key, parsed(it->second));
  }
  if (!unread.empty()) return left_out(choice, "the line", unread);
  if (const auto it = line.find("chat_template_kwargs"); it != line.end() && !is_nothing(it->second)) {
    const Value given = parsed(it->second);
    const auto* table = given.as<Table>();
    if (!table)
      return recipe_error(std::string("'chat_template_kwargs' of the line is ") + it->second.type_name() + " where an object belongs");
    for (const auto& [name, value] : *table) variables.insert_or_assign(name, value);
  }
  if (!variables.empty()) out.emplace("variables", Value(std::move(variables)));
  return out;
}

// --- Special tokens in what people say -------------------------------------------------------------------------------------------------

/// Puts marks around special tokens in every text, so that they are told from those that the template writes.
class Marker {
 public:
  explicit Marker(const std::vector<std::string>& tokens) : tokens_(tokens) {
    for (const std::string& token : tokens)
      if (!token.empty()) first_[static_cast<unsigned char>(token[0])] = true;
  }

  Status mark(Value* value) const {
    if (auto* text = std::get_if<std::string>(value)) return mark(text);
    if (auto* list = std::get_if<List>(value))
      for (Value& inner : *list) TRY_STATUS(mark(&inner));
    if (auto* table = std::get_if<Table>(value))
      for (auto& [key, inner] : *table)
        if (key != kKeyOrder && key != "role") TRY_STATUS(mark(&inner));
    return ok();
  }

 private:
  Status mark(std::string* text) const {
    if (text->find(kMarkBegin) != std::string::npos || text->find(kMarkEnd) != std::string::npos)
      return recipe_error("a message has U+FDD0 or U+FDD1, which is no character");
    std::string out;
    size_t done = 0;
    for (size_t at = 0; at < text->size();) {
      const std::string* token = first_[static_cast<unsigned char>((*text)[at])] ? longest_at(*text, at) : nullptr;
      if (!token) {
        ++at;
        continue;
      }
      out.append(*text, done, at - done).append(kMarkBegin).append(*token).append(kMarkEnd);
      done = at += token->size();
    }
    if (done > 0) *text = out.append(*text, done);
    return ok();
  }
  const std::string* longest_at(const std::string& text, size_t at) const {
    const std::string* found = nullptr;
    for (const std::string& token : tokens_)
      if ((!found || token.size() > found->size()) && text.compare(at, token.size(), token) == 0) found = &token;
    return found;
  }

  const std::vector<std::string>& tokens_;
  std::array<bool, 256> first_ = {};
};

}  // namespace

std::string names_in(const Table& table) {
  constexpr size_t most = 12;
  std::vector<std::string> names;
  for (const auto& [name, value] : table)
    if (name != kKeyOrder && names.size() < most) names.push_back(shortened(name));
  if (names.empty()) return "no fields";
  return quoted(names) + (table.size() - table.count(kKeyOrder) > most ? " and more" : "");
}

Result<Conversation> conversation_of(const Value& value, const Table& line, const ChatChoice& choice) {
  const Value read = parsed(value);
  const List* list = read.as<List>();
  if (!list) return recipe_error(std::string("the conversation is ") + value.type_name() + " where a list of messages belongs");
  Conversation out;
  for (size_t i = 0; i < list->size(); ++i) out.messages.push_back(TRY(message_of((*list)[i], i, choice)));
  if (out.messages.empty()) return recipe_error("the conversation has no messages");
  if (choice.function) {
    TRY_STATUS(add_system({}, choice, &out.messages));
    out.line = line;
    return out;
  }
  TRY_STATUS(add_system(line, choice, &out.messages));
  out.line = TRY(context_of(line, choice));
  if (choice.specials.empty()) return out;
  const Marker marker(choice.specials);
  for (Value& message : out.messages) TRY_STATUS(marker.mark(&message));
  for (auto& [key, inner] : out.line) TRY_STATUS(marker.mark(&inner));
  return out;
}

Result<Conversation> conversation_of(const std::vector<std::pair<std::string, std::string>>& messages, const ChatChoice& choice) {
  List list;
  for (const auto& [role, content] : messages) list.emplace_back(Table{{"role", Value(role)}, {"content", Value(content)}});
  return conversation_of(Value(std::move(list)), {}, choice);
}

}  // namespace galley
