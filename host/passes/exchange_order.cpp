#include "host/passes/exchange_order.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "host/passes/passes.hpp"
#include "host/plan/checksums.hpp"
#include "host/plan/outline.hpp"
#include "host/plan/timing.hpp"

namespace galley {
namespace {

/// A sum waits with others that take at most this share of the segment's.
constexpr int64_t kWaitingShare = 128;

/// How many instructions write a tensor.
using Writers = std::map<TensorId, size_t>;

Writers writers_of(const std::vector<Instruction>& code) {
  Writers out;
  for (const Instruction& i : code)
    for (const auto* operands : {&i.inputs, &i.outputs})
      for (const Operand& o : *operands)
        if (o.present() && o.writes()) ++out[o.tensor];
  return out;
}

/// Whether an exchange makes a whole tensor, which nobody used before, of what nothing in the segment writes.
bool gathers(const Program& program, const Instruction& i, const Writers& writers) {
  if (!i.exchanges() || i.when != When::Always || i.outputs.empty() || !i.outputs[0].present()) return false;
  const auto life = [&](const Operand& o) { return program.tensors[static_cast<size_t>(o.tensor)].life; };
  const auto lies_there = [&](const Operand& o) { return !o.present() || (life(o) == Life::Run && !writers.contains(o.tensor)); };
  return life(i.outputs[0]) == Life::Segment && !i.outputs[0].reads() && std::ranges::all_of(i.inputs, lies_there);
}

struct OrderedExchange {
  size_t at;       ///< its position in the code
  double clock;    ///< seconds of the arithmetic before it
  double seconds;  ///< on the link
  int64_t bytes;   ///< of the whole tensor
  bool gathers;    ///< may come earlier
};

/// Numbers each instruction by the stretch of code that it is part of or comes before: work on one of the model's blocks, or on none.
std::vector<size_t> stretches(const std::vector<Instruction>& code) {
  std::vector<size_t> out(code.size(), 0);
  std::optional<int64_t> block;
  size_t number = 0;
  for (size_t at = code.size(); at-- > 0;) {
    const Launch* const launch = code[at].exchanges() ? nullptr : code[at].launch();
    if (launch && launch->flops > 0) {
      const int64_t own = launch->nodes[0].block;
      number += block && *block != own;
      block = own;
    }
    out[at] = number;
  }
  return out;
}

class ExchangeOrder {
 public:
  ExchangeOrder(const Program& program, const Target& target, const std::vector<Instruction>& code) : code_(code) {
    const Writers writers = writers_of(code);
    double& clock = arithmetic_;
    for (size_t at = 0; at < code.size(); ++at) {
      const Instruction& i = code[at];
      if (!i.exchanges()) {
        clock += arithmetic_seconds(i, target);
        continue;
      }
      const int64_t bytes = whole_bytes(program, i);
      exchanges_.push_back({at, clock, whole_seconds(i, bytes, target), bytes, gathers(program, i, writers)});
      if (!exchanges_.back().gathers) added_ += bytes;
    }
  }

  /// Returns whether kernels would wait for exchanges whatever their order.
  bool exchanges_take_longer(const Program& program) const {
    double seconds = 0;
    for (const OrderedExchange& e : exchanges_) seconds += share_of(program, code_[e.at]) * e.seconds;
    return seconds > arithmetic_;
  }

  /// Returns for each sum, in their order, the gathers that come before it.
  std::vector<std::pair<size_t, std::vector<size_t>>> moved() const {
    std::vector<std::pair<size_t, std::vector<size_t>>> out;
    std::vector<bool> done(exchanges_.size(), false);
    double now = 0, late = 0;  // by how much kernels are later than their arithmetic
    const auto run = [&](size_t k) {
      const OrderedExchange& e = exchanges_[k];
      done[k] = true;
      now = (e.gathers ? now : std::max(now, e.clock + late)) + e.seconds;
      if (e.gathers) late = std::max(late, now - e.clock);
    };
    for (size_t k = 0; k < exchanges_.size(); ++k) {
      if (done[k]) continue;
      if (exchanges_[k].gathers) {
        run(k);
        continue;
      }
      const OrderedExchange& sum = exchanges_[k];
      std::vector<size_t> before;
      int64_t waiting = sum.bytes;
      for (size_t next = k + 1; next < exchanges_.size() && waiting <= added_ / kWaitingShare; ++next) {
        const OrderedExchange& e = exchanges_[next];
        if (done[next]) continue;
        if (!e.gathers) {
          waiting += e.bytes;
          continue;
        }
        const double ends = std::max(now, sum.clock + late) + sum.seconds + e.seconds;
        if (ends <= e.clock + late || !may_pass(e.at, sum.at)) break;
        before.push_back(e.at);
        run(next);
      }
      if (!before.empty()) out.emplace_back(sum.at, std::move(before));
      run(k);
    }
    return out;
  }

