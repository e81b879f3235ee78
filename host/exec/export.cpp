#include "host/exec/export.hpp"

#include <utility>
#include <vector>

#include "host/base/safetensors.hpp"
#include "host/exec/convert.hpp"
#include "host/exec/folder.hpp"

namespace galley {

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
  TRY_STATUS(make_directories(path.parent_path()));

  // The writer makes the header and fixes the order; it expects the data in that order, which the program's need not be.
  NewFile made = TRY(NewFile::beside(path));
  Output output = {std::move(made), {}};
  std::vector<safetensors::Item> ordered;
  {
    const safetensors::Writer writer = TRY(safetensors::Writer::create(TRY(output.made.file().duplicate()), items));
    ordered.assign(writer.items().begin(), writer.items().end());
  }
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
    TRY_STATUS(output.made.file().write_at(bytes, at));
    at += bytes.size();
    return ok();
  }));
  slot.written = true;
  return ok();
}

Status Exporter::finish() {
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
