#include "host/exec/export.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "host/base/safetensors.hpp"
#include "host/base/tensor_files.hpp"
#include "host/exec/checksum.hpp"
#include "host/exec/convert.hpp"
#include "host/exec/folder.hpp"
#include "host/plan/dtype.hpp"

namespace galley {

Result<Exporter> Exporter::create(const Program& program, Machine& machine, const std::filesystem::path& run_directory) {
  Exporter exporter(program, machine, run_directory);
  std::map<std::string, std::vector<const Instruction*>> files;
  for (const Instruction& code : program.segment(SegmentKind::Export).code)
    if (code.write()) files[code.write()->file].push_back(&code);
  for (const auto& [file, writes] : files) TRY_STATUS(exporter.add(file, writes));
  return exporter;
}

Status Exporter::add(const std::string& file, const std::vector<const Instruction*>& writes) {
  std::vector<safetensors::Item> items;
  for (const Instruction* code : writes) {
    const Write& write = *code->write();
    const auto dtype = safetensors_dtype(write.dtype);
    if (!dtype)
      return plugin_error(file + ": tensor '" + write.entry + "' is " + dtype_name(write.dtype) + ", which safetensors files cannot hold");
    items.push_back({write.entry, *dtype, code->inputs[0].shape});
  }
  const std::filesystem::path path = run_directory_ / file;
  TRY_STATUS(make_directories(path.parent_path()));

  NewFile made = TRY(NewFile::beside(path));
  Output output = {std::move(made), {}};
  (void)TRY(safetensors::Writer::create(TRY(output.made.file().duplicate()), items));  // the header
  for (const auto& [name, place] : TRY(safetensors::Writer::places(std::move(items))))
    output.slots[name] = {place.begin, place.bytes, place.bytes == 0};
  outputs_.emplace(file, std::move(output));
  return ok();
}

namespace {

/// Adds up what conversion takes from numbers.
class Loss {
 public:
  void add(const std::byte* before, uint32_t from, const std::byte* after, uint32_t to, int64_t count) {
    constexpr int64_t kAtOnce = 1024;
    std::array<double, kAtOnce> x, y;
    for (int64_t at = 0; at < count; at += kAtOnce) {
      const int64_t n = std::min(kAtOnce, count - at);
      convert(x.data(), GALLEY_F64, before + at * galley_dtype_bytes(from), from, n);
      convert(y.data(), GALLEY_F64, after + at * galley_dtype_bytes(to), to, n);
      for (int64_t i = 0; i < n; ++i) {
        all_ += x[i] * x[i];
        lost_ += (x[i] - y[i]) * (x[i] - y[i]);
      }
    }
  }
  double relative() const { return lost_ > 0 ? std::sqrt(lost_ / all_) : 0; }
  double norm() const { return std::sqrt(lost_); }

