#include "host/tokens/chat.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "host/base/file.hpp"
#include "host/base/json.hpp"
#include "host/tokens/tokenizer/unicode.hpp"
#include "tests/data/support.hpp"

namespace galley {
namespace {

std::filesystem::path source_folder() { return std::getenv("GALLEY_SOURCE"); }

Recipe chat_recipe(const std::string& text = "") {
  Recipe recipe;
  recipe.name = "recipe.lua";
  recipe.text = text;
  recipe.library = source_folder() / "models" / "lib";
  return recipe;
}

/// Chat data whose template is the recipe's one function. Reading the recipe finds its number among the entries.
DataSpec spec_with_function(const Recipe& recipe) {
  DataSpec spec = spec_of("chat", {});
  const auto script = RecipeScript::run(recipe, {}).value();
  size_t number = 0;
  while (script->language().entry(number).kind != Entry::Kind::Function) ++number;
  spec.chat_template = number;
  return spec;
}

/// The text of a template, and the spans of it that count, in characters.
using Rendered = std::pair<std::string, std::vector<std::pair<int64_t, int64_t>>>;

int64_t characters(const std::string& text) {
  int64_t count = 0;
  for (size_t at = 0; at < text.size(); at += next_code_point(std::string_view(text).substr(at)).bytes) ++count;
  return count;
}

Rendered join(const std::vector<Tokenizer::Segment>& segments) {
  Rendered out;
  int64_t at = 0;
  for (const auto& segment : segments) {
    const int64_t end = at + characters(segment.text);
    auto& spans = out.second;
    if (segment.counts && !spans.empty() && spans.back().second == at) spans.back().second = end;
    else if (segment.counts && end > at) spans.emplace_back(at, end);
    out.first += segment.text;
    at = end;
  }
  return out;
}

class ChatFixtures : public testing::TestWithParam<const char*> {};

TEST_P(ChatFixtures, TextAndSpansAreThoseOfTheReference) {
  const Recipe recipe = chat_recipe();
  const DataSpec spec = spec_of("chat", {{"template", std::string(GetParam())}});
  const auto chat = ChatTemplate::open(choose_chat(spec, recipe, {}).value()).value();
  const std::string lines = read_text(source_folder() / "tests" / "fixtures" / "chat" / (std::string(GetParam()) + ".jsonl")).value();
  int cases = 0;
  for (size_t at = 0; at < lines.size(); ++cases) {
    const size_t end = lines.find('\n', at);
    const Value value = parse_json(lines.substr(at, end - at), "case").value();
    const Table& table = *value.as<Table>();
    at = end + 1;
    const auto generate = *table.at("add_generation_prompt").as<bool>() ? ChatTemplate::Generate::Yes : ChatTemplate::Generate::No;
    const Rendered made = join(chat->render(messages_of(table.at("messages"), {}).value(), generate).value());
    EXPECT_EQ(made.first, *table.at("text").as<std::string>()) << "case " << cases;
    std::vector<std::pair<int64_t, int64_t>> spans;
    for (const Value& span : *table.at("assistant").as<List>())
      spans.emplace_back(*(*span.as<List>())[0].as<int64_t>(), *(*span.as<List>())[1].as<int64_t>());
    EXPECT_EQ(made.second, spans) << "case " << cases;
  }
  EXPECT_EQ(cases, 8);
}

INSTANTIATE_TEST_SUITE_P(Templates, ChatFixtures, testing::Values("chatml", "llama2", "llama3", "mistral", "zephyr"));

TEST(Chat, ASystemPromptIsSaidWhereNoneIs) {
  const Recipe recipe = chat_recipe();
  const DataSpec spec = spec_of("chat", {{"template", std::string("chatml")}, {"system", std::string("Be brief.")}});
  const auto chat = ChatTemplate::open(choose_chat(spec, recipe, {}).value()).value();
  EXPECT_EQ(join(chat->render({{"user", "Hi"}}, ChatTemplate::Generate::Yes).value()).first,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(join(chat->render({{"system", "Be long."}, {"user", "Hi"}}, ChatTemplate::Generate::No).value()).first,
            "<|im_start|>system\nBe long.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n");
}

TEST(Chat, ARecipesOwnTemplateIsALuaFunction) {
  const Recipe recipe = chat_recipe(
      "local mark = arg('mark', '#')\n"
      "return recipe { steps = 1, model = model { path = '.' }, data = data.chat { template = function(messages, generate)\n"
      "  local parts = {}\n"
      "  for i, m in ipairs(messages) do parts[i] = { text = mark .. m.content, reply = m.role == 'assistant' } end\n"
      "  if generate then parts[#parts + 1] = '>' end\n"
      "  return parts\n"
      "end } }\n");
  const DataSpec spec = spec_with_function(recipe);
  const auto chat = ChatTemplate::open(choose_chat(spec, recipe, {}).value()).value();
  const Rendered made = join(chat->render({{"user", "ab"}, {"assistant", "cde"}}, ChatTemplate::Generate::Yes).value());
  EXPECT_EQ(made.first, "#ab#cde>");
  EXPECT_EQ(made.second, (std::vector<std::pair<int64_t, int64_t>>{{3, 7}}));
}

// A model's own template, in Jinja, and what it is to be recognised as.
struct Own {
  const char* jinja;
  const char* name;
  const char* system;
};

TEST(Chat, AModelsOwnTemplateIsRecognised) {
  const std::string chatml =
      "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful "
      "assistant.<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
  const Own cases[] = {
      {chatml.c_str(), "chatml", "You are a helpful assistant."},
      {"{% for m in messages -%}\n  {{- '<|im_start|>' ~ m.role ~ '\n' ~ m.content ~ '<|im_end|>\n' -}}\n{% endfor %}\n"
       "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
       "chatml", ""},
      {"{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + "
       "'<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content "
       "%}"
       "{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% "
       "endif %}",
       "llama3", ""},
      {"{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n"
       "{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n"
       "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n"
       "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>\n' }}{% endif %}\n{% endfor %}",
       "zephyr", ""},
      {"{% for m in messages %}{{ m['role'] + ': ' + m['content'] }}{% endfor %}", "", ""},
      {"{% for m in messages %}{{ m.content | shout }}{% endfor %}", "", ""},
      {"{% for m in messages %}", "", ""},
      {"{{ raise_exception('not this one') }}", "", ""},
  };
  const Recipe recipe = chat_recipe();
  for (const Own& own : cases) {
    ModelTokens tokens;
    tokens.chat_template = own.jinja;
    tokens.bos = "<|begin_of_text|>";
    tokens.eos = "</s>";
    const auto chosen = choose_chat(spec_of("chat", {}), recipe, tokens);
    if (*own.name) {
      ASSERT_TRUE(chosen.ok()) << chosen.error().cause;
      EXPECT_EQ(chosen->name, own.name);
      EXPECT_EQ(chosen->system, own.system);
    } else {
      ASSERT_FALSE(chosen.ok()) << own.jinja;
      EXPECT_TRUE(chosen.error().cause.starts_with("recipe.lua:5: data.chat: the model's chat template is none that is known: "))
          << chosen.error().cause;
      EXPECT_TRUE(chosen.error().hint.starts_with("name one: data.chat { template = \"chatml\" }"));
    }
  }
}

/// A conversation, and the line it stands in.
Value line_of(const std::string& json) { return parse_json(json, "x").value(); }

Result<std::vector<Tokenizer::Segment>> render_line(const ChatChoice& choice, const std::string& json) {
  const Value line = line_of(json);
  const auto chat = ChatTemplate::open(choice).value();
  return chat->render(TRY(messages_of(line.as<Table>()->at("messages"), choice)), ChatTemplate::Generate::No, *line.as<Table>());
}

ChatChoice named(const Recipe& recipe, const std::string& name, Table more = {}) {
  more.emplace("template", name);
  return choose_chat(spec_of("chat", std::move(more)), recipe, {}).value();
}

const std::string kUser = R"({"role": "user", "content": "a"}, )", kReply = R"({"role": "assistant", "content": "b"})";

TEST(Chat, WhatATemplateWouldLeaveOutIsRefused) {
  const Recipe recipe = chat_recipe();
  const ChatChoice chatml = named(recipe, "chatml");
  const auto error = [&](const std::string& json) { return render_line(chatml, json).error(); };
  const Error calls = error(R"({"messages": [)" + kUser + R"({"role": "assistant", "content": "", "tool_calls": [{"name": "f"}]}]})");
  EXPECT_EQ(calls.cause, "message 2 has 'tool_calls', which the chat template 'chatml' does not write");
  EXPECT_EQ(calls.hint,
            "leave it out on purpose with ignore = { \"tool_calls\" }, or give a template of your own: data.chat { template = "
            "function(messages, generate, line) … end }");
  EXPECT_EQ(error(R"({"messages": [{"role": "user", "content": "a", "name": "n", "weight": 0}, )" + kReply + "]}").cause,
            "message 1 has 'name' and 'weight', which the chat template 'chatml' does not write");
  EXPECT_EQ(error(R"({"tools": [{"name": "f"}], "messages": [)" + kUser + kReply + "]}").cause,
            "the line has 'tools', which the chat template 'chatml' does not write");
  EXPECT_EQ(error(R"({"system": "Be brief.", "documents": [1], "messages": [)" + kUser + kReply + "]}").cause,
            "the line has 'documents' and 'system', which the chat template 'chatml' does not write");
  EXPECT_EQ(error(R"({"messages": [{"role": "user", "content": "a", "from": "human"}, )" + kReply + "]}").cause,
            "message 1 has 'from', which the chat template 'chatml' does not write");
  // Keys with nothing in them, and what a line says of itself.
  EXPECT_TRUE(render_line(chatml, R"({"id": 7, "source": "x", "tools": [], "system": null, "messages": [{"role": "user", "content": "a",
      "name": null, "tool_calls": [], "function_call": {}, "weight": false, "tool_call_id": ""}, )" +
                                      kReply + "]}")
                  .ok());
  const ChatChoice ignoring = named(recipe, "chatml", {{"ignore", List{Value("weight"), Value("tools")}}});
  EXPECT_TRUE(render_line(ignoring, R"({"tools": [1], "messages": [{"role": "user", "content": "a", "weight": 2}, )" + kReply + "]}").ok());
  EXPECT_NE(ignoring.identity, chatml.identity);
}

TEST(Chat, ARecipesOwnTemplateIsGivenAll) {
  const Recipe recipe = chat_recipe(
      "return recipe { steps = 1, model = model { path = '.' }, data = data.chat { template = function(messages, generate, line)\n"
      "  local call = messages[2].tool_calls[1]\n"
      "  return { line.tools[1].name, messages[1].content, call.name, messages[2].content == '' and '-' or '+', "
      "messages[3].content[1].text }\n"
      "end } }\n");
  const DataSpec spec = spec_with_function(recipe);
  const ChatChoice choice = choose_chat(spec, recipe, {}).value();
  EXPECT_EQ(join(render_line(choice, R"({"tools": [{"name": "T"}], "messages": [)" + kUser +
                                         R"({"role": "assistant", "content": null, "tool_calls": [{"name": "f"}]},
                                            {"role": "tool", "content": [{"text": "parts"}]}]})")
                     .value())
                .first,
            "Taf-parts");
}

