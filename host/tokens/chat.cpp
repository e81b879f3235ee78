#include "host/tokens/chat.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "host/base/file.hpp"
#include "host/base/json.hpp"
#include "host/base/nearest.hpp"
#include "host/lua/convert.hpp"
#include "host/tokens/cache.hpp"
#include "host/tokens/spec.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kChatVersion = 3;  // of what is written, and what is refused

/// Returns the limits for one conversation at a time.
LuaLimits chat_limits() {
  LuaLimits limits;
  limits.seconds = 5;
  limits.bytes = size_t{512} << 20;
  limits.block = size_t{64} << 20;
  return limits;
}

/// The files of a folder with an extension, without it, in order.
std::vector<std::string> files_in(const fs::path& folder, const char* extension) {
  std::vector<std::string> out;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == extension) out.push_back(entry.path().stem().string());
  std::sort(out.begin(), out.end());
  return out;
}

std::string text_of(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "\"" : ", \"") + name + "\"";
  return out;
}

/// A day as "2026-11-28".
Result<Value> day_of(const OptionReader& options, const std::string& text) {
  int64_t parts[3] = {};
  const char* at = text.data();
  bool well = text.size() == 10 && text[4] == '-' && text[7] == '-';
  for (int64_t& part : parts) {
    const auto end = std::from_chars(at, text.data() + text.size(), part);
    well &= end.ec == std::errc();
    at = end.ptr + 1;
  }
  constexpr int64_t kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const auto [year, month, day] = std::tie(parts[0], parts[1], parts[2]);
  const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  well = well && year >= 1 && month >= 1 && month <= 12 && day >= 1 && day <= kDays[month - 1] + (leap && month == 2);
  if (!well) return options.wrong("date", "a day such as \"2026-11-28\"");
  return Value(Table{{"year", Value(year)}, {"month", Value(month)}, {"day", Value(day)}});
}

Result<Table> table_option(const OptionReader& options, const char* name, const std::string& wanted) {
  const Value* value = options.find(name);
  if (!value) return Table();
  if (const auto* list = value->as<List>(); list && list->empty()) return Table();  // {}
  if (!value->as<Table>()) return options.wrong(name, wanted);
  return *value->as<Table>();
}

/// The names of Galley's templates, and of the model's.
std::vector<std::string> known_templates(const Recipe& recipe, const ModelTokens& tokens) {
  std::vector<std::string> names = files_in(recipe.library / "chat", ".jinja");
  for (const auto& [name, text] : tokens.chat_templates) names.push_back(name);
  return names;
}

/// The template that the option names: one of Galley's, one of the model's by its name there, or a file.
Status take_named(const DataSpec& spec, const Recipe& recipe, const ModelTokens& tokens, const std::string& name, ChatChoice* out) {
  out->called = "the chat template '" + name + "'";
  if (fs::path(name).extension() == ".jinja") {
    Result<std::string> text = read_text(name);
    if (!text) return data_error(spec, text.error().cause, text.error().hint);
    out->jinja = *std::move(text);
    return ok();
  }
  if (const auto own = tokens.chat_templates.find(name); own != tokens.chat_templates.end()) {
    out->jinja = own->second;
    return ok();
  }
  const std::vector<std::string> names = known_templates(recipe, tokens);
  if (std::ranges::find(names, name) == names.end())
    return data_error(spec, "there is no chat template '" + name + "'; there are " + text_of(names), did_you_mean(name, names));
  out->jinja = TRY(read_text(recipe.library / "chat" / (name + ".jinja")));
  return ok();
}

Status take_models(const DataSpec& spec, const Recipe& recipe, const ModelTokens& tokens, ChatChoice* out) {
  const auto own = tokens.chat_templates.find("default");
  if (own == tokens.chat_templates.end()) {
    const std::string which = tokens.chat_templates.empty() ? "has no chat template" : "has no chat template that is its default";
    return data_error(spec, "the model's folder " + which,
                      "name one: data." + spec.kind + " { template = \"chatml\" } (there are " + text_of(known_templates(recipe, tokens)) +
                          "), the path of a .jinja file, or a function of the messages");
  }
  out->jinja = own->second;
  out->called = "the model's chat template";
  if (const auto tools = tokens.chat_templates.find("tool_use"); tools != tokens.chat_templates.end()) out->jinja_tools = tools->second;
  return ok();
}

