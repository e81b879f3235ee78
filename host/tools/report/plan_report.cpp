#include "host/tools/report/plan_report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <map>
#include <set>

#include "host/base/json.hpp"
#include "host/base/new_file.hpp"
#include "host/plan/timing.hpp"
#include "host/session/study.hpp"
#include "host/tools/report/columns.hpp"
#include "host/tools/report/updates_report.hpp"

namespace galley {
namespace {

std::string moment_text(const ClassPlan& c) {
  return std::string(segment_names[static_cast<size_t>(c.peak_at.segment)]) + " " + std::to_string(c.peak_at.index) + ", " + c.peak_name;
}

/// Live bytes of a class at every moment of the timeline.
std::vector<int64_t> live_bytes(const Program& program, const Plan& plan, const Target& target, size_t memory) {
  std::vector<int64_t> delta(static_cast<size_t>(plan.end) + 1, 0);
  for (size_t t = 0; t < program.tensors.size(); ++t) {
    const Placement& p = plan.placements[t];
    if (program.tensors[t].memory != memory || p.first < 0) continue;
    const int64_t bytes = round_up(program.tensors[t].bytes, target.memories[memory].alignment);
    delta[static_cast<size_t>(p.first)] += bytes;
    delta[static_cast<size_t>(p.last) + 1] -= bytes;
  }
  int64_t sum = 0;
  for (int64_t& d : delta) {
    sum += d;
    d = sum;
  }
  delta.resize(static_cast<size_t>(plan.end));
  return delta;
}

/// Draws memory over the instructions of a segment: blocks of eighths, the highest moment of each column.
std::string picture(const std::vector<int64_t>& live, size_t begin, size_t end, int64_t top, int columns) {
  static constexpr const char* eighths[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr int64_t height = 6;
  const size_t n = end - begin, width = std::min<size_t>(static_cast<size_t>(columns), n);
  std::vector<int64_t> column(width, 0);
  for (size_t i = 0; i < n; ++i) {
    int64_t& c = column[i * width / n];
    c = std::max(c, live[begin + i]);
  }
  std::string out;
  for (int64_t row = height - 1; row >= 0; --row) {
    out += "  ";
    for (const int64_t c : column) {
      const int64_t level = top ? c * height * 8 / top - row * 8 : 0;
      out += eighths[std::clamp<int64_t>(level, 0, 8)];
    }
    out.erase(out.find_last_not_of(' ') + 1);
    out += "\n";
  }
  return out;
}

/// Kernels that a step launches, what they compute, and what lies between the links of their chains and has no memory.
struct Launches {
  int64_t launches = 0, nodes = 0, bytes_without_memory = 0, varying = 0, exchanges = 0;
  double link_bytes = 0;  // that this process sends to others
  std::set<std::string> varying_kernels;
};

Launches launches_of(const Program& program) {
  Launches out;
  for (const SegmentKind kind : {SegmentKind::Window, SegmentKind::Micro, SegmentKind::Update})
    for (const Instruction& i : program.segment(kind).code) {
      const Launch* launch = i.launch();
      if (!launch) continue;
      const int64_t times = kind == SegmentKind::Micro ? program.own_micro_batches(i.when) : 1;
      out.launches += times;
      out.nodes += times * std::ssize(launch->nodes);
      out.link_bytes += static_cast<double>(times) * launch->link_bytes;
      if (i.exchanges()) out.exchanges += times;
      if (launch->varies) {
        out.varying += times;
        out.varying_kernels.insert(launch->kernel->name);
      }
      for (const Operand& o : i.outputs)
        if (o.inner && !o.present()) out.bytes_without_memory += times * o.bytes();
    }
  return out;
}

/// Returns the positions of a step; with windows by tokens, of the largest.
int64_t positions_a_step(const Program& program) { return program.rows * program.length * program.micro_batches; }

/// The share of a step's arithmetic that runs forward again.
double recomputed_share(const Program& program) {
  const double per_micro = program.flops_per_token * static_cast<double>(program.rows * program.length);
  return per_micro > 0 ? program.recomputed_flops / per_micro : 0;
}

/// Bytes at the peak of a class by the strategy that asks for them.
std::map<std::string, int64_t> asked_for(const Program& program, const Plan& plan, size_t memory) {
  const ClassPlan& c = plan.classes[memory];
  const int32_t peak = plan.segment_begin[static_cast<size_t>(c.peak_at.segment)] + c.peak_at.index;
  std::map<std::string, int64_t> out;
  for (size_t t = 0; t < program.tensors.size(); ++t) {
    const ProgramTensor& x = program.tensors[t];
    const Placement& p = plan.placements[t];
    if (x.memory == memory && !x.strategy.empty() && p.first >= 0 && p.first <= peak && peak <= p.last) out[x.strategy] += x.bytes;
  }
  return out;
}

/// "12.3 ms"
std::string seconds_text(double seconds) {
  char text[32];
  if (seconds < 1) std::snprintf(text, sizeof text, "%.3g ms", 1e3 * seconds);
  else std::snprintf(text, sizeof text, "%.3g s", seconds);
  return text;
}

}  // namespace

DiskUse disk_use(const Program& program, const Recipe& recipe) {
  DiskUse out;
  for (const Instruction& i : program.segment(SegmentKind::Export).code)
    if (i.write()) out.exported += elements(i.inputs[0].shape) * galley_dtype_bytes(i.write()->dtype);
  // No more than the run ever saves; for an instant one more than are kept, since the newest is complete before the oldest goes.
  // Where epochs are not yet a number of steps: as if it were many.
  const int64_t steps = recipe.steps > 0 ? recipe.steps : kMostSteps;
  int64_t saved = recipe.save.every > 0 ? steps / recipe.save.every : 0;
  if (recipe.save.final && (recipe.save.every == 0 || steps % recipe.save.every != 0)) ++saved;
  if (saved > 0) {
    for (const auto& [name, t] : program.resume) out.state += program.tensors[static_cast<size_t>(t)].bytes;
    out.states = recipe.save.keep < saved ? recipe.save.keep + 1 : saved;
  }
  if (recipe.save.best) {  // besides, for an instant the one before it
    if (saved == 0)
      for (const auto& [name, t] : program.resume) out.state += program.tensors[static_cast<size_t>(t)].bytes;
    out.states += 2;
  }
  return out;
}

std::string plan_json(Table document) { return to_json(Value(std::move(document)), 2) + "\n"; }

Table plan_document(const Program& program, const Plan& plan, const Target& target, const DiskUse& disk,
                    const std::vector<int64_t>& allocated) {
  Table classes;
  for (size_t i = 0; i < plan.classes.size(); ++i) {
    const ClassPlan& c = plan.classes[i];
    Table owners;
    for (size_t o = 0; o < owner_names.size(); ++o) owners[owner_names[o]] = Value(c.owners[o]);
    Table entry = {{"planned", Value(c.planned)},
                   {"lower_bound", Value(c.lower_bound)},
                   {"owners", Value(std::move(owners))},
                   {"peak_at", Value(moment_text(c))}};
    Table strategies;
    for (const auto& [name, bytes] : asked_for(program, plan, i)) strategies[name] = Value(bytes);
    entry["strategies"] = Value(std::move(strategies));
    if (target.memories[i].capacity > 0) entry["capacity"] = Value(target.memories[i].capacity);
    if (i < allocated.size()) entry["allocated"] = Value(allocated[i]);
    classes[target.memories[i].name] = Value(std::move(entry));
  }
  Table kernels;
  for (const Program::Chosen& k : program.kernels) {
    Value& list = kernels.try_emplace(k.op, Value(List())).first->second;
    std::get<List>(list).emplace_back(Table{{"name", Value(k.kernel)}, {"plugin", Value(k.plugin)}});
  }
  const Launches step = launches_of(program);
  const Table launches = {
      {"a_step", Value(step.launches)}, {"nodes", Value(step.nodes)}, {"bytes_without_memory", Value(step.bytes_without_memory)}};
  const double seconds = step_seconds(program, target);
  Table a_step = {{"micro_batches", Value(program.micro_batches)},
                  {"positions", Value(positions_a_step(program))},
                  {"tokens", program.window_tokens > 0 ? Value(program.window_tokens) : Value()},
                  {"seconds_at_best", seconds > 0 ? Value(seconds) : Value()},
                  {"recomputed", Value(recomputed_share(program))}};
  if (program.lanes > 1 || program.ranks > 1) {
    a_step["lanes"] = Value(program.lanes);
    a_step["ranks"] = Value(program.ranks);
    if (program.sharers > 0) a_step["divided_among"] = Value(program.sharers);
    Table whole;
    for (const auto& [name, why] : program.whole) whole[name] = Value(why);
    if (!whole.empty()) a_step["whole"] = Value(std::move(whole));
    a_step["own_micro_batches"] = Value(program.own_micro_batches());
    a_step["exchanges"] = Value(step.exchanges);
    a_step["sent"] = Value(static_cast<int64_t>(step.link_bytes));
  }
  if (program.together > 1) a_step["together"] = Value(program.together);
  if (program.ranks > 1) {
    const ExchangeTimes times = exchange_times(program, target);
    a_step["link"] = times.link ? Value(times.link->name) : Value();
    a_step["exchange_seconds"] = times.link ? Value(times.seconds) : Value();
    a_step["exchange_seconds_alone"] = times.link ? Value(times.alone) : Value();
    a_step["hidden_from_positions"] = times.positions ? Value(*times.positions) : Value();
  }
  return {{"classes", Value(std::move(classes))},
          {"step", Value(a_step)},
          {"kernels", Value(std::move(kernels))},
          {"launches", Value(launches)},
          {"parameters", Value(program.parameters)},
          {"trainable", Value(program.trainable)},
          {"updates", updates_json(program)},
          {"beside_the_model", apart_json(program)},
          {"flops_per_token", Value(program.flops_per_token)},
          {"disk", Value(disk.total())}};
}

namespace {

Status write_memory(const StartEvent& start, const Value& process) {
  const Study& s = start.study;
  Table document = plan_document(s.program, s.plan, s.target, disk_use(s.program, s.recipe), start.allocated);
  if (!process.is_nil()) document.emplace("process", process);
  return write_atomic(start.directory / "memory.json", plan_json(std::move(document)));
}

}  // namespace

Status MemoryFile::started(const StartEvent& start) {
  begun_ = std::time(nullptr);
  first_ = start.steps_done;
  return write_memory(start, Value());
}

Status MemoryFile::step(const StepEvent& m) {
  loss_ = m.loss;
  stepped_ = true;
  return ok();
}

Status MemoryFile::validated(const ValidationEvent& v) {
  validation_loss_ = v.loss;
  validated_ = v.step > 0;
  return ok();
}

Status MemoryFile::ended(const EndEvent& end) {
  const Value process(Table{{"resident_peak", Value(end.resident)}, {"planned", Value(end.start.study.host_memory())}});
  TRY_STATUS(write_memory(end.start, process));
  const int64_t now = std::time(nullptr);
  Table run = {{"begun", Value(time_text(begun_))},
               {"ended", Value(time_text(now))},
               {"seconds", Value(now - begun_)},
               {"from_step", Value(first_)},
               {"to_step", Value(end.steps_done)}};
  if (stepped_) run["loss"] = Value(loss_);
  if (validated_) run["validation_loss"] = Value(validation_loss_);
  if (end.best_step > 0) run["best"] = Value(Table{{"step", Value(end.best_step)}, {"validation_loss", Value(end.best)}});
  Table out = {{"process", process}, {"run", Value(std::move(run))}};
  if (end.system)
    out[end.start.study.target.memories[0].name] =
        Value(Table{{"taken", Value(end.system->taken)}, {"capacity", Value(end.system->capacity)}});
  return write_atomic(end.start.directory / "usage.json", to_json(Value(out), 2) + "\n");
}

std::vector<std::string> memory_lines(const EndEvent& end) {
  const Study& s = end.start.study;
  const int64_t planned = s.host_memory();
  std::vector<std::string> out;
  if (end.system)
    out.push_back("memory of '" + s.target.memories[0].name + "': " + bytes_text(s.plan.classes[0].planned) +
                  " planned and allocated; with contexts, libraries and other processes " + bytes_text(end.system->taken) + " of " +
                  bytes_text(end.system->capacity) + " are taken");
  out.push_back("memory of the process: " + bytes_text(planned) + " planned; with the program and its libraries " +
                bytes_text(end.resident) + " at most");
  return out;
}

std::string fit_text(int64_t planned, int64_t limit) {
  const bool equal = bytes_text(planned) == bytes_text(limit);
  const auto text = [&](int64_t bytes) { return equal ? std::to_string(bytes) + " bytes" : bytes_text(bytes); };
  return text(planned) + " of " + text(limit) + ": " + (planned <= limit ? "fits" : "does not fit");
}

namespace {

/// Lines of a table.
class TableText {
 public:
  template <class... Values>
  void add(const char* format, Values... values) {
    char line[512];
    std::snprintf(line, sizeof line, format, values...);
    text += line;
  }
  std::string text;
};

/// How long the exchanges of a step take, what runs beside them, and how large a micro-batch would hide them.
void add_exchange_times(const Program& program, const Target& target, TableText& out) {
  const ExchangeTimes times = exchange_times(program, target);
  if (!times.link) {
    out.add(
        "  their time         not known: no link of the target joins %lld processes; give one in a file for --target:\n"
        "                               [[link]] with name, bandwidth (bytes/s) and latency (s); docs/ranks.md says more\n",
        static_cast<long long>(program.ranks));
    return;
  }
  out.add("  their time      %12s a step at best, on the link '%s'; nothing runs beside %s of it\n", seconds_text(times.seconds).c_str(),
          cut_middle(times.link->name, 40).c_str(), seconds_text(times.alone).c_str());
  if (times.positions)
    out.add("  hidden from     %12s positions a micro-batch on: its arithmetic takes as long as they do\n",
            count_text(static_cast<double>(*times.positions)).c_str());
}

/// What a step is: positions, work, launches, and what it takes at best.
void add_step(const Program& program, const Target& target, const DiskUse& disk, TableText& out) {
  const auto positions = static_cast<double>(positions_a_step(program));
  out.add("  parameters      %12s   trainable %s (%.2f %%)\n", count_text(static_cast<double>(program.parameters)).c_str(),
          count_text(static_cast<double>(program.trainable)).c_str(),
          100.0 * static_cast<double>(program.trainable) / static_cast<double>(std::max<int64_t>(program.parameters, 1)));
  const std::string micro = std::to_string(program.rows) + " x " + std::to_string(program.length);
  if (program.window_tokens > 0) {
    out.add("  a step          %12s tokens that count in the loss: up to %lld micro-batches of %s positions\n",
            count_text(static_cast<double>(program.window_tokens)).c_str(), static_cast<long long>(program.micro_batches), micro.c_str());
  } else {
    out.add("  a step          %12s positions: %lld micro-batch%s of %s\n", count_text(positions).c_str(),
            static_cast<long long>(program.micro_batches), program.micro_batches == 1 ? "" : "es", micro.c_str());
  }
  if (program.lanes > 1 || program.ranks > 1) {
    const int64_t each = program.in_a_lane(program.micro_batches), padding = each * program.lanes - program.micro_batches;
    out.add("  lanes           %12lld of %lld micro-batch%s each%s\n", static_cast<long long>(program.lanes), static_cast<long long>(each),
            each == 1 ? "" : "es", padding ? (", " + std::to_string(padding) + " of all are padding").c_str() : "");
    if (program.ranks > 1)
      out.add("  ranks           %12lld, this is number %lld and has %lld lane%s\n", static_cast<long long>(program.ranks),
              static_cast<long long>(program.rank), static_cast<long long>(program.lanes / program.groups()),
              program.lanes == program.groups() ? "" : "s");
    if (program.together > 1)
      out.add("  together        %12lld neighbours compute the same micro-batches, along the axis '%s'\n",
              static_cast<long long>(program.together), cut_middle(program.together_axis, 40).c_str());
    if (program.repeats_parts())
      out.add("  divided among   %12lld neighbours each, on the axis '%s': %lld groups have all parts\n",
              static_cast<long long>(program.sharers), cut_middle(program.sharers_axis, 40).c_str(),
              static_cast<long long>(program.groups() / program.sharers));
    if (!program.whole.empty())
      out.add("  whole on each   %12zu of the tensors that processes were to divide: '%s', because %s\n", program.whole.size(),
              program.whole.front().first.c_str(), program.whole.front().second.c_str());
    if (const Launches step = launches_of(program); step.exchanges)
      out.add("  exchanges       %12lld a step, in which each process sends %s\n", static_cast<long long>(step.exchanges),
              bytes_text(static_cast<int64_t>(step.link_bytes)).c_str());
    if (program.ranks > 1) add_exchange_times(program, target, out);
  }
  out.add("  work            %12sFLOP a position", count_text(program.flops_per_token).c_str());
  if (program.recomputed_flops > 0) out.add(", %.1f %% of it recomputation", 100 * recomputed_share(program));
  if (const Launches step = launches_of(program); step.launches) {
    out.add("\n  launches        %12lld a step, of %lld nodes", static_cast<long long>(step.launches), static_cast<long long>(step.nodes));
    if (step.bytes_without_memory) out.add("; %s between them without memory", bytes_text(step.bytes_without_memory).c_str());
    if (step.varying) {
      std::string names;
      for (const std::string& name : step.varying_kernels) names += (names.empty() ? "" : ", ") + name;
      out.add("\n  varying         %12lld launches of %s: other bytes in another run (deterministic = false)",
              static_cast<long long>(step.varying), names.c_str());
    }
  }
  if (const double best = step_seconds(program, target); best > 0) {
    const bool by_tokens = program.window_tokens > 0;
    const bool unknown = program.ranks > 1 && !target.link_for(program.ranks);
    out.add("\n  at best         %12s a step, %s %s/s: an estimate, each launch at the target's peak or bandwidth%s",
            seconds_text(best).c_str(), count_text((by_tokens ? static_cast<double>(program.window_tokens) : positions) / best).c_str(),
            by_tokens ? "tokens" : "positions", unknown ? ", without the time on links between processes" : "");
  }
  out.add("\n  on disk         %12s   %s saved, %s a resume state\n\n", bytes_text(disk.total()).c_str(), bytes_text(disk.exported).c_str(),
          bytes_text(disk.state).c_str());
}

/// The owners at the peak of a memory class, and what lives in it during a step.
void add_class(const Program& program, const Plan& plan, const Target& target, size_t i, int columns, TableText& out) {
  const ClassPlan& c = plan.classes[i];
  out.add("  memory '%s': %s (%lld bytes), %.2f %% above the least possible\n", target.memories[i].name.c_str(),
          bytes_text(c.planned).c_str(), static_cast<long long>(c.planned),
          c.lower_bound ? 100.0 * (static_cast<double>(c.planned) / static_cast<double>(c.lower_bound) - 1) : 0.0);
  if (const int64_t capacity = target.memories[i].capacity; capacity > 0)
    out.add("  capacity of '%s': %s\n", target.memories[i].name.c_str(), fit_text(c.planned, capacity).c_str());
  if (target.memories[i].host_access)
    out.text += "  besides, for the process, its program and its libraries: 57 to 83 MiB were measured; they are not planned\n";
  out.add("  peak at %s\n", moment_text(c).c_str());
  for (size_t o = 0; o < owner_names.size(); ++o) {
    if (!c.owners[o]) continue;
    const double share = static_cast<double>(c.owners[o]) / static_cast<double>(c.lower_bound);
    std::string bar;
    for (int64_t k = 0; k < std::lround(share * 40); ++k) bar += "█";
    out.add("    %-12s %12s %5.1f %%%s%s\n", owner_names[o], bytes_text(c.owners[o]).c_str(), 100 * share, bar.empty() ? "" : "  ",
            bar.c_str());
  }
  const std::map<std::string, int64_t> strategies = asked_for(program, plan, i);
  if (!strategies.empty()) out.text += "  of which asked for by\n";
  const auto wide = static_cast<size_t>(std::max(columns - 22, 40));
  for (const auto& [name, bytes] : strategies) {
    const size_t name_columns = std::min(std::max<size_t>(display_width(name), 40), wide);
    out.add("    %s %12s\n", left_in(name, name_columns).c_str(), bytes_text(bytes).c_str());
  }

  const auto live = live_bytes(program, plan, target, i);
  const auto begin = static_cast<size_t>(plan.segment_begin[static_cast<size_t>(SegmentKind::Micro)]),
             end = static_cast<size_t>(plan.segment_begin[static_cast<size_t>(SegmentKind::Eval)]);
  if (end > begin) {
    out.text += "\n  one step, from the first forward to the last update\n" +
                picture(live, begin, end, c.lower_bound, std::clamp(columns - 4, 20, 100)) + "\n";
  }
}

/// Adds the largest tensors at the peak of the first class.
void add_largest(const Program& program, const Plan& plan, int columns, TableText& out) {
  const ClassPlan& c = plan.classes[0];
  const int32_t peak = plan.segment_begin[static_cast<size_t>(c.peak_at.segment)] + c.peak_at.index;
  std::vector<size_t> order;
  for (size_t t = 0; t < program.tensors.size(); ++t)
    if (program.tensors[t].memory == 0 && plan.placements[t].first >= 0 && plan.placements[t].first <= peak &&
        peak <= plan.placements[t].last)
      order.push_back(t);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return program.tensors[a].bytes > program.tensors[b].bytes; });
  order.resize(std::min<size_t>(order.size(), 8));
  std::vector<std::string> shapes;
  size_t shape_columns = 0, name_columns = 0;
  for (const size_t k : order) {
    std::string& shape = shapes.emplace_back();
    for (const int64_t e : program.tensors[k].shape) shape += (shape.empty() ? "" : " x ") + std::to_string(e);
    shape_columns = std::max(shape_columns, shape.size());
    name_columns = std::max(name_columns, display_width(program.tensors[k].name));
  }
  const auto left = std::max<int64_t>(columns - 32 - static_cast<int64_t>(shape_columns), 16);
  name_columns = std::min(name_columns, static_cast<size_t>(left));
  out.text += "  largest at the peak\n";
  for (size_t k = 0; k < order.size(); ++k) {
    const ProgramTensor& t = program.tensors[order[k]];
    out.add("    %11s  %-11s  %s  %s\n", bytes_text(t.bytes).c_str(), owner_names[static_cast<size_t>(t.owner)],
            left_in(t.name, name_columns).c_str(), shapes[k].c_str());
  }
}

}  // namespace

std::string plan_table(const Program& program, const Plan& plan, const Target& target, const DiskUse& disk, int columns) {
  TableText out;
  add_step(program, target, disk, out);
  out.text += updates_text(program, columns);
  out.text += formats_text(program, columns);
  out.text += apart_text(program, columns);
  out.text += memory_table(program, plan, target, columns);
  return out.text;
}

std::string memory_table(const Program& program, const Plan& plan, const Target& target, int columns) {
  TableText out;
  for (size_t i = 0; i < plan.classes.size(); ++i)
    if (plan.classes[i].planned) add_class(program, plan, target, i, columns, out);
  if (!plan.classes.empty() && plan.classes[0].planned) add_largest(program, plan, columns, out);
  return out.text;
}

}  // namespace galley
