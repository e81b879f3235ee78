#include "host/exec/state.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <system_error>

#include "galley/checksum.h"
#include "host/base/file.hpp"
#include "host/base/safetensors.hpp"
#include "host/exec/checksum.hpp"
#include "host/exec/convert.hpp"
#include "host/exec/folder.hpp"
#include "host/exec/state_text.hpp"
#include "host/exec/summed_runs.hpp"
#include "host/plan/checksums.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTensors = "state.safetensors";
constexpr const char* kText = "state.toml";
constexpr const char* kAside = ".tmp-";

std::string folder_name(int64_t step) {
  std::string digits = std::to_string(step);
  if (digits.size() < 8) digits.insert(0, 8 - digits.size(), '0');
  return "step-" + digits;
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool is_whole(const fs::path& state) { return is_file(state / kText) && is_file(state / kTensors); }

Result<std::vector<std::string>> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (error && error != std::errc::no_such_file_or_directory) return file_error("list", folder, error.value());
  std::sort(names.begin(), names.end());
  return names;
}

// Returns the whole states by step, the oldest first.
Result<std::map<int64_t, fs::path>> whole_states(const fs::path& states) {
  std::map<int64_t, fs::path> found;
  for (const std::string& name : TRY(names_in(states)))
    if (const int64_t step = step_of(name); step >= 0 && is_whole(states / name)) found[step] = states / name;
  return found;
}

// A folder that is no state from the first call on; of a link, the link only.
Status remove_folder(const fs::path& folder) {
  std::error_code error;
  const bool link = fs::is_symlink(fs::symlink_status(folder, error));
  if (!link && ::unlink((folder / kText).c_str()) == 0) TRY_STATUS(sync_directory(folder));
  fs::remove_all(folder, error);
  if (error) return file_error("remove", folder, error.value());
  return sync_directory(folder.parent_path());
}

// Every bit of a tensor is kept; which of two dtypes of one size a file calls them does not matter.
safetensors::Dtype state_dtype(uint32_t dtype) {
  if (dtype == GALLEY_U16) return safetensors::Dtype::I16;
  if (dtype == GALLEY_U32) return safetensors::Dtype::I32;
  if (dtype == GALLEY_U64) return safetensors::Dtype::I64;
  return safetensors_dtype(dtype).value_or(safetensors::Dtype::U8);
}

const ProgramTensor& tensor_of(const Program& program, TensorId id) { return program.tensors[static_cast<size_t>(id)]; }

std::vector<safetensors::Item> items_of(const Program& program) {
  std::vector<safetensors::Item> items;
  for (const auto& [name, id] : program.resume) {
    const ProgramTensor& tensor = tensor_of(program, id);
    items.push_back({name, state_dtype(tensor.dtype), tensor.is_part() ? tensor.whole : tensor.shape});
  }
  return items;
}

uint64_t checksum_of(const ProgramTensor& tensor, uint64_t sum) { return galley_checksum_begin(whole_bytes(tensor)) + sum; }

/// Writes what this process has: its parts, and if it leads what is whole. `sums` gets what they add to the checksums, in the order of
/// Program::resume.
Status write_tensors(const fs::path& path, const Program& program, Machine& machine, bool leads, std::span<uint64_t> sums) {
  const auto places = TRY(safetensors::Writer::places(items_of(program)));
  File file = TRY(File::open_write(path));
  for (size_t i = 0; i < sums.size(); ++i) {
    const auto& [name, id] = program.resume[i];
    const ProgramTensor& tensor = tensor_of(program, id);
    if (tensor.is_part() ? !program.counts(tensor) : !leads) continue;
    SummedRuns summed(tensor);
    const uint64_t begin = places.at(name).begin;
    TRY_STATUS(machine.show(id, [&](std::span<const std::byte> bytes) {
      return summed.each(bytes,
                         [&](int64_t at, std::span<const std::byte> run) { return file.write_at(run, begin + static_cast<uint64_t>(at)); });
    }));
    sums[i] = summed.sum();
  }
  return file.sync();
}

/// Makes the folder with a file that has the header.
Status begin_state(const fs::path& folder, const Program& program) {
  if (::mkdir(folder.c_str(), 0777) != 0) return file_error("create", folder, errno);
  (void)TRY(safetensors::Writer::create(folder / kTensors, items_of(program)));
  return ok();
}

Status end_state(const fs::path& folder, const StateInfo& info, const Program& program, std::span<const uint64_t> sums) {
  std::map<std::string, uint64_t> checksums;
  for (size_t i = 0; i < sums.size(); ++i)
    checksums[program.resume[i].first] = checksum_of(tensor_of(program, program.resume[i].second), sums[i]);
  File text = TRY(File::create(folder / kText));
  TRY_STATUS(text.write(state_text(info, checksums)));
  TRY_STATUS(text.sync());
  return sync_directory(folder);
}

Error damaged(const fs::path& state, const std::string& what) {
  return run_error(state.string() + ": " + what,
                   "this state is damaged; delete its folder, and the run continues from the state before it");
}

}  // namespace

int64_t step_of(const fs::path& state) {
  const std::string name = state.filename().string();
  if (!name.starts_with("step-") || name.size() < 13 || name.size() > 22) return -1;
  int64_t step = 0;
  for (const char c : std::string_view(name).substr(5)) {
    if (c < '0' || c > '9') return -1;
    step = step * 10 + (c - '0');
  }
  return step;
}

