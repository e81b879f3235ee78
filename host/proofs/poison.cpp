#include "host/proofs/poison.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "host/exec/convert.hpp"

namespace galley {
namespace {

constexpr int64_t kPiece = int64_t{1} << 20;

/// Junk of the second kind, over and over. Its length is a prime, so that no two places that a kernel may mix up hold the same.
std::span<const std::byte> second_kind() {
  static const std::vector<std::byte> table = [] {
    std::vector<std::byte> out(1048583);
    uint64_t state = 0x9E3779B97F4A7C15ull;
    for (std::byte& b : out) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      b = static_cast<std::byte>(state >> 56);
    }
    return out;
  }();
  return table;
}

bool all_set(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == kJunk; });
}

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
      if (life == Life::Texts) continue;
      ends_[s][static_cast<size_t>(index)].push_back(static_cast<TensorId>(t));
    }
  }
}

std::span<std::byte> Poisoner::copy_of(const Range& range) {
  return machine_.copy_of(range.memory).subspan(static_cast<size_t>(range.offset), static_cast<size_t>(range.bytes));
}

void Poisoner::add(const Operand& operand, bool later, bool output) {
  // What an earlier link of a chain makes is its output, and nothing to bring in.
  if (!operand.present() || operand.bytes() == 0 || (operand.inner && !output)) return;
  const auto t = static_cast<size_t>(operand.tensor);
  const uint32_t access = later ? operand.later : operand.access;
  ranges_.push_back({program_.tensors[t].memory, plan_.placements[t].offset + operand.offset, operand.bytes(), operand.tensor,
                     operand.dtype, (access & GALLEY_READ) != 0 && (!output || access != GALLEY_READ),
                     (access & GALLEY_WRITE) != 0 || output, output && access == GALLEY_ACCUMULATE && is_floating(operand.dtype)});
}

void Poisoner::junk(int kind, int64_t offset, std::span<std::byte> out) {
  if (kind == 0) {
    std::fill(out.begin(), out.end(), kJunk);
    return;
  }
  const std::span<const std::byte> table = second_kind();
  for (size_t done = 0; done < out.size();) {
    const size_t at = (static_cast<size_t>(offset) + done) % table.size(), n = std::min(out.size() - done, table.size() - at);
    std::memcpy(out.data() + done, table.data() + at, n);
    done += n;
  }
}

Status Poisoner::fill(int kind, const Range& range) {
  scratch_.resize(static_cast<size_t>(range.bytes));
  junk(kind, range.offset, scratch_);
  return machine_.write_arena(range.memory, range.offset, scratch_);
}

Status Poisoner::fill(int kind) {
  for (size_t memory = 0; memory < machine_.classes(); ++memory)
    for (int64_t at = 0; at < machine_.allocated(memory); at += kPiece) {
      Range range;
      range.memory = memory;
      range.offset = at;
      range.bytes = std::min(kPiece, machine_.allocated(memory) - at);
      TRY_STATUS(fill(kind, range));
    }
  return ok();
}

// What nobody has written yet stands in the copy as junk of the first kind; each run is shown junk of its own.
Status Poisoner::bring_in(int kind) {
  for (const Range& range : ranges_) {
    if (!range.reads) continue;
    const auto copy = copy_of(range);
    if (kind == 0 || !is_floating(range.dtype)) {
      TRY_STATUS(machine_.write_arena(range.memory, range.offset, copy));
      continue;
    }
    scratch_.assign(copy.begin(), copy.end());
    const auto width = static_cast<size_t>(galley_dtype_bytes(range.dtype));
    for (size_t i = 0; i + width <= scratch_.size(); i += width) {
      const auto element = std::span(scratch_).subspan(i, width);
      if (all_set(element)) junk(kind, range.offset + static_cast<int64_t>(i), element);
    }
    TRY_STATUS(machine_.write_arena(range.memory, range.offset, scratch_));
  }
  return ok();
}

