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

/// A text, and the spans of it that count, in characters.
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

std::string fixture(const std::string& file) { return (source_folder() / "tests" / "fixtures" / "chat" / file).string(); }

ChatChoice choose(const Recipe& recipe, Table options, const ModelTokens& tokens = {}) {
  return choose_chat(spec_of("chat", std::move(options)), recipe, tokens).value();
}

ModelTokens of_model(const std::string& jinja) {
  ModelTokens tokens;
  tokens.chat_templates["default"] = jinja;
  tokens.bos = "<s>";
  tokens.eos = "</s>";
  return tokens;
}

Value json(const std::string& text) { return parse_json(text, "x", kMostJsonValues, KeyOrder::Listed).value(); }

Result<std::vector<Rendered>> rows_in(const ChatChoice& choice, const Value& line) {
  const Table& table = *line.as<Table>();
  std::vector<Rendered> out;
  const auto chat = TRY(ChatTemplate::open(choice));
  for (const ChatRow& row : TRY(chat->rows(TRY(conversation_of(table.at("messages"), table, choice))))) out.push_back(join(row));
  return out;
}
Result<std::vector<Rendered>> rows_of(const ChatChoice& choice, const std::string& line) { return rows_in(choice, json(line)); }

std::string prompt_of(const ChatChoice& choice, const std::string& line) {
  const Value value = json(line);
  const auto chat = ChatTemplate::open(choice).value();
  return join(chat->prompt(conversation_of(value.as<Table>()->at("messages"), *value.as<Table>(), choice).value()).value()).first;
}

/// The name of a fixture, and the template that is to write the same.
struct Reference {
  const char* name;
  bool named;  // one of Galley's own, which marks what counts; else the fixture's, of which it is found out
  int cases;
};

class ChatFixtures : public testing::TestWithParam<Reference> {};

TEST_P(ChatFixtures, RowsAndSpansAreThoseOfTheReference) {
  const auto [name, named, most] = GetParam();
  const Recipe recipe = chat_recipe();
  Table options = {{"template", Value(named ? std::string(name) : fixture("templates/" + std::string(name) + ".jinja"))}};
  if (!named) options.emplace("variables", Value(Table{{"begin", Value("")}, {"end", Value("")}}));
  const ChatChoice choice = choose(recipe, std::move(options));
  const std::string lines = read_text(fixture(std::string(name) + ".jsonl")).value();
  int cases = 0;
  for (size_t at = 0; at < lines.size(); ++cases) {
    const size_t end = lines.find('\n', at);
    const std::string text = lines.substr(at, end - at);
    const Value line = json(text);
    at = end + 1;
    const auto made = rows_in(choice, line);
    ASSERT_TRUE(made.ok()) << "case " << cases << ": " << made.error().cause;
    std::vector<Rendered> wanted;
    for (const Value& row : *line.field<List>("rows")) {
      auto& [said, spans] = wanted.emplace_back(row.text_field("text"), Rendered::second_type());
      for (const Value& span : *row.field<List>("assistant"))
        spans.emplace_back(*(*span.as<List>())[0].as<int64_t>(), *(*span.as<List>())[1].as<int64_t>());
    }
    EXPECT_EQ(*made, wanted) << "case " << cases;
    EXPECT_EQ(prompt_of(choice, text), line.text_field("prompt")) << "case " << cases;
  }
  EXPECT_EQ(cases, most);
}

INSTANTIATE_TEST_SUITE_P(Named, ChatFixtures,
                         testing::Values(Reference{"chatml", true, 4}, Reference{"llama2", true, 4}, Reference{"llama3", true, 4},
                                         Reference{"mistral", true, 4}, Reference{"zephyr", true, 4}));
INSTANTIATE_TEST_SUITE_P(FoundOut, ChatFixtures,
                         testing::Values(Reference{"chatml", false, 4}, Reference{"llama2", false, 4}, Reference{"llama3", false, 4},
                                         Reference{"mistral", false, 4}, Reference{"zephyr", false, 4}, Reference{"tools", false, 6},
                                         Reference{"thinking", false, 6}, Reference{"endings", false, 5}, Reference{"parts", false, 5}));