 private:
  double all_ = 0, lost_ = 0;
};

}  // namespace

Status Exporter::write(const Instruction& code) {
  if (failed_) return ok();
  Status written = write_file(code);
  if (written || !exchanges_) return written;
  failed_ = std::move(written).error();
  return ok();
}

Status Exporter::write_file(const Instruction& code) {
  const Write& to_file = *code.write();
  const auto file = outputs_.find(to_file.file);
  if (file == outputs_.end()) return plugin_error(to_file.file + " was not announced by an instruction of the export segment");
  Output& output = file->second;
  Slot& slot = output.slots.at(to_file.entry);
  const Operand& operand = code.inputs[0];
  uint64_t at = slot.offset;
  Checksum sum;
  const auto put_all = [&](std::span<const std::byte> bytes) -> Status {
    TRY_STATUS(output.made.file().write_at(bytes, at));
    sum.add(bytes);
    at += bytes.size();
    return ok();
  };
  const uint32_t from = operand.dtype, to = to_file.dtype;
  const int64_t from_bytes = galley_dtype_bytes(from), to_bytes = galley_dtype_bytes(to);
  int64_t done = 0;
  Loss loss;
  TRY_STATUS(machine_->show(operand.tensor, operand.offset, operand.bytes(), [&](std::span<const std::byte> bytes) -> Status {
    if (from == to) return put_all(bytes);
    while (!bytes.empty()) {
      std::array<std::byte, size_t{1} << 15> converted;
      const int64_t count = std::min(static_cast<int64_t>(bytes.size()) / from_bytes, static_cast<int64_t>(converted.size()) / to_bytes);
      convert(converted.data(), to, bytes.data(), from, count);
      if (const int64_t bad = first_not_finite(converted.data(), to, count);
          bad >= 0 && bad != first_not_finite(bytes.data(), from, count)) {
        double value = 0;
        convert(&value, GALLEY_F64, bytes.data() + bad * from_bytes, from, 1);
        return run_error(to_file.file + ": tensor '" + to_file.entry + "', element " + std::to_string(done + bad) + ": " +
                             short_number(value) + " does not fit " + dtype_name(to),
                         "save it in bf16 or f32: `galley export RUN --dtype bf16 --out DIR` does so for a run that is over");
      }
      loss.add(bytes.data(), from, converted.data(), to, count);
      TRY_STATUS(put_all(std::span(converted).first(static_cast<size_t>(count * to_bytes))));
      done += count;
      bytes = bytes.subspan(static_cast<size_t>(count * from_bytes));
    }
    return ok();
  }));
  slot.written = true;
  slot.checksum = sum.value();
  if (to_bytes >= from_bytes) return ok();
  Rounded& rounded = rounded_.emplace_back(Rounded{to_file.file, to_file.entry, to, done, loss.relative(), loss.norm(), {}});
  if (code.inputs.size() < 2) {
    rounded.trained = TRY(norm_since_file(operand, to_file.entry));
    return ok();
  }
  rounded.trained = TRY(
      norm_of_change(operand, [&](int64_t from_number, std::span<double> numbers) { return read(code.inputs[1], from_number, numbers); }));
  return ok();
}

Status Exporter::read(const Operand& operand, int64_t at, std::span<double> numbers) {
  const int64_t size = galley_dtype_bytes(operand.dtype);
  std::vector<std::byte> bytes(numbers.size() * static_cast<size_t>(size));
  TRY_STATUS(machine_->get(operand.tensor, operand.offset + at * size, bytes));
  convert(numbers.data(), GALLEY_F64, bytes.data(), operand.dtype, static_cast<int64_t>(numbers.size()));
  return ok();
}

Result<double> Exporter::norm_of_change(const Operand& value, const Before& before) {
  constexpr int64_t kAtOnce = 1 << 16;
  const int64_t count = elements(value.shape);
  std::vector<double> x(kAtOnce), y(kAtOnce);
  double sum = 0;
  for (int64_t at = 0; at < count; at += kAtOnce) {
    const auto n = static_cast<size_t>(std::min(kAtOnce, count - at));
    TRY_STATUS(read(value, at, std::span(x).first(n)));
    TRY_STATUS(before(at, std::span(y).first(n)));
    for (size_t i = 0; i < n; ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
  }
  return std::sqrt(sum);
}

Result<std::optional<double>> Exporter::norm_since_file(const Operand& value, const std::string& entry) {
  const std::optional<double> none;
  const std::vector<Instruction>& load = program_->segment(SegmentKind::Load).code;
  const auto from = std::ranges::find_if(load, [&](const Instruction& i) { return i.read() && i.read()->entry == entry; });
  if (from == load.end() || !from->read()->form.plain()) return none;
  const auto files = tensor_files::Reader::open(from->read()->file);
  const tensor_files::Entry* found = files ? files->find(entry) : nullptr;
  const uint32_t dtype = found ? dtype_of(found->dtype) : 0;
  if (!found || found->shape != value.shape || !convertible(dtype, GALLEY_F64)) return none;
  const auto size = static_cast<uint64_t>(galley_dtype_bytes(dtype));
  std::vector<std::byte> bytes;
  return std::optional(TRY(norm_of_change(value, [&](int64_t at, std::span<double> numbers) -> Status {
    bytes.resize(numbers.size() * size);
    TRY_STATUS(files->read_bytes(*found, static_cast<uint64_t>(at) * size, bytes));
    convert(numbers.data(), GALLEY_F64, bytes.data(), dtype, static_cast<int64_t>(numbers.size()));
    return ok();
  })));
}

uint64_t checksum_of_tensors(const std::map<std::string, uint64_t>& checksums) {
  std::string text;
  for (const auto& [name, sum] : checksums) text += name + "\n" + hexadecimal(sum) + "\n";
  return checksum(text);
}

std::map<std::string, uint64_t> Exporter::checksums() const {
  std::map<std::string, uint64_t> out;
  for (const auto& [file, output] : outputs_) {
    std::map<std::string, uint64_t> tensors;
    for (const auto& [entry, slot] : output.slots) tensors[entry] = slot.checksum;
    out[file] = checksum_of_tensors(tensors);
  }
  return out;
}

Status Exporter::finish() {
  if (failed_) return *failed_;
  for (auto& [file, output] : outputs_) {
    for (const auto& [entry, slot] : output.slots)
      if (!slot.written)
        return run_error("cannot finish '" + output.made.file().path().string() + "': tensor '" + entry + "' was not written");
    TRY_STATUS(output.made.file().sync());
  }
  for (const Document& document : program_->documents) {
    const std::filesystem::path path = run_directory_ / document.file;
    TRY_STATUS(make_directories(path.parent_path()));
    TRY_STATUS(write_atomic(path, document.text));
  }
  for (auto& [file, output] : outputs_) TRY_STATUS(output.made.finish());
  return ok();
}

}  // namespace galley
