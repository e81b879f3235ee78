#include "host/tools/report/metrics.hpp"

#include <array>
#include <charconv>
#include <cmath>

#include "host/base/json.hpp"
#include "host/base/log.hpp"

namespace galley {
namespace {

/// In the fewest digits that come back the same. JSON has no NaN and no infinity: they become null, and the run says elsewhere what
/// happened.
std::string_view number(std::array<char, 32>& text, double value) {
  if (!std::isfinite(value)) return "null";
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), static_cast<size_t>(end.ptr - text.data())};
}

/// A line of JSON; it keeps its memory.
class Line {
 public:
  explicit Line(std::string& text) : text_(text) { text_ = "{"; }
  Line& add(std::string_view name, std::string_view value) {
    text_.append(text_.size() > 1 ? ", \"" : "\"").append(name).append("\": ").append(value);
    return *this;
  }
  Line& add(std::string_view name, double value) {
    std::array<char, 32> text;
    return add(name, number(text, value));
  }
  Line& add(std::string_view name, int64_t value) {
    std::array<char, 32> text;
    const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
    return add(name, std::string_view(text.data(), static_cast<size_t>(end.ptr - text.data())));
  }
  /// Times are no more exact than microseconds.
  Line& seconds(double value) { return add("seconds", std::round(value * 1e6) / 1e6); }
  std::string_view end() { return text_.append("}\n"); }

 private:
  std::string& text_;
};

}  // namespace

Status MetricsFile::started(const StartEvent& start) {
  const std::filesystem::path path = start.directory / "metrics.jsonl";
  uint64_t keep = 0;
  int64_t steps = 0;  // that have their line
  std::error_code error;
  if (std::filesystem::exists(path, error) && start.steps_done > 0) {
    const std::string text = TRY(read_text(path, UINT64_C(1) << 34));
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find('\n', begin);
      if (end == std::string::npos) break;
      const auto line = parse_json(std::string_view(text).substr(begin, end - begin), path.string());
      const auto* step = line ? line->field<int64_t>("step") : nullptr;
      if (!step || *step > start.steps_done) break;
      steps += line->as<Table>()->contains("loss");
      begin = end + 1;
      keep = begin;
    }
  }
  if (steps < start.steps_done)
    log(LogLevel::Warning, path.string() + " has the losses of " + std::to_string(steps) + " of the " + std::to_string(start.steps_done) +
                               " steps that are done; it was changed, or a disk lost it. The run goes on, and its curve has a gap");
  file_.emplace(TRY(File::open_append(path)));
  return file_->truncate(keep);
}

Status MetricsFile::step(const StepEvent& m) {
  Line line(line_);
  line.add("step", m.step);
  if (m.epoch > 0) line.add("epoch", m.epoch);
  line.add("loss", m.loss).add("grad_norm", m.grad_norm).add("lr", m.lr).add("tokens", m.tokens).add("positions", m.positions);
  line.seconds(m.seconds);
  if (!m.applied) line.add("skipped", "true");
  for (const ReportedMetric& metric : m.reported) line.add(metric.name, metric.value);  // names have no character that JSON escapes
  return file_->write(line.end());
}

Status MetricsFile::validated(const ValidationEvent& v) {
  Line line(line_);
  line.add("step", v.step).add("validation_loss", v.loss);
  for (const ReportedMetric& metric : v.reported) line.add(metric.name, metric.value);
  line.seconds(v.seconds);
  if (v.best) line.add("best", "true");
  return file_->write(line.end());
}

}  // namespace galley