/// Reads a text of JSON for a template, in which the arguments of a call may lie as a text.
int read_json_text(lua_State* L) {
  size_t size = 0;
  const char* text = luaL_checklstring(L, 1, &size);
  std::optional<Value> value;
  if (Result<Value> read = parse_json({text, size}, "", kMostJsonValues, KeyOrder::Listed); read && read->as<Table>())
    value = *std::move(read);
  if (!value) return 0;
  push_value(L, *value, Nils::Kept);
  return 1;
}

/// Cuts a text at the spans that count, and around the special tokens that people wrote.
ChatRow cut(const std::string& text, const List& spans) {
  ChatRow out;
  size_t next = 0;  // of the spans' borders
  const auto border = [&](size_t i) {
    const auto* at = i < spans.size() ? spans[i].as<int64_t>() : nullptr;
    return at ? static_cast<size_t>(*at) : std::string::npos;
  };
  bool control = true;
  for (size_t at = 0; at < text.size();) {
    while (border(next) <= at) ++next;
    const bool begins = text.compare(at, kMarkBegin.size(), kMarkBegin) == 0;
    if (begins || text.compare(at, kMarkEnd.size(), kMarkEnd) == 0) {
      control = !begins;
      at += kMarkBegin.size();
      continue;
    }
    const size_t mark = std::min(text.find(kMarkBegin, at), text.find(kMarkEnd, at));
    const size_t end = std::min({text.size(), border(next), mark});
    out.push_back({text.substr(at, end - at), control, next % 2 == 1});
    at = end;
  }
  return out;
}

}  // namespace

Result<ChatChoice> choose_chat(const DataSpec& spec, const Recipe& recipe, const ModelTokens& tokens) {
  const OptionReader options = options_of(spec);
  ChatChoice out;
  out.recipe = &recipe;
  out.system = TRY(options.text("system")).value_or("");
  out.ignored = TRY(options.texts("ignore")).value_or(std::vector<std::string>());
  out.variables = TRY(table_option(options, "variables", "a table such as { enable_thinking = false }"));
  for (const auto& [name, role] : TRY(table_option(options, "roles", "a table such as { bot = \"assistant\" }"))) {
    if (!role.as<std::string>()) return options.wrong("roles", "a table such as { bot = \"assistant\" }");
    out.roles.emplace(name, *role.as<std::string>());
  }
  out.past = TRY(options.text("past")).value_or("each");
  if (const auto date = TRY(options.text("date"))) out.now = TRY(day_of(options, *date));
  if (!TRY(options.boolean("special")).value_or(false)) out.specials = tokens.specials;
  const std::pair<const char*, const std::string*> named[] = {
      {"bos_token", &tokens.bos}, {"eos_token", &tokens.eos}, {"pad_token", &tokens.pad},  {"unk_token", &tokens.unk},
      {"cls_token", &tokens.cls}, {"sep_token", &tokens.sep}, {"mask_token", &tokens.mask}};
  for (const auto& [name, text] : named)
    if (!text->empty()) out.tokens.emplace(name, *text);

  KeyHash hash;
  hash.add(kChatVersion);
  const std::string name = TRY(options.text("template")).value_or("");
  if (spec.chat_template) {
    out.function = spec.chat_template;
    out.called = "the recipe's chat template";
    hash.add(recipe.text);
    for (const auto& [path, text] : recipe.modules) hash.add(text);
    for (const auto& [set, value] : recipe.sets) hash.add(set + "=" + value);
  } else {
    TRY_STATUS(name.empty() ? take_models(spec, recipe, tokens, &out) : take_named(spec, recipe, tokens, name, &out));
    hash.add(out.jinja);
    hash.add(out.jinja_tools);
    hash.add(TRY(read_text(recipe.library / "conversation.lua")));
    hash.add(TRY(read_text(recipe.library / "jinja.lua")));
    for (const std::string& part : files_in(recipe.library / "jinja", ".lua"))
      hash.add(TRY(read_text(recipe.library / "jinja" / (part + ".lua"))));
  }
  hash.add(out.system);
  hash.add(out.past);
  Table roles;
  for (const auto& [from, to] : out.roles) roles.emplace(from, to);
  for (const Value& more : {Value(List(out.ignored.begin(), out.ignored.end())), Value(roles), Value(out.variables), Value(out.tokens),
                            Value(List(out.specials.begin(), out.specials.end())), out.now})
    hash.add(to_json(more));
  out.identity = hash.digits();
  return out;
}

