#include "host/data/chat.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "host/base/file.hpp"
#include "host/base/json.hpp"
#include "host/text/unicode.hpp"
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
    const Rendered made = join(chat->render(messages_of(table.at("messages")).value(), generate).value());
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
  DataSpec spec = spec_of("chat", {});
  // What reading the recipe finds: the function's number among its entries.
  const auto script = RecipeScript::run(recipe, {}).value();
  size_t number = 0;
  while (script->language().entry(number).kind != Entry::Kind::Function) ++number;
  spec.chat_template = number;
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

  const auto messages = [](const char* json) { return messages_of(parse_json(json, "x").value()); };
  EXPECT_EQ(messages("3").error().cause, "the conversation is integer where a list of messages belongs");
  EXPECT_EQ(messages("[]").error().cause, "the conversation has no messages");
  EXPECT_EQ(messages("[[]]").error().cause, "message 1 is list where { role, content } belongs");
  EXPECT_EQ(messages(R"([{"role": "user"}])").error().cause, "message 1 has no 'content' that is a string");
  EXPECT_EQ(messages(R"([{"role": "user", "content": null}])").error().cause, "message 1 has no 'content' that is a string");
  EXPECT_EQ(messages(R"([{"content": "a"}])").error().cause, "message 1 has no 'role' that is a string");
  EXPECT_EQ(messages(R"([{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}])").value()[1].role, "assistant");
}

}  // namespace
}  // namespace galley
