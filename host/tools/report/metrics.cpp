#include "host/tools/report/metrics.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <functional>

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

namespace {

/// Opens a file of lines that have a step, cut down to those of steps that are done. `line` is called for each of these.
Result<File> open_cut(const std::filesystem::path& path, int64_t steps_done, const std::function<void(const Table&)>& kept) {
  uint64_t keep = 0;
  std::error_code error;
  if (std::filesystem::exists(path, error) && steps_done > 0) {
    const std::string text = TRY(read_text(path, UINT64_C(1) << 34));
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find('\n', begin);
      if (end == std::string::npos) break;
      const auto line = parse_json(std::string_view(text).substr(begin, end - begin), path.string());
      const auto* step = line ? line->field<int64_t>("step") : nullptr;
      if (!step || *step > steps_done) break;
      kept(*line->as<Table>());
      begin = end + 1;
      keep = begin;
    }
  }
  File file = TRY(File::open_append(path));
  TRY_STATUS(file.truncate(keep));
  return file;
}

}  // namespace

Status MetricsFile::started(const StartEvent& start) {
  const std::filesystem::path path = start.directory / "metrics.jsonl";
  int64_t steps = 0;  // that have their line
  file_.emplace(TRY(open_cut(path, start.steps_done, [&](const Table& line) { steps += line.contains("loss"); })));
  if (steps < start.steps_done)
    log(LogLevel::Warning, path.string() + " has the losses of " + std::to_string(steps) + " of the " + std::to_string(start.steps_done) +
                               " steps that are done; it was changed, or a disk lost it. The run goes on, and its curve has a gap");
  return ok();
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

Status MetricsFile::written(const TextsEvent& t) {
  Line line(line_);
  line.add("step", t.step);
  if (t.match) line.add("match", *t.match);
  line.add("samples", static_cast<int64_t>(t.texts.size())).seconds(t.seconds);
  return file_->write(line.end());
}

Table written_json(const WrittenText& text) {
  Table out = {{"prompt", Value(text.prompt)}, {"text", Value(text.text)}, {"ended", Value(text.ended)}, {"tokens", Value(text.tokens)}};
  if (text.expected) out.emplace("expected", Value(*text.expected));
  if (text.match) out.emplace("match", Value(*text.match));
  return out;
}

Status GeneratedFile::started(const StartEvent& start) {
  if (start.study.recipe.evaluate.prompts.empty()) return ok();
  file_.emplace(TRY(open_cut(start.directory / "generated.jsonl", start.steps_done, [](const Table&) {})));
  return ok();
}

Status GeneratedFile::written(const TextsEvent& t) {
  std::string lines;
  int64_t index = 0;
  for (const WrittenText& text : t.texts) {
    Table line = written_json(text);
    line.emplace("step", Value(t.step));
    line.emplace("index", Value(index++));
    lines += to_json(Value(std::move(line))) + "\n";
  }
  return file_->write(lines);
}

}  // namespace galley