Status save_state(const fs::path& states, int64_t keep, const StateInfo& info, const Program& program, Machine& machine,
                  const Together& together) {
  const std::string name = folder_name(info.attempted);
  const fs::path folder = states / name, aside = states / (kAside + name);
  uint64_t saves = 0;
  const auto begin = [&]() -> Status {
    TRY_STATUS(make_directories(states));
    if (is_whole(folder)) return ok();
    std::error_code error;
    for (const fs::path& old : {folder, aside})
      if (fs::exists(fs::symlink_status(old, error))) TRY_STATUS(remove_folder(old));
    saves = 1;
    return begin_state(aside, program);
  };
  Status done = together.first_error(together.leads ? begin() : ok());
  if (done) done = together.add_up({&saves, 1});
  if (done && saves) {
    std::vector<uint64_t> sums(program.resume.size());
    done = together.first_error(write_tensors(aside / kTensors, program, machine, together.leads, sums));
    if (done) done = together.add_up(sums);
    if (done && together.leads) {
      done = end_state(aside, info, program, sums);
      if (done) done = rename_synced(aside, folder);
    }
    done = together.first_error(std::move(done));
  }
  if (done) return together.first_error(together.leads ? clean_states(states, keep) : ok());
  std::error_code error;
  if (together.leads && saves) fs::remove_all(aside, error);
  return done;
}

Result<std::optional<fs::path>> find_latest(const fs::path& states) {
  const auto found = TRY(whole_states(states));
  if (found.empty()) return std::optional<fs::path>();
  return std::optional(found.rbegin()->second);
}

Status clean_states(const fs::path& states, int64_t keep) {
  const auto whole = TRY(whole_states(states));
  const int64_t surplus = static_cast<int64_t>(whole.size()) - std::max<int64_t>(1, keep);
  int64_t removed = 0;
  for (const auto& [step, folder] : whole)
    if (removed++ < surplus) TRY_STATUS(remove_folder(folder));
  for (const std::string& name : TRY(names_in(states))) {
    const bool broken = step_of(name) >= 0 && !is_whole(states / name);
    if (broken || name.starts_with(kAside)) TRY_STATUS(remove_folder(states / name));
  }
  return ok();
}

Result<StateInfo> read_state(const fs::path& state) {
  const std::string text = TRY(read_text(state / kText));
  return TRY(parse_state(text, state / kText)).info;
}

namespace {

/// Reads what this process has. `sums` gets what it adds to the checksums, in the order of Program::resume.
Status read_tensors(const fs::path& file, const fs::path& state, const Program& program, Machine& machine, StateTensors tensors,
                    std::span<uint64_t> sums) {
  Result<tensor_files::Reader> opened = tensor_files::Reader::open(file);
  if (!opened.ok()) return damaged(state, opened.error().cause);
  const tensor_files::Reader& reader = *opened;
  if (tensors == StateTensors::All && reader.entries().size() != program.resume.size()) {
    return run_error(file.string() + ": has " + std::to_string(reader.entries().size()) + " tensors, the run keeps " +
                         std::to_string(program.resume.size()),
                     "the state belongs to another recipe or to another version of its plugins");
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    const auto& [name, id] = program.resume[i];
    const ProgramTensor& tensor = tensor_of(program, id);
    const tensor_files::Entry* entry = reader.find(name);
    if (!entry)
      return run_error(file.string() + ": tensor '" + name + "' is missing",
                       "the state belongs to another recipe or to another version of its plugins");
    const safetensors::Dtype dtype = state_dtype(tensor.dtype);
    const Shape& shape = tensor.is_part() ? tensor.whole : tensor.shape;
    if (entry->shape != shape || entry->dtype != dtype) {
      return run_error(file.string() + ": tensor '" + name + "' is " + tensor_files::describe(entry->dtype, entry->shape) +
                       ", the run has " + tensor_files::describe(dtype, shape));
    }
    SummedRuns summed(tensor);
    TRY_STATUS(machine.fill(id, 0, tensor.bytes, [&](std::span<std::byte> bytes) {
      return summed.each(bytes,
                         [&](int64_t at, std::span<std::byte> run) { return reader.read_bytes(*entry, static_cast<uint64_t>(at), run); });
    }));
    sums[i] = summed.sum();
  }
  return ok();
}

}  // namespace

Status load_state(const fs::path& state, const Program& program, Machine& machine, StateTensors tensors, const Together& together) {
  std::vector<uint64_t> sums(program.resume.size());
  Status read = read_tensors(state / kTensors, state, program, machine, tensors, sums);
  std::vector<size_t> parts;
  for (size_t i = 0; i < sums.size(); ++i)
    if (tensor_of(program, program.resume[i].second).is_part()) parts.push_back(i);
  if (!parts.empty()) {
    TRY_STATUS(together.first_error(std::move(read)));
    std::vector<uint64_t> all;
    for (const size_t i : parts) all.push_back(program.counts(tensor_of(program, program.resume[i].second)) ? sums[i] : 0);
    TRY_STATUS(together.add_up(all));
    for (size_t k = 0; k < parts.size(); ++k) sums[parts[k]] = all[k];
    read = ok();
  }
  TRY_STATUS(std::move(read));
  const std::string lines = TRY(read_text(state / kText));
  const StateText text = TRY(parse_state(lines, state / kText));
  for (size_t i = 0; i < sums.size(); ++i) {
    const auto& [name, id] = program.resume[i];
    const uint64_t sum = checksum_of(tensor_of(program, id), sums[i]);
    const auto saved = text.checksums.find(name);
    if (saved == text.checksums.end()) return damaged(state, "state.toml has no checksum of '" + name + "'");
    if (saved->second != sum)
      return damaged(state,
                     "tensor '" + name + "' has the checksum " + hexadecimal(sum) + " and was saved with " + hexadecimal(saved->second));
  }
  return ok();
}

}  // namespace galley