const std::string kUser = R"({"role": "user", "content": "a"}, )", kReply = R"({"role": "assistant", "content": "b"})";
const std::string kPair = R"({"messages": [)" + kUser + kReply + "]}";
/// Writes the messages as they are, and nothing that ends them.
const std::string kPlain = "{% for m in messages %}{{ m.role ~ '=' ~ m.content ~ ';' }}{% endfor %}";

TEST(Chat, ASystemPromptIsSaidWhereNoneIs) {
  const Recipe recipe = chat_recipe();
  const ChatChoice choice = choose(recipe, {{"system", std::string("Be brief.")}}, of_model(kPlain));
  EXPECT_EQ(prompt_of(choice, R"({"messages": [{"role": "user", "content": "Hi"}]})"), "system=Be brief.;user=Hi;");
  EXPECT_EQ(prompt_of(choice, R"({"messages": [{"role": "system", "content": "Be long."}, {"role": "user", "content": "Hi"}]})"),
            "system=Be long.;user=Hi;");
  EXPECT_EQ(prompt_of(choice, R"({"system": "Be kind.", "messages": [{"role": "user", "content": "Hi"}]})"), "system=Be kind.;user=Hi;");
  const auto both = rows_of(choice, R"({"system": "Be kind.", "messages": [{"role": "system", "content": "Be long."}, )" + kReply + "]}");
  EXPECT_EQ(both.error().cause, "the line has a 'system', and its first message is another");
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
  const ChatChoice choice = choose_chat(spec_with_function(recipe), recipe, {}).value();
  const auto rows =
      rows_of(choice, R"({"messages": [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "cde"}]})").value();
  EXPECT_EQ(rows, (std::vector<Rendered>{{"#ab#cde", {{3, 7}}}}));
  EXPECT_EQ(prompt_of(choice, R"({"messages": [{"role": "user", "content": "ab"}]})"), "#ab>");
}

TEST(Chat, ARecipesOwnTemplateIsGivenAll) {
  const Recipe recipe = chat_recipe(
      "return recipe { steps = 1, model = model { path = '.' }, data = data.chat { template = function(messages, generate, line)\n"
      "  local call = messages[2].tool_calls[1]\n"
      "  return { line.tools[1].name, messages[1].content, call.name, messages[2].content == '' and '-' or '+', "
      "messages[3].content[1].text }\n"
      "end } }\n");
  const ChatChoice choice = choose_chat(spec_with_function(recipe), recipe, {}).value();
  const Value line = parse_json(R"({"tools": [{"name": "T"}], "messages": [)" + kUser +
                                    R"({"role": "assistant", "content": null, "tool_calls": [{"name": "f"}]},
                                       {"role": "tool", "content": [{"text": "parts"}]}]})",
                                "x")
                         .value();
  EXPECT_EQ(rows_in(choice, line).value()[0].first, "Taf-parts");
}

