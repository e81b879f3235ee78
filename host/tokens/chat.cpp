#include "host/tokens/chat.hpp"

#include <algorithm>
#include <string_view>

#include "host/base/file.hpp"
#include "host/base/nearest.hpp"
#include "host/lua/convert.hpp"
#include "host/tokens/cache.hpp"
#include "host/tokens/spec.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kChatVersion = 2;  // of what is written, and what is refused

/// Returns the limits for one conversation at a time.
LuaLimits chat_limits() {
  LuaLimits limits;
  limits.seconds = 5;
  limits.bytes = size_t{512} << 20;
  limits.block = size_t{64} << 20;
  return limits;
}

/// The files of a folder of the library, without their ".lua", in order.
std::vector<std::string> modules_in(const fs::path& folder) {
  std::vector<std::string> out;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".lua") out.push_back(entry.path().stem().string());
  std::sort(out.begin(), out.end());
  return out;
}

std::string text_of(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "\"" : ", \"") + name + "\"";
  return out;
}

/// A value that a text of Lua returns, with Galley's library at hand.
Result<Value> run_lua(const Recipe& recipe, const std::string& text, std::span<const Value> arguments) {
  const auto sandbox = TRY(Sandbox::create(chat_limits(), {recipe.library}));
  TRY_STATUS(sandbox->run_text(text, "chat templates", 1));
  return LuaFunction(*sandbox, "the template").call(arguments);
}

Value list_of(const std::vector<Message>& messages) {
  List list;
  for (const Message& message : messages) {
    Table table = message.more;
    table.emplace("role", Value(message.role));
    table.emplace("content", Value(message.content));  // unless it is no text: then it is among the others
    list.emplace_back(std::move(table));
  }
  return Value(std::move(list));
}

std::vector<std::string> texts_in(const Table& table, const char* name) {
  std::vector<std::string> out;
  const auto it = table.find(name);
  const List* list = it == table.end() ? nullptr : it->second.as<List>();
  for (size_t i = 0; list && i < list->size(); ++i)
    if (const auto* text = (*list)[i].as<std::string>()) out.push_back(*text);
  return out;
}

bool among(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// null, "", {}, [], false: how data sets write what a message or a line does not have.
bool is_nothing(const Value& value) {
  if (const auto* text = value.as<std::string>()) return text->empty() || *text == "[]";
  if (const auto* list = value.as<List>()) return list->empty();
  if (const auto* table = value.as<Table>()) return table->empty();
  return value.is_nil() || (value.as<bool>() && !*value.as<bool>());
}

/// What chat templates are given beside the messages. Other keys of a line (its source, its number) say nothing to a model.
constexpr const char* kContext[] = {"tools", "functions", "documents", "system", "chat_template_kwargs"};

/// Returns "'name' and 'weight'".
std::string quoted(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < names.size(); ++i) out += (i == 0 ? "'" : i + 1 == names.size() ? " and '" : ", '") + names[i] + "'";
  return out;
}

/// Whether a conversation has a trait of models/lib/conversation/recognise.lua: what has it; "": nothing.
std::string trait_in(const std::vector<Message>& messages, std::string_view trait) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const bool system = messages[i].role == "system";
    const std::string which = "message " + std::to_string(i + 1);
    if (trait == "empty_system" && system && messages[i].content.empty()) return which + " is the system's, and empty";
    if (trait == "later_system" && system && i > 0) return which + " is the system's, and not the first";
    if (trait == "repeated_role" && i > 0 && messages[i].role == messages[i - 1].role)
      return which + " is the " + messages[i].role + "'s, as the one before it";
    const bool first = i == 0 || (i == 1 && messages[0].role == "system");
    if (trait == "assistant_first" && first && messages[i].role == "assistant")
      return which + " is the assistant's, before any of the user's";
  }
  return {};
}

/// Whose messages Galley's templates know.
constexpr const char* kRoles[] = {"system", "user", "assistant", "tool"};

constexpr const char* kOwnTemplate = "a template of your own: data.chat { template = function(messages, generate, line) … end }";

}  // namespace

std::string names_in(const Table& table) {
  constexpr size_t most = 12;
  std::vector<std::string> names;
  for (const auto& [name, value] : table)
    if (names.size() < most) names.push_back(shortened(name));
  if (names.empty()) return "no fields";
  return quoted(names) + (table.size() > most ? " and more" : "");
}

