#include "host/passes/transfers.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "host/passes/copy.hpp"
#include "host/plan/timing.hpp"

namespace galley {

Transfers::Transfers(const Program& program, const std::vector<Instruction>& code, const Target& target, uint32_t exchanges)
    : program_(program), code_(code), target_(target), exchanges_(exchanges) {
  for (size_t at = 0; at < code.size(); ++at) {
    const Instruction& i = code[at];
    if (i.action() == Action::Record || i.action() == Action::Wait) continue;
    const size_t place = places_++;
    if (!is_transfer(i)) {
      tasks_.push_back({at, place, instruction_seconds(program, i, target), 0});
      continue;
    }
    Transfer t = {};
    t.at = at;
    t.queue = i.launch() ? exchanges : i.queue;
    t.in = brings(i);
    t.place = place;
    t.gap = tasks_.size();
    t.seconds = instruction_seconds(program, i, target);
    t.bytes = bytes_of(i, t.in);
    transfers_.push_back(std::move(t));
  }
  find_uses();
  find_bounds();
  choose();
}

bool Transfers::brings(const Instruction& i) const {
  if (i.outputs.empty() || !i.outputs[0].present()) return false;
  const Operand& made = i.outputs[0];
  if (tensor(made.tensor).memory != 0) return false;
  return i.action() == Action::Copy || (tensor(made.tensor).life == Life::Segment && !made.reads());
}

int64_t Transfers::bytes_of(const Instruction& i, bool in) const {
  if (i.action() == Action::Copy) return i.inputs[0].bytes();
  const TensorId workspace = i.workspace();
  int64_t bytes = workspace == no_tensor ? 0 : tensor(workspace).bytes;
  for (const Operand& o : in ? i.outputs : i.inputs)
    if (o.present() && tensor(o.tensor).life == Life::Segment) bytes += o.bytes();
  return bytes;
}

std::vector<std::pair<TensorId, Transfers::Use>> Transfers::uses_of(const Instruction& i, size_t index) const {
  std::vector<std::pair<TensorId, Use>> out;
  const bool transfers = is_transfer(i);
  for (const auto* operands : {&i.inputs, &i.outputs})
    for (const Operand& o : *operands)
      if (o.present()) out.push_back({o.tensor, {o.offset, o.offset + o.bytes(), o.writes(), transfers, index}});
  if (const TensorId workspace = i.workspace(); workspace != no_tensor)
    out.push_back({workspace, {0, tensor(workspace).bytes, true, transfers, index}});
  return out;
}

void Transfers::find_uses() {
  for (const Transfer& t : transfers_)
    for (const auto& [id, use] : uses_of(code_[t.at], 0)) uses_[id];
  size_t tasks = 0, transfers = 0;
  for (const Instruction& i : code_) {
    if (i.action() == Action::Record || i.action() == Action::Wait) continue;
    for (const auto& [id, use] : uses_of(i, is_transfer(i) ? transfers : tasks))
      if (const auto of = uses_.find(id); of != uses_.end()) of->second.push_back(use);
    ++(is_transfer(i) ? transfers : tasks);
  }
}

void Transfers::find_bounds() {
  for (Transfer& t : transfers_) t.most = tasks_.size();
  for (size_t k = 0; k < transfers_.size(); ++k) {
    Transfer& t = transfers_[k];
    for (const auto& [id, mine] : uses_of(code_[t.at], k)) {
      bool late = false;
      for (const Use& other : uses_.at(id)) {
        if (other.transfers && other.index == k) late = true;
        else if (!mine.conflicts(other)) continue;
        else if (other.transfers && !late && transfers_[other.index].queue != t.queue) t.after.push_back(other.index);
        else if (!other.transfers && !late) t.least = std::max(t.least, other.index + 1);
        else if (!other.transfers) t.most = std::min(t.most, other.index);
      }
    }
  }
}

/// Runs the segment with its transfers as they are chosen. The seconds that it takes.
double Transfers::run() {
  std::map<uint32_t, double> queues;
  std::vector<double> wait(tasks_.size() + 1, 0);
  double now = 0, last = 0;
  size_t next = 0;
  const auto gap_at = [&](size_t place) {
    const auto next_task =
        std::lower_bound(tasks_.begin(), tasks_.end(), place, [](const Task& task, size_t at) { return task.place < at; });
    return static_cast<size_t>(next_task - tasks_.begin());
  };
  for (size_t gap = 0; gap <= tasks_.size(); ++gap) {
    for (; next < transfers_.size() && transfers_[next].gap == gap; ++next) {
      Transfer& t = transfers_[next];
      double& queue = queues[t.queue];
      const size_t begin = gap_at(t.begin);
      t.start = std::max(queue, begin ? tasks_[begin - 1].finish : 0.0);
      for (const size_t other : t.after) t.start = std::max(t.start, transfers_[other].finish);
      t.finish = queue = t.start + t.seconds;
      double& waits = wait[gap_at(t.end)];
      waits = std::max(waits, t.finish);
      last = std::max(last, t.finish);
    }
    if (gap == tasks_.size()) break;
    now = tasks_[gap].finish = std::max(now, wait[gap]) + tasks_[gap].seconds;
  }
  return std::max(now, last);
}

/// In an order that a list of instructions can have: on each queue as placed, and after what has to be over.
void Transfers::keep_order() {
  std::map<uint32_t, size_t> queues;
  for (Transfer& t : transfers_) {
    size_t& queue = queues[t.queue];
    t.begin = std::max(t.begin, queue);
    for (const size_t other : t.after) t.begin = std::max(t.begin, transfers_[other].begin);
    queue = t.begin;
    t.end = std::max(t.end, t.begin);
  }
}

void Transfers::choose() {
  for (Transfer& t : transfers_) {
    t.begin = first_of(t.least);
    t.end = last_of(t.most);
  }
  keep_order();
  const double all = run();

  // The latest start of each task and transfer, from the last to the first: what starts no later makes the segment no longer. `gate` is the
  // earliest of the latest starts of the transfers that a gap lets begin.
  const size_t n = tasks_.size();
  std::vector<double> task_latest(n + 1, all), transfer_latest(transfers_.size(), all), gate(n + 1, all);
  std::map<uint32_t, double> queues;
  size_t next = transfers_.size();
  for (size_t gap = n + 1; gap-- > 0;) {
    if (gap < n) task_latest[gap] = std::min(task_latest[gap + 1], gate[gap + 1]) - tasks_[gap].seconds;
    for (; next > 0 && transfers_[next - 1].gap == gap; --next) {
      const Transfer& t = transfers_[next - 1];
      double& latest = transfer_latest[next - 1];
      double& queue = queues.try_emplace(t.queue, all).first->second;
      queue = latest = std::min({queue, task_latest[t.most], latest}) - t.seconds;
      for (const size_t other : t.after) transfer_latest[other] = std::min(transfer_latest[other], latest);
      gate[t.least] = std::min(gate[t.least], latest);
    }
  }

  // What brings something begins after the tasks that are over by its latest start. When they are follows from the transfers before it, each
  // of which starts by its own latest.
  std::vector<double> wait(n + 1, 0);
  queues.clear();
  double now = 0;
  size_t task = 0;
  for (size_t c = 0; c < transfers_.size(); ++c) {
    Transfer& t = transfers_[c];
    for (; task < t.gap; ++task) now = tasks_[task].finish = std::max(now, wait[task]) + tasks_[task].seconds;
    double& queue = queues[t.queue];
    t.start = std::max(queue, t.least ? tasks_[t.least - 1].finish : 0.0);
    for (const size_t other : t.after) t.start = std::max(t.start, transfers_[other].finish);
    const double by = std::max(t.start, transfer_latest[c] * kSameSeconds);
    size_t begin = t.least;
    while (t.in && begin < t.gap && tasks_[begin].finish <= by) ++begin;
    t.begin = first_of(begin);
    if (begin) t.start = std::max(t.start, tasks_[begin - 1].finish);
    t.finish = queue = t.start + t.seconds;
    wait[t.most] = std::max(wait[t.most], t.finish);
  }
  keep_order();
  run();
  // Queue 0 waits for what takes something away where it is over, or where the task has slack to wait: as long as it makes nothing longer
  // that begins after the task.
  const auto end_at = [&](const Transfer& t, size_t gap) {
    return gap >= t.most ? last_of(t.most) : std::max({first_of(gap), t.begin, t.place});
  };
  std::vector<size_t> when_over(transfers_.size());
  for (size_t c = 0; c < transfers_.size(); ++c) {
    Transfer& t = transfers_[c];
    if (t.in) continue;
    size_t over = t.gap, slack = t.gap;
    while (over < t.most && (over == 0 || tasks_[over - 1].finish * kSameSeconds < t.finish)) ++over;
    while (slack < t.most && task_latest[slack] * kSameSeconds < transfer_latest[c] + t.seconds) ++slack;
    when_over[c] = end_at(t, over);
    t.end = end_at(t, std::min(over, slack));
  }
  if (run() <= all * kSameSeconds) return;
  for (size_t c = 0; c < transfers_.size(); ++c)
    if (!transfers_[c].in) transfers_[c].end = when_over[c];
}

int64_t Transfers::in_flight() const {
  std::vector<int64_t> changes(places_ + 2, 0);
  for (const Transfer& t : transfers_) {
    const auto [from, to] = beyond(t);
    changes[from] += t.bytes;
    changes[to] -= t.bytes;
  }
  int64_t now = 0, most = 0;
  for (const int64_t change : changes) most = std::max(most, now += change);
  return most;
}

void Transfers::restrain(int64_t bytes) {
  std::vector<int64_t> held(places_ + 1, 0);
  for (Transfer& t : transfers_) {
    const auto fits = [&](size_t place) { return held[place] + t.bytes <= bytes; };
    const auto [from, to] = beyond(t);
    if (t.in) {
      t.begin = to;
      while (t.begin > from && fits(t.begin - 1)) held[--t.begin] += t.bytes;
    } else {
      size_t end = from;
      while (end < to && fits(end)) held[end++] += t.bytes;
      t.end = end == from ? t.place : end;
    }
  }
  keep_order();
}

std::vector<std::pair<size_t, size_t>> Transfers::twice() const {
  // Nothing but copies writes what lies in the bytes that a copy has brought. Exchanges stay: all processes have the same ones.
  const auto brought = [&](const Transfer& t) {
    const TensorId to = code_[t.at].outputs[0].tensor;
    const std::vector<Use>& uses = uses_.at(to);
    return program_.tensors[static_cast<size_t>(to)].life == Life::Segment && uses.size() > 1 &&
           std::count_if(uses.begin(), uses.end(), [](const Use& use) { return use.writes || use.transfers; }) == 1;
  };
  std::vector<std::pair<size_t, size_t>> out;
  std::map<std::tuple<TensorId, int64_t, int64_t>, size_t> before;
  for (size_t c = 0; c < transfers_.size(); ++c) {
    const Transfer& t = transfers_[c];
    if (code_[t.at].launch() || !t.in || !brought(t)) continue;
    const Operand& from = code_[t.at].inputs[0];
    const auto [first, fresh] = before.try_emplace(std::tuple(from.tensor, from.offset, from.bytes()), c);
    if (fresh) continue;
    const Transfer& other = transfers_[first->second];
    const std::vector<Use>& uses = uses_.at(code_[other.at].outputs[0].tensor);
    const Use mine = {from.offset, from.offset + from.bytes(), false, true, c};
    const std::vector<Use>& home = uses_.at(from.tensor);
    const auto at = [&](size_t index) {
      return std::find_if(home.begin(), home.end(), [&](const Use& use) { return use.transfers && use.index == index; });
    };
    const bool changed = std::any_of(at(first->second), at(c), [&](const Use& use) { return use.conflicts(mine); });
    if (!changed && t.begin <= tasks_[uses.back().index].place) out.emplace_back(other.at, t.at);
    else first->second = c;
  }
  return out;
}

std::vector<Instruction> Transfers::made() const {
  std::vector<std::vector<size_t>> begins(places_ + 1), ends(places_ + 1);
  for (size_t c = 0; c < transfers_.size(); ++c) {
    begins[transfers_[c].begin].push_back(c);
    ends[transfers_[c].end].push_back(c);
  }
  std::vector<Instruction> out;
  uint32_t events = 0;  // in use
  for (const Task& task : tasks_) events = std::max(events, code_[task.at].event);
  std::vector<uint32_t> event(transfers_.size(), 0);
  // known[{q, p}]: queue q has waited for the transfers of queue p before this number.
  std::map<std::pair<uint32_t, uint32_t>, size_t> known;
  const auto wait = [&](uint32_t queue, size_t transfer) {
    size_t& of = known[{queue, transfers_[transfer].queue}];
    if (of > transfer) return;
    of = transfer + 1;
    out.push_back(sync(Action::Wait, queue, event[transfer]));
  };
  // The last of each queue stands for those before it.
  const auto wait_for = [&](size_t place, bool at_leisure) {
    for (auto c = ends[place].rbegin(); c != ends[place].rend(); ++c)
      if (at_leisure == (transfers_[*c].begin < place && place < last_of(transfers_[*c].most))) wait(0, *c);
  };
  for (size_t place = 0, next = 0; place <= places_; ++place) {
    // What is over gives its bytes back before others begin; what may not be over does not keep them from beginning.
    wait_for(place, true);
    std::set<uint32_t> gated;
    const uint32_t done = begins[place].empty() ? 0 : ++events;
    if (done) out.push_back(sync(Action::Record, 0, done));
    for (const size_t c : begins[place]) {
      const uint32_t queue = transfers_[c].queue;
      if (gated.insert(queue).second) out.push_back(sync(Action::Wait, queue, done));
      for (const size_t other : transfers_[c].after) wait(queue, other);
      out.push_back(code_[transfers_[c].at]);
      out.back().queue = queue;
      out.back().event = event[c] = ++events;
    }
    wait_for(place, false);
    if (next < tasks_.size() && tasks_[next].place == place) out.push_back(code_[tasks_[next++].at]);
  }
  return out;
}

}  // namespace galley