TEST(Chat, WhatATemplateWouldLeaveOutIsRefused) {
  const Recipe recipe = chat_recipe();
  const ChatChoice chatml = choose(recipe, {{"template", std::string("chatml")}});
  const auto error = [&](const std::string& line) { return rows_of(chatml, line).error(); };
  const Error calls = error(R"({"messages": [)" + kUser + R"({"role": "assistant", "content": "", "tool_calls": [{"name": "f"}]}]})");
  EXPECT_EQ(calls.cause, "message 2 has 'tool_calls', which the chat template 'chatml' does not write");
  EXPECT_EQ(calls.hint, "leave it out on purpose with ignore = { \"tool_calls\" }, or name a template that writes it");
  EXPECT_EQ(error(R"({"messages": [{"role": "user", "content": "a", "name": "n", "mood": 3}, )" + kReply + "]}").cause,
            "message 1 has 'mood' and 'name', which the chat template 'chatml' does not write");
  EXPECT_EQ(error(R"({"tools": [{"name": "f"}], "documents": [1], "messages": [)" + kUser + kReply + "]}").cause,
            "the line has 'tools' and 'documents', which the chat template 'chatml' does not write");
  EXPECT_EQ(error(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "thinking": "hm", "content": "b"}]})").cause,
            "message 2 has 'thinking', which the chat template 'chatml' does not write");
  EXPECT_EQ(error(R"({"messages": [{"role": "user", "content": "a"}, {"role": "bot", "content": "b"}]})").cause,
            "message 2 has the role 'bot', which the chat template 'chatml' does not name");
  // Keys with nothing in them, and what a line says of itself.
  EXPECT_TRUE(rows_of(chatml, R"({"id": 7, "source": "x", "tools": [], "system": null, "messages": [{"role": "user", "content": "a",
      "name": null, "tool_calls": [], "function_call": {}, "tool_call_id": ""}, )" +
                                  kReply + "]}")
                  .ok());
  const ChatChoice ignoring = choose(recipe, {{"template", std::string("chatml")}, {"ignore", List{Value("mood"), Value("tools")}}});
  EXPECT_TRUE(rows_of(ignoring, R"({"tools": [1], "messages": [{"role": "user", "content": "a", "mood": 2}, )" + kReply + "]}").ok());
  EXPECT_NE(ignoring.identity, chatml.identity);
}

TEST(Chat, AMessageMayHaveNoWeight) {
  const Recipe recipe = chat_recipe();
  const std::string more = R"(, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d", "WEIGHT": X}]})";
  const auto with = [&](const char* name, const char* value) {
    std::string out = R"({"messages": [)" + kUser + kReply + more;
    out.replace(out.find("WEIGHT"), 6, name);
    return out.replace(out.find("X}"), 1, value);
  };
  for (const auto& [name, options] : {std::pair{"marked", Table{{"template", Value("zephyr")}}}, std::pair{"found", Table{}}}) {
    const ChatChoice choice = choose(recipe, options,
                                     of_model("{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '</s>\n' }}"
                                              "{% endfor %}{{ '<|assistant|>\n' if add_generation_prompt }}"));
    const auto counting = [&](const char* key, const char* value) { return rows_of(choice, with(key, value)).value()[0].second; };
    const Rendered::second_type both = {{29, 34}, {64, 69}}, first = {{29, 34}};
    EXPECT_EQ(counting("weight", "1"), both) << name;
    EXPECT_EQ(counting("weight", "0"), first) << name;
    EXPECT_EQ(counting("train", "true"), both) << name;
    EXPECT_EQ(counting("train", "false"), first) << name;
    EXPECT_EQ(rows_of(choice, with("weight", "0.5")).error().cause, "message 4, the assistant's: 'weight' is 0.5, and may be 0 or 1")
        << name;
  }
  // Of a template that marks what counts the place of a turn has to be known.
  const ChatChoice last = choose(recipe, {},
                                 of_model("{% for m in messages %}{% generation %}{{ m.content ~ ('!' if loop.last else '?') }}"
                                          "{% endgeneration %}{% endfor %}"));
  EXPECT_EQ(rows_of(last, R"({"messages": [{"role": "assistant", "content": "a", "weight": 0}, )" + kReply + "]}").error().cause,
            "message 1, the assistant's: it is not to be learned, and the chat template writes it otherwise later");
}

TEST(Chat, SpecialTokensInMessagesAreText) {
  const Recipe recipe = chat_recipe();
  ModelTokens tokens = of_model("{% for m in messages %}{{ m.content + '</s>' }}{% endfor %}");
  tokens.specials = {"</s>", "<s>"};
  const Value line = json(R"({"messages": [{"role": "user", "content": "a</s>b"}, {"role": "assistant", "content": "<s>"}]})");
  const auto segments = [&](const Table& options) {
    const ChatChoice choice = choose(recipe, options, tokens);
    std::string out;
    const auto chat = ChatTemplate::open(choice).value();
    const auto rows = chat->rows(conversation_of(*line.field<List>("messages"), {}, choice).value()).value();
    for (const ChatRow& row : rows)
      for (const auto& segment : row)
        out += std::string(segment.counts ? "+" : "") + (segment.control ? "own " : "text ") + segment.text + "\n";
    return out;
  };
  EXPECT_EQ(segments({}), "own a\ntext </s>\nown b</s>\n+text <s>\n+own </s>\n");
  EXPECT_EQ(segments({{"special", true}}), "own a</s>b</s>\n+own <s></s>\n");
}

