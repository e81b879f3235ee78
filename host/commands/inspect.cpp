#include "host/commands/inspect.hpp"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "host/base/json.hpp"
#include "host/base/printable.hpp"
#include "host/commands/run_commands.hpp"
#include "host/sources/window_memory.hpp"
#include "host/tokens/text_codec.hpp"
#include "host/tools/report/data_report.hpp"
#include "host/tools/report/terminal.hpp"

namespace galley {
namespace {

struct Marks {
  const char *counted, *other, *end, *border;
};

Marks marks() {
  if (terminal_has_colours()) return {"\x1b[1;32m", "\x1b[2m", "\x1b[0m", "\x1b[36m"};
  return {"‹", "", "", ""};
}

void print_facts(const DataReport& report) {
  const auto line = [](const char* what, const std::string& value) { print_lines("  %-22s %s\n", what, value.c_str()); };
  const auto percent = [](double share) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f %%", share);
    return std::string(text);
  };
  const RowFacts& train = report.train;
  std::printf("data.%s\n", report.kind.c_str());
  line("read", grouped(report.store.bytes) + " bytes, " + grouped(report.store.documents) + " documents, " + grouped(report.store.tokens) +
                   " tokens");
  line("to train on", grouped(train.documents) + " documents, the longest of " + grouped(train.longest) + " tokens");
  line("packed", grouped(train.packed.rows) + " rows of " + grouped(report.length) + ", " + percent(padding_percent(train, report.length)) +
                     " padding");
  line("count in the loss",
       grouped(train.packed.counted) + " tokens, " +
           percent(100 * static_cast<double>(train.packed.counted) / static_cast<double>(std::max<uint64_t>(train.packed.positions, 1))) +
           " of the positions that are not padding");
  if (report.validation.packed.rows > 0)
    line("to validate with", grouped(report.validation.documents) + " documents in " + grouped(report.validation.packed.rows) + " rows, " +
                                 percent(padding_percent(report.validation, report.length)) + " padding");
  for (const std::string& left : left_out(report)) line("", left);
}

std::string text_of(std::span<const TokenId> ids, const TextCodec* codec) {
  if (codec) return codec->decode(ids);
  std::string out;
  for (size_t i = 0; i < ids.size(); ++i) out += (i ? " " : "") + std::to_string(ids[i]);
  return out;
}

/// Runs of tokens that count and that do not.
void print_tokens(const std::vector<TokenId>& ids, const std::vector<bool>& counts, const TextCodec* codec) {
  const Marks mark = marks();
  for (size_t from = 0; from < ids.size();) {
    size_t to = from + 1;
    while (to < ids.size() && counts[to] == counts[from]) ++to;
    // As it stands in the whole: a decoder may leave out the space before a text's first word.
    const std::string before = text_of(std::span(ids).first(from), codec), until = text_of(std::span(ids).first(to), codec);
    const bool goes_on = codec && from > 0 && until.starts_with(before);
    const std::string text = goes_on ? until.substr(before.size()) : text_of(std::span(ids).subspan(from, to - from), codec);
    std::fputs(counts[from] ? mark.counted : mark.other, stdout);
    std::fputs(printable(text, Lines::Keep).c_str(), stdout);
    std::fputs(counts[from] && !*mark.end ? "›" : mark.end, stdout);
    from = to;
  }
  std::putchar('\n');
}

/// What is learned of a row beside its text: its target, its labels, what was masked.
void print_labels(const BatchRow& row, const BatchLayout& layout, const TextCodec* codec) {
  const Marks mark = marks();
  const Fill labels = layout.counted();
  std::vector<TokenId> counted;
  for (const int32_t label : row[labels])
    if (label != kNoLabel) counted.push_back(label);
  std::string values;
  for (const int32_t value : counted) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%s%.7g", values.empty() ? "" : " ", static_cast<double>(std::bit_cast<float>(value)));
    values += digits;
  }
  const bool tokens = labels == Fill::TargetLabels || labels == Fill::MaskedTokens;
  std::printf("%s── %s: %zu count %s\n", mark.border, layout.name(labels).c_str(), counted.size(), mark.end);
  std::fputs(mark.counted, stdout);
  std::fputs(labels == Fill::RowValues ? values.c_str() : printable(text_of(counted, tokens ? codec : nullptr), Lines::Keep).c_str(),
             stdout);
  std::printf("%s\n", *mark.end ? mark.end : "›");
}

/// Returns how many positions are after the last token.
size_t padding_of(const BatchRow& row) {
  size_t end = row.length();
  while (end > 0 && row.next()[end - 1] == kNoLabel && row.first_key()[end - 1] == static_cast<int32_t>(end - 1) &&
         row.tokens()[end - 1] == 0)
    --end;
  return row.length() - end;
}

