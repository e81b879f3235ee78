#include "host/tools/report/scores_report.hpp"

#include <algorithm>
#include <cstdio>
#include <tuple>
#include <vector>

#include "host/tools/report/columns.hpp"
#include "host/tools/report/data_report.hpp"

namespace galley {
namespace {

constexpr size_t kMostColumns = 8;  // of a confusion matrix on a terminal
constexpr size_t kMostPairs = 10;
constexpr size_t kNameColumns = 12;

std::string confusion_text(const Scores& s, const Learning& learning) {
  std::string out = "  what the model said, for each label of the data\n  " + right_in("", kNameColumns);
  for (size_t c = 0; c < s.classes(); ++c) out += " " + right_in(learning.name_of(static_cast<int64_t>(c)), 8);
  out += "\n";
  for (size_t label = 0; label < s.classes(); ++label) {
    out += "  " + right_in(learning.name_of(static_cast<int64_t>(label)), kNameColumns);
    for (size_t c = 0; c < s.classes(); ++c) out += " " + right_in(grouped(static_cast<uint64_t>(s.said(label, c))), 8);
    out += "\n";
  }
  return out;
}

/// Of many labels: which are taken for which.
std::string confused_text(const Scores& s, const Learning& learning) {
  std::vector<std::tuple<int64_t, size_t, size_t>> pairs;
  for (size_t label = 0; label < s.classes(); ++label)
    for (size_t c = 0; c < s.classes(); ++c)
      if (c != label && s.said(label, c) > 0) pairs.emplace_back(-s.said(label, c), label, c);
  std::sort(pairs.begin(), pairs.end());
  std::string out;
  for (size_t i = 0; i < std::min(pairs.size(), kMostPairs); ++i) {
    const auto& [times, label, said] = pairs[i];
    out += "  " + grouped(static_cast<uint64_t>(-times)) + " times '" + learning.name_of(static_cast<int64_t>(label)) +
           "' was taken for '" + learning.name_of(static_cast<int64_t>(said)) + "'\n";
  }
  return out;
}

std::string counts_text(const Scores& s, const Learning& learning) {
  std::string out = "  " + right_in("", kNameColumns) + "    right   wrong  missed    F1\n";
  for (size_t c = 0; c < s.classes(); ++c) {
    const Scores::Counts of = s.counts(c);
    char line[96];
    std::snprintf(line, sizeof line, " %8lld%8lld%8lld  %.3f\n", static_cast<long long>(of.true_positive),
                  static_cast<long long>(of.false_positive), static_cast<long long>(of.false_negative), of.f1());
    out += "  " + right_in(learning.name_of(static_cast<int64_t>(c)), kNameColumns) + line;
  }
  return out;
}

}  // namespace

std::string scores_text(const Scores& s, const Learning& learning) {
  char text[160];
  std::snprintf(text, sizeof text, "accuracy %.4f%s, F1 %.4f (the mean over labels), of %s %s\n", s.accuracy(),
                s.several() ? " (all labels of a text right)" : "", s.f1(), grouped(static_cast<uint64_t>(s.places())).c_str(),
                learning.labels == Fill::TokenLabels ? "words" : "texts");
  if (s.several()) return text + counts_text(s, learning);
  return text + (s.classes() <= kMostColumns ? confusion_text(s, learning) : confused_text(s, learning));
}

Table scores_json(const Scores& s, const Learning& learning) {
  List labels, rows;
  for (size_t label = 0; label < s.classes(); ++label) {
    labels.emplace_back(learning.name_of(static_cast<int64_t>(label)));
    if (s.several()) {
      const Scores::Counts of = s.counts(label);
      rows.emplace_back(Table{{"true_positive", Value(of.true_positive)},
                              {"false_positive", Value(of.false_positive)},
                              {"false_negative", Value(of.false_negative)}});
      continue;
    }
    List row;
    for (size_t c = 0; c < s.classes(); ++c) row.emplace_back(s.said(label, c));
    rows.emplace_back(std::move(row));
  }
  return {{"labels", Value(std::move(labels))}, {s.several() ? "counts" : "confusion", Value(std::move(rows))}};
}

}  // namespace galley