// ChatML, but for tools, which it writes in turns of the user, as Qwen2.5 does.
const char* const kWithTools =
    "{%- if tools %}{{- '<|im_start|>system\n# Tools' }}{% for t in tools %}{{ t | tojson }}{% endfor %}{{ '<|im_end|>\n' }}{% endif %}"
    "{%- for message in messages %}"
    "{%- if message.role == 'user' or (message.role == 'system' and not loop.first) or (message.role == 'system' and loop.first) or "
    "(message.role == 'assistant' and not message.tool_calls) %}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}"
    "{%- elif message.role == 'assistant' %}{{- '<|im_start|>assistant' }}{% for c in message.tool_calls %}{{ '\n<tool_call>\n' + c.name }}"
    "{% endfor %}{{ '<|im_end|>\n' }}"
    "{%- elif message.role == 'tool' %}{{- '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}"
    "{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}";

TEST(Chat, WhatAModelsTemplateWritesOtherwiseIsRefused) {
  const Recipe recipe = chat_recipe();
  const auto choice_of = [&](const char* jinja) {
    ModelTokens tokens;
    tokens.chat_template = jinja;
    return choose_chat(spec_of("chat", {}), recipe, tokens).value();
  };
  const auto said = [](const std::vector<std::pair<std::string, std::string>>& messages) {
    std::vector<Message> out;
    for (const auto& [role, content] : messages) out.push_back({role, content});
    return out;
  };
  const auto error = [&](const ChatChoice& choice, const std::vector<std::pair<std::string, std::string>>& messages) {
    const auto made = ChatTemplate::open(choice).value()->render(said(messages), ChatTemplate::Generate::No);
    return made.ok() ? Error{} : made.error();
  };
  const ChatChoice tools = choice_of(kWithTools);
  EXPECT_EQ(tools.name, "chatml");
  const Error tool = error(tools, {{"user", "a"}, {"assistant", "b"}, {"tool", "c"}, {"assistant", "d"}});
  EXPECT_EQ(tool.cause, "message 3 is the tool's: the model's own chat template does not write that as 'chatml' does");
  EXPECT_EQ(
      tool.hint,
      "give a template of your own: data.chat { template = function(messages, generate, line) … end }, or say template = \"chatml\" if it "
      "is to be written like that");
  EXPECT_EQ(error(tools, {{"user", "a"}, {"stranger", "b"}, {"assistant", "c"}}).cause,
            "message 2 is the stranger's: the model's own chat template does not write that as 'chatml' does");
  EXPECT_EQ(error(tools, {{"system", ""}, {"user", "a"}, {"user", "b"}, {"system", "c"}, {"assistant", "d"}, {"assistant", "e"}}).cause,
            "");
  EXPECT_EQ(error(tools, {{"assistant", "a"}}).cause, "");
  // Whoever names the template means it.
  EXPECT_EQ(error(named(recipe, "chatml"), {{"user", "a"}, {"tool", "b"}, {"assistant", "c"}}).cause, "");

  // A system message that is written first wherever it stands, and not at all when it is empty; turns that have to alternate.
  const ChatChoice strict = choice_of(
      "{% for m in messages if m.role == 'system' and m.content %}{{ '<|im_start|>system\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
      "{% set ns = namespace(last='') %}{% for m in messages if m.role != 'system' %}"
      "{% if m.role == ns.last or (ns.last == '' and m.role != 'user') %}{{ raise_exception('turns') }}{% endif %}{% set ns.last = m.role "
      "%}"
      "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}");
  EXPECT_EQ(strict.name, "chatml");
  const std::string otherwise = ": the model's own chat template does not write that as 'chatml' does";
  EXPECT_EQ(error(strict, {{"system", ""}, {"user", "a"}}).cause, "message 1 is the system's, and empty" + otherwise);
  EXPECT_EQ(error(strict, {{"user", "a"}, {"system", "b"}}).cause, "message 2 is the system's, and not the first" + otherwise);
  EXPECT_EQ(error(strict, {{"user", "a"}, {"user", "b"}}).cause, "message 2 is the user's, as the one before it" + otherwise);
  EXPECT_EQ(error(strict, {{"assistant", "a"}}).cause, "message 1 is the assistant's, before any of the user's" + otherwise);
  EXPECT_EQ(error(strict, {{"system", "s"}, {"user", "a"}, {"assistant", "b"}}).cause, "");

  const ChatChoice no_system = choice_of(
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
      "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}");
  EXPECT_EQ(error(no_system, {{"system", "s"}, {"user", "a"}}).cause, "message 1 is the system's" + otherwise);
  EXPECT_EQ(error(no_system, {{"user", "a"}}).cause, "");
}

