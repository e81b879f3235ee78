#include "host/tools/inference/prompts.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "host/tokens/tokenizer/unicode.hpp"

namespace galley {
namespace {

/// Leaves out the oldest turn of a conversation: the first message that is not the system's, and what follows it up to the user's next
/// one. Returns whether there is such a next one.
bool drop_oldest_turn(List& messages) {
  const auto role = [](const Value& message) { return message.text_field("role"); };
  const auto first = std::ranges::find_if(
      messages, [](const std::string& who) { return who != "system" && who != "developer"; }, role);
  const auto next = first == messages.end() ? first : std::ranges::find(first + 1, messages.end(), std::string("user"), role);
  if (next == messages.end()) return false;
  messages.erase(first, next);
  return true;
}

}  // namespace

Result<std::unique_ptr<Prompts>> Prompts::open(const Study& study, PromptOptions given) {
  DataSpec spec = text_spec(study.recipe);
  std::unique_ptr<Prompts> out(new Prompts(study.program, std::move(given), TRY(TextCodec::open(spec, study.recipe))));
  const PromptOptions& options = out->options_;
  if (!options.chat) return out;
  if (std::exchange(spec.kind, "chat") != "chat") spec.options.erase("special");  // which says it of a text
  if (options.chat_template) {
    spec.options["template"] = Value(*options.chat_template);
    spec.chat_template.reset();
  }
  if (options.system) spec.options["system"] = Value(*options.system);
  out->chat_ = TRY(ChatTemplate::open(TRY(choose_chat(spec, study.recipe, out->codec_.model()))));
  return out;
}

void Prompts::add_stops(Stops* stops) const {
  stops->tokens.insert(stops->tokens.end(), codec_.stops().begin(), codec_.stops().end());
  if (!chat_) return;
  const std::string& end = chat_->end();
  std::string token;  // the longest special token that the end of a reply begins with
  for (const std::string& special : codec_.model().specials)
    if (end.starts_with(special) && special.size() > token.size()) token = special;
  if (!token.empty()) stops->tokens.push_back(codec_.find(token));
  else if (!end.empty()) stops->texts.push_back(end);
}

/// A tokenizer may be another model's.
Status Prompts::check(std::span<const TokenId> tokens) const {
  const auto beyond = std::ranges::find_if(tokens, [&](TokenId token) { return token >= program_.vocabulary; });
  if (beyond == tokens.end()) return ok();
  return recipe_error("token " + std::to_string(*beyond) + " of the prompt, '" + codec_.name(*beyond) + "', is none of the model's " +
                          std::to_string(program_.vocabulary),
                      "the tokenizer is that of another model");
}

Result<std::vector<TokenId>> Prompts::of_text(const std::string& text) {
  std::vector<TokenId> tokens(codec_.before().begin(), codec_.before().end());
  TRY_STATUS(codec_.encode(text, work_, &tokens));
  TRY_STATUS(check(tokens));
  if (has_source()) tokens.insert(tokens.end(), codec_.after().begin(), codec_.after().end());
  else if (tokens.empty()) tokens.push_back(codec_.eos() >= 0 ? codec_.eos() : '\n');
  TRY_STATUS(check_length(tokens.size()));
  return tokens;
}

/// Refuses a text of more tokens than the model sees, or tells of it.
Status Prompts::check_length(size_t tokens) const {
  if (static_cast<int64_t>(tokens) + options_.room <= program_.length) return ok();
  if (!options_.cuts) return too_long("the prompt", tokens, options_.room > 0);
  options_.told("the prompt has " + std::to_string(tokens) + " tokens, but the model sees only the " + (has_source() ? "first " : "last ") +
                std::to_string(program_.length));
  return ok();
}

Error Prompts::too_long(const std::string& what, size_t tokens, bool answered) const {
  return recipe_error(what + " has " + std::to_string(tokens) + " tokens; the model's context is " + std::to_string(program_.length) +
                          (answered ? " with the answer" : ""),
                      options_.longer + (options_.cuts || options_.cut.empty() ? "" : "; " + options_.cut));
}

Result<std::vector<TokenId>> Prompts::of_conversation(Conversation conversation, std::string* text) {
  for (size_t turns = 0, whole = 0;; ++turns) {
    const ChatRow written = TRY(chat_->prompt(conversation));
    std::vector<TokenId> tokens;
    std::vector<bool> counts;
    TRY_STATUS(codec_.encode(written, work_, &tokens, &counts));
    TRY_STATUS(check(tokens));
    if (tokens.empty())
      return recipe_error("the chat template makes no tokens of the conversation, so there is nothing to answer",
                          "its function has to return the parts of the text, also when it is called to generate");
    if (turns == 0) whole = tokens.size();
    if (static_cast<int64_t>(tokens.size()) < program_.length) {
      if (turns > 0) options_.told("the conversation has " + std::to_string(whole) + " tokens, so that its oldest turns are left out");
      for (const Tokenizer::Segment& segment : written)
        if (text) *text += segment.text;
      return tokens;
    }
    if (options_.cuts && drop_oldest_turn(conversation.messages)) continue;
    return too_long(turns > 0 ? "the last turn of the conversation" : "the conversation", tokens.size(), true);
  }
}

Result<std::vector<TokenId>> Prompts::of_line(const Value& line, std::string* shown) {
  const auto* given = line.as<std::string>() ? line.as<std::string>() : line.field<std::string>("prompt");
  const std::string text = given ? valid_utf8(*given, nullptr) : "";
  if (given && shown) *shown = text;
  if (!chat_ && !given) return recipe_error("a line has to be a string or an object { \"prompt\": … }");
  if (!chat_) return of_text(text);
  if (given) return of_conversation(TRY(conversation_of({{"user", text}}, chat_->choice())));
  if (!line.field<List>("messages"))
    return recipe_error("with --chat a line has to be a string or an object { \"prompt\": … } or { \"messages\": … }");
  const Table& table = *line.as<Table>();
  return of_conversation(TRY(conversation_of(table.at("messages"), table, chat_->choice())), shown);
}

}  // namespace galley