Result<ChatChoice> choose_chat(const DataSpec& spec, const Recipe& recipe, const ModelTokens& tokens) {
  ChatChoice out;
  out.recipe = &recipe;
  out.system = TRY(options_of(spec).text("system")).value_or("");
  out.name = TRY(options_of(spec).text("template")).value_or("");
  out.ignored = TRY(options_of(spec).texts("ignore")).value_or(std::vector<std::string>());
  KeyHash hash;
  hash.add(kChatVersion);
  const std::vector<std::string> names = modules_in(recipe.library / "chat");
  const std::string how =
      "name one: data." + spec.kind + " { template = \"chatml\" } (there are " + text_of(names) + "), or give a function of the messages";
  if (spec.chat_template) {
    out.function = spec.chat_template;
    hash.add(recipe.text);
    for (const auto& [path, text] : recipe.modules) hash.add(text);
    for (const auto& [name, value] : recipe.sets) hash.add(name + "=" + value);
  } else if (out.name.empty()) {
    if (tokens.chat_template.empty()) return data_error(spec, "the model's folder has no chat template", how);
    const Value arguments[] = {Value(tokens.chat_template), Value(tokens.bos), Value(tokens.eos), Value(List(names.begin(), names.end()))};
    const Value found = TRY(run_lua(recipe, "return require(\"conversation.recognise\")", arguments));
    const std::string why = found.text_field("why");
    out.name = found.text_field("name");
    if (out.name.empty()) return data_error(spec, "the model's chat template is none that is known" + (why.empty() ? "" : ": " + why), how);
    out.covered = ChatCoverage{texts_in(*found.as<Table>(), "roles"), texts_in(*found.as<Table>(), "traits")};
    if (out.system.empty()) out.system = found.text_field("system");
  } else if (!std::binary_search(names.begin(), names.end(), out.name)) {
    return data_error(spec, "there is no chat template '" + out.name + "'; there are " + text_of(names), did_you_mean(out.name, names));
  }
  if (!out.function) {
    hash.add(TRY(read_text(recipe.library / "chat" / (out.name + ".lua"))));
    for (const std::string& shared : modules_in(recipe.library / "conversation"))
      hash.add(TRY(read_text(recipe.library / "conversation" / (shared + ".lua"))));
  }
  hash.add(out.system);
  const ChatCoverage covered = out.covered.value_or(ChatCoverage{});
  for (const std::vector<std::string>& list : {out.ignored, covered.roles, covered.traits}) {
    for (const std::string& one : list) hash.add(one);
    hash.add(static_cast<uint64_t>(list.size()));
  }
  out.identity = hash.digits();
  return out;
}

Result<std::vector<Message>> messages_of(const Value& value, const ChatChoice& choice) {
  const List* list = value.as<List>();
  if (!list) return recipe_error(std::string("the conversation is ") + value.type_name() + " where a list of messages belongs");
  std::vector<Message> out;
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string which = "message " + std::to_string(i + 1);
    const Table* table = (*list)[i].as<Table>();
    if (!table) return recipe_error(which + " is " + (*list)[i].type_name() + " where { role, content } belongs");
    Message message;
    for (const auto& [key, part] : *table)
      if (!is_nothing(part) && !among(choice.ignored, key)) message.more.emplace(key, part);
    // Takes the text out of the other keys, under the one name or the other.
    const auto take = [&](const char* name, const char* other) -> std::optional<std::string> {
      const char* key = table->contains(name) ? name : other;
      const auto it = table->find(key);
      if (it == table->end() || !it->second.as<std::string>()) return std::nullopt;
      message.more.erase(key);
      return *it->second.as<std::string>();
    };
    const std::optional<std::string> role = take("role", "from");
    std::optional<std::string> content = take("content", "value");
    // A turn that only calls tools has null: what the recipe leaves out on purpose leaves a turn without a text.
    const auto null = table->find(table->contains("content") ? "content" : "value");
    const bool calls = std::any_of(table->begin(), table->end(),
                                   [&](const auto& entry) { return among(choice.ignored, entry.first) && !is_nothing(entry.second); });
    if (!content && null != table->end() && null->second.is_nil() && calls) content = "";
    const char* const forms =
        "a message is { \"role\": …, \"content\": … }, or ShareGPT's { \"from\": …, \"value\": … }; other keys have to be "
        "renamed in the file";
    if (!role || role->empty()) return recipe_error(which + " has no 'role' that is a string; it has " + names_in(*table), forms);
    if (!content && !choice.function) return recipe_error(which + " has no 'content' that is a string; it has " + names_in(*table), forms);
    message.role = *role == "human" ? "user" : *role == "gpt" ? "assistant" : *role;
    if (content) message.content = *content;
    out.push_back(std::move(message));
  }
  if (out.empty()) return recipe_error("the conversation has no messages");
  return out;
}

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::open(const ChatChoice& choice) {
  std::unique_ptr<ChatTemplate> out(new ChatTemplate(choice));
  TRY_STATUS(out->load());
  return out;
}