TEST(Chat, ATemplateThatChangesWhatIsSaidIsNotRecognised) {
  const Recipe recipe = chat_recipe();
  const char* const changed[] = {
      "m.content.split('</think>')[-1]",
      "m.content.lstrip('\n')",
      "m.content.replace('<s>', '')",
      "(m.content if m.content.strip() else 'nothing')",
  };
  for (const char* content : changed) {
    ModelTokens tokens;
    tokens.chat_template = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + " + std::string(content) +
                           " + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    const auto chosen = choose_chat(spec_of("chat", {}), recipe, tokens);
    ASSERT_FALSE(chosen.ok()) << content;
    EXPECT_NE(chosen.error().cause.find("it is like 'chatml', but not the same"), std::string::npos) << chosen.error().cause;
  }
}

TEST(Chat, ARoleThatATemplateDoesNotKnowIsRefused) {
  const Recipe recipe = chat_recipe();
  const auto chat = ChatTemplate::open(choose_chat(spec_of("chat", {{"template", std::string("chatml")}}), recipe, {}).value()).value();
  const Error error = chat->render({{"user", "a"}, {"bot", "b"}}, ChatTemplate::Generate::No).error();
  EXPECT_EQ(error.cause, "message 2 has the role 'bot', which the chat template 'chatml' does not know: system, user, assistant and tool");
}

