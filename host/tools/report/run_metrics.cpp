#include "host/tools/report/run_metrics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "host/base/file.hpp"
#include "host/base/json.hpp"

namespace galley {
namespace {

constexpr double kAbsent = std::numeric_limits<double>::quiet_NaN();  // as null: a number that is not finite
using Columns = std::map<std::string, std::vector<double>>;

/// Whole numbers stay whole: a step is 3, not 3.0.
Value number_value(double x) {
  if (!std::isfinite(x)) return {};
  if (x == std::floor(x) && std::fabs(x) < 9e15) return Value(static_cast<int64_t>(x));
  return Value(x);
}

/// Puts a line's numbers into row `row` of the columns of their names. What is no number ("skipped": true) has none.
void put_row(Columns* columns, size_t row, const Table& line) {
  for (const auto& [name, value] : line) {
    double x = kAbsent;
    if (!value.number(&x) && !value.is_nil()) continue;
    std::vector<double>& column = (*columns)[name];
    column.resize(row, kAbsent);
    column.push_back(x);
  }
}

/// Means of `every` entries in a row of those that are there; of steps the last one.
List thinned(const std::vector<double>& column, size_t every, bool last) {
  List out;
  for (size_t begin = 0; begin < column.size(); begin += every) {
    const size_t end = std::min(begin + every, column.size());
    double sum = 0;
    int64_t count = 0;
    for (size_t i = begin; i < end; ++i)
      if (std::isfinite(column[i])) sum += column[i], ++count;
    out.push_back(number_value(last ? column[end - 1] : count ? sum / static_cast<double>(count) : kAbsent));
  }
  return out;
}

/// Of the steps after the first, which is slower than the others.
Value speed_of(const Columns& columns) {
  const auto positions = columns.find("positions"), seconds = columns.find("seconds");
  if (positions == columns.end() || seconds == columns.end()) return {};
  std::vector<double> speeds;
  for (size_t i = 1; i < positions->second.size(); ++i)
    if (const double speed = positions->second[i] / seconds->second[i]; std::isfinite(speed)) speeds.push_back(speed);
  if (speeds.empty()) return {};
  std::sort(speeds.begin(), speeds.end());
  const auto at = [&](double share) {
    return Value(speeds[static_cast<size_t>(std::lround(share * static_cast<double>(speeds.size() - 1)))]);
  };
  return Value(Table{{"median", at(0.5)}, {"low", at(0.1)}, {"high", at(0.9)}});
}

}  // namespace

Result<RunMetrics> read_run_metrics(const std::filesystem::path& run, size_t most) {
  const std::filesystem::path path = run / "metrics.jsonl";
  std::error_code error;
  const std::string text = std::filesystem::exists(path, error) ? TRY(read_text(path, UINT64_C(1) << 34)) : std::string();
  Columns columns;
  RunMetrics out;
  Columns validations = {{"step", {}}, {"validation_loss", {}}};
  List evaluation_steps, matches, samples;
  size_t steps = 0, validated = 0;
  int64_t skipped = 0, number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const auto parsed = parse_json(std::string_view(text).substr(begin, end - begin), path.string());
    begin = end + 1;
    ++number;
    if (!parsed || !parsed->field<int64_t>("step"))
      return run_error(path.string() + ":" + std::to_string(number) + ": " + (parsed ? "the line has no step" : "the line is no JSON"),
                       "the file is not as Galley wrote it: remove what is after the last good line, or report another run");
    const Value& line = *parsed;
    const auto* entries = line.as<Table>();
    if (entries->contains("validation_loss")) {
      put_row(&validations, validated++, *entries);
      continue;
    }
    if (entries->contains("samples") && !entries->contains("loss")) {
      double x = kAbsent;
      if (const auto match = entries->find("match"); match == entries->end() || !match->second.number(&x)) continue;
      evaluation_steps.push_back(entries->at("step"));
      matches.push_back(number_value(x));
      samples.push_back(entries->at("samples"));
      continue;
    }
    skipped += entries->contains("skipped");
    put_row(&columns, steps++, *entries);
    for (auto& [name, column] : columns) column.resize(steps, kAbsent);
  }
  if (steps == 0) return recipe_error(run.string() + ": this run has no steps yet", "let it come to its first step");
  const size_t every = (steps + most - 1) / most;
  const double last_loss = columns.contains("loss") ? columns["loss"].back() : kAbsent;
  Table kept;
  for (const auto& [name, column] : columns) kept[name] = Value(thinned(column, every, name == "step"));
  out.steps = {{"steps", Value(static_cast<int64_t>(steps))},
               {"every", Value(static_cast<int64_t>(every))},
               {"last_loss", number_value(last_loss)},
               {"skipped", Value(skipped)},
               {"speed", speed_of(columns)},
               {"columns", Value(std::move(kept))}};
  validations.erase("seconds");
  for (auto& [name, column] : validations) {
    column.resize(validated, kAbsent);
    out.validation[name == "validation_loss" ? "loss" : name] = Value(thinned(column, 1, true));
  }
  out.evaluation = {
      {"step", Value(std::move(evaluation_steps))}, {"match", Value(std::move(matches))}, {"samples", Value(std::move(samples))}};
  return out;
}

}  // namespace galley
