#include "host/proofs/congruent.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "galley/op.h"
#include "host/proofs/check.hpp"

namespace galley {
namespace {

std::vector<int64_t> list_of(const galley_attr* attr) {
  if (!attr || attr->type != GALLEY_ATTR_I64) return {};
  const auto* at = static_cast<const int64_t*>(attr->data);
  return {at, at + attr->count};
}

std::string list_text(const std::vector<int64_t>& list) {
  std::string out;
  for (const int64_t x : list) out += (out.empty() ? "" : ", ") + std::to_string(x);
  return out;
}

/// Which nodes of a segment have made what lies in its tensors.
class Makers {
 public:
  void run(const Instruction& code) {
    for (const Operand& o : code.outputs) write(code, o);
    for (const Operand& o : code.inputs)
      if (o.access & GALLEY_WRITE) write(code, o);
  }
  /// Returns the names of all nodes that made an operand's numbers; "": they are as the segment found them. Nothing where a process has no
  /// numbers of it, where what was made has other ends, or where it is not known which of several nodes of a launch made it.
  std::optional<std::string> of(const Operand& o) const {
    if (elements(o.shape) == 0) return std::nullopt;
    std::set<std::string> names;
    if (const auto at = made_.find(o.tensor); at != made_.end())
      for (const Made& m : at->second) {
        if (m.end <= o.offset || o.offset + o.bytes() <= m.begin) continue;
        if (m.begin > o.offset || m.end < o.offset + o.bytes()) return std::nullopt;
        names.insert(m.names.begin(), m.names.end());
      }
    if (names.contains("")) return std::nullopt;
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
  }

 private:
  struct Made {
    int64_t begin, end;
    std::set<std::string> names;
  };

  void write(const Instruction& code, const Operand& o) {
    if (!o.present() || !(o.access & GALLEY_WRITE)) return;
    std::vector<Made>& made = made_[o.tensor];
    Made now = {o.offset, o.offset + o.bytes(), names_of(code, o)};
    if (!(o.access & GALLEY_READ)) std::erase_if(made, [&](const Made& m) { return now.begin <= m.begin && m.end <= now.end; });
    made.push_back(std::move(now));
  }
  /// What copies keeps the names of what it copies: processes have other parts to copy.
  std::set<std::string> names_of(const Instruction& code, const Operand& o) const {
    const Launch* const launch = code.launch();
    if (!launch || (launch->op() && launch->op()->name == std::string_view("copy"))) {
      std::set<std::string> names;
      if (!code.inputs.empty())
        if (const auto at = made_.find(code.inputs[0].tensor); at != made_.end())
          for (const Made& m : at->second) names.insert(m.names.begin(), m.names.end());
      return names;
    }
    for (const LaunchNode& node : launch->nodes)
      for (const auto& range : {code.inputs_of(node), code.outputs_of(node)})
        for (const Operand& own : range)
          if (&own == &o) return {node.name};
    if (launch->nodes.size() == 1) return {launch->nodes[0].name};
    return {""};  // a component of one of several nodes' tensors
  }

