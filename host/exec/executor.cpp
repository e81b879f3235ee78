#include "host/exec/executor.hpp"

#include <algorithm>
#include <string>

#include "host/base/log.hpp"
#include "host/plugins/abi.hpp"
#include "host/plugins/call.hpp"
#include "host/plugins/library.hpp"

namespace galley {
namespace {

/// Of the last copy from or to the tensor in a segment; 0: that copy is on queue 0.
uint32_t event_of(const Program& program, SegmentKind kind, TensorId tensor) {
  uint32_t event = 0;
  for (const Instruction& i : program.segment(kind).code)
    if (i.action() == Action::Copy && (i.inputs[0].tensor == tensor || i.outputs[0].tensor == tensor)) event = i.event;
  return event;
}

bool runs_often(SegmentKind kind) { return kind != SegmentKind::Load && kind != SegmentKind::Export; }

/// One at the begin of a segment, and two around each of its instructions.
uint32_t marks_of(const Program& program) {
  size_t longest = 0;
  for (size_t k = 0; k < segment_count; ++k)
    if (runs_often(static_cast<SegmentKind>(k))) longest = std::max(longest, program.segments[k].code.size());
  return static_cast<uint32_t>(1 + 2 * longest);
}

}  // namespace

Executor::Executor(const Program& program, const Plan& plan, const Target& target, std::unique_ptr<Machine> machine,
                   const ExecutorOptions& options)
    : program_(program),
      plan_(plan),
      target_(target),
      host_(target.of_host()),
      machine_(std::move(machine)),
      views_(program, *machine_),
      scalars_(program, *machine_),
      together_(options.together),
      ranks_(options.ranks),
      exchanging_(options.exchanging),
      choices_(options.choices),
      timed_(options.timed),
      loading_(options.loading),
      image_event_(event_of(program, SegmentKind::Window, program.step_image)),
      readback_event_(event_of(program, SegmentKind::Update, program.readback)) {
  for (const MakeWatch& make : options.watching.by) watches_.push_back(make(program, plan, *machine_));
}

Result<std::unique_ptr<Executor>> Executor::create(const Program& program, const Plan& plan, const Target& target,
                                                   const galley_device& device, const ExecutorOptions& options) {
  // By itself: TRY returns from here, and what `new` had allocated by then would be lost.
  std::unique_ptr<Machine> machine = TRY(Machine::open(program, plan, target, device, options.watching.copies,
                                                       options.timed ? marks_of(program) : 0, options.shift, options.index));
  std::unique_ptr<Executor> executor(new Executor(program, plan, target, std::move(machine), options));
  TRY_STATUS(executor->prepare());
  return executor;
}

Executor::~Executor() {
  (void)machine_->synchronize();
  for (auto& of_segment : courses_)
    for (Course& course : of_segment)
      for (Stretch& stretch : course.stretches)
        if (stretch.run) machine_->discard(stretch.run);
  for (auto& segment : prepared_) {
    for (Prepared& prepared : segment) {
      for (void* state : {prepared.later == prepared.first ? nullptr : prepared.later, prepared.first}) {
        if (!state) continue;
        // Nothing is left to be told about a failure here.
        (void)call_plugin(caller_of(prepared.kernel, prepared.kernel->name), "release", [&](galley_error*) {
          prepared.kernel->release(state);
          return GALLEY_OK;
        });
      }
    }
  }
}

Result<void*> Executor::prepare(const Instruction& code, const galley_node_view* const* nodes, uint32_t n) {
  auto setup = new_struct<galley_kernel_setup>();
  const Launch& launch = *code.launch();
  setup.target = launch.on_host ? host_.get() : target_.get();
  setup.queue = launch.on_host ? nullptr : machine_->queue();
  setup.ranks = ranks_;
  setup.choices = choices_ ? choices_->table() : nullptr;
  const galley_kernel* kernel = launch.kernel;
  if (launch.workspace != no_tensor) {
    setup.workspace = machine_->kernel_address(launch.workspace);
    setup.workspace_bytes = program_.tensors[static_cast<size_t>(launch.workspace)].bytes;
  }
  if (launch.constants != no_tensor) {
    setup.constants = machine_->kernel_address(launch.constants);
    setup.constants_bytes = program_.tensors[static_cast<size_t>(launch.constants)].bytes;
  }
  void* state = nullptr;
  const Caller caller = caller_of(kernel, kernel->name);
  Status status = call_plugin(
      caller, "prepare", [&](galley_error* error) { return kernel->prepare(kernel->self, nodes, n, &setup, &state, error); }, Phase::Run);
  for (size_t i = 0; i < watches_.size() && status.ok(); ++i) {
    Status checked = watches_[i]->prepared(code);
    if (checked) continue;
    kernel->release(state);
    status = checked.error().exit == Exit::Plugin ? plugin_fault(caller, "prepare", checked.error()) : std::move(checked);
  }
  if (status.ok()) return state;
  const std::string whose = code.strategy.empty() ? "" : " of " + code.strategy;
  return plugin_error(
      "kernel '" + std::string(kernel->name) + "' cannot be prepared for '" + code.name + "'" + whose + ": " + status.error().cause,
      status.error().hint);
}

Status Executor::prepare() {
  for (size_t s = 0; s < prepared_.size(); ++s) {
    const Segment& segment = program_.segments[s];
    prepared_[s].resize(segment.code.size());
    for (size_t i = 0; i < segment.code.size(); ++i) {
      const Instruction& code = segment.code[i];
      Prepared& prepared = prepared_[s][i];
      prepared.action = code.action();
      prepared.queue = code.queue;
      prepared.event = code.event;
      if (const Launch* launch = code.launch()) {
        if (!launch->kernel) return plugin_error("'" + code.name + "' has no kernel");
        prepared.kernel = launch->kernel;
        prepared.caller = caller_of(launch->kernel, launch->kernel->name);
        if (machine_->names_work()) prepared.name = code.name + (code.strategy.empty() ? "" : " of " + code.strategy);
        const NodeViews::Pair pair = views_.of(static_cast<SegmentKind>(s), i);
        prepared.first = TRY(prepare(code, pair.first, pair.n));
        prepared.later = pair.later == pair.first ? prepared.first : TRY(prepare(code, pair.later, pair.n));
      } else if (code.action() == Action::Copy) {
        const Operand &from = code.inputs[0], &to = code.outputs[0];
        if (from.bytes() != to.bytes())
          return plugin_error("'" + code.name + "' copies " + std::to_string(from.bytes()) + " bytes to " + std::to_string(to.bytes()));
        prepared.copy = machine_->between(to.tensor, to.offset, from.tensor, from.offset, from.bytes());
      }
    }
  }
  return ok();
}

Error Executor::located(Error error, SegmentKind kind, size_t index) const {
  if (error.exit != Exit::Plugin) return error;
  const Instruction& code = program_.segment(kind).code[index];
  std::string place = std::string(segment_names[static_cast<size_t>(kind)]) + ", instruction " + std::to_string(index);
  if (!code.name.empty()) place += ", '" + code.name + "'";
  if (!code.strategy.empty()) place += " of " + code.strategy;
  if (const Launch* launch = code.launch()) place += ", kernel '" + std::string(launch->kernel->name) + "'";
  error.cause = place + ": " + error.cause;
  return error;
}

Status Executor::enqueue(const Prepared& prepared, const Instruction& code, bool later, WeightFiles& files, Exporter* exporter) {
  switch (prepared.action) {
    case Action::Launch: {
      if (machine_->names_work()) machine_->name_work(prepared.name.c_str());
      const Calling calling({prepared.caller.plugin, "enqueue", code.strategy, code.name, prepared.kernel->name});
      const Undisturbed before(prepared.caller.plugin, "enqueue", prepared.kernel->name);
      if (exchanging_ && code.exchanges()) exchanging_(code.name);
      void* const state = later ? prepared.later : prepared.first;
      Status launched = code.launch()->on_host ? machine_->run_on_host(*prepared.kernel, state, prepared.caller)
                                               : machine_->launch(prepared.queue, *prepared.kernel, state, prepared.caller);
      if (const std::string wrong = before.disturbed(); !wrong.empty() && launched)
        launched = plugin_fault(prepared.caller, "enqueue", plugin_error(wrong));
      if (machine_->names_work()) machine_->name_work(nullptr);
      return launched && code.records() ? machine_->record(prepared.queue, prepared.event) : std::move(launched);
    }
    case Action::Copy:
      TRY_STATUS(machine_->copy(prepared.queue, prepared.copy));
      return code.records() ? machine_->record(prepared.queue, prepared.event) : ok();
    case Action::Record: return machine_->record(prepared.queue, prepared.event);
    case Action::Wait: return machine_->wait(prepared.queue, prepared.event);
    case Action::Read: return files.read(code);
    case Action::Write: return exporter ? exporter->write(code) : plugin_error("files are written in the segment 'export' only");
  }
  return ok();
}

Status Executor::run_one(SegmentKind kind, size_t index, const MicroPlace& place, WeightFiles& files, Exporter* exporter) {
  const Prepared& prepared = prepared_[static_cast<size_t>(kind)][index];
  const Instruction& code = program_.segment(kind).code[index];
  if (!place.runs(code.when))  // others wait for the event
    return code.records() ? machine_->record(prepared.queue, prepared.event) : ok();
  const bool later = place.later(code.when);
  if (code.write() && kind == SegmentKind::Export && !together_.leads) return ok();
  if (watches_.empty()) return enqueue(prepared, code, later, files, exporter);
  const auto run = [&]() -> Status {
    TRY_STATUS(enqueue(prepared, code, later, files, exporter));
    return machine_->synchronize();
  };
  for (const auto& watch : watches_) TRY_STATUS(watch->before(kind, index, later));
  TRY_STATUS(watched(0, code, later, run));
  for (const auto& watch : watches_) TRY_STATUS(watch->after(kind, index, later));
  return ok();
}

/// Runs an instruction by `body` under the watches from number `watch` on.
Status Executor::watched(size_t watch, const Instruction& code, bool later, const std::function<Status()>& body) {
  if (watch == watches_.size()) return body();
  return watches_[watch]->run(code, later, [&] { return watched(watch + 1, code, later, body); });
}

Status Executor::run_range(SegmentKind kind, size_t begin, size_t end, const MicroPlace& place, WeightFiles& files, Exporter* exporter) {
  const size_t all = program_.segment(kind).code.size();
  for (size_t i = begin; i < end; ++i) {
    if (Status status = run_one(kind, i, place, files, exporter); !status.ok()) return located(std::move(status).error(), kind, i);
    if (kind == SegmentKind::Load && loading_) TRY_STATUS(loading_(static_cast<int64_t>(i + 1), static_cast<int64_t>(all)));
  }
  return ok();
}

std::vector<Executor::Stretch> Executor::stretches_of(SegmentKind kind) const {
  const std::vector<Instruction>& code = program_.segment(kind).code;
  std::vector<Stretch> out;
  for (size_t i = 0; i < code.size(); ++i) {
    const Launch* launch = code[i].launch();
    const bool capturable = launch ? launch->capturable : !code[i].read() && !code[i].write();
    if (out.empty() || out.back().capturable != capturable) out.push_back({i, i, capturable, nullptr});
    out.back().end = i + 1;
  }
  return out;
}

Status Executor::run_timed(SegmentKind kind, const MicroPlace& place, WeightFiles& files) {
  const std::vector<Prepared>& segment = prepared_[static_cast<size_t>(kind)];
  TRY_STATUS(machine_->synchronize());
  TRY_STATUS(machine_->mark(0, 0));
  times_.clear();
  for (size_t i = 0; i < segment.size(); ++i) {
    const Prepared& prepared = segment[i];
    const bool takes_time =
        (prepared.action == Action::Launch || prepared.action == Action::Copy) && place.runs(program_.segment(kind).code[i].when);
    const auto mark = static_cast<uint32_t>(1 + 2 * i);
    if (takes_time) TRY_STATUS(machine_->mark(prepared.queue, mark));
    TRY_STATUS(run_range(kind, i, i + 1, place, files, nullptr));
    if (!takes_time) continue;
    TRY_STATUS(machine_->mark(prepared.queue, mark + 1));
    times_.push_back({kind, static_cast<uint32_t>(i), prepared.queue, 0, 0});
  }
  TRY_STATUS(machine_->synchronize());
  for (TimedInstruction& time : times_) {
    time.begin = TRY(machine_->time(1 + 2 * time.instruction));
    time.end = TRY(machine_->time(2 + 2 * time.instruction));
  }
  timed_(times_);
  return ok();
}

/// With one lane, only whether it is the first micro-batch makes a difference.
Executor::Course& Executor::course_of(SegmentKind kind, const MicroPlace& place) {
  const size_t of_lanes = program_.lanes > 1 ? (place.ends ? 2u : 0u) + (place.first_lane ? 0u : 4u) : 0u;
  return courses_[static_cast<size_t>(kind)][of_lanes + (place.begins ? 0u : 1u)];
}

Status Executor::run_segment(SegmentKind kind, const MicroPlace& place, Exporter* exporter) {
  WeightFiles files(program_, *machine_);
  Course& course = course_of(kind, place);
  for (const auto& watch : watches_) TRY_STATUS(watch->begin(kind));
  const bool checked = !watches_.empty();
  if (timed_ && runs_often(kind) && !checked) return run_timed(kind, place, files);
  // The first time, kernels may still load what they need.
  if (course.runs++ == 0 || !runs_often(kind) || checked || !machine_->captures() || machine_->names_work())
    return run_range(kind, 0, prepared_[static_cast<size_t>(kind)].size(), place, files, exporter);
  if (course.stretches.empty()) course.stretches = stretches_of(kind);
  for (Stretch& stretch : course.stretches) {
    const auto run = [&] { return run_range(kind, stretch.begin, stretch.end, place, files, exporter); };
    if (!stretch.capturable) {
      TRY_STATUS(run());
      continue;
    }
    if (!stretch.run) {
      Result<galley_capture*> captured = machine_->capture(run);
      if (!captured) {
        log(LogLevel::Warning, std::string(segment_names[static_cast<size_t>(kind)]) +
                                   " is launched piece by piece from now on, since it cannot be captured: " + captured.error().cause);
        stretch.capturable = false;
        TRY_STATUS(run());
        continue;
      }
      stretch.run = *captured;
    }
    if (Status status = machine_->replay(stretch.run); !status.ok()) {
      // It may be an error of any launch in it.
      Error error = std::move(status).error();
      error.cause = std::string(segment_names[static_cast<size_t>(kind)]) + ", " + std::to_string(stretch.end - stretch.begin) +
                    " instructions at once: " + error.cause;
      return error;
    }
  }
  return ok();
}

Status Executor::load() {
  TRY_STATUS(run_segment(SegmentKind::Load, {}, nullptr));
  return synchronize();
}

Status Executor::await(uint32_t event) { return event ? machine_->await(event) : machine_->synchronize(); }

Status Executor::begin_step(const StepBegin& begin) {
  if (began_) TRY_STATUS(await(image_event_));
  began_ = true;
  tell(begin);
  return run(SegmentKind::Window);
}

Status Executor::await_update() {
  TRY_STATUS(await(readback_event_));
  scalars_.take();
  return ok();
}

Status Executor::read_back() {
  TRY_STATUS(machine_->synchronize());
  scalars_.take();
  return ok();
}

Status Executor::copy_inputs(std::span<const int64_t> offsets) {
  if (offsets.size() != program_.inputs.size())
    return run_error("the program takes " + std::to_string(program_.inputs.size()) + " inputs, " + std::to_string(offsets.size()) +
                     " were given");
  for (size_t i = 0; i < offsets.size(); ++i) {
    const TensorId tensor = program_.inputs[i].tensor;
    TRY_STATUS(machine_->copy(tensor, 0, program_.window, offsets[i], program_.tensors[static_cast<size_t>(tensor)].bytes));
    for (const auto& watch : watches_) TRY_STATUS(watch->fed(tensor, offsets[i]));
  }
  return ok();
}

Status Executor::run(SegmentKind kind) { return run_segment(kind, {}, nullptr); }

Status Executor::export_model(const std::filesystem::path& run_directory) {
  if (!together_.leads) {
    TRY_STATUS(run_segment(SegmentKind::Export, {}, nullptr));
    return synchronize();
  }
  Exporter exporter = TRY(Exporter::create(program_, *machine_, run_directory));
  TRY_STATUS(run_segment(SegmentKind::Export, {}, &exporter));
  TRY_STATUS(synchronize());
  TRY_STATUS(exporter.finish());
  rounded_ = exporter.rounded();
  exported_ = exporter.checksums();
  for (const auto& watch : watches_) TRY_STATUS(watch->exported(run_directory));
  return ok();
}

Status Executor::synchronize() { return machine_->synchronize(); }

}  // namespace galley
