#include "host/exec/poison.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace galley {
namespace {

bool all_junk(std::span<const std::byte> bytes) {
  return bytes.empty() || (bytes[0] == kJunk && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

size_t first_not_junk(std::span<const std::byte> bytes) {
  return static_cast<size_t>(std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b != kJunk; }) - bytes.begin());
}

bool floating(uint32_t dtype) { return dtype >= GALLEY_F64 && dtype <= GALLEY_BF16; }

}  // namespace

Poisoner::Poisoner(const Program& program, const Plan& plan, Machine& machine) : program_(program), plan_(plan), machine_(machine) {
  for (size_t s = 0; s < program.segments.size(); ++s) ends_[s].resize(program.segments[s].code.size());
  for (size_t t = 0; t < program.tensors.size(); ++t) {
    const Life life = program.tensors[t].life;
    const int32_t last = plan.placements[t].last;
    if (life == Life::Run || last < 0) continue;
    for (size_t s = 0; s < program.segments.size(); ++s) {
      const int32_t index = last - plan.segment_begin[s], size = static_cast<int32_t>(program.segments[s].code.size());
      // The host may read what lives to a segment's end; a window's tensor is over only in `update`.
      if (index < 0 || index + 1 >= size) continue;
      if (life == Life::Window && static_cast<SegmentKind>(s) != SegmentKind::Update) continue;
      ends_[s][static_cast<size_t>(index)].push_back(static_cast<TensorId>(t));
    }
  }
}

std::span<std::byte> Poisoner::copy_of(const Range& range) {
  return machine_.copy_of(range.memory).subspan(static_cast<size_t>(range.offset), static_cast<size_t>(range.bytes));
}

void Poisoner::add(const Operand& operand, bool later, bool output) {
  if (!operand.present() || operand.bytes() == 0) return;
  const auto t = static_cast<size_t>(operand.tensor);
  const uint32_t access = later ? operand.later : operand.access;
  ranges_.push_back({program_.tensors[t].memory, plan_.placements[t].offset + operand.offset, operand.bytes(), operand.tensor,
                     operand.dtype, (access & GALLEY_READ) != 0 && (!output || access != GALLEY_READ),
                     (access & GALLEY_WRITE) != 0 || output});
}

Status Poisoner::before(const Instruction& code, bool later) {
  ranges_.clear();
  for (const Operand& operand : code.inputs) add(operand, later, false);
  for (const Operand& operand : code.outputs) add(operand, later, true);
  if (code.workspace != no_tensor) {
    const auto t = static_cast<size_t>(code.workspace);
    ranges_.push_back(
        {program_.tensors[t].memory, plan_.placements[t].offset, program_.tensors[t].bytes, code.workspace, GALLEY_U8, false, false});
  }
  for (const Range& range : ranges_)
    if (range.reads) TRY_STATUS(machine_.write_arena(range.memory, range.offset, copy_of(range)));
  return ok();
}

Status Poisoner::after(SegmentKind kind, size_t index) {
  for (const Range& range : ranges_)
    if (range.writes) TRY_STATUS(machine_.read_arena(range.memory, range.offset, copy_of(range)));
  TRY_STATUS(check_reads());
  for (const Range& range : ranges_) {
    scratch_.assign(static_cast<size_t>(range.bytes), kJunk);
    TRY_STATUS(machine_.write_arena(range.memory, range.offset, scratch_));
  }
  if (!ranges_.empty()) {
    TRY_STATUS(check_stray());
    TRY_STATUS(check_taint());
    ranges_.clear();
  }
  for (const TensorId tensor : ends_[static_cast<size_t>(kind)][index]) {
    const auto t = static_cast<size_t>(tensor);
    const auto copy = machine_.copy_of(program_.tensors[t].memory);
    std::fill_n(copy.begin() + plan_.placements[t].offset, program_.tensors[t].bytes, kJunk);
  }
  return ok();
}

// By now what was written is in the copy, so a range that is read here and written there compares equal.
Status Poisoner::check_reads() {
  for (const Range& range : ranges_) {
    if (!range.reads || range.writes) continue;
    scratch_.resize(static_cast<size_t>(range.bytes));
    TRY_STATUS(machine_.read_arena(range.memory, range.offset, scratch_));
    if (!std::ranges::equal(scratch_, copy_of(range)))
      return plugin_error("it wrote to '" + program_.tensors[static_cast<size_t>(range.tensor)].name + "', which it may only read");
  }
  return ok();
}

Status Poisoner::check_stray() {
  constexpr int64_t piece = int64_t{1} << 20;
  for (size_t memory = 0; memory < machine_.classes(); ++memory) {
    for (int64_t at = 0; at < machine_.allocated(memory); at += piece) {
      const auto part = static_cast<size_t>(std::min(piece, machine_.allocated(memory) - at));
      std::span<const std::byte> bytes = machine_.arena(memory);
      if (bytes.empty()) {
        scratch_.resize(part);
        TRY_STATUS(machine_.read_arena(memory, at, scratch_));
        bytes = scratch_;
      } else {
        bytes = bytes.subspan(static_cast<size_t>(at), part);
      }
      if (all_junk(bytes)) continue;
      const int64_t where = at + static_cast<int64_t>(first_not_junk(bytes));
      return plugin_error("it wrote outside its operands, at byte " + std::to_string(where) + " of memory class " + std::to_string(memory) +
                          behind(memory, where));
    }
  }
  return ok();
}

Status Poisoner::check_taint() {
  for (const Range& range : ranges_) {
    if (!range.writes || !floating(range.dtype)) continue;
    const auto copy = copy_of(range);
    const auto width = static_cast<size_t>(galley_dtype_bytes(range.dtype));
    for (size_t i = 0; i < copy.size(); i += width) {
      if (copy[i] != kJunk || !all_junk(copy.subspan(i, width))) continue;
      return plugin_error("element " + std::to_string(i / width) + " of '" + program_.tensors[static_cast<size_t>(range.tensor)].name +
                          "' holds the poison: it was not written, or comes from memory that is no operand or holds nothing yet");
    }
  }
  return ok();
}

std::string Poisoner::behind(size_t memory, int64_t offset) const {
  const Range* nearest = nullptr;
  const auto past = [&](const Range& range) { return offset - range.offset - range.bytes; };
  for (const Range& range : ranges_)
    if (range.memory == memory && past(range) >= 0 && (!nearest || past(range) < past(*nearest))) nearest = &range;
  if (!nearest) return "";
  return ", " + std::to_string(past(*nearest)) + " behind the end of '" + program_.tensors[static_cast<size_t>(nearest->tensor)].name + "'";
}

}  // namespace galley
