#include "host/report/data_report.hpp"

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
          {"validation_documents", number(report.validation.documents)},
          {"validation_rows", number(report.validation.packed.rows)},
          {"tokens", number(report.store.tokens)},
          {"skipped_lines", number(report.store.skipped)},
          {"repaired_utf8", number(report.store.repaired)}};
}

double padding_percent(const RowFacts& facts, uint64_t length) {
  const auto all = static_cast<double>(facts.packed.rows * length);
  return all > 0 ? 100 * (1 - static_cast<double>(facts.packed.positions) / all) : 0;
}

std::vector<std::string> left_out(const DataReport& report) {
  const Packer::Facts &train = report.train.packed, &validation = report.validation.packed;
  const std::pair<uint64_t, const char*> list[] = {
      {report.store.skipped, "bad lines left out"},
      {report.store.repaired, "places were no UTF-8 and became U+FFFD"},
      {report.store.small, "documents of fewer than two tokens left out"},
      {train.idle + validation.idle, "documents left out: nothing of them counts in the loss"},
      {train.cut + validation.cut, "tokens cut off: their documents are longer than a row"},
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
