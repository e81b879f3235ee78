#include "host/commands/sample.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "host/base/log.hpp"
#include "host/base/printable.hpp"
#include "host/base/random.hpp"
#include "host/commands/run_commands.hpp"
#include "host/tokens/chat.hpp"
#include "host/tokens/lines.hpp"
#include "host/tokens/text_codec.hpp"
#include "host/tokens/tokenizer/unicode.hpp"
#include "host/tools/inference/folder_study.hpp"
#include "host/tools/inference/generate.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

/// Whether the text ends with a byte that may begin or continue a character of UTF-8 that is not complete yet: of single bytes.
bool is_partial(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(text.size(), 3); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    return byte >= 0xC0 && back < (byte < 0xE0 ? 2u : byte < 0xF0 ? 3u : 4u);
  }
  return false;
}

/// Translates between a person's text and the model.
class Talker {
 public:
  static Result<std::unique_ptr<Talker>> open(const CommandLine& a, Session& session) {
    const Study& study = session.study();
    if (const Learning& learning = study.recipe.learning; learning.labels != Fill::NextTokens && learning.labels != Fill::TargetLabels)
      return recipe_error("galley sample: a model whose task is '" + learning.task + "' generates no text",
                          of_rows(learning.labels) ? "`galley predict` says which labels or values it gives to texts"
                                                   : "`galley embed` shows what it makes of texts");
    std::unique_ptr<Talker> out(new Talker(session, TRY(TextCodec::open(text_spec(study.recipe), study.recipe))));
    out->most_ = TRY(a.integer("--tokens", 200, 1));
    out->draw_.temperature = TRY(a.number("--temperature", 0.8, 0, 1e300));
    out->draw_.top_k = TRY(a.integer("--top-k", 40, 0));
    out->draw_.top_p = TRY(a.number("--top-p", 1, 0, 1));
    out->draw_.seed = static_cast<uint64_t>(TRY(a.integer("--seed", 1, 0)));
    if (const auto it = a.flags.find("--stop"); it != a.flags.end()) out->stop_texts_ = it->second;
    out->stops_ = out->codec_.stops();
    if (!a.has("--chat")) return out;
    DataSpec spec = text_spec(study.recipe);
    if (std::exchange(spec.kind, "chat") != "chat") spec.options.erase("special");  // which says it of a text
    if (a.has("--template")) {
      spec.options["template"] = Value(a.get("--template"));
      spec.chat_template.reset();
    }
    if (a.has("--system")) spec.options["system"] = Value(a.get("--system"));
    out->chat_ = TRY(ChatTemplate::open(TRY(choose_chat(spec, study.recipe, out->codec_.model()))));
    const std::string& end = out->chat_->end();
    std::string token;  // the longest special token that the end of a reply begins with
    for (const std::string& special : out->codec_.model().specials)
      if (end.starts_with(special) && special.size() > token.size()) token = special;
    if (!token.empty()) out->stops_.push_back(out->codec_.find(token));
    else if (!end.empty()) out->stop_texts_.push_back(end);
    return out;
  }

  /// Continues the text.
  Status go_on(const std::string& prompt) {
    std::vector<int32_t> tokens(codec_.before().begin(), codec_.before().end());
    TRY_STATUS(codec_.encode(prompt, work_, &tokens));
    if (generator_.has_source()) {
      tokens.insert(tokens.end(), codec_.after().begin(), codec_.after().end());
      TRY(reply(target_of(tokens)));
      std::putchar('\n');
      return ok();
    }
    if (tokens.empty()) tokens.push_back(codec_.eos() >= 0 ? codec_.eos() : '\n');
    if (static_cast<int64_t>(tokens.size()) > generator_.length())
      log(LogLevel::Warning, "the prompt has " + std::to_string(tokens.size()) + " tokens, but the model sees only the last " +
                                 std::to_string(generator_.length()));
    write(prompt);
    TRY(reply(std::move(tokens)));
    std::putchar('\n');
    return ok();
  }

  /// The assistant's answer to what has been said.
  Result<std::string> answer(const std::vector<std::pair<std::string, std::string>>& messages) {
    const ChatRow segments = TRY(chat_->prompt(TRY(conversation_of(messages, chat_->choice()))));
    std::vector<int32_t> tokens;
    std::vector<bool> counts;
    TRY_STATUS(codec_.encode(segments, work_, &tokens, &counts));
    if (tokens.empty())
      return recipe_error("the chat template makes no tokens of the conversation, so there is nothing to answer",
                          "its function has to return the parts of the text, also when it is called to generate");
    if (static_cast<int64_t>(tokens.size()) >= generator_.length())
      return recipe_error(
          "the conversation has " + std::to_string(tokens.size()) + " tokens; the model sees only " + std::to_string(generator_.length()),
          "for a model's folder, --length sets a longer context");
    if (generator_.has_source()) tokens = target_of(tokens);
    std::string text = TRY(reply(std::move(tokens)));
    std::putchar('\n');
    return text;
  }

 private:
  Talker(Session& session, TextCodec codec)
      : generator_(session), codec_(std::move(codec)), work_(codec_), start_(session.study().recipe.learning.start) {}

  /// The begin of what an encoder's reader says of a source.
  std::vector<int32_t> target_of(std::span<const int32_t> source) {
    if (static_cast<int64_t>(source.size()) > generator_.length())
      log(LogLevel::Warning, "the prompt has " + std::to_string(source.size()) + " tokens, but the model sees only the first " +
                                 std::to_string(generator_.length()));
    generator_.read_source(source);
    return {start_};
  }