Status ChatTemplate::load() {
  function_.reset();
  script_.reset();
  own_.reset();
  if (choice_.function) {
    script_ = TRY(RecipeScript::run(*choice_.recipe, chat_limits()));
    function_ = script_->function(*choice_.function, "the chat template");
    return ok();
  }
  own_ = TRY(Sandbox::create(chat_limits(), {choice_.recipe->library}));
  const std::string module = "require(\"chat." + choice_.name + "\")";
  TRY_STATUS(own_->run_text("local stop = " + module + ".stop; return function() return stop end", choice_.name, 1));
  const Value stops = TRY(LuaFunction(*own_, "stop").call({}));
  stops_.clear();
  for (const Value& stop : *stops.as<List>()) stops_.push_back(*stop.as<std::string>());
  TRY_STATUS(own_->run_text("return " + module + ".render", choice_.name, 1));
  function_.emplace(*own_, choice_.name);
  return ok();
}

Status ChatTemplate::check(const std::vector<Message>& messages, const Table& line) const {
  if (choice_.function) return ok();  // it is given everything
  const auto left_out = [&](const std::string& whose, const std::vector<std::string>& keys) {
    std::string list;
    for (const std::string& key : keys) list += (list.empty() ? "\"" : ", \"") + key + "\"";
    return recipe_error(whose + " has " + quoted(keys) + ", which the chat template '" + choice_.name + "' does not write",
                        "leave it out on purpose with ignore = { " + list + " }, or give " + kOwnTemplate);
  };
  std::vector<std::string> keys;
  for (const char* key : kContext)
    if (const auto it = line.find(key); it != line.end() && !is_nothing(it->second) && !among(choice_.ignored, key)) keys.emplace_back(key);
  if (!keys.empty()) return left_out("the line", keys);
  for (size_t i = 0; i < messages.size(); ++i) {
    for (const auto& [key, value] : messages[i].more) keys.push_back(key);
    if (!keys.empty()) return left_out("message " + std::to_string(i + 1), keys);
  }
  if (!choice_.covered) {
    for (size_t i = 0; i < messages.size(); ++i)
      if (std::find(std::begin(kRoles), std::end(kRoles), messages[i].role) == std::end(kRoles))
        return recipe_error("message " + std::to_string(i + 1) + " has the role '" + shortened(messages[i].role) +
                                "', which the chat template '" + choice_.name + "' does not know: system, user, assistant and tool",
                            "rename it in the file, or give " + std::string(kOwnTemplate));
    return ok();
  }
  const auto differs = [&](const std::string& what) {
    return recipe_error(
        what + ": the model's own chat template does not write that as '" + choice_.name + "' does",
        "give " + std::string(kOwnTemplate) + ", or say template = \"" + choice_.name + "\" if it is to be written like that");
  };
  if (!choice_.system.empty() && !among(choice_.covered->roles, "system")) return differs("there is a text for the system");
  for (size_t i = 0; i < messages.size(); ++i)
    if (!among(choice_.covered->roles, messages[i].role))
      return differs("message " + std::to_string(i + 1) + " is the " + messages[i].role + "'s");
  for (const std::string& trait : choice_.covered->traits)
    if (const std::string what = trait_in(messages, trait); !what.empty()) return differs(what);
  return ok();
}

Result<std::vector<Tokenizer::Segment>> ChatTemplate::render(const std::vector<Message>& messages, Generate generate, const Table& line) {
  if ((script_ ? script_->sandbox() : *own_).exceeded()) TRY_STATUS(load());
  const bool says = !choice_.system.empty() && messages.front().role != "system";
  std::vector<Message> with_system;
  if (says) {
    with_system.push_back({"system", choice_.system});
    with_system.insert(with_system.end(), messages.begin(), messages.end());
  }
  TRY_STATUS(check(messages, line));
  const Value arguments[] = {list_of(says ? with_system : messages), Value(generate == Generate::Yes),
                             choice_.function ? Value(line) : Value()};
  const Value parts = TRY(function_->call(arguments));
  const auto wrong = [&](size_t index, const std::string& what) {
    return recipe_error("the chat template returned " + what + " as part " + std::to_string(index + 1),
                        "a part is a string, { text = …, reply = … } or { own = …, reply = … }");
  };
  if (!parts.as<List>()) return recipe_error(std::string("the chat template returned ") + parts.type_name() + " and no list of parts");
  std::vector<Tokenizer::Segment> out;
  for (size_t i = 0; i < parts.as<List>()->size(); ++i) {
    const Value& part = (*parts.as<List>())[i];
    if (const auto* own = part.as<std::string>()) {
      out.push_back({*own, true, false});
      continue;
    }
    const Table* table = part.as<Table>();
    if (!table) return wrong(i, part.type_name());
    Tokenizer::Segment segment;
    bool filled = false;
    for (const auto& [name, value] : *table) {
      if (name == "reply" && value.as<bool>()) {
        segment.counts = *value.as<bool>();
      } else if ((name == "text" || name == "own") && value.as<std::string>() && !filled) {
        segment.text = *value.as<std::string>();
        segment.control = name == "own";
        filled = true;
      } else {
        return wrong(i, "a table with '" + name + "' = " + value.type_name());
      }
    }
    if (!filled) return wrong(i, "a table without text");
    out.push_back(std::move(segment));
  }
  return out;
}

}  // namespace galley
