#include "host/passes/overlap.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "host/passes/copy.hpp"
#include "host/passes/passes.hpp"
#include "host/plan/plan.hpp"
#include "host/plan/timing.hpp"

namespace galley {
namespace {

/// Seconds that differ by less come from rounding.
constexpr double kSame = 1 + 1e-9;

bool writes(const Operand& o) { return ((o.access | o.later) & GALLEY_WRITE) != 0; }

}  // namespace

OverlappedCopies::OverlappedCopies(const Program& program, const std::vector<Instruction>& code, const Target& target)
    : program_(program), code_(code), target_(target) {
  for (size_t at = 0; at < code.size(); ++at) {
    const Instruction& i = code[at];
    if (i.action() == Action::Record || i.action() == Action::Wait) continue;
    const size_t place = places_++;
    if (i.action() != Action::Copy || i.queue == 0) {
      tasks_.push_back({at, place, instruction_seconds(program, i, target), 0});
      continue;
    }
    Copy copy = {};
    copy.at = at;
    copy.queue = i.queue;
    copy.in = program.tensors[static_cast<size_t>(i.outputs[0].tensor)].memory == 0;
    copy.place = place;
    copy.gap = tasks_.size();
    copy.seconds = instruction_seconds(program, i, target);
    copy.bytes = i.inputs[0].bytes();
    copies_.push_back(std::move(copy));
  }
  find_uses();
  find_bounds();
  choose();
}

void OverlappedCopies::find_uses() {
  for (const Copy& copy : copies_)
    for (const Operand* o : {&code_[copy.at].inputs[0], &code_[copy.at].outputs[0]}) uses_[o->tensor];
  size_t tasks = 0, copies = 0;
  for (const Instruction& i : code_) {
    if (i.action() == Action::Record || i.action() == Action::Wait) continue;
    const bool is_copy = i.action() == Action::Copy && i.queue != 0;
    const size_t index = is_copy ? copies++ : tasks++;
    for (const auto* operands : {&i.inputs, &i.outputs})
      for (const Operand& o : *operands)
        if (const auto of = uses_.find(o.tensor); of != uses_.end())
          of->second.push_back({o.offset, o.offset + o.bytes(), writes(o), is_copy, index});
  }
}

void OverlappedCopies::find_bounds() {
  for (Copy& copy : copies_) copy.most = tasks_.size();
  for (size_t c = 0; c < copies_.size(); ++c) {
    Copy& copy = copies_[c];
    for (const Operand* o : {&code_[copy.at].inputs[0], &code_[copy.at].outputs[0]}) {
      const Use mine = {o->offset, o->offset + o->bytes(), writes(*o), true, c};
      bool late = false;
      for (const Use& other : uses_.at(o->tensor)) {
        if (other.copies && other.index == c) late = true;
        else if (!mine.conflicts(other)) continue;
        else if (other.copies && !late && copies_[other.index].queue != copy.queue) copy.after.push_back(other.index);
        else if (!other.copies && !late) copy.least = std::max(copy.least, other.index + 1);
        else if (!other.copies) copy.most = std::min(copy.most, other.index);
      }
    }
  }
}

/// Runs the segment with its copies as they are chosen. The seconds that it takes.
double OverlappedCopies::run() {
  std::map<uint32_t, double> queues;
  std::vector<double> wait(tasks_.size() + 1, 0);
  double now = 0, last = 0;
  size_t next = 0;
  const auto gap_at = [&](size_t place) {
    const auto task = std::lower_bound(tasks_.begin(), tasks_.end(), place, [](const Task& t, size_t at) { return t.place < at; });
    return static_cast<size_t>(task - tasks_.begin());
  };
  for (size_t gap = 0; gap <= tasks_.size(); ++gap) {
    for (; next < copies_.size() && copies_[next].gap == gap; ++next) {
      Copy& copy = copies_[next];
      double& queue = queues[copy.queue];
      const size_t begin = gap_at(copy.begin);
      copy.start = std::max(queue, begin ? tasks_[begin - 1].finish : 0.0);
      for (const size_t other : copy.after) copy.start = std::max(copy.start, copies_[other].finish);
      copy.finish = queue = copy.start + copy.seconds;
      double& waits = wait[gap_at(copy.end)];
      waits = std::max(waits, copy.finish);
      last = std::max(last, copy.finish);
    }
    if (gap == tasks_.size()) break;
    now = tasks_[gap].finish = std::max(now, wait[gap]) + tasks_[gap].seconds;
  }
  return std::max(now, last);
}

/// In an order that a list of instructions can have: on each queue as placed, and after what has to be over.
void OverlappedCopies::keep_order() {
  std::map<uint32_t, size_t> queues;
  for (Copy& copy : copies_) {
    size_t& queue = queues[copy.queue];
    copy.begin = std::max(copy.begin, queue);
    for (const size_t other : copy.after) copy.begin = std::max(copy.begin, copies_[other].begin);
    queue = copy.begin;
    copy.end = std::max(copy.end, copy.begin);
  }
}

void OverlappedCopies::choose() {
  for (Copy& copy : copies_) {
    copy.begin = first_of(copy.least);
    copy.end = last_of(copy.most);
  }
  keep_order();
  const double all = run();

  // The latest start of each task and copy, from the last to the first: what starts no later makes the segment no longer. `gate` is the
  // earliest of the latest starts of the copies that a gap lets begin.
  const size_t n = tasks_.size();
  std::vector<double> task_latest(n + 1, all), copy_latest(copies_.size(), all), gate(n + 1, all);
  std::map<uint32_t, double> queues;
  size_t next = copies_.size();
  for (size_t gap = n + 1; gap-- > 0;) {
    if (gap < n) task_latest[gap] = std::min(task_latest[gap + 1], gate[gap + 1]) - tasks_[gap].seconds;
    for (; next > 0 && copies_[next - 1].gap == gap; --next) {
      const Copy& copy = copies_[next - 1];
      double& latest = copy_latest[next - 1];
      double& queue = queues.try_emplace(copy.queue, all).first->second;
      queue = latest = std::min({queue, task_latest[copy.most], latest}) - copy.seconds;
      for (const size_t other : copy.after) copy_latest[other] = std::min(copy_latest[other], latest);
      gate[copy.least] = std::min(gate[copy.least], latest);
    }
  }

  // A copy in begins after the tasks that are over by its latest start even if they start at their own latest.
  for (size_t c = 0; c < copies_.size(); ++c) {
    Copy& copy = copies_[c];
    size_t begin = copy.least;
    while (copy.in && begin < copy.gap && task_latest[begin] + tasks_[begin].seconds <= copy_latest[c] * kSame) ++begin;
    copy.begin = first_of(begin);
  }
  keep_order();
  run();
  // Queue 0 waits for a copy out where it is over, or where the task has slack to wait.
  const auto end_at = [&](const Copy& copy, size_t gap) {
    return gap >= copy.most ? last_of(copy.most) : std::max({first_of(gap), copy.begin, copy.place});
  };
  std::vector<size_t> with_slack(copies_.size());
  for (size_t c = 0; c < copies_.size(); ++c) {
    Copy& copy = copies_[c];
    if (copy.in) continue;
    size_t over = copy.gap, slack = copy.gap;
    while (over < copy.most && (over == 0 || tasks_[over - 1].finish * kSame < copy.finish)) ++over;
    while (slack < copy.most && task_latest[slack] * kSame < copy_latest[c] + copy.seconds) ++slack;
    with_slack[c] = end_at(copy, slack);
    copy.end = end_at(copy, std::min(over, slack));
  }
  if (run() <= all * kSame) return;
  for (size_t c = 0; c < copies_.size(); ++c)
    if (!copies_[c].in) copies_[c].end = with_slack[c];
}

int64_t OverlappedCopies::in_flight() const {
  std::vector<int64_t> changes(places_ + 2, 0);
  for (const Copy& copy : copies_) {
    const auto [from, to] = beyond(copy);
    changes[from] += copy.bytes;
    changes[to] -= copy.bytes;
  }
  int64_t now = 0, most = 0;
  for (const int64_t change : changes) most = std::max(most, now += change);
  return most;
}

void OverlappedCopies::restrain(int64_t bytes) {
  std::vector<int64_t> held(places_ + 1, 0);
  for (Copy& copy : copies_) {
    const auto fits = [&](size_t place) { return held[place] + copy.bytes <= bytes; };
    const auto [from, to] = beyond(copy);
    if (copy.in) {
      copy.begin = to;
      while (copy.begin > from && fits(copy.begin - 1)) held[--copy.begin] += copy.bytes;
    } else {
      size_t end = from;
      while (end < to && fits(end)) held[end++] += copy.bytes;
      copy.end = end == from ? copy.place : end;
    }
  }
  keep_order();
}

std::vector<std::pair<size_t, size_t>> OverlappedCopies::twice() const {
  // Nothing but copies writes what lies in the bytes that a copy has brought.
  const auto brought = [&](const Copy& copy) {
    const TensorId to = code_[copy.at].outputs[0].tensor;
    const std::vector<Use>& uses = uses_.at(to);
    return program_.tensors[static_cast<size_t>(to)].life == Life::Segment && uses.size() > 1 &&
           std::count_if(uses.begin(), uses.end(), [](const Use& use) { return use.writes || use.copies; }) == 1;
  };
  std::vector<std::pair<size_t, size_t>> out;
  std::map<std::tuple<TensorId, int64_t, int64_t>, size_t> before;
  for (size_t c = 0; c < copies_.size(); ++c) {
    const Copy& copy = copies_[c];
    if (!copy.in || !brought(copy)) continue;
    const Operand& from = code_[copy.at].inputs[0];
    const auto [first, fresh] = before.try_emplace(std::tuple(from.tensor, from.offset, from.bytes()), c);
    if (fresh) continue;
    const Copy& other = copies_[first->second];
    const std::vector<Use>& uses = uses_.at(code_[other.at].outputs[0].tensor);
    const Use mine = {from.offset, from.offset + from.bytes(), false, true, c};
    const std::vector<Use>& home = uses_.at(from.tensor);
    const auto at = [&](size_t index) {
      return std::find_if(home.begin(), home.end(), [&](const Use& use) { return use.copies && use.index == index; });
    };
    const bool changed = std::any_of(at(first->second), at(c), [&](const Use& use) { return use.conflicts(mine); });
    if (!changed && copy.begin <= tasks_[uses.back().index].place) out.emplace_back(other.at, copy.at);
    else first->second = c;
  }
  return out;
}

std::vector<Instruction> OverlappedCopies::made() const {
  std::vector<std::vector<size_t>> begins(places_ + 1), ends(places_ + 1);
  for (size_t c = 0; c < copies_.size(); ++c) {
    begins[copies_[c].begin].push_back(c);
    ends[copies_[c].end].push_back(c);
  }
  std::vector<Instruction> out;
  uint32_t events = 0;
  std::vector<uint32_t> event(copies_.size(), 0);
  // known[{q, p}]: queue q has waited for the copies of queue p before this number.
  std::map<std::pair<uint32_t, uint32_t>, size_t> known;
  const auto wait = [&](uint32_t queue, size_t copy) {
    size_t& of = known[{queue, copies_[copy].queue}];
    if (of > copy) return;
    of = copy + 1;
    out.push_back(sync(Action::Wait, queue, event[copy]));
  };
  // The last of each queue stands for those before it.
  const auto wait_for = [&](size_t place, bool at_leisure) {
    for (auto c = ends[place].rbegin(); c != ends[place].rend(); ++c)
      if (at_leisure == (copies_[*c].begin < place && place < last_of(copies_[*c].most))) wait(0, *c);
  };
  for (size_t place = 0, next = 0; place <= places_; ++place) {
    // What is over gives its bytes back before others begin; what may not be over does not keep them from beginning.
    wait_for(place, true);
    std::set<uint32_t> gated;
    const uint32_t done = begins[place].empty() ? 0 : ++events;
    if (done) out.push_back(sync(Action::Record, 0, done));
    for (const size_t c : begins[place]) {
      const uint32_t queue = copies_[c].queue;
      if (gated.insert(queue).second) out.push_back(sync(Action::Wait, queue, done));
      for (const size_t other : copies_[c].after) wait(queue, other);
      out.push_back(code_[copies_[c].at]);
      out.back().event = event[c] = ++events;
    }
    wait_for(place, false);
    if (next < tasks_.size() && tasks_[next].place == place) out.push_back(code_[tasks_[next++].at]);
  }
  return out;
}

namespace {

/// Load and export go by files, which the host reads and writes when nothing is under way.
constexpr SegmentKind kinds[] = {SegmentKind::Micro, SegmentKind::Update, SegmentKind::Eval, SegmentKind::Sample, SegmentKind::Next};

/// Readers whose copies would overlap share one.
void copy_once(const Program& program, std::vector<Instruction>& code, const Target& target) {
  for (;;) {
    const std::vector<std::pair<size_t, size_t>> pairs = OverlappedCopies(program, code, target).twice();
    if (pairs.empty()) return;
    std::map<TensorId, TensorId> now;
    std::vector<bool> dropped(code.size(), false);
    for (const auto& [first, second] : pairs) {
      const TensorId there = code[first].outputs[0].tensor;
      const auto moved = now.find(there);
      now[code[second].outputs[0].tensor] = moved == now.end() ? there : moved->second;
      dropped[second] = true;
    }
    std::vector<Instruction> left;
    for (size_t i = 0; i < code.size(); ++i) {
      if (dropped[i]) continue;
      for (auto* operands : {&code[i].inputs, &code[i].outputs})
        for (Operand& o : *operands)
          if (const auto to = now.find(o.tensor); to != now.end()) {
            o.tensor = to->second;
            o.value = no_tensor;
          }
      left.push_back(std::move(code[i]));
    }
    code = std::move(left);
  }
}

/// Within the limits, and class 0 not beyond the budget that a strategy holds. Staging is in class 0, so that one alone can have grown.
bool fits(const Compilation& c, const std::vector<int64_t>& before, const std::vector<int64_t>& after) {
  return (c.budget <= 0 || after[0] <= std::max(before[0], c.budget)) && c.within_limits(before, after);
}

/// An event belongs to one segment: who waits for the last time that it was recorded must not wait for another segment's.
void number_events(Program& program) {
  uint32_t last = 0;
  for (Segment& segment : program.segments) {
    std::map<uint32_t, uint32_t> now;
    for (Instruction& i : segment.code)
      if (i.event) {
        const auto [at, fresh] = now.try_emplace(i.event, last + 1);
        if (fresh) ++last;
        i.event = at->second;
      }
  }
}

void overlap_copies(Compilation& c) {
  Program& program = c.program;
  std::map<SegmentKind, std::vector<Instruction>> placed, once;
  for (const SegmentKind kind : kinds) {
    const std::vector<Instruction>& code = program.segment(kind).code;
    if (std::none_of(code.begin(), code.end(), [](const Instruction& i) { return i.action() == Action::Copy && i.queue != 0; })) continue;
    placed[kind] = once[kind] = code;
    copy_once(program, once[kind], c.target);
  }
  if (placed.empty()) return;
  const std::vector<int64_t> before = plan_peaks(outline_of(program), c.target);
  const auto as_placed = [&](SegmentKind kind) { program.segment(kind).code = placed.at(kind); };
  for (int64_t most = INT64_MAX;;) {
    int64_t in_flight = 0;
    for (const auto& [kind, code] : once) {
      OverlappedCopies copies(program, code, c.target);
      if (copies.in_flight() > most) copies.restrain(most);
      in_flight = std::max(in_flight, copies.in_flight());
      as_placed(kind);
      const double waiting = segment_seconds(program, kind, c.target);
      program.segment(kind).code = copies.made();
      if (segment_seconds(program, kind, c.target) > waiting * kSame) as_placed(kind);
    }
    if (fits(c, before, plan_peaks(outline_of(program), c.target))) break;
    if (in_flight == 0) {  // then it is what readers share that lies there for too long
      for (const auto& [kind, code] : placed) as_placed(kind);
      break;
    }
    most = in_flight / 2;
  }
  renumber(program, canonical_numbers(outline_of(program)));
}

}  // namespace

Status overlap(Compilation& c) {
  overlap_copies(c);
  number_events(c.program);
  return ok();
}

}  // namespace galley