TEST(Chat, ATemplateTakesWhatItKnows) {
  const Recipe recipe = chat_recipe();
  const auto one = [&](const std::string& jinja, const std::string& line, Table options = {}) {
    return rows_of(choose(recipe, std::move(options), of_model(jinja)), line).value()[0].first;
  };
  const std::string parts =
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, )";
  EXPECT_EQ(one("{% for m in messages %}{{ m.content + '|' }}{% endfor %}", parts + kReply + "]}"), "ab|b|");
  const std::string call = R"({"messages": [)" + kUser + R"({"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f",
      "arguments": ARGUMENTS}}]}, {"role": "tool", "content": "c"}, {"role": "assistant", "content": "d"}]})";
  const auto with = [&](const char* arguments) { return std::string(call).replace(call.find("ARGUMENTS"), 9, arguments); };
  const std::string as_table =
      "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}|"
      "{% endfor %}";
  const std::string as_text =
      "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls %}{{ 'f' + c.function.arguments }}{% endfor %}|"
      "{% endfor %}";
  for (const char* given : {R"({"z": 1, "a": null, "e": {}})", R"("{\"z\": 1, \"a\": null, \"e\": {}}")"}) {
    EXPECT_EQ(one(as_table, with(given)), R"(a|{"z": 1, "a": null, "e": {}}|c|d|)");
    EXPECT_EQ(one(as_text, with(given)), R"(a|f{"z": 1, "a": null, "e": {}}|c|d|)");
  }
  EXPECT_EQ(one("{{ tools | tojson }}{{ mood }}{{ messages[1].content }}",
                R"({"tools": "[{\"b\": 1, \"a\": 2}]", "chat_template_kwargs": {"mood": "!"}, "messages": [)" + kUser + kReply + "]}"),
            R"([{"b": 1, "a": 2}]!b)");
  EXPECT_EQ(one("{{ mood }}{{ messages[1].role }}{{ messages[1].content }}",
                R"({"messages": [{"from": "human", "value": "a"}, {"from": "bot", "value": "b"}]})",
                {{"variables", Table{{"mood", Value("?")}}}, {"roles", Table{{"bot", Value("assistant")}}}}),
            "?assistantb");
  const std::string day = "{{ strftime_now('%d %b %Y') if strftime_now is defined else 'never' }}{{ messages[1].content }}";
  EXPECT_EQ(one(day, kPair), "neverb");
  EXPECT_EQ(one(day, kPair, {{"date", Value("2024-02-29")}}), "29 Feb 2024b");
}

TEST(Chat, AModelMayHaveSeveralTemplates) {
  const Recipe recipe = chat_recipe();
  ModelTokens tokens = of_model("plain {{ messages[1].content }}");
  tokens.chat_templates["tool_use"] = "tools {{ tools[0] }} {{ messages[1].content }}";
  tokens.chat_templates["rag"] = "rag {{ messages[1].content }}";
  const std::string tools = R"({"tools": ["t"], "messages": [)" + kUser + kReply + "]}";
  EXPECT_EQ(rows_of(choose(recipe, {}, tokens), kPair).value()[0].first, "plain b");
  EXPECT_EQ(rows_of(choose(recipe, {}, tokens), tools).value()[0].first, "tools t b");
  EXPECT_EQ(rows_of(choose(recipe, {{"template", Value("rag")}}, tokens), kPair).value()[0].first, "rag b");
  tokens.chat_templates.erase("default");
  const Error none = choose_chat(spec_of("chat", {}), recipe, tokens).error();
  EXPECT_EQ(none.cause, "recipe.lua:5: data.chat: the model's folder has no chat template that is its default");
  EXPECT_NE(none.hint.find("\"rag\", \"tool_use\""), std::string::npos) << none.hint;
}

TEST(Chat, ATurnThatIsWrittenOtherwiseLaterCanBeRefused) {
  const Recipe recipe = chat_recipe();
  const std::string last = "{% for m in messages %}{{ m.role ~ '=' ~ m.content ~ ('!' if loop.last else '?') ~ '\n' }}{% endfor %}";
  const std::string line = R"({"messages": [)" + kUser + kReply + ", " + kUser + kReply + "]}";
  const auto rows = rows_of(choose(recipe, {}, of_model(last)), line).value();
  EXPECT_EQ(rows.size(), 2u);
  const Error refused = rows_of(choose(recipe, {{"past", Value("refuse")}}, of_model(last)), line).error();
  EXPECT_EQ(
      refused.cause,
      R"(message 2, the assistant's: the chat template writes it otherwise once the conversation goes on: "!\n" became "?\nuser=a?\nassistant=b!\n")");
  EXPECT_EQ(refused.hint, "past = \"each\" makes such a turn a row of its own, which ends with it");
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
  for (const char* date : {"2026", "2026-02-29", "2026-13-01", "2026-1-01x", "26-01-01", "2026-01-00"})
    EXPECT_NE(cause({{"date", std::string(date)}}, of_model(kPlain)).cause.find("must be a day such as"), std::string::npos) << date;

  const ChatChoice llama2 = choose(recipe, {{"template", std::string("llama2")}});
  const auto chat = ChatTemplate::open(llama2).value();
  const auto said = [&](const std::vector<std::pair<std::string, std::string>>& messages) {
    return chat->rows(conversation_of(messages, llama2).value());
  };
  EXPECT_EQ(said({{"user", "a"}, {"user", "b"}}).error().cause,
            "the chat template 'llama2': a message is the user's, where this template takes the assistant's");
  // A script that went wrong once serves the next conversation.
  EXPECT_TRUE(said({{"user", "a"}, {"assistant", "b"}}).ok());

  const ChatChoice plain = choose(recipe, {}, of_model(kPlain));
  const auto messages = [&](const char* text) { return conversation_of(json(text), {}, plain); };
  EXPECT_EQ(messages("3").error().cause, "the conversation is integer where a list of messages belongs");
  EXPECT_EQ(messages("[]").error().cause, "the conversation has no messages");
  EXPECT_EQ(messages("[[]]").error().cause, "message 1 is list where { role, content } belongs");
  const std::string content = "message 1 has no 'content' that is a string or a list of parts; it has ";
  EXPECT_EQ(messages(R"([{"role": "user"}])").error().cause, content + "'role'");
  EXPECT_EQ(messages(R"([{"role": "user", "content": null}])").error().cause, content + "'content' and 'role'");
  EXPECT_EQ(messages(R"([{"content": "a"}])").error().cause, "message 1 has no 'role' that is a string; it has 'content'");
  const std::string given = R"({"chat_template_kwargs": "{x", "messages": [)" + kUser + kReply + "]}";
  EXPECT_EQ(rows_of(plain, given).error().cause, "'chat_template_kwargs' of the line is string where an object belongs");
  ModelTokens marked = of_model(kPlain);
  marked.specials = {"</s>"};
  EXPECT_EQ(rows_of(choose(recipe, {}, marked), R"({"messages": [{"role": "assistant", "content": "a\ufdd0"}]})").error().cause,
            "a message has U+FDD0 or U+FDD1, which is no character");
  const Error other = messages(R"([{"speaker": "human", "text": "a"}])").error();
  EXPECT_EQ(other.cause, "message 1 has no 'role' that is a string; it has 'speaker' and 'text'");
  EXPECT_EQ(other.hint.rfind("a message is { \"role\": …, \"content\": … }, or ShareGPT's", 0), 0u) << other.hint;
  EXPECT_EQ(messages(R"([{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}])").value().messages[1].text_field("role"),
            "assistant");
}

}  // namespace
}  // namespace galley