Status Poisoner::run(const Instruction& code, bool later, const std::function<Status()>& body) {
  if (!code.launch() && code.action() != Action::Copy) return body();
  ranges_.clear();
  for (const Operand& operand : code.inputs) add(operand, later, false);
  for (const Operand& operand : code.outputs) add(operand, later, true);
  add_all(code.workspace(), false);
  add_all(code.constants(), true);
  if (ranges_.empty()) return body();
  // The copy stays as it was until both runs are over.
  for (const bool first : {true, false}) {
    TRY_STATUS(bring_in(kind_));
    TRY_STATUS(body());
    TRY_STATUS(check_reads());
    TRY_STATUS(first ? take_out() : compare());
    for (const Range& range : ranges_) TRY_STATUS(fill(kind_, range));
    TRY_STATUS(check_stray(kind_));
    if (!first) break;
    kind_ = 1 - kind_;
    TRY_STATUS(fill(kind_));
  }
  // By the instruction, and not by what it writes: of an exchange that adds to a part, a process may have nothing, and others wait for it.
  const auto adds = [&](const Operand& o) {
    return o.present() && (later ? o.later : o.access) == GALLEY_ACCUMULATE && is_floating(o.dtype);
  };
  if (std::ranges::any_of(code.outputs, adds)) TRY_STATUS(check_adding(body));
  for (size_t r = 0; r < ranges_.size(); ++r)
    if (ranges_[r].writes) std::ranges::copy(written_[r], copy_of(ranges_[r]).begin());
  return ok();
}

/// Each number to which something is added is moved by more than its sum with that, and towards zero: so that the other sum is another
/// number for sure, and is one that the dtype has. What is not finite stays.
Status Poisoner::check_adding(const std::function<Status()>& body) {
  TRY_STATUS(bring_in(kind_));
  struct Adding {
    const Range* range;
    std::vector<double> before, sum, moved;
  };
  std::vector<Adding> all;
  const auto doubles = [](const Range& range, std::span<const std::byte> bytes) {
    std::vector<double> out(static_cast<size_t>(range.bytes / galley_dtype_bytes(range.dtype)));
    convert(out.data(), GALLEY_F64, bytes.data(), range.dtype, static_cast<int64_t>(out.size()));
    return out;
  };
  for (size_t r = 0; r < ranges_.size(); ++r) {
    const Range& range = ranges_[r];
    if (!range.adds) continue;
    Adding adding = {&range, doubles(range, copy_of(range)), doubles(range, written_[r]), {}};
    adding.moved = adding.before;
    for (size_t i = 0; i < adding.moved.size(); ++i) {
      const double by = 1.5 * std::fabs(adding.sum[i]) + 0.5 * std::fabs(adding.before[i]) + 1;
      adding.moved[i] -= std::copysign(by, adding.sum[i]);
    }
    scratch_.resize(static_cast<size_t>(range.bytes));
    convert(scratch_.data(), range.dtype, adding.moved.data(), GALLEY_F64, static_cast<int64_t>(adding.moved.size()));
    adding.moved = doubles(range, scratch_);  // as the dtype has them
    TRY_STATUS(machine_.write_arena(range.memory, range.offset, scratch_));
    all.push_back(std::move(adding));
  }
  TRY_STATUS(body());
  for (const Adding& adding : all) {
    const Range& range = *adding.range;
    scratch_.resize(static_cast<size_t>(range.bytes));
    TRY_STATUS(machine_.read_arena(range.memory, range.offset, scratch_));
    const std::vector<double> now = doubles(range, scratch_);
    for (size_t i = 0; i < now.size(); ++i) {
      const double by = adding.moved[i] - adding.before[i];
      if (!std::isfinite(by) || !std::isfinite(adding.sum[i])) continue;
      // Some rounding, of sums that are themselves rounded on the way: an eighth is far from any of that, and from nothing at all.
      if (std::fabs(now[i] - adding.sum[i] - by) <= 0.125 * std::fabs(by)) continue;
      return plugin_error("element " + std::to_string(i) + " of '" + program_.tensors[static_cast<size_t>(range.tensor)].name +
                          "' does not follow what was there before: it was not added to");
    }
  }
  for (const Range& range : ranges_) TRY_STATUS(fill(kind_, range));
  return check_stray(kind_);
}

/// A tensor that an instruction has for itself: its workspace, or its constants.
void Poisoner::add_all(TensorId tensor, bool reads) {
  if (tensor == no_tensor) return;
  const auto t = static_cast<size_t>(tensor);
  ranges_.push_back({program_.tensors[t].memory, plan_.placements[t].offset, program_.tensors[t].bytes, tensor, GALLEY_U8, reads, false});
}

Status Poisoner::prepared(const Instruction& code) {
  TRY_STATUS(machine_.synchronize());
  ranges_.clear();
  add_all(code.constants(), true);
  for (const Range& constants : ranges_) TRY_STATUS(machine_.read_arena(constants.memory, constants.offset, copy_of(constants)));
  for (const bool later : {false, true}) {
    for (const Operand& operand : code.inputs) add(operand, later, false);
    for (const Operand& operand : code.outputs) add(operand, later, true);
  }
  add_all(code.workspace(), false);
  for (const Range& range : ranges_) TRY_STATUS(fill(kind_, range));
  return check_stray(kind_);
}