  /// Samples and prints tokens until one ends the text. Returns what was printed.
  Result<std::string> reply(std::vector<int32_t> tokens) {
    const size_t begin = codec_.decode(tokens).size();
    std::string text;
    size_t shown = 0;
    const auto show = [&](size_t end) {
      write(std::string_view(text).substr(shown, end - shown));
      std::fflush(stdout);
      shown = end;
    };
    for (int64_t n = 0; n < most_; ++n) {
      const std::span<const float> logits = TRY(generator_.logits(tokens));
      const uint32_t random = galley_philox(draw_.seed, static_cast<uint64_t>(drawn_++), 0).word[0];
      const int32_t token = draw_token(logits, draw_, random);
      if (std::find(stops_.begin(), stops_.end(), token) != stops_.end()) break;
      tokens.push_back(token);
      text = codec_.decode(tokens);
      text.erase(0, std::min(begin, text.size()));
      size_t end = text.size();
      for (const std::string& stop : stop_texts_) end = std::min(end, text.find(stop));
      if (end < text.size()) {
        text.resize(end);
        break;
      }
      // An incomplete character, or a possible beginning of a stop text, is not printed yet.
      show(std::max(shown, certain(text)));
    }
    show(std::max(shown, text.size()));
    return text;
  }

  /// A terminal would obey what a model or a prompt has of control characters; a file or a pipe gets the bytes.
  void write(std::string_view text) const {
    if (terminal_) std::fputs(printable(text, Lines::Keep).c_str(), stdout);
    else std::fwrite(text.data(), 1, text.size(), stdout);
  }

  size_t certain(const std::string& text) const {
    size_t end = text.size();
    while (terminal_ && end > 0 && is_partial(std::string_view(text).substr(0, end))) --end;
    while (!codec_.bytes() && end >= 3 && text.compare(end - 3, 3, "\xEF\xBF\xBD") == 0) end -= 3;
    for (const std::string& stop : stop_texts_)
      for (size_t part = std::min(stop.size(), end); part > 0; --part)
        if (text.compare(end - part, part, stop, 0, part) == 0) {
          end -= part;
          break;
        }
    return end;
  }

  Generator generator_;
  TextCodec codec_;
  TextCodec::Work work_;
  int32_t start_;
  std::unique_ptr<ChatTemplate> chat_;
  Draw draw_;
  const bool terminal_ = isatty(STDOUT_FILENO) == 1;
  int64_t most_ = 0, drawn_ = 0;
  std::vector<TokenId> stops_;
  std::vector<std::string> stop_texts_;
};

/// A conversation: each line of stdin is the user's next message.
Status converse(Talker& talker) {
  const bool terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
  if (terminal) std::fputs("Type a message. An empty line starts a new conversation; Ctrl-D ends.\n", stdout);
  std::vector<std::pair<std::string, std::string>> messages;
  StdinLines lines;
  std::string_view line;
  while (true) {
    if (terminal) std::fputs("> ", stdout);
    std::fflush(stdout);
    if (!TRY(lines.next(&line))) break;
    if (line.empty()) {
      messages.clear();
      continue;
    }
    messages.emplace_back("user", valid_utf8(line, nullptr));
    std::string said = TRY(talker.answer(messages));
    messages.emplace_back("assistant", std::move(said));
  }
  if (terminal) std::putchar('\n');
  return ok();
}

}  // namespace

Status command_sample(const CommandLine& a) {
  const fs::path directory = a.positional[0];
  if (!a.has("--chat") && !a.has("--prompt"))
    return recipe_error("galley sample: --prompt or --chat is missing", "give --prompt TEXT, or --chat for a conversation");
  for (const char* flag : {"--system", "--template"})
    if (a.has(flag) && !a.has("--chat")) return recipe_error(std::string("galley sample: ") + flag + " requires --chat");
  if (const auto stops = a.flags.find("--stop"); stops != a.flags.end())
    for (const std::string& stop : stops->second)
      if (stop.empty()) return recipe_error("galley sample: --stop is empty", "give the text to stop before, or omit --stop");
  const FolderKind kind = TRY(kind_of_folder(directory));
  if (kind == FolderKind::Run && a.has("--length"))
    return recipe_error("galley sample: --length applies to a model's folder only; a run uses its recipe's length");
  if (kind != FolderKind::Adapter && a.has("--base")) return recipe_error("galley sample: --base applies to an adapter's folder only");
  StudyOptions options = TRY(study_options(a));
  options.purpose = Purpose::Sample;
  const FolderOptions given = {a.get("--base"), TRY(a.integer("--length", 0, 1))};
  const FolderStudy folder = TRY(study_folder(directory, given, options));
  ReferenceShown reference = TRY(ReferenceShown::open(a));
  const auto session = TRY(folder.open(reference.options()));
  const auto talker = TRY(Talker::open(a, *session));
  const std::string prompt = valid_utf8(a.get("--prompt"), nullptr);
  if (!a.has("--chat")) return reference.finish(talker->go_on(prompt));
  if (!a.has("--prompt")) return reference.finish(converse(*talker));
  TRY(talker->answer({{"user", prompt}}));
  return reference.finish(ok());
}

}  // namespace galley