/// Prints one row: a block for each document in it.
void print_row(const BatchRow& row, const BatchLayout& layout, int64_t number, const TextCodec* codec) {
  const Marks mark = marks();
  const size_t length = row.length();
  const Fill labels = layout.counted();
  // An objective over a plugin's labels learns from the tokens that follow, too.
  const bool next = labels == Fill::NextTokens || is_own(labels);
  const size_t end = length - padding_of(row);
  std::printf("\nrow %lld: %zu positions, %zu of padding\n", static_cast<long long>(number), end, length - end);
  for (size_t begin = 0; begin < end;) {
    size_t stop = begin + 1;
    while (stop < end && row.first_key()[stop] == static_cast<int32_t>(begin)) ++stop;
    std::vector<TokenId> ids(row.tokens().begin() + static_cast<std::ptrdiff_t>(begin),
                             row.tokens().begin() + static_cast<std::ptrdiff_t>(stop));
    std::vector<bool> counts;
    if (next) {
      // The token after the last position is a label only.
      counts.push_back(false);
      for (size_t s = begin; s < stop; ++s) counts.push_back(row.next()[s] != kNoLabel);
      if (counts.back()) ids.push_back(row.next()[stop - 1]);
      else counts.pop_back();
    } else {
      const std::span<const int32_t> of_token = row[labels];
      const bool each = info_of(labels).extent == FillExtent::Row;
      for (size_t s = begin; s < stop; ++s) counts.push_back(each && of_token[s] != kNoLabel);
    }
    const auto counted = std::count(counts.begin(), counts.end(), true);
    std::printf("%s── %zu tokens, %lld count %s\n", mark.border, ids.size(), static_cast<long long>(counted), mark.end);
    print_tokens(ids, counts, codec);
    begin = stop;
  }
  if (labels != Fill::NextTokens) print_labels(row, layout, codec);
}

List numbers_of(std::span<const int32_t> numbers, bool floats) {
  List out;
  for (const int32_t number : numbers)
    out.push_back(floats ? Value(static_cast<double>(std::bit_cast<float>(number))) : Value(static_cast<int64_t>(number)));
  return out;
}

/// By the names of the model's inputs; "labels" are those that count in the loss.
std::string json_of(const BatchRow& row, const BatchLayout& layout) {
  const Fill labels = layout.counted();
  Table out;
  for (size_t i = 0; i < layout.own.size(); ++i)
    out.emplace(layout.own[i].name, numbers_of(row[own_fill(i)], layout.own[i].dtype == GALLEY_F32));
  for (size_t f = 0; f < kFills; ++f) {
    const auto fill = static_cast<Fill>(f);
    const FillInfo& info = info_of(fill);
    if (row[fill].empty() || (info.unit && fill != labels)) continue;
    out.emplace(fill == labels ? "labels" : info.input, numbers_of(row[fill], fill == Fill::RowValues));
  }
  return to_json(Value(std::move(out)));
}

/// "input_ids (tokens), labels (next_tokens)": the model's inputs, and what the data fills them with.
std::string inputs_text(const Study& study) {
  std::string out;
  for (const Program::Input& input : study.program.inputs) {
    const std::string fill = study.data.layout.name(input.fill);
    out += (out.empty() ? "" : ", ") + input.name + (fill == input.name ? "" : " (" + fill + ")");
  }
  return out;
}

/// What is in the rows of data that reports nothing, as a plugin's.
struct RowsSeen {
  uint64_t rows = 0, positions = 0, counted = 0;
  static constexpr uint64_t kMost = 4096;
};
/// Of an epoch's first rows, as far as the run reads them.
Result<RowsSeen> look_at(const Source& source, const Study& study) {
  const BatchLayout& layout = study.data.layout;
  WindowMemory memory(window_bytes(layout, study.program.micro_batches));
  WindowBuffer window = {layout, memory.bytes(), -1, 0, 0};
  const double epochs = study.recipe.epochs > 0 ? std::min(study.recipe.epochs, 1.0) : 1;
  const uint64_t rows = std::min(static_cast<uint64_t>(std::ceil(epochs * static_cast<double>(source.epoch()))), RowsSeen::kMost);
  RowsSeen out;
  while (out.rows < rows) {
    TRY_STATUS(source.fill(window.window + 1, window));
    for (int64_t r = 0; r < window.rows() && out.rows < rows; ++r, ++out.rows) {
      const BatchRow row = window.row(r);
      const std::span<const int32_t> labels = row[layout.counted()];
      out.positions += row.length() - padding_of(row);
      out.counted += labels.size() - static_cast<size_t>(std::ranges::count(labels, kNoLabel));
    }
  }
  return out;
}

