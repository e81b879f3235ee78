#include "host/exec/export.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "host/base/file.hpp"
#include "host/base/safetensors.hpp"
#include "host/exec/convert.hpp"
#include "host/exec/folder.hpp"

namespace galley {

Exporter::Output::Output(Output&& other) noexcept
    : fd(std::exchange(other.fd, -1)), path(std::move(other.path)), aside(std::move(other.aside)), slots(std::move(other.slots)) {}

Exporter::Output::~Output() {
  if (fd >= 0) ::close(fd);
}

Exporter::~Exporter() {
  for (const auto& [file, output] : outputs_)
    if (output.fd >= 0) ::unlink(output.aside.c_str());
}

Result<Exporter> Exporter::create(const Program& program, Machine& machine, const std::filesystem::path& run_directory) {
  Exporter exporter(program, machine, run_directory);
  std::map<std::string, std::vector<const Instruction*>> files;
  for (const Instruction& code : program.segment(SegmentKind::Export).code)
    if (code.action == Action::Write) files[code.file].push_back(&code);
  for (const auto& [file, writes] : files) TRY_STATUS(exporter.add(file, writes));
  return exporter;
}

Status Exporter::add(const std::string& file, const std::vector<const Instruction*>& writes) {
  std::vector<safetensors::Item> items;
  for (const Instruction* code : writes) {
    const Operand& operand = code->inputs[0];
    const auto dtype = stored_dtype(operand.dtype);
    if (!dtype)
      return plugin_error(file + ": tensor '" + code->entry + "' is " + dtype_name(operand.dtype) +
                          ", which safetensors files cannot hold");
    items.push_back({code->entry, *dtype, operand.shape});
  }
  const std::filesystem::path path = run_directory_ / file;
  std::filesystem::path aside = path;
  aside += ".tmp";
  TRY_STATUS(make_directories(path.parent_path()));

  // The writer makes the header and fixes the order; it expects the data in that order, which the program's need not be.
  std::vector<safetensors::Item> ordered;
  {
    Result<safetensors::Writer> writer = safetensors::Writer::create(aside, items);
    if (!writer.ok()) {
      ::unlink(aside.c_str());
      return std::move(writer).error();
    }
    ordered.assign(writer->items().begin(), writer->items().end());
  }
  Output output(::open(aside.c_str(), O_WRONLY | O_CLOEXEC));
  if (output.fd < 0) return file_error("open", aside, errno);
  output.path = path;
  output.aside = aside;
  uint64_t data = 0;
  for (const safetensors::Item& item : ordered) data += TRY(safetensors::tensor_bytes(item.dtype, item.shape));
  uint64_t at = TRY(safetensors::Writer::file_bytes(ordered)) - data;
  for (const safetensors::Item& item : ordered) {
    const uint64_t bytes = TRY(safetensors::tensor_bytes(item.dtype, item.shape));
    output.slots[item.name] = {at, bytes, bytes == 0};
    at += bytes;
  }
  outputs_.emplace(file, std::move(output));
  return ok();
}

Status Exporter::write(const Instruction& code) {
  const auto file = outputs_.find(code.file);
  if (file == outputs_.end()) return plugin_error(code.file + " was not announced by an instruction of the export segment");
  Output& output = file->second;
  Slot& slot = output.slots.at(code.entry);
  const Operand& operand = code.inputs[0];
  uint64_t at = slot.offset;
  TRY_STATUS(machine_->show(operand.tensor, operand.offset, operand.bytes(), [&](std::span<const std::byte> bytes) -> Status {
    while (!bytes.empty()) {
      const ssize_t put = ::pwrite(output.fd, bytes.data(), std::min<size_t>(bytes.size(), size_t{1} << 30), static_cast<off_t>(at));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return file_error("write", output.aside, errno);
      bytes = bytes.subspan(static_cast<size_t>(put));
      at += static_cast<uint64_t>(put);
    }
    return ok();
  }));
  slot.written = true;
  return ok();
}

Status Exporter::finish() {
  for (auto& [file, output] : outputs_) {
    for (const auto& [entry, slot] : output.slots)
      if (!slot.written) return run_error("cannot finish '" + output.path.string() + "': tensor '" + entry + "' was not written");
    if (::fsync(output.fd) != 0) return file_error("sync", output.aside, errno);
  }
  for (const Document& document : program_->documents) {
    const std::filesystem::path path = run_directory_ / document.file;
    TRY_STATUS(make_directories(path.parent_path()));
    TRY_STATUS(write_atomic(path, document.text));
  }
  for (auto& [file, output] : outputs_) {
    TRY_STATUS(rename_synced(output.aside, output.path));
    ::close(std::exchange(output.fd, -1));
  }
  return ok();
}

}  // namespace galley