  std::map<TensorId, std::vector<Made>> made_;
};

/// The own part of a node about parts: [first, first + count).
std::pair<int64_t, int64_t> own_part(const Program& program, const AttrList& attrs) {
  const std::vector<int64_t> ends = list_of(attrs.find("ends"));
  const auto n = static_cast<int64_t>(ends.size());
  const int64_t place = AlongAxis{n, attrs.integer("stride", 1)}.place(program.rank);
  const auto j = static_cast<size_t>((place + n - attrs.integer("start", 0) % n) % n);
  const int64_t first = j ? ends[j - 1] : 0;
  return {first, ends[j] - first};
}

/// What a process gives to an exchange: of a tensor that it has whole, and of which it brings its part up to date, that part.
Operand given(const Program& program, const Instruction& code) {
  Operand out = code.inputs.front();
  const AttrList& attrs = code.launch()->nodes.front().attrs;
  if (!attrs.find("ends") || !(out.access & GALLEY_WRITE)) return out;
  const auto [first, count] = own_part(program, attrs);
  out.offset += first * galley_dtype_bytes(out.dtype);
  out.shape = {count};
  return out;
}

/// An exchange as all processes have to see it.
struct Seen {
  size_t index;  ///< in its segment
  const Instruction* code;
  std::string text;
  std::optional<std::string> made_by;  ///< what it takes, as Makers say
  /// Of a sum of processes that are apart, each of another group: those of a group have other parts, and give others as many numbers.
  std::optional<int64_t> own_numbers;
};

std::vector<Seen> exchanges_of(const Program& program, SegmentKind kind) {
  const Segment& segment = program.segment(kind);
  std::vector<Seen> out;
  Makers makers;
  for (size_t i = 0; i < segment.code.size(); ++i) {
    const Instruction& code = segment.code[i];
    const std::optional<std::string> made_by = code.exchanges() ? makers.of(given(program, code)) : std::nullopt;
    makers.run(code);
    if (!code.exchanges()) continue;
    const AttrList& attrs = code.launch()->nodes.front().attrs;
    const Operand& x = code.inputs.front();
    const std::vector<int64_t> ends = list_of(attrs.find("ends"));
    std::string text = std::string(code.launch()->op()->name) + " '" + code.name + "' " + dtype_text(x.dtype) +
                       ", in micro-batches: " + when_names[static_cast<size_t>(code.when)];
    const AlongAxis axis = along_axis(code);
    text += ", of " + std::to_string(axis.ranks) + " processes" + (axis.stride > 1 ? ", " + std::to_string(axis.stride) + " apart" : "");
    std::optional<int64_t> own;
    // A sum is of as many numbers on each process that takes part; of parts, the ends say how many.
    if (ends.empty() && axis.stride > 1) own = elements(x.shape);
    else if (ends.empty()) text += ", " + std::to_string(elements(x.shape)) + " numbers";
    else text += ", parts that end at " + list_text(ends) + ", from process " + std::to_string(attrs.integer("start", 0)) + " on";
    out.push_back({i, &code, std::move(text), made_by, own});
  }
  return out;
}

/// An operand that is a part of a tensor, beside what its exchange takes it for.
Status check_part(const Program& program, SegmentKind kind, const Seen& seen) {
  const Launch& launch = *seen.code->launch();
  const AttrList& attrs = launch.nodes.front().attrs;
  if (!attrs.find("ends")) return ok();
  if (const int64_t place = along_axis(*seen.code).place(program.rank), said = attrs.integer("rank", -1); said != place)
    return plan_error(place_text(program, kind, seen.index) + " is that of process " + std::to_string(said) +
                      " of its axis, in the program of process " + std::to_string(program.rank));
  const auto [first, count] = own_part(program, attrs);
  for (const auto* operands : {&seen.code->inputs, &seen.code->outputs})
    for (const Operand& o : *operands) {
      if (!o.present()) continue;
      const ProgramTensor& tensor = program.tensors[static_cast<size_t>(o.tensor)];
      if (!tensor.is_part()) continue;
      const int64_t begins = tensor.runs.first + o.offset / std::max<int64_t>(galley_dtype_bytes(o.dtype), 1);
      if (elements(o.shape) != count || (count > 0 && begins != first))
        return plan_error(place_text(program, kind, seen.index) + " takes the elements [" + std::to_string(begins) + ", " +
                          std::to_string(begins + elements(o.shape)) + ") of '" + tensor.name + "' for the part [" + std::to_string(first) +
                          ", " + std::to_string(first + count) + ") of process " + std::to_string(program.rank));
    }
  return ok();
}

std::string made_text(const std::string& names) { return names.empty() ? "was there before" : "'" + names + "' made"; }

Status check_exchanges(std::span<const Program* const> programs, SegmentKind kind) {
  std::vector<Seen> expected;
  std::map<std::pair<size_t, int64_t>, int64_t> of_place;  // numbers of the k-th exchange, by the place in a group
  for (size_t p = 0; p < programs.size(); ++p) {
    const Program& program = *programs[p];
    std::vector<Seen> seen = exchanges_of(program, kind);
    for (const Seen& s : seen) TRY_STATUS(check_part(program, kind, s));
    for (size_t k = 0; k < seen.size(); ++k) {
      if (!seen[k].own_numbers) continue;
      const auto [at, fresh] = of_place.try_emplace({k, program.rank % along_axis(*seen[k].code).stride}, *seen[k].own_numbers);
      if (!fresh && at->second != *seen[k].own_numbers)
        return plan_error(place_text(program, kind, seen[k].index) + " is of " + std::to_string(*seen[k].own_numbers) +
                          " numbers on process " + std::to_string(program.rank) + ", and of " + std::to_string(at->second) +
                          " on the others of its axis");
    }
    if (p == 0) {
      expected = std::move(seen);
      continue;
    }
    const auto text = [&](const std::vector<Seen>& list, size_t k) { return k < list.size() ? list[k].text : std::string("no more"); };
    for (size_t k = 0; k < std::max(seen.size(), expected.size()); ++k)
      if (text(seen, k) != text(expected, k))
        return plan_error("exchange " + std::to_string(k + 1) + " of " + segment_names[static_cast<size_t>(kind)] + " is, on process " +
                          std::to_string(program.rank) + ": " + text(seen, k) + "; on process " + std::to_string(programs[0]->rank) + ": " +
                          text(expected, k));
    for (size_t k = 0; k < seen.size(); ++k) {
      std::optional<std::string>& all = expected[k].made_by;
      const std::optional<std::string>& own = seen[k].made_by;
      if (all && own && *all != *own)
        return plan_error(place_text(program, kind, seen[k].index) + " takes what " + made_text(*own) + " on process " +
                          std::to_string(program.rank) + ", and what " + made_text(*all) + " on others");
      if (!all) all = own;
    }
  }
  return ok();
}

Status check_run(const Program& a, const Program& b) {
  const std::pair<const char*, bool> same[] = {{"lanes", a.lanes == b.lanes},
                                               {"processes", a.ranks == b.ranks},
                                               {"processes that compute together", a.together == b.together},
                                               {"processes that divide tensors", a.sharers == b.sharers},
                                               {"micro-batches of a window", a.micro_batches == b.micro_batches},
                                               {"tokens of a window", a.window_tokens == b.window_tokens},
                                               {"rows", a.rows == b.rows},
                                               {"rows in a chunk of the head", a.head_rows == b.head_rows},
                                               {"tensors of a state", a.resume.size() == b.resume.size()},
                                               {"scalars", a.slots.size() == b.slots.size()}};
  for (const auto& [what, holds] : same)
    if (!holds)
      return plan_error(std::string(what) + " are others for process " + std::to_string(b.rank) + " than for process " +
                        std::to_string(a.rank));
  return ok();
}

/// The parts that processes keep of a tensor are the whole.
Status check_whole(std::span<const Program* const> programs) {
  struct Kept {
    int64_t first, count;
    size_t rank;
  };
  std::map<std::string, std::vector<Kept>> parts;
  std::map<std::string, int64_t> whole;
  for (size_t p = 0; p < programs.size(); ++p)
    for (const ProgramTensor& t : programs[p]->tensors) {
      if (!t.is_part() || t.life == Life::Segment || !programs[p]->counts(t)) continue;
      const auto [at, fresh] = whole.try_emplace(t.name, elements(t.whole));
      if (!fresh && at->second != elements(t.whole))
        return plan_error("'" + t.name + "' has another shape on process " + std::to_string(p));
      for (int64_t i = 0, count = elements(t.shape), together = 0; i == 0 || i < count; i += together) {
        together = t.runs.together(i, count - i);
        parts[t.name].push_back({t.runs.at(i), together, p});
        if (count == 0) break;
      }
    }
  for (auto& [name, kept] : parts) {
    std::ranges::sort(kept, [](const Kept& a, const Kept& b) { return std::pair(a.first, a.count) < std::pair(b.first, b.count); });
    int64_t end = 0;
    for (const Kept& k : kept) {
      if (k.count == 0) continue;
      if (k.first != end)
        return plan_error("process " + std::to_string(k.rank) + " has '" + name + "' from element " + std::to_string(k.first) +
                          " on; those before end at " + std::to_string(end));
      end += k.count;
    }
    if (end != whole.at(name))
      return plan_error("the processes have " + std::to_string(end) + " of the " + std::to_string(whole.at(name)) + " elements of '" +
                        name + "'");
  }
  return ok();
}

}  // namespace

Status congruent(std::span<const Program* const> programs, bool all) {
  for (const Program* program : programs.subspan(1)) TRY_STATUS(check_run(*programs[0], *program));
  for (size_t s = 0; s < segment_count; ++s) TRY_STATUS(check_exchanges(programs, static_cast<SegmentKind>(s)));
  return all ? check_whole(programs) : ok();
}

}  // namespace galley
