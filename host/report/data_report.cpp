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
  const auto also = [&](uint64_t number, const char* what) {
    if (number > 0) out += "  " + grouped(number) + " " + what + "\n";
  };
  also(report.store.skipped, "bad lines left out");
  also(report.store.repaired, "places were no UTF-8 and became U+FFFD");
  also(report.store.small, "documents of fewer than two tokens left out");
  also(train.packed.idle + report.validation.packed.idle, "documents left out: nothing of them counts in the loss");
  also(train.packed.cut + report.validation.packed.cut, "tokens cut off: their documents are longer than a row");
  also(report.store.binary, "binary files left out");
  return out;
}

}  // namespace galley