 private:
  /// Bytes of the whole tensor; of a sum of parts, of an even part: processes have larger and smaller ones.
  static int64_t whole_bytes(const Program& program, const Instruction& i) {
    int64_t bytes = 0;
    for (const auto* operands : {&i.inputs, &i.outputs})
      for (const Operand& o : *operands) {
        if (!o.present()) continue;
        const ProgramTensor& t = program.tensors[static_cast<size_t>(o.tensor)];
        if (t.is_part() && !t.neighbours && !i.launch()->nodes[0].attrs.find("ends")) return galley::whole_bytes(t) / program.sharers;
        bytes = std::max(bytes, o.bytes());
      }
    return bytes;
  }

  /// Seconds on the link if all processes had as much of the tensor.
  static double whole_seconds(const Instruction& i, int64_t bytes, const Target& target) {
    const AlongAxis axis = along_axis(i);
    const auto n = static_cast<double>(axis.ranks);
    const double times = i.launch()->nodes[0].attrs.find("ends") ? 1 : 2;  // a sum for all is made in parts, which are then gathered
    return link_seconds(axis, times * (n - 1) / n * static_cast<double>(bytes), target);
  }

  /// Whether nothing from one position to the other uses what the instruction makes.
  bool may_pass(size_t at, size_t to) const {
    std::set<TensorId> made;
    if (const TensorId workspace = code_[at].workspace(); workspace != no_tensor) made.insert(workspace);
    for (const Operand& o : code_[at].outputs)
      if (o.present()) made.insert(o.tensor);
    bool free = true;
    for (size_t i = to; i < at && free; ++i) visit_touched(code_[i], [&](TensorId t) { free = free && !made.contains(t); });
    return free;
  }

  const std::vector<Instruction>& code_;
  std::vector<OrderedExchange> exchanges_;
  int64_t added_ = 0;      ///< bytes
  double arithmetic_ = 0;  ///< seconds
};

}  // namespace

void share_gathers(const Program& program, const Target& target, std::vector<Instruction>& code) {
  const Writers writers = writers_of(code);
  const bool waits = ExchangeOrder(program, target, code).exchanges_take_longer(program);
  const std::vector<size_t> stretch = stretches(code);
  struct Before {
    Operand from, to;
    const galley_op* op;
    size_t exchange;  ///< how many there are up to it
    size_t stretch;
  };
  const auto brings_again = [&](const Before& first, const Instruction& second) {
    const Operand &from = second.inputs[0], &to = second.outputs[0];
    return second.launch()->op() == first.op && from.offset == first.from.offset && to.shape == first.to.shape &&
           to.dtype == first.to.dtype && to.offset == 0 && first.to.offset == 0 && writers.at(to.tensor) == 1 &&
           writers.at(first.to.tensor) == 1;
  };
  std::vector<Instruction> left;
  std::map<TensorId, TensorId> now;
  std::map<TensorId, Before> before;  // by what is gathered
  size_t exchange = 0;
  for (size_t at = 0; at < code.size(); ++at) {
    Instruction& i = code[at];
    if (gathers(program, i, writers)) {
      const Before own = {i.inputs[0], i.outputs[0], i.launch()->op(), exchange + 1, stretch[at]};
      const auto [first, fresh] = before.try_emplace(own.from.tensor, own);
      const Before& had = first->second;
      if (!fresh && (had.exchange == exchange || (waits && had.stretch == own.stretch)) && brings_again(had, i)) {
        now[own.to.tensor] = had.to.tensor;
        continue;
      }
      first->second = own;
    }
    exchange += i.exchanges();
    for (auto* operands : {&i.inputs, &i.outputs})
      for (Operand& o : *operands)
        if (const auto to = now.find(o.tensor); to != now.end()) {
          o.tensor = to->second;
          o.value = no_tensor;
        }
    left.push_back(std::move(i));
  }
  code = std::move(left);
}

void order_exchanges(const Program& program, const Target& target, std::vector<Instruction>& code) {
  const auto moved = ExchangeOrder(program, target, code).moved();
  if (moved.empty()) return;
  std::set<size_t> ahead;
  std::vector<Instruction> out;
  for (size_t at = 0, next = 0; at < code.size(); ++at) {
    for (; next < moved.size() && moved[next].first == at; ++next)
      for (const size_t gather : moved[next].second) {
        ahead.insert(gather);
        out.push_back(code[gather]);
      }
    if (!ahead.contains(at)) out.push_back(code[at]);
  }
  code = std::move(out);
}

uint32_t exchange_queue(const Program& program, const Target& target) {
  return program.ranks > 1 && target.link_for(program.ranks) ? target.queue_for(Queue::Exchange) : 0;
}

Status exchanges(Compilation& c) {
  if (c.program.ranks == 1) return ok();
  const bool hides = exchange_queue(c.program, c.target) != 0;
  for (const SegmentKind kind : {SegmentKind::Micro, SegmentKind::Update, SegmentKind::Eval, SegmentKind::Sample, SegmentKind::Next}) {
    std::vector<Instruction>& code = c.program.segment(kind).code;
    share_gathers(c.program, c.target, code);
    if (hides) order_exchanges(c.program, c.target, code);
  }
  return ok();
}

}  // namespace galley
