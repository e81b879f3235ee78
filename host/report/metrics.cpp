#include "host/report/metrics.hpp"

#include <cmath>
#include <cstdio>

#include "host/base/json.hpp"

namespace galley {
namespace {

/// JSON has no NaN and no infinity: they become null, and the run says elsewhere what happened.
const char* number(char (&text)[32], double value) {
  if (!std::isfinite(value)) return "null";
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

}  // namespace

Status MetricsFile::started(const StartEvent& start) {
  const std::filesystem::path path = start.directory / "metrics.jsonl";
  uint64_t keep = 0;
  std::error_code error;
  if (std::filesystem::exists(path, error) && start.steps_done > 0) {
    const std::string text = TRY(read_text(path, UINT64_C(1) << 34));
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find('\n', begin);
      if (end == std::string::npos) break;
      const auto line = parse_json(std::string_view(text).substr(begin, end - begin), path.string());
      const Table* row = line ? line->as<Table>() : nullptr;
      const auto it = row ? row->find("step") : Table::const_iterator();
      const int64_t* step = row && it != row->end() ? it->second.as<int64_t>() : nullptr;
      if (!step || *step > start.steps_done) break;
      begin = end + 1;
      keep = begin;
    }
  }
  file_.emplace(TRY(File::open_append(path)));
  return file_->truncate(keep);
}

Status MetricsFile::step(const StepEvent& m) {
  char loss[32], norm[32], lr[32], line[256];
  const int n =
      std::snprintf(line, sizeof line, "{\"step\": %lld, \"loss\": %s, \"grad_norm\": %s, \"lr\": %s, \"tokens\": %lld, \"seconds\": %.6f",
                    static_cast<long long>(m.step), number(loss, m.loss), number(norm, m.grad_norm), number(lr, m.lr),
                    static_cast<long long>(m.tokens), m.seconds);
  line_.assign(line, static_cast<size_t>(n));
  if (!m.applied) line_.append(", \"skipped\": true");
  for (const ReportedMetric& metric : m.reported) {  // names have no character that JSON escapes
    line_.append(", \"").append(metric.name).append("\": ").append(number(loss, metric.value));
  }
  line_.append("}\n");
  return file_->write(line_);
}

Status MetricsFile::validated(const ValidationEvent& v) {
  char value[32], line[128];
  const int n = std::snprintf(line, sizeof line, "{\"step\": %lld, \"validation_loss\": %s}\n", static_cast<long long>(v.step),
                              number(value, v.loss));
  return file_->write(std::string_view(line, static_cast<size_t>(n)));
}

}  // namespace galley
