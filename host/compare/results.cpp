#include "host/compare/results.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "host/base/json.hpp"
#include "host/base/tensor_files.hpp"
#include "host/compare/statistics.hpp"
#include "host/exec/convert.hpp"
#include "host/plan/dtype.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

/// Numbers of two tensors at a time.
constexpr int64_t kPiece = 1 << 16;

Result<double> number_of(const Value& line, const char* name) {
  const auto* table = line.as<Table>();
  const auto found = table ? table->find(name) : Table::const_iterator();
  double out = std::nan("");  // JSON's null: a loss that is not finite
  if (table && found != table->end()) found->second.number(&out);
  return out;
}

/// The files of tensors that a run exports, relative to its directory.
std::vector<fs::path> exported_files(const fs::path& run) {
  std::vector<fs::path> out;
  for (const char* folder : {"model", "adapter"}) {
    std::error_code error;
    for (fs::directory_iterator at(run / folder, error), end; !error && at != end; at.increment(error))
      if (at->path().extension() == ".safetensors") out.push_back(fs::path(folder) / at->path().filename());
  }
  std::sort(out.begin(), out.end());
  return out;
}

struct Tensor {
  const tensor_files::Reader* file;
  const tensor_files::Entry* entry;
};

/// All tensors of a run by name; `files` owns what they are read from.
Result<std::map<std::string, Tensor>> tensors_of(const fs::path& run, std::vector<tensor_files::Reader>& files) {
  for (const fs::path& file : exported_files(run)) files.push_back(TRY(tensor_files::Reader::open(run / file)));
  std::map<std::string, Tensor> out;
  for (const tensor_files::Reader& file : files)
    for (const tensor_files::Entry& entry : file.entries()) out[entry.name] = {&file, &entry};
  return out;
}

/// ‖a − b‖ / ‖b‖, and whether the two are the same bytes.
Result<double> distance(const Tensor& a, const Tensor& b, bool* alike) {
  const uint64_t size_a = tensor_files::size_of(a.entry->dtype), size_b = tensor_files::size_of(b.entry->dtype);
  const auto count = static_cast<int64_t>(b.entry->bytes / size_b);
  *alike = a.entry->dtype == b.entry->dtype;
  double difference = 0, whole = 0;
  std::vector<std::byte> bytes_a, bytes_b;
  std::vector<double> x, y;
  for (int64_t at = 0; at < count; at += kPiece) {
    const auto n = static_cast<size_t>(std::min(kPiece, count - at));
    bytes_a.resize(n * size_a);
    bytes_b.resize(n * size_b);
    TRY_STATUS(a.file->read_bytes(*a.entry, static_cast<uint64_t>(at) * size_a, bytes_a));
    TRY_STATUS(b.file->read_bytes(*b.entry, static_cast<uint64_t>(at) * size_b, bytes_b));
    *alike = *alike && !std::memcmp(bytes_a.data(), bytes_b.data(), bytes_b.size());
    x.resize(n);
    y.resize(n);
    const uint32_t from_a = dtype_of(a.entry->dtype), from_b = dtype_of(b.entry->dtype);
    if (!convertible(from_a, GALLEY_F64) || !convertible(from_b, GALLEY_F64)) continue;  // codes: only their bytes are compared
    convert(x.data(), GALLEY_F64, bytes_a.data(), from_a, static_cast<int64_t>(n));
    convert(y.data(), GALLEY_F64, bytes_b.data(), from_b, static_cast<int64_t>(n));
    for (size_t i = 0; i < n; ++i) {
      difference += (x[i] - y[i]) * (x[i] - y[i]);
      whole += y[i] * y[i];
    }
  }
  if (difference == 0) return 0.0;
  return whole > 0 ? std::sqrt(difference / whole) : HUGE_VAL;
}

bool same_bits(double a, double b) { return !std::memcmp(&a, &b, sizeof a) || (std::isnan(a) && std::isnan(b)); }

}  // namespace

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

Result<Difference> difference_of(const RunResult& a, const RunResult& b) {
  if (a.known && a.known->first == b.directory) return a.known->second;
  Difference out;
  const size_t steps = std::min(a.losses.size(), b.losses.size());
  for (size_t i = 0; i < steps; ++i) {
    if (same_bits(a.losses[i], b.losses[i])) continue;
    if (out.first_step == 0) out.first_step = static_cast<int64_t>(i) + 1;
    const double difference = std::fabs(a.losses[i] - b.losses[i]) / std::fabs(b.losses[i]);
    out.largest_loss = std::max(out.largest_loss, std::isfinite(difference) ? difference : HUGE_VAL);
  }
  std::vector<tensor_files::Reader> files_a, files_b;
  const auto of_a = TRY(tensors_of(a.directory, files_a)), of_b = TRY(tensors_of(b.directory, files_b));
  for (const auto& [name, one] : of_a) {
    const auto other = of_b.find(name);
    if (other == of_b.end() || other->second.entry->shape != one.entry->shape) {
      ++out.alone;
      continue;
    }
    ++out.tensors;
    bool alike = false;
    const double distance_of = TRY(distance(one, other->second, &alike));
    out.alike += alike;
    if (distance_of <= out.largest_tensor) continue;
    out.largest_tensor = distance_of;
    out.tensor = name;
  }
  for (const auto& [name, one] : of_b) out.alone += !of_a.contains(name);
  bool validations = a.validation.size() == b.validation.size();
  for (const auto& [step, loss] : a.validation) {
    const auto other = b.validation.find(step);
    validations = validations && other != b.validation.end() && same_bits(loss, other->second);
  }
  out.identical = out.first_step == 0 && a.losses.size() == b.losses.size() && validations && out.alone == 0 && out.alike == out.tensors;
  a.known.emplace(b.directory, out);
  return out;
}

}  // namespace galley
