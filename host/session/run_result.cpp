#include "host/session/run_result.hpp"

#include <toml++/toml.h>
#include <algorithm>
#include <vector>

#include "host/base/json.hpp"
#include "host/base/new_file.hpp"
#include "host/base/tensor_files.hpp"
#include "host/exec/checksum.hpp"
#include "host/exec/export.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMetrics = "metrics.jsonl";
constexpr size_t kAtOnce = size_t{1} << 20;

std::string identity(const RecipeInput& recipe) { return hexadecimal(checksum(recipe.with_arguments())); }

Result<std::string> of_bytes(const fs::path& path) {
  const File file = TRY(File::open_read(path));
  const uint64_t size = TRY(file.size());
  Checksum sum;
  std::vector<std::byte> bytes(std::min<uint64_t>(size, kAtOnce));
  for (uint64_t at = 0; at < size; at += bytes.size()) {
    bytes.resize(std::min<uint64_t>(size - at, kAtOnce));
    TRY_STATUS(file.read_at(bytes, at));
    sum.add(bytes);
  }
  return hexadecimal(sum.value());
}

Result<std::string> of_tensors(const fs::path& path) {
  const auto reader = TRY(tensor_files::Reader::open(path));
  std::map<std::string, uint64_t> sums;
  std::vector<std::byte> bytes;
  for (const tensor_files::Entry& entry : reader.entries()) {
    Checksum sum;
    for (uint64_t at = 0; at < entry.bytes; at += bytes.size()) {
      bytes.resize(std::min<uint64_t>(entry.bytes - at, kAtOnce));
      TRY_STATUS(reader.read_bytes(entry, at, bytes));
      sum.add(bytes);
    }
    sums[entry.name] = sum.value();
  }
  return hexadecimal(checksum_of_tensors(sums));
}

Error broken(const fs::path& file, const char* what) {
  return run_error(file.string() + what, "remove the run's folder, and it is trained again");
}

}  // namespace

Status write_result(const fs::path& directory, const RecipeInput& recipe, const std::map<std::string, uint64_t>& exported) {
  std::string text = "# What the run has left: `galley compare` holds its files against these checksums.\nrun = ";
  text += json_quote(identity(recipe)) + "\n\n[files]\n";
  std::error_code error;
  if (fs::exists(directory / kMetrics, error))
    text += json_quote(kMetrics) + " = " + json_quote(TRY(of_bytes(directory / kMetrics))) + "\n";
  for (const auto& [file, sum] : exported) text += json_quote(file) + " = " + json_quote(hexadecimal(sum)) + "\n";
  return write_atomic(directory / kResultFile, text);
}

Status check_result(const fs::path& directory, const RunRecord& record) {
  const fs::path path = directory / kResultFile;
  const toml::parse_result parsed = toml::parse(TRY(read_text(path)), path.string());
  const toml::table* files = parsed ? parsed.table()["files"].as_table() : nullptr;
  if (!files) return broken(path, ": this is not what a run has left");
  if (parsed.table()["run"].value_or(std::string()) != identity(record.input))
    return broken(path, " is that of another run, with another recipe or other arguments");
  for (const auto& [name, sum] : *files) {
    const fs::path file = directory / std::string(name.str());
    const Result<std::string> now = name.str() == kMetrics ? of_bytes(file) : of_tensors(file);
    if (!now) return broken(file, (": " + now.error().cause).c_str());
    if (sum.value_or(std::string()) != *now) return broken(file, " is not what the run has written: it has changed since");
  }
  return ok();
}

}  // namespace galley