Result<std::optional<std::string>> named_chat_template(const Recipe& recipe) {
  std::vector<const DataSpec*> specs = {&recipe.data};
  for (const DataSpec& part : recipe.data.parts) specs.push_back(&part);
  for (const DataSpec* spec : specs) {
    if (spec->kind != "chat" || spec->chat_template || !options_of(*spec).find("template")) continue;
    const std::filesystem::path file = TRY(tokenizer_file(*spec, recipe));
    const ModelTokens tokens = file.empty() ? ModelTokens() : TRY(read_model_tokens(file.parent_path()));
    return std::optional(TRY(choose_chat(*spec, recipe, tokens)).jinja);
  }
  return std::optional<std::string>();
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
  TRY_STATUS(own_->protect(
      [](lua_State* L) {
        lua_pushcfunction(L, read_json_text);
        lua_setglobal(L, "read_json");
        return 0;
      },
      nullptr));
  TRY_STATUS(own_->run_text("local c = require(\"conversation\") return function(what, ...) return c[what](...) end", "chat templates", 1));
  function_.emplace(*own_, choice_.called);
  const Value arguments[] = {Value("open"), Value(Table{{"template", Value(choice_.jinja)},
                                                        {"for_tools", Value(choice_.jinja_tools)},
                                                        {"tokens", Value(choice_.tokens)},
                                                        {"variables", Value(choice_.variables)},
                                                        {"past", Value(choice_.past)},
                                                        {"now", choice_.now}})};
  const Value opened = TRY(function_->call(arguments));
  if (const std::string why = opened.text_field("why"); !why.empty())
    return recipe_error(choice_.called + " cannot be used: " + why,
                        "name another one: template = \"chatml\", the path of a .jinja file, or a function of the messages");
  end_ = opened.text_field("ends");
  return ok();
}

/// After a limit has been passed a sandbox is of no use.
Status ChatTemplate::renew() { return (script_ ? script_->sandbox() : *own_).exceeded() ? load() : ok(); }

Result<Value> ChatTemplate::call(const char* what, const Conversation& conversation) {
  TRY_STATUS(renew());
  const Value arguments[] = {Value(what), Value(conversation.messages), Value(conversation.line)};
  Value out = TRY(function_->call(arguments, Nils::Kept));
  const std::string why = out.text_field("why");
  if (why.empty()) return out;
  const auto* message = out.field<int64_t>("message");
  const std::string which = message ? "message " + std::to_string(*message) + ", the assistant's: " : "";
  std::string hint;
  if (why.find("strftime_now") != std::string::npos) hint = "the template writes the day: say which with date = \"2026-11-28\"";
  else if (why.find("goes on") != std::string::npos) hint = "past = \"each\" makes such a turn a row of its own, which ends with it";
  return recipe_error(which + (message ? why : choice_.called + ": " + why), hint);
}

Result<std::vector<ChatRow>> ChatTemplate::rows(const Conversation& conversation) {
  std::vector<ChatRow> out;
  if (choice_.function) {
    out.push_back(TRY(call_function(conversation, false)));
    return out;
  }
  const Value made = TRY(call("rows", conversation));
  for (const Value& row : *made.field<List>("rows")) out.push_back(cut(row.text_field("text"), *row.field<List>("spans")));
  return out;
}

Result<ChatRow> ChatTemplate::prompt(const Conversation& conversation) {
  if (choice_.function) return call_function(conversation, true);
  return cut(TRY(call("prompt", conversation)).text_field("text"), {});
}

Result<ChatRow> ChatTemplate::call_function(const Conversation& conversation, bool generate) {
  TRY_STATUS(renew());
  const Value arguments[] = {Value(conversation.messages), Value(generate), Value(conversation.line)};
  const Value parts = TRY(function_->call(arguments));
  const auto wrong = [&](size_t index, const std::string& what) {
    return recipe_error("the chat template returned " + what + " as part " + std::to_string(index + 1),
                        "a part is a string, { text = …, reply = … } or { own = …, reply = … }");
  };
  if (!parts.as<List>()) return recipe_error(std::string("the chat template returned ") + parts.type_name() + " and no list of parts");
  ChatRow out;
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