TEST(Chat, Errors) {
  const Recipe recipe = chat_recipe();
  const auto cause = [&](Table options, const ModelTokens& tokens = {}) {
    return choose_chat(spec_of("chat", std::move(options)), recipe, tokens).error();
  };
  EXPECT_EQ(
      cause({{"template", std::string("chatlm")}}).cause,
      "recipe.lua:5: data.chat: there is no chat template 'chatlm'; there are \"chatml\", \"llama2\", \"llama3\", \"mistral\", \"zephyr\"");
  EXPECT_EQ(cause({{"template", std::string("chatlm")}}).hint, "did you mean 'chatml'?");
  EXPECT_EQ(cause({}).cause, "recipe.lua:5: data.chat: the model's folder has no chat template");

  const auto chat = ChatTemplate::open(choose_chat(spec_of("chat", {{"template", std::string("llama2")}}), recipe, {}).value()).value();
  const Error turns = chat->render({{"user", "a"}, {"user", "b"}}, ChatTemplate::Generate::No).error();
  EXPECT_EQ(turns.cause, "message 2 is the user's, where this template takes the assistant's");
  // A script that went wrong once serves the next conversation.
  EXPECT_TRUE(chat->render({{"user", "a"}, {"assistant", "b"}}, ChatTemplate::Generate::No).ok());

  const auto messages = [](const char* json) { return messages_of(parse_json(json, "x").value(), {}); };
  EXPECT_EQ(messages("3").error().cause, "the conversation is integer where a list of messages belongs");
  EXPECT_EQ(messages("[]").error().cause, "the conversation has no messages");
  EXPECT_EQ(messages("[[]]").error().cause, "message 1 is list where { role, content } belongs");
  EXPECT_EQ(messages(R"([{"role": "user"}])").error().cause, "message 1 has no 'content' that is a string; it has 'role'");
  EXPECT_EQ(messages(R"([{"role": "user", "content": null}])").error().cause,
            "message 1 has no 'content' that is a string; it has 'content' and 'role'");
  EXPECT_EQ(messages(R"([{"content": "a"}])").error().cause, "message 1 has no 'role' that is a string; it has 'content'");
  const Error other = messages(R"([{"speaker": "human", "text": "a"}])").error();
  EXPECT_EQ(other.cause, "message 1 has no 'role' that is a string; it has 'speaker' and 'text'");
  EXPECT_EQ(other.hint.rfind("a message is { \"role\": …, \"content\": … }, or ShareGPT's", 0), 0u) << other.hint;
  EXPECT_EQ(messages(R"([{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}])").value()[1].role, "assistant");
}

}  // namespace
}  // namespace galley
