#include "host/tools/report/profile.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "host/base/json.hpp"
#include "host/plan/timing.hpp"
#include "host/tools/report/columns.hpp"

namespace galley {
namespace {

/// The end of one segment and the begin of the next, as the trace draws them.
constexpr double kGap = 1e-5;

double bytes_of(const Instruction& i) {
  double sum = 0;
  for (const auto* list : {&i.inputs, &i.outputs})
    for (const Operand& o : *list)
      if (o.present()) sum += static_cast<double>(o.bytes()) * (o.access == GALLEY_READ_WRITE || o.access == GALLEY_ACCUMULATE ? 2 : 1);
  return sum;
}

std::string line(const char* format, auto... values) {
  std::string out(256, '\0');
  out.resize(static_cast<size_t>(std::max(0, std::snprintf(out.data(), out.size(), format, values...))));
  return out;
}

/// Whose a launch is in the table of strategies: what one asked of the host itself, by what it is.
std::string whose(const Instruction& i, SegmentKind segment) {
  if (!i.strategy.empty()) return i.strategy;
  if (i.recomputed) return "recomputation";
  const bool casts = i.launch() && i.inputs.size() == 1 && i.outputs.size() == 1 && i.inputs[0].dtype != i.outputs[0].dtype &&
                     op_text(*i.launch()) == "copy";
  if (casts) return "casts between precisions";
  return segment == SegmentKind::Micro ? "the model" : "the host";
}

std::string percent(double share) { return share > 0 ? line("%.1f", 100 * share) : "-"; }

}  // namespace

void Profile::add(std::span<const TimedInstruction> timed) {
  if (timed.empty() || timed.front().segment == SegmentKind::Eval) return;
  if (timed.front().segment == SegmentKind::Window && ++steps_ == 2) {
    ops_.clear();
    strategies_.clear();
    kernels_.clear();
    seconds_ = 0;
  }
  double end = 0;
  for (const TimedInstruction& instruction : timed) {
    const Instruction& i = program_.segment(instruction.segment).code[instruction.instruction];
    const double seconds = instruction.end - instruction.begin, bytes = bytes_of(i);
    end = std::max(end, instruction.end);
    const Launch* launch = i.launch();
    const std::string op = launch ? op_text(*launch) : "copies between memories";
    Total& kernel = kernels_[{op, launch ? launch->kernel->name : ""}];
    for (Total* total : {&ops_[op], &kernel, &strategies_[whose(i, instruction.segment)]}) {
      ++total->launches;
      total->seconds += seconds;
      total->flops += launch ? launch->flops : 0;
      total->bytes += bytes;
      total->ideal_flops_seconds += arithmetic_seconds(i, target_);
    }
  }
  seconds_ += end;
}

std::string Profile::table(const char* title, const Totals& totals, size_t columns) const {
  std::vector<std::pair<std::string, Total>> rows(totals.begin(), totals.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  size_t width = std::char_traits<char>::length(title);
  for (const auto& [name, total] : rows) width = std::max(width, display_width(name));
  constexpr size_t numbers = 60;  // columns of those after the name
  width = std::min(width, std::max<size_t>(columns, numbers + 18) - numbers);
  const auto steps = static_cast<double>(counted_steps());
  std::string out = "  " + left_in(title, width) +
                    line(" %8s %9s %6s %8s %6s %6s %8s\n", "launches", "ms", "time %", "GFLOP/s", "peak %", "GB/s", "peak %");
  for (const auto& [name, total] : rows) {
    const bool timed = total.seconds > 0;
    out += "  " + left_in(name, width) +
           line(" %8.4g %9.3f %6s %8.1f %6s %6.1f %8s\n", static_cast<double>(total.launches) / steps, 1e3 * total.seconds / steps,
                percent(seconds_ > 0 ? total.seconds / seconds_ : 0).c_str(), timed ? 1e-9 * total.flops / total.seconds : 0,
                percent(timed ? total.ideal_flops_seconds / total.seconds : 0).c_str(), timed ? 1e-9 * total.bytes / total.seconds : 0,
                (percent(timed ? total.bytes / target_.bandwidth() / total.seconds : 0) + (above(total) ? "*" : "")).c_str());
  }
  return out;
}

bool Profile::above(const Total& total) const { return total.seconds > 0 && total.bytes > target_.bandwidth() * total.seconds; }

std::string Profile::text(size_t columns) const {
  if (steps_ == 0) return "";
  const int64_t steps = counted_steps();
  return line(
             "profile: %.3f ms a step on the device, mean of %lld steps%s; launched one by one, so small steps take longer than in a run\n",
             1e3 * seconds_ / static_cast<double>(steps), static_cast<long long>(steps), steps_ > 1 ? " (without the first)" : "") +
         table("op", ops_, columns) + table("strategy", strategies_, columns) + notes();
}

Table Profile::total_json(const Total& total) const {
  const auto steps = static_cast<double>(counted_steps());
  return {{"launches", Value(static_cast<double>(total.launches) / steps)},
          {"seconds", Value(total.seconds / steps)},
          {"share", Value(seconds_ > 0 ? total.seconds / seconds_ : 0)},
          {"flops", Value(total.flops / steps)},
          {"bytes", Value(total.bytes / steps)},
          {"peak_seconds", Value(total.ideal_flops_seconds / steps)}};
}

std::string Profile::json() const {
  if (steps_ == 0) return "";
  const auto sorted = [](std::vector<Table> rows) {
    std::stable_sort(rows.begin(), rows.end(),
                     [](const Table& a, const Table& b) { return std::get<double>(a.at("seconds")) > std::get<double>(b.at("seconds")); });
    List out;
    for (Table& row : rows) out.emplace_back(std::move(row));
    return Value(std::move(out));
  };
  std::vector<Table> ops, strategies;
  for (const auto& [name, total] : kernels_) {
    ops.push_back(total_json(total));
    ops.back()["op"] = Value(name.first);
    ops.back()["kernel"] = Value(name.second);
  }
  for (const auto& [name, total] : strategies_) {
    strategies.push_back(total_json(total));
    strategies.back()["strategy"] = Value(name);
  }
  return to_json(Value(Table{{"steps", Value(counted_steps())},
                             {"seconds", Value(seconds_ / static_cast<double>(counted_steps()))},
                             {"peak_bandwidth", Value(target_.bandwidth())},
                             {"ops", sorted(std::move(ops))},
                             {"strategies", sorted(std::move(strategies))}}),
                 2) +
         "\n";
}

std::string Profile::notes() const {
  std::string out = "  Of gradients that are accumulated, what is added is part of the launches that make them.\n";
  if (std::any_of(ops_.begin(), ops_.end(), [this](const auto& row) { return above(row.second); }))
    out += line("  * faster than the memory that the target describes, %.1f GB/s: operands were in caches%s\n", 1e-9 * target_.bandwidth(),
                target_.memories[0].host_access ? ", or the memory is faster: of a processor that figure is assumed, not measured" : "");
  return out;
}

void Trace::add(std::span<const TimedInstruction> timed) {
  if (timed.empty()) return;
  if (timed.front().segment == SegmentKind::Window && ++steps_ == kFirst) {
    events_.clear();  // of the first step
    offset_ = 0;
  }
  if (steps_ > kLast) return;
  double end = 0;
  for (const TimedInstruction& instruction : timed) {
    const Instruction& i = program_.segment(instruction.segment).code[instruction.instruction];
    end = std::max(end, instruction.end);
    events_ += line(",\n{\"ph\": \"X\", \"pid\": 0, \"tid\": %u, \"ts\": %.3f, \"dur\": %.3f, ", instruction.queue,
                    1e6 * (offset_ + instruction.begin), 1e6 * (instruction.end - instruction.begin));
    events_ += "\"name\": " + json_quote(i.name) + ", \"cat\": " + json_quote(i.launch() ? op_text(*i.launch()) : "copy") +
               ", \"args\": {\"segment\": " + json_quote(segment_names[static_cast<size_t>(instruction.segment)]);
    if (i.launch()) events_ += ", \"kernel\": " + json_quote(i.launch()->kernel->name);
    if (!i.strategy.empty()) events_ += ", \"strategy\": " + json_quote(i.strategy);
    events_ += "}}";
  }
  offset_ += end + kGap;
}

Status Trace::finish() {
  std::string text = "[{\"ph\": \"M\", \"pid\": 0, \"name\": \"process_name\", \"args\": {\"name\": \"galley\"}}";
  const auto name_of = [](Queue role) {
    switch (role) {
      case Queue::In: return "copies in";
      case Queue::Out: return "copies out";
      case Queue::Exchange: return "exchanges";
      default: return "compute";
    }
  };
  for (size_t queue = 0; queue < target_.queues.size(); ++queue)
    text += ",\n{\"ph\": \"M\", \"pid\": 0, \"tid\": " + std::to_string(queue) +
            ", \"name\": \"thread_name\", \"args\": {\"name\": " + json_quote(name_of(target_.queues[queue])) + "}}";
  TRY_STATUS(file_.file().write(text + events_ + "\n]\n"));
  return file_.finish();
}

}  // namespace galley
