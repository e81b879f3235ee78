#include "host/tools/compare/results.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "host/base/json.hpp"
#include "host/exec/state.hpp"
#include "host/session/run_result.hpp"
#include "host/tools/compare/statistics.hpp"
#include "host/tools/compare/tensor_distance.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

Result<double> number_of(const Value& line, const char* name) {
  const auto* table = line.as<Table>();
  const auto found = table ? table->find(name) : Table::const_iterator();
  double out = std::nan("");  // JSON's null: a loss that is not finite
  if (table && found != table->end()) found->second.number(&out);
  return out;
}

/// The files of tensors that a run exports.
TensorFiles exported_files(const fs::path& run) {
  TensorFiles out;
  for (const char* folder : {"model", "adapter"}) {
    std::error_code error;
    for (fs::directory_iterator at(run / folder, error), end; !error && at != end; at.increment(error))
      if (at->path().extension() == ".safetensors") out.push_back(at->path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) || (std::isnan(a) && std::isnan(b)); }

double relative_difference(double a, double b) {
  const double out = std::fabs(a - b) / std::fabs(b);
  return a == b ? 0 : std::isfinite(out) ? out : HUGE_VAL;
}

double RunResult::final_loss() const {
  const size_t n = std::max<size_t>(1, losses.size() / 10);
  double sum = 0;
  for (size_t i = losses.size() - std::min(n, losses.size()); i < losses.size(); ++i) sum += losses[i];
  return losses.empty() ? std::nan("") : sum / static_cast<double>(std::min(n, losses.size()));
}

std::vector<std::optional<double>> RunResult::turn_seconds(int64_t turns) const {
  std::vector<std::optional<double>> out;
  int64_t begin = 0;
  for (int64_t turn = 0; turn < turns; ++turn) {
    const int64_t end = end_of_turn(static_cast<int64_t>(seconds.size()), turn, turns);
    out.push_back(end - begin > 1 ? median(std::span(seconds).subspan(static_cast<size_t>(begin) + 1, static_cast<size_t>(end - begin - 1)))
                                  : std::nullopt);
    begin = end;
  }
  return out;
}

Result<RunResult> read_result(const fs::path& run) {
  RunResult out;
  out.directory = run;
  const fs::path path = run / "metrics.jsonl";
  const std::string text = TRY(read_text(path, UINT64_C(1) << 34));
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const Value line = TRY(parse_json(std::string_view(text).substr(begin, end - begin), path.string()));
    begin = end + 1;
    const auto* step = line.field<int64_t>("step");
    if (!step) return run_error(path.string() + ": a line has no step", "remove the run's folder, and start the comparison again");
    if (line.as<Table>()->contains("validation_loss")) {
      out.validation[*step] = TRY(number_of(line, "validation_loss"));
      continue;
    }
    if (line.as<Table>()->contains("samples") && !line.as<Table>()->contains("loss")) continue;  // of texts that the model has written
    if (*step != static_cast<int64_t>(out.losses.size()) + 1)
      return run_error(
          path.string() + ": step " + std::to_string(*step) + " stands where step " + std::to_string(out.losses.size() + 1) + " has to be",
          "remove the run's folder, and start the comparison again");
    out.losses.push_back(TRY(number_of(line, "loss")));
    out.seconds.push_back(TRY(number_of(line, "seconds")));
    if (line.as<Table>()->contains("skipped")) out.skipped.push_back(*step);
    for (const auto& [name, sum] : {std::pair("positions", &out.positions), std::pair("tokens", &out.tokens)})
      if (const auto* count = line.field<int64_t>(name)) *sum += *count;
  }
  const auto usage = read_json(run / "usage.json");
  if (const auto* process = usage ? usage->field<Table>("process") : nullptr)
    if (const auto peak = process->find("resident_peak"); peak != process->end())
      if (const auto* bytes = peak->second.as<int64_t>()) out.resident = *bytes;
  return out;
}

Result<RunResult> verified_result(const fs::path& run, int64_t steps) {
  RunResult out = TRY(read_result(run));
  // A strategy may have ended it before: then that step is the newest state's.
  const auto latest = TRY(find_latest(run / "state"));
  const int64_t done = latest ? std::min(step_of(*latest), steps) : steps;
  if (static_cast<int64_t>(out.losses.size()) != done)
    return run_error((run / "metrics.jsonl").string() + ": it has " + std::to_string(out.losses.size()) + " of the run's " +
                         std::to_string(done) + " steps",
                     "remove the run's folder, and start the comparison again");
  TRY_STATUS(check_result(run, TRY(open_run(run))));
  return out;
}

Result<Difference> difference_of(const RunResult& a, const RunResult& b) {
  if (a.known && a.known->first == b.directory) return a.known->second;
  Difference out;
  const size_t steps = std::min(a.losses.size(), b.losses.size());
  for (size_t i = 0; i < steps; ++i) {
    if (same_bits(a.losses[i], b.losses[i])) continue;
    if (out.first_step == 0) out.first_step = static_cast<int64_t>(i) + 1;
    out.largest_loss = std::max(out.largest_loss, relative_difference(a.losses[i], b.losses[i]));
  }
  const Distances distances = TRY(tensor_distances(exported_files(a.directory), exported_files(b.directory)));
  out.alone = !distances.alone.empty();
  for (const auto& [name, d] : distances.tensors) {
    ++out.tensors;
    out.alike += d.alike;
    // Of codes only the bytes are compared.
    const double relative = !d.numbers || d.difference == 0 ? 0 : d.norm > 0 ? d.difference / d.norm : HUGE_VAL;
    if (relative <= out.largest_tensor) continue;
    out.largest_tensor = relative;
    out.tensor = name;
  }
  bool validations = a.validation.size() == b.validation.size();
  for (const auto& [step, loss] : a.validation) {
    const auto other = b.validation.find(step);
    validations = validations && other != b.validation.end() && same_bits(loss, other->second);
  }
  out.identical = out.first_step == 0 && a.losses.size() == b.losses.size() && validations && !out.alone && out.alike == out.tensors;
  a.known.emplace(b.directory, out);
  return out;
}

}  // namespace galley
