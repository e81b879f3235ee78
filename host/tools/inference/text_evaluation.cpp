#include "host/tools/inference/text_evaluation.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "host/base/json.hpp"
#include "host/tokens/line_file.hpp"
#include "host/tokens/lines.hpp"
#include "host/tokens/tokenizer/unicode.hpp"

namespace galley {
namespace {

/// More prompts than this are a mistake: each one costs the work of a text.
constexpr size_t kMostPrompts = 100'000;

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Error at(const std::string& place, Error error) {
  error.cause = place + ": " + error.cause;
  return error;
}

}  // namespace

Result<std::unique_ptr<TextEvaluation>> TextEvaluation::open(const Study& study) {
  const Evaluation& asked = study.recipe.evaluate;
  if (asked.prompts.empty()) return std::unique_ptr<TextEvaluation>();
  std::unique_ptr<TextEvaluation> out(new TextEvaluation(study));
  out->prompts_ = TRY(Prompts::open(study, {.chat = text_data(study.recipe).kind == "chat",
                                            .longer = "a larger 'length', or a shorter prompt",
                                            .room = study.program.target_length > 0 ? 0 : 1}));
  out->judge_ = TRY(TextJudge::open(study.recipe));
  out->prompts_->add_stops(&out->stops_);
  out->stops_.most = asked.tokens;
  const Program& program = study.program;
  out->stops_.context = program.target_length > 0 ? program.target_length : program.length;
  TRY_STATUS(out->read());
  // What is wrong with a function of the recipe is found before anything is trained.
  WrittenText tried;
  tried.text = out->asked_.front().expected.value_or("");
  TRY_STATUS(out->judge(&tried, out->asked_.front()));
  return out;
}

Status TextEvaluation::read() {
  const Evaluation& asked = study_.recipe.evaluate;
  const auto most = asked.samples > 0 ? static_cast<size_t>(asked.samples) : kMostPrompts + 1;
  std::error_code error;
  if (!std::filesystem::exists(asked.prompts, error))
    return recipe_error(asked.place.text() + ": there is no file '" + asked.prompts + "'");
  LineFile file = TRY(LineFile::open(asked.prompts));
  LineBlocks blocks([&](std::span<std::byte> bytes) { return file.read(bytes); });
  LineBlock block;
  while (asked_.size() < most && TRY(blocks.next(&block))) {
    if (block.too_long) return recipe_error(file.place(block.first_line) + ": " + too_long_line());
    TRY_STATUS(for_each_line(block, [&](std::string_view line, int64_t number) -> Status {
      if (asked_.size() >= most || line.find_first_not_of(" \t\r") == line.npos) return ok();
      const std::string place = file.place(number);
      Result<Asked> read = read_line(TRY(parse_json(line, place, kMostJsonValues, KeyOrder::Listed)));
      if (!read) return at(place, std::move(read).error());
      asked_.push_back(*std::move(read));
      asked_.back().place = place;
      return ok();
    }));
  }
  if (asked_.empty())
    return recipe_error(asked.place.text() + ": '" + asked.prompts + "' has no prompts", "a line { \"prompt\": … } is one");
  if (asked_.size() > kMostPrompts)
    return recipe_error(asked.place.text() + ": '" + asked.prompts + "' has more than " + std::to_string(kMostPrompts) + " prompts",
                        "samples = N takes the first ones");
  return ok();
}

Result<TextEvaluation::Asked> TextEvaluation::read_line(const Value& given) {
  Asked out;
  out.line = given;
  Value line = given;
  const Table* table = given.as<Table>();
  for (const char* name : {"expected", "answer"}) {
    if (!table || out.expected || !table->contains(name) || table->at(name).is_nil()) continue;
    const auto* text = table->at(name).as<std::string>();
    if (!text) return recipe_error("'" + std::string(name) + "' is " + table->at(name).type_name() + " and no text");
    out.expected = valid_utf8(*text, nullptr);
  }
  // Of a conversation that ends with an answer, the answer is what is expected.
  for (const char* name : {"messages", "conversations"}) {
    const List* messages = prompts_->chat() ? given.field<List>(name) : nullptr;
    if (!messages || messages->empty()) continue;
    const Value& last = messages->back();
    const bool from = last.field<std::string>("from") != nullptr;
    const std::string role = last.text_field(from ? "from" : "role");
    List rest = *messages;
    if (role == "assistant" || role == "gpt") {
      if (!out.expected) out.expected = valid_utf8(last.text_field(from ? "value" : "content"), nullptr);
      rest.pop_back();
    }
    Table changed = *table;
    changed.erase(name);
    changed.insert_or_assign("messages", Value(std::move(rest)));
    line = Value(std::move(changed));
    break;
  }
  if (judge_ && judge_->compares() && !out.expected)
    return recipe_error("there is no 'expected', and match = \"" + study_.recipe.evaluate.match + "\" compares with it",
                        "write { \"prompt\": …, \"expected\": … }");
  out.tokens = TRY(prompts_->of_line(line, &out.text));
  return out;
}

Status TextEvaluation::judge(WrittenText* text, const Asked& asked) {
  if (!judge_) return ok();
  Result<double> judged = judge_->judge(text->text, asked.expected, asked.line);
  if (!judged) return at(asked.place, std::move(judged).error());
  text->match = *judged;
  return ok();
}

Result<TextsEvent> TextEvaluation::run(Session& session, const std::function<Status(int64_t done, int64_t all)>& after) {
  const double begin = seconds_now();
  TRY_STATUS(session.executor().synchronize());
  Generator generator(session);
  const auto rows = static_cast<size_t>(generator.rows()), all = asked_.size();
  TextsEvent out;
  double sum = 0;
  for (size_t first = 0; first < all; first += rows) {
    const std::span<const Asked> some = std::span(asked_).subspan(first, std::min(rows, all - first));
    std::vector<Continuation> texts;
    for (const Asked& asked : some)
      texts.emplace_back(prompts_->codec(), stops_, generator.has_source() ? std::vector{study_.recipe.learning.start} : asked.tokens);
    for (size_t r = 0; generator.has_source() && r < rows; ++r)
      generator.read_source(some[std::min(r, some.size() - 1)].tokens, static_cast<int64_t>(r));
    TRY_STATUS(finish_texts(generator, texts, {.temperature = 0}, [](size_t, uint64_t) { return 0u; }));
    for (size_t r = 0; r < some.size(); ++r) {
      WrittenText& text = out.texts.emplace_back();
      text = {some[r].text, some[r].expected, texts[r].text(), texts[r].ended(), texts[r].made(), {}};
      TRY_STATUS(judge(&text, some[r]));
      sum += text.match.value_or(0);
    }
    TRY_STATUS(after(static_cast<int64_t>(first + some.size()), static_cast<int64_t>(all)));
  }
  if (judge_) out.match = sum / static_cast<double>(all);
  out.seconds = seconds_now() - begin;
  session.worked_aside(out.seconds);
  return out;
}

}  // namespace galley
