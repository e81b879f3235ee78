#include "host/tools/report/data_report.hpp"

#include <cstdio>

namespace galley {

std::string grouped(uint64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<size_t>(at), ",");
  return text;
}

std::vector<std::pair<std::string, int64_t>> facts_of(const DataReport& report) {
  const auto number = [](uint64_t n) { return static_cast<int64_t>(n); };
  return {{"documents", number(report.train.documents)},
          {"longest", number(report.train.longest)},
          {"rows", number(report.train.packed.rows)},
          {"positions", number(report.train.packed.positions)},
          {"counted", number(report.train.packed.counted)},
          {"cut_tokens", number(report.train.packed.cut)},
          {"idle_documents", number(report.train.packed.idle)},
          {"dropped_documents", number(report.train.packed.dropped)},
          {"validation_documents", number(report.validation.documents)},
          {"validation_rows", number(report.validation.packed.rows)},
          {"tokens", number(report.store.tokens)},
          {"skipped_lines", number(report.store.skipped)},
          {"repaired_utf8", number(report.store.repaired)},
          {"special_tokens", number(report.store.specials)}};
}

double padding_percent(const RowFacts& facts, uint64_t length) {
  const auto all = static_cast<double>(facts.packed.rows * length);
  return all > 0 ? 100 * (1 - static_cast<double>(facts.packed.positions) / all) : 0;
}

namespace {

/// The share of the tokens of a part that is left out because it does not fit its rows.
double cut_share(const RowFacts& facts) {
  const auto cut = static_cast<double>(facts.packed.cut);
  return cut > 0 ? cut / (cut + static_cast<double>(facts.packed.positions)) : 0;
}

/// More than this is worth a warning.
constexpr double kMuch = 0.05;

}  // namespace

std::string truncation_warning(const DataReport& report) {
  const double share = cut_share(report.train);
  if (share < kMuch) return "";
  char percent[32];
  std::snprintf(percent, sizeof percent, "%.0f", 100 * share);
  return "data." + report.kind + ": " + percent + " % of the tokens are left out, because their documents are longer than a row of " +
         std::to_string(report.length) + " (the longest has " + grouped(report.train.longest) +
         " tokens); a larger 'length' keeps more, and overlong = \"split\" keeps all" +
         (report.kind == "chat" ? ", overlong = \"turn\" ends conversations with a whole reply" : "");
}

std::string epochs_text(int64_t steps, double epochs, int64_t rows_a_step, uint64_t rows_an_epoch, bool by_tokens) {
  if (rows_an_epoch == 0 || steps == 0) return "";
  char text[64];
  const auto an_epoch = static_cast<double>(rows_an_epoch);
  if (epochs > 0) {
    std::snprintf(text, sizeof text, "%g epochs are ", epochs);
    std::string out = text + grouped(static_cast<uint64_t>(steps)) + (steps == 1 ? " step" : " steps");
    std::snprintf(text, sizeof text, by_tokens ? ", about %.4g an epoch" : ", %.4g an epoch",
                  by_tokens ? static_cast<double>(steps) / epochs : an_epoch / static_cast<double>(rows_a_step));
    return out + text;
  }
  if (by_tokens) return "";
  const int64_t rows = steps * rows_a_step;
  std::snprintf(text, sizeof text, " rows: %.2f epochs", static_cast<double>(rows) / an_epoch);
  std::string out = "the run takes " + grouped(static_cast<uint64_t>(rows)) + text;
  std::snprintf(text, sizeof text, " of %.4g steps", an_epoch / static_cast<double>(rows_a_step));
  return out + text;
}

std::vector<std::string> left_out(const DataReport& report) {
  const Packer::Facts &train = report.train.packed, &validation = report.validation.packed;
  char cut[96];
  std::snprintf(cut, sizeof cut, "tokens left out, %.1f %% of those to train on: their documents are longer than a row",
                100 * cut_share(report.train));
  const std::pair<uint64_t, const char*> list[] = {
      {report.store.skipped, "bad lines left out"},
      {report.store.repaired, "places were no UTF-8 and became U+FFFD"},
      {report.store.specials, report.kind == "chat"
                                  ? "special tokens that stand in messages are text (special = true makes them tokens, as in transformers)"
                                  : "special tokens that stand in the text became tokens (special = false leaves them text)"},
      {report.store.small, "documents of fewer than two tokens left out"},
      {train.idle + validation.idle, "documents left out: nothing of them counts in the loss"},
      {train.dropped + validation.dropped, "documents left out: they are longer than a row"},
      {train.cut + validation.cut, cut},
      {report.store.binary, "binary files left out"},
  };
  std::vector<std::string> out;
  for (const auto& [number, what] : list)
    if (number > 0) out.push_back(grouped(number) + " " + what);
  return out;
}

std::string data_line(const DataReport& report) {
  const RowFacts& train = report.train;
  char padding[32];
  std::snprintf(padding, sizeof padding, "%.1f", padding_percent(train, report.length));
  std::string out = "data." + report.kind + ": " + grouped(train.documents) + (train.documents == 1 ? " document in " : " documents in ") +
                    grouped(train.packed.rows) + " rows of " + std::to_string(report.length) + ", " + grouped(train.packed.counted) +
                    " tokens count, " + padding + " % padding";
  if (report.validation.packed.rows > 0)
    out += "; validation " + grouped(report.validation.documents) + " in " + grouped(report.validation.packed.rows);
  out += "\n";
  for (const std::string& left : left_out(report)) out += "  " + left + "\n";
  return out;
}

}  // namespace galley
