#include "host/commands/sample.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "host/base/json.hpp"
#include "host/base/log.hpp"
#include "host/base/printable.hpp"
#include "host/base/random.hpp"
#include "host/commands/run_commands.hpp"
#include "host/tokens/lines.hpp"
#include "host/tokens/tokenizer/unicode.hpp"
#include "host/tools/inference/folder_study.hpp"
#include "host/tools/inference/prompts.hpp"
#include "host/tools/report/plan_report.hpp"
#include "host/tools/report/terminal.hpp"

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
  static Result<std::unique_ptr<Talker>> open(const CommandLine& a, FolderKind kind, Session& session) {
    const Study& study = session.study();
    if (const Learning& learning = study.recipe.learning; learning.labels != Fill::NextTokens && learning.labels != Fill::TargetLabels)
      return recipe_error("galley sample: a model whose task is '" + learning.task + "' generates no text",
                          of_rows(learning.labels) ? "`galley predict` says which labels or values it gives to texts"
                                                   : "`galley embed` shows what it makes of texts");
    std::unique_ptr<Talker> out(new Talker(session));
    PromptOptions options = {.chat = a.has("--chat"), .cuts = a.get("--overlong") == "cut"};
    if (a.has("--template")) options.chat_template = a.get("--template");
    if (a.has("--system")) options.system = a.get("--system");
    options.told = [talker = out.get(), lines = a.has("--lines")](const std::string& text) {
      if (talker->cut_++ == 0 && !lines) log(LogLevel::Warning, text);
    };
    options.longer = kind == FolderKind::Run ? "a run's context is its recipe's length" : "--length N sets a longer context";
    options.cut = a.has("--chat") ? "--overlong cut leaves out the oldest turns" : "--overlong cut shows it " + out->seen();
    out->prompts_ = TRY(Prompts::open(study, std::move(options)));
    out->stops_.most = TRY(a.integer("--tokens", 200, 1));
    out->draw_.temperature = TRY(a.number("--temperature", 0.8, 0, 1e300));
    out->draw_.top_k = TRY(a.integer("--top-k", 40, 0));
    out->draw_.top_p = TRY(a.number("--top-p", 1, 0, 1));
    out->draw_.min_p = TRY(a.number("--min-p", 0, 0, 1));
    out->draw_.repetition_penalty = TRY(a.number("--repetition-penalty", 1, 1e-3, 1e3));
    out->draw_.seed = static_cast<uint64_t>(TRY(a.integer("--seed", 1, 0)));
    if (const auto it = a.flags.find("--stop"); it != a.flags.end()) out->stops_.texts = it->second;
    out->prompts_->add_stops(&out->stops_);
    return out;
  }

  /// Continues the text, and prints both.
  Status go_on(const std::string& prompt) {
    std::vector<TokenId> tokens = TRY(prompts_->of_text(prompt));
    if (!generator_.has_source()) write(prompt);
    TRY(reply(std::move(tokens)));
    return ok();
  }

  /// Prints and returns the assistant's answer to what has been said.
  Result<std::string> answer(const std::vector<std::pair<std::string, std::string>>& messages) {
    return reply(TRY(prompts_->of_conversation(TRY(conversation_of(messages, prompts_->chat()->choice())))));
  }

  /// Continues the prompts of lines of JSON, several at once, and prints a line for each.
  Status lines() {
    StdinLines from;
    std::string_view line;
    std::vector<Continuation> texts;
    for (bool more = true; more || !texts.empty();) {
      more = TRY(from.next(&line));
      if (more && line.find_first_not_of(" \t\r") != std::string_view::npos)
        texts.emplace_back(prompts_->codec(), stops_, begin(TRY(of_line(line, from.place())), static_cast<int64_t>(texts.size())));
      const bool full = static_cast<int64_t>(texts.size()) == generator_.rows();
      if (!full && (more || texts.empty())) continue;
      TRY_STATUS(finish_texts(generator_, texts, draw_, [&](size_t text, uint64_t drawn) {
        return galley_philox(draw_.seed, drawn, numbered_ + text).word[0];  // which ones a text gets depends on its number alone
      }));
      for (const Continuation& text : texts) {
        const Value out(Table{{"text", Value(text.text())}, {"tokens", Value(text.made())}, {"ended", Value(text.ended())}});
        std::printf("%s\n", to_json(out).c_str());
      }
      std::fflush(stdout);
      numbered_ += texts.size();
      texts.clear();
    }
    if (cut_)
      log(LogLevel::Warning, std::to_string(cut_) + " of " + std::to_string(numbered_) + " prompts did not fit into the model's context: " +
                                 (prompts_->chat() ? "the oldest turns were left out" : "it saw " + seen()));
    return ok();
  }

 private:
  explicit Talker(Session& session) : generator_(session), start_(session.study().recipe.learning.start) {}

  /// What the model sees of a prompt that is too long.
  std::string seen() const {
    return std::string("the ") + (generator_.has_source() ? "first " : "last ") + std::to_string(generator_.length());
  }

  /// Of a line: a string, { "prompt": … }, or with --chat { "messages": … }.
  Result<std::vector<TokenId>> of_line(std::string_view line, const std::string& place) {
    Result<std::vector<TokenId>> tokens = prompts_->of_line(TRY(parse_json(line, place, kMostJsonValues, KeyOrder::Listed)));
    if (tokens) return tokens;
    Error error = std::move(tokens).error();
    error.cause = place + ": " + error.cause;
    return error;
  }

  /// The tokens with which the text of a row begins: of a model with a source, which the prompt is, one.
  std::vector<TokenId> begin(std::vector<TokenId> prompt, int64_t row) {
    if (!generator_.has_source()) return prompt;
    // Rows that have no text yet read what is read last.
    for (; row < generator_.rows(); ++row) generator_.read_source(prompt, row);
    return {start_};
  }

  /// Samples and prints tokens until one ends the text. Returns what was printed.
  Result<std::string> reply(std::vector<TokenId> tokens) {
    Continuation text(prompts_->codec(), stops_, begin(std::move(tokens), 0));
    size_t shown = 0;
    while (text.ended().empty()) {
      const std::span<const float> logits = TRY(generator_.logits(text.tokens()));
      text.take(logits, draw_, galley_philox(draw_.seed, static_cast<uint64_t>(drawn_++), 0).word[0]);
      size_t end = text.certain();
      while (terminal_ && text.ended().empty() && end > 0 && is_partial(std::string_view(text.text()).substr(0, end))) --end;
      if (end <= shown) continue;
      write(std::string_view(text.text()).substr(shown, end - shown));
      std::fflush(stdout);
      shown = end;
    }
    std::putchar('\n');
    return text.text();
  }

  /// A terminal would obey what a model or a prompt has of control characters; a file or a pipe gets the bytes.
  void write(std::string_view text) const {
    if (terminal_) std::fputs(printable(text, Lines::Keep).c_str(), stdout);
    else std::fwrite(text.data(), 1, text.size(), stdout);
  }

  Generator generator_;
  int32_t start_;
  std::unique_ptr<Prompts> prompts_;
  Draw draw_;
  Stops stops_;
  const bool terminal_ = isatty(STDOUT_FILENO) == 1;
  int64_t drawn_ = 0, cut_ = 0;
  size_t numbered_ = 0;  ///< texts of lines that have ended
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
  if (!a.has("--chat") && !a.has("--prompt") && !a.has("--lines") && !a.has("--plan"))
    return recipe_error("galley sample: --prompt or --chat is missing", "give --prompt TEXT, --chat for a conversation, or --lines");
  if (a.has("--lines") && a.has("--prompt")) return recipe_error("galley sample: --lines and --prompt exclude each other");
  if (a.has("--batch") && !a.has("--lines")) return recipe_error("galley sample: --batch requires --lines");
  for (const char* flag : {"--system", "--template"})
    if (a.has(flag) && !a.has("--chat")) return recipe_error(std::string("galley sample: ") + flag + " requires --chat");
  if (const auto stops = a.flags.find("--stop"); stops != a.flags.end())
    for (const std::string& stop : stops->second)
      if (stop.empty()) return recipe_error("galley sample: --stop is empty", "give the text to stop before, or omit --stop");
  if (const std::string how = a.get("--overlong", "refuse"); how != "refuse" && how != "cut")
    return recipe_error("galley sample: --overlong '" + how + "'", "known: refuse, cut");
  if (const std::string how = a.get("--cache", "int8"); how != "int8")
    return recipe_error("galley sample: --cache '" + how + "'", "known: int8");
  if (a.has("--cache") && a.has("--no-cache")) return recipe_error("galley sample: --cache and --no-cache exclude each other");
  const FolderKind kind = TRY(kind_of_folder(directory));
  if (kind == FolderKind::Run && a.has("--length"))
    return recipe_error("galley sample: --length applies to a model's folder only; a run uses its recipe's length");
  if (kind != FolderKind::Adapter && a.has("--base")) return recipe_error("galley sample: --base applies to an adapter's folder only");
  StudyOptions options = TRY(study_options(a));
  options.purpose = Purpose::Sample;
  options.caches = !a.has("--no-cache");
  options.int8_cache = a.has("--cache");
  if (a.has("--lines") && options.caches) options.sample_rows = TRY(a.integer("--batch", 8, 1));
  const FolderOptions given = {a.get("--base"), TRY(a.integer("--length", 0, 1))};
  if (a.has("--plan")) options.runs = false, options.shows_unfit = true;
  FolderStudy folder = TRY(study_folder(directory, given, options));
  const bool one_by_one = !folder.study->program.uncached.empty();
  if (one_by_one && a.has("--cache"))
    return recipe_error("galley sample: --cache: keys and values cannot be kept: " + folder.study->program.uncached, "omit --cache");
  if (one_by_one && std::exchange(options.sample_rows, 1) > 1) folder = TRY(study_folder(directory, given, options));
  if (a.has("--plan")) {
    const Study& s = *folder.study;
    print_lines("plan of sampling from %s: %s, %lld %s of at most %lld tokens, on %s\n", directory.c_str(), s.model.model_type.c_str(),
                static_cast<long long>(s.program.rows), s.program.rows == 1 ? "text" : "texts", static_cast<long long>(s.program.length),
                s.target.device.c_str());
    print_lines(memory_table(s.program, s.plan, s.target, terminal_columns()));
    return s.unfit ? Status(*s.unfit) : ok();
  }
  ReferenceShown reference = TRY(ReferenceShown::open(a));
  const auto session = TRY(folder.open(reference.options()));
  const auto talker = TRY(Talker::open(a, kind, *session));
  if (const std::string& why = folder.study->program.uncached; !why.empty())
    log(LogLevel::Warning, "each token is made from the whole text, because keys and values cannot be kept: " + why);
  if (a.has("--lines")) return reference.finish(talker->lines());
  const std::string prompt = valid_utf8(a.get("--prompt"), nullptr);
  if (!a.has("--chat")) return reference.finish(talker->go_on(prompt));
  if (!a.has("--prompt")) return reference.finish(converse(*talker));
  TRY(talker->answer({{"user", prompt}}));
  return reference.finish(ok());
}

}  // namespace galley