void print_seen(const RowsSeen& seen, const Study& study, const Source& source) {
  const auto length = static_cast<uint64_t>(study.data.layout.length);
  const std::string of = seen.rows < source.epoch() ? " of the first " + grouped(seen.rows) : "";
  std::printf("  %-22s %s rows of %s, %.2f %% padding%s\n", "to train on", grouped(source.epoch()).c_str(), grouped(length).c_str(),
              100 * (1 - static_cast<double>(seen.positions) / static_cast<double>(seen.rows * length)), of.c_str());
  std::printf("  %-22s %s%s\n", "count in the loss", grouped(seen.counted).c_str(), of.c_str());
}

std::string json_of(const std::vector<DataReport>& reports, const std::optional<RowsSeen>& seen, const Study& study, const Source& source) {
  List list;
  if (seen)
    list.emplace_back(Table{{"kind", Value(study.recipe.data.kind)},
                            {"rows", Value(static_cast<int64_t>(seen->rows))},
                            {"positions", Value(static_cast<int64_t>(seen->positions))},
                            {"counted", Value(static_cast<int64_t>(seen->counted))}});
  for (const DataReport& report : reports) {
    Table facts = {{"kind", Value(report.kind)}};
    for (const auto& [name, number] : facts_of(report)) facts.emplace(name, number);
    list.emplace_back(std::move(facts));
  }
  Table inputs;
  for (const Program::Input& input : study.program.inputs) inputs.emplace(input.name, study.data.layout.name(input.fill));
  Table out = {{"data", Value(std::move(list))}, {"inputs", Value(std::move(inputs))}, {"steps", Value(study.recipe.steps)}};
  if (source.epoch() > 0) out.emplace("rows_an_epoch", static_cast<int64_t>(source.epoch()));
  if (study.recipe.epochs > 0) out.emplace("epochs", study.recipe.epochs);
  return to_json(Value(std::move(out)));
}

}  // namespace

Status show_data(Study& study, int64_t rows, DataForm form, Split split, const std::function<void(const std::string&)>& warn) {
  const Recipe& recipe = study.recipe;
  const auto source = TRY(open_source_shown(study));
  TRY_STATUS(settle_steps(study, *source, warn));
  warn_of(*source, warn);
  WindowMemory memory(study.data.bytes());
  TRY_STATUS(source->load(memory.bytes()));
  const std::vector<DataReport> reports = source->reports();
  const std::optional<RowsSeen> seen = reports.empty() && source->epoch() > 0 ? std::optional(TRY(look_at(*source, study))) : std::nullopt;
  if (form == DataForm::Json) std::printf("%s\n", json_of(reports, seen, study, *source).c_str());
  else if (reports.empty()) print_lines("data.%s: %s\n", recipe.data.kind.c_str(), study.data.summary.c_str());
  if (seen && form == DataForm::Text) print_seen(*seen, study, *source);
  for (const DataReport& report : reports)
    if (form == DataForm::Text) print_facts(report);
  for (size_t i = 0; i < recipe.data.parts.size(); ++i)
    if (const auto& plugin = study.sources[i]; plugin && form == DataForm::Text)
      print_lines("data.%s: %s\n", recipe.data.parts[i].kind.c_str(), plugin->says().summary.c_str());
  if (const std::string epochs = epochs_of(study, *source); form == DataForm::Text && !epochs.empty())
    print_lines("  %-22s %s\n", "the run", epochs.c_str());
  if (form == DataForm::Text) print_lines("  %-22s %s\n", "the model reads", inputs_text(study).c_str());
  const DataSpec& spec = text_data(recipe);
  std::optional<TextCodec> codec;
  if (study.sources.front() ? spec.options.contains("tokenizer") : !reports.empty() && spec.kind != "tokens")
    codec.emplace(TRY(TextCodec::open(spec, recipe)));

  const BatchLayout& layout = study.data.layout;
  WindowMemory window_memory(window_bytes(layout, study.program.micro_batches));
  WindowBuffer window = {layout, window_memory.bytes(), -1, 0, 0};
  int64_t shown = 0;
  const auto show = [&] {
    for (int64_t r = 0; r < window.rows() && shown < rows; ++r) {
      ++shown;
      if (form == DataForm::Json) std::printf("%s\n", json_of(window.row(r), window.layout).c_str());
      else print_row(window.row(r), window.layout, shown, codec ? &*codec : nullptr);
    }
  };
  if (split == Split::Train) {
    TRY_STATUS(source->fill(0, window));
    show();
    return ok();
  }
  if (source->validation_batches() == 0)
    return recipe_error(recipe.data.place.text() + ": there is no validation data", "hold some out: data.text { …, validation = 0.05 }");
  for (int64_t b = 0; b < source->validation_batches() && shown < rows; ++b) {
    TRY_STATUS(source->fill_validation(b, window));
    show();
  }
  return ok();
}

}  // namespace galley