Status Poisoner::after(SegmentKind kind, size_t index, bool) {
  for (const TensorId tensor : ends_[static_cast<size_t>(kind)][index]) {
    const auto t = static_cast<size_t>(tensor);
    const auto copy = machine_.copy_of(program_.tensors[t].memory);
    std::fill_n(copy.begin() + plan_.placements[t].offset, program_.tensors[t].bytes, kJunk);
  }
  return ok();
}

Status Poisoner::check_reads() {
  for (const Range& range : ranges_) {
    if (!range.reads || range.writes) continue;
    const auto written = [&](const Range& other) {  // an output may take over an input's bytes
      return other.writes && other.memory == range.memory && other.offset < range.offset + range.bytes &&
             range.offset < other.offset + other.bytes;
    };
    if (std::any_of(ranges_.begin(), ranges_.end(), written)) continue;
    scratch_.resize(static_cast<size_t>(range.bytes));
    TRY_STATUS(machine_.read_arena(range.memory, range.offset, scratch_));
    const auto copy = copy_of(range);
    const auto width = static_cast<size_t>(galley_dtype_bytes(range.dtype));
    for (size_t i = 0; i < copy.size(); i += width) {
      const auto was = copy.subspan(i, width);
      if (is_floating(range.dtype) && all_set(was)) continue;  // junk, and of one kind or the other
      if (!std::ranges::equal(was, std::span(scratch_).subspan(i, width)))
        return plugin_error("it wrote to '" + program_.tensors[static_cast<size_t>(range.tensor)].name + "', which it may only read");
    }
  }
  return ok();
}

Status Poisoner::check_stray(int kind) {
  std::vector<std::byte> expected;
  for (size_t memory = 0; memory < machine_.classes(); ++memory) {
    for (int64_t at = 0; at < machine_.allocated(memory); at += kPiece) {
      const auto part = static_cast<size_t>(std::min(kPiece, machine_.allocated(memory) - at));
      std::span<const std::byte> bytes = machine_.arena(memory);
      if (bytes.empty()) {
        scratch_.resize(part);
        TRY_STATUS(machine_.read_arena(memory, at, scratch_));
        bytes = scratch_;
      } else {
        bytes = bytes.subspan(static_cast<size_t>(at), part);
      }
      expected.resize(part);
      junk(kind, at, expected);
      if (std::memcmp(bytes.data(), expected.data(), part) == 0) continue;
      const auto first = std::mismatch(bytes.begin(), bytes.end(), expected.begin()).first - bytes.begin();
      const int64_t where = at + static_cast<int64_t>(first);
      return plugin_error("it wrote outside its operands, at byte " + std::to_string(where) + " of memory class " + std::to_string(memory) +
                          past_end(memory, where));
    }
  }
  return ok();
}

Status Poisoner::take_out() {
  written_.resize(std::max(written_.size(), ranges_.size()));
  for (size_t r = 0; r < ranges_.size(); ++r) {
    if (!ranges_[r].writes) continue;
    written_[r].resize(static_cast<size_t>(ranges_[r].bytes));
    TRY_STATUS(machine_.read_arena(ranges_[r].memory, ranges_[r].offset, written_[r]));
  }
  return ok();
}

Status Poisoner::compare() {
  for (size_t r = 0; r < ranges_.size(); ++r) {
    const Range& range = ranges_[r];
    if (!range.writes) continue;
    scratch_.resize(static_cast<size_t>(range.bytes));
    TRY_STATUS(machine_.read_arena(range.memory, range.offset, scratch_));
    const auto differs = std::mismatch(scratch_.begin(), scratch_.end(), written_[r].begin()).first - scratch_.begin();
    if (static_cast<size_t>(differs) == scratch_.size()) continue;
    return plugin_error("element " + std::to_string(static_cast<int64_t>(differs) / galley_dtype_bytes(range.dtype)) + " of '" +
                        program_.tensors[static_cast<size_t>(range.tensor)].name +
                        "' depends on the poison: it was not written, or comes from memory that is no operand or holds nothing yet");
  }
  return ok();
}

std::string Poisoner::past_end(size_t memory, int64_t offset) const {
  const Range* nearest = nullptr;
  const auto past = [&](const Range& range) { return offset - range.offset - range.bytes; };
  for (const Range& range : ranges_)
    if (range.memory == memory && past(range) >= 0 && (!nearest || past(range) < past(*nearest))) nearest = &range;
  if (!nearest) return "";
  return ", " + std::to_string(past(*nearest)) + " after the end of '" + program_.tensors[static_cast<size_t>(nearest->tensor)].name + "'";
}

}  // namespace galley
