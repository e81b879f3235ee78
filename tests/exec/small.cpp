#include "tests/exec/small.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "galley/checksum.h"
#include "host/plan/checksums.hpp"

namespace galley::small {
namespace {

void log(void*, uint32_t, const char*) {}
void backwards(void*, int64_t blocks, void (*fn)(void*, int64_t), void* context) {
  while (blocks-- > 0) fn(context, blocks);
}
const void* no_service(void*, const char*) { return nullptr; }

const galley_device& open_device(const char* library) {
  static const galley_host host = {sizeof(galley_host), 1, GALLEY_ABI_MAJOR, GALLEY_ABI_MINOR, nullptr, log, backwards, no_service};
  const char* build = std::getenv("GALLEY_BINARY");
  const std::string path = std::string(build ? build : ".") + "/" + library;
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto* entry = handle ? static_cast<const galley_entry*>(::dlsym(handle, GALLEY_ENTRY_SYMBOL)) : nullptr;
  galley_error error = GALLEY_ERROR_INIT;
  if (!entry || entry->open(&host, &error) != GALLEY_OK || entry->n_devices != 1) {
    std::fprintf(stderr, "%s is no plugin with a device: %s\n(GALLEY_BINARY names the build folder)\n", path.c_str(),
                 handle ? error.text : ::dlerror());
    std::exit(1);
  }
  return *entry->devices[0];
}

using sdk::Node;

// y[i] = f(i), or y[i] += f(i).
template <class F>
void produce(const Node& node, F&& f) {
  auto* y = node.write<float>(0);
  const int64_t n = sdk::count(node.out(0));
  for (int64_t i = 0; i < n; ++i) y[i] = node.accumulates(0) ? y[i] + f(i) : f(i);
}
float value_of(const Node& node) { return static_cast<float>(node.f("value", 0)); }

void run_fill(const Node& n, void*) {
  produce(n, [v = value_of(n)](int64_t) { return v; });
}
void run_count_up(const Node& n, void*) {
  produce(n, [v = value_of(n)](int64_t i) { return v + static_cast<float>(i); });
}
void run_add(const Node& n, void*) {
  produce(n, [a = n.read<float>(0), b = n.read<float>(1)](int64_t i) { return a[i] + b[i]; });
}
void run_multiply(const Node& n, void*) {
  produce(n, [a = n.read<float>(0), b = n.read<float>(1), one = sdk::count(n.in(1)) == 1](int64_t i) { return a[i] * b[one ? 0 : i]; });
}
void run_sum_squares(const Node& n, void*) {
  const auto* x = n.read<float>(0);
  double sum = 0;
  for (int64_t i = 0; i < sdk::count(n.in(0)); ++i) sum += static_cast<double>(x[i]) * x[i];
  *n.write<double>(0) = sum;
}
void run_checksum(const Node& n, void*) {
  const uint64_t sum = galley_checksum_begin(sdk::count(n.in(0))) + galley_checksum_part(n.read<std::byte>(0), sdk::count(n.in(0)), 0);
  std::memcpy(n.write<std::byte>(0), &sum, sizeof sum);
}
void run_descend(const Node& n, void*) {
  auto* p = n.update<float>(0);
  if (*n.read<int32_t>(4) == 0) return;
  for (int64_t i = 0; i < sdk::count(n.in(0)); ++i) p[i] -= *n.read<float>(2) * *n.read<float>(3) * n.read<float>(1)[i];
}
void run_lose(const Node& n, void*) {
  for (int64_t i = 0; i < sdk::count(n.in(1)); ++i) *n.update<double>(0) += static_cast<double>(n.read<float>(1)[i] * *n.read<float>(2));
}
void run_read_beyond(const Node& n, void*) {
  produce(n, [x = n.read<float>(0)](int64_t i) { return x[i + 1]; });
}
void run_write_beyond(const Node& n, void*) {
  produce(n, [x = n.read<float>(0)](int64_t i) { return x[i]; });
  n.write<float>(0)[sdk::count(n.out(0))] = 1;
}
void run_write_input(const Node& n, void*) {
  produce(n, [x = n.read<float>(0)](int64_t i) { return x[i]; });
  *const_cast<float*>(n.read<float>(0)) = 0;
}
void run_leave_out(const Node& n, void*) {
  for (int64_t i = 0; i + 1 < sdk::count(n.out(0)); ++i) n.write<float>(0)[i] = n.read<float>(0)[i];
}
void run_fails(const Node&, void*) { throw sdk::Failure(GALLEY_FAILED, "the cable is loose"); }

// What a window begins with, in the block of scalars; the attributes say where each number is.
void run_begin_window(const sdk::Node& node, void*) {
  char* const block = static_cast<char*>(node.in(0).data);
  const auto at = [&](const char* name) { return node.i(name, -1) < 0 ? nullptr : block + node.i(name, -1); };
  const auto put = [&](const char* name, auto value) {
    if (char* to = at(name)) std::memcpy(to, &value, sizeof value);
  };
  int64_t attempted = 0, applied = 0;
  double tokens = 0;
  std::memcpy(&attempted, block, sizeof attempted);
  std::memcpy(&tokens, block + 64, sizeof tokens);
  std::memcpy(&applied, at("count"), sizeof applied);
  const float scale = static_cast<float>(node.f("scale", 1));
  put("2", applied + 1);
  put("3", int32_t{1});
  put("4", scale);
  put("6", tokens > 0 ? static_cast<float>(scale / tokens) : 0.0f);
  put("7", 0.0f);
  put("8", 1 / scale);
  put("9", int32_t{0});
  put("10", std::array<int64_t, 4>{42, attempted - 1, -node.i("rows", 0), 0});
  put("11", 0.0);
  if (const galley_attr* table = galley_attr_find(node.view(), "table"))
    put("option",
        static_cast<float>(static_cast<const double*>(table->data)[std::min<int64_t>(applied, static_cast<int64_t>(table->count) - 1)]));
}

void run_next_rows(const sdk::Node& node, void*) { node.update<int64_t>(0)[2] += node.i("rows", 0); }

void run_end_step(const sdk::Node& node, void*) {
  char* const block = static_cast<char*>(node.in(0).data);
  int32_t apply = 1;
  if (node.i("3", -1) >= 0) std::memcpy(&apply, block + node.i("3", 0), sizeof apply);
  int64_t applied = 0;
  std::memcpy(&applied, block + node.i("count", 0), sizeof applied);
  applied += apply != 0;
  std::memcpy(block + node.i("count", 0), &applied, sizeof applied);
}

galley_kernel throwing() {
  galley_kernel k = sdk::kernel<run_fill>("throws.test", "throws");
  k.enqueue = [](void*, galley_queue*, galley_error*) -> galley_status { throw std::runtime_error("past the table"); };
  return k;
}
galley_kernel unpreparable() {
  galley_kernel k = sdk::kernel<run_fill>("no_prepare.test", "no_prepare");
  k.prepare = [](void*, const galley_node_view* const*, uint32_t, const galley_kernel_setup*, void**,
                 galley_error* error) -> galley_status { return sdk::fill(error, GALLEY_FAILED, "no primitive for it"); };
  return k;
}

}  // namespace

const galley_kernel fill = sdk::kernel<run_fill>("fill.test", "fill");
const galley_kernel count_up = sdk::kernel<run_count_up>("count_up.test", "count_up");
const galley_kernel add = sdk::kernel<run_add>("add.test", "add");
const galley_kernel multiply = sdk::kernel<run_multiply>("multiply.test", "multiply");
const galley_kernel sum_squares = sdk::kernel<run_sum_squares>("sum_squares.test", "sum_squares");
const galley_kernel checksum = sdk::kernel<run_checksum>("checksum.test", "checksum");
const galley_kernel descend = sdk::kernel<run_descend>("descend.test", "descend");
const galley_kernel lose = sdk::kernel<run_lose>("lose.test", "lose");
const galley_kernel read_beyond = sdk::kernel<run_read_beyond>("read_beyond.test", "read_beyond");
const galley_kernel write_beyond = sdk::kernel<run_write_beyond>("write_beyond.test", "write_beyond");
const galley_kernel write_input = sdk::kernel<run_write_input>("write_input.test", "write_input");
const galley_kernel leave_out = sdk::kernel<run_leave_out>("leave_out.test", "leave_out");
const galley_kernel begin_window = sdk::kernel<run_begin_window>("begin_window.test", "begin_window");
const galley_kernel next_rows = sdk::kernel<run_next_rows>("next_rows.test", "next_rows");
const galley_kernel end_step = sdk::kernel<run_end_step>("end_step.test", "end_step");
const galley_kernel fails = sdk::kernel<run_fails>("fails.test", "fails");
const galley_kernel throws = throwing();
const galley_kernel no_prepare = unpreparable();

const galley_device& cpu() {
  static const galley_device& found = open_device("plugins/cpu/cpu.so");
  return found;
}
const galley_device& lazy() {
  static const galley_device& found = open_device("tests/plugins/lazy-device/lazy-device.so");
  return found;
}
const galley_device& two_memories() {
  static const galley_device& found = open_device("tests/plugins/two-memories/two-memories.so");
  return found;
}
const galley_device& device(bool is_lazy) { return is_lazy ? lazy() : two_memories(); }

Target target() {
  Target out;
  out.isa = "x86-64";
  out.memories = {{.name = "host", .alignment = 64, .host_access = true, .computes = true},
                  {.name = "spill", .alignment = 64, .host_access = true, .computes = false}};
  out.queues = {Queue::Compute, Queue::Compute};
  return out;
}

std::filesystem::path scratch() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string(test->test_suite_name()) + "." + test->name();
  for (char& c : name)
    if (c == '/') c = '-';
  const std::filesystem::path folder = std::filesystem::absolute(name);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

TensorId Builder::tensor(const std::string& name, Shape shape, Life life, uint32_t memory, uint32_t dtype) {
  ProgramTensor t;
  t.name = name;
  t.dtype = dtype;
  t.bytes = elements(shape) * galley_dtype_bytes(dtype);
  t.shape = std::move(shape);
  t.memory = memory;
  t.life = life;
  program.tensors.push_back(std::move(t));
  return static_cast<TensorId>(program.tensors.size()) - 1;
}

Operand Builder::operand(TensorId tensor, uint32_t access, uint32_t later) const {
  const ProgramTensor& t = program.tensors[static_cast<size_t>(tensor)];
  return {.tensor = tensor, .offset = 0, .shape = t.shape, .dtype = t.dtype, .access = access, .later = later, .format = nullptr};
}

Instruction& Builder::instruction(SegmentKind kind, decltype(Instruction::what) what) {
  Segment& segment = program.segment(kind);
  segment.kind = kind;
  Instruction& code = segment.code.emplace_back();
  code.what = std::move(what);
  return code;
}

Instruction& Builder::kernel(SegmentKind kind, const galley_kernel& kernel, std::vector<Operand> inputs, std::vector<Operand> outputs,
                             double value) {
  Instruction& code = instruction(kind, Launch());
  LaunchNode node;
  node.name = std::string(kernel.op) + "." + std::to_string(program.segment(kind).code.size());
  node.attrs.set("value", value);
  code = launch_of(std::move(node), std::move(inputs), std::move(outputs));
  code.launch()->kernel = &kernel;
  return code;
}

Instruction& Builder::copy(SegmentKind kind, TensorId from, TensorId to, uint32_t queue, uint32_t event) {
  Instruction& code = instruction(kind, Copy());
  code.name = "copy";
  code.inputs = {read(from)};
  code.outputs = {write(to)};
  code.queue = queue;
  code.event = event;
  return code;
}

void Builder::record(SegmentKind kind, uint32_t queue, uint32_t event) {
  Instruction& code = instruction(kind, Record());
  code.queue = queue;
  code.event = event;
}

void Builder::wait(SegmentKind kind, uint32_t queue, uint32_t event) {
  Instruction& code = instruction(kind, Wait());
  code.queue = queue;
  code.event = event;
}

Instruction& Builder::read_file(const std::filesystem::path& file, const std::string& entry, TensorId to) {
  Instruction& code = instruction(SegmentKind::Load, Read{file.string(), entry, {}, "", {}});
  code.name = entry;
  code.outputs = {write(to)};
  return code;
}

Write& Builder::write_file(const std::string& file, const std::string& entry, TensorId from) {
  Instruction& code = instruction(SegmentKind::Export, Write{file, entry, program.tensors[static_cast<size_t>(from)].dtype});
  code.name = entry;
  code.inputs = {read(from)};
  return std::get<Write>(code.what);
}

void Builder::slot(ScalarSlot slot) {
  if (program.scalars == no_tensor) program.scalars = tensor("scalars", {0}, Life::Run, 0, GALLEY_U8);
  ProgramTensor& block = program.tensors[static_cast<size_t>(program.scalars)];
  slot.offset = block.bytes;
  block.bytes += (slot.bytes + 63) / 64 * 64;
  block.shape = {block.bytes};
  program.slots.push_back(std::move(slot));
}

void Builder::scalars(std::vector<uint32_t> which) {
  // The host's come first.
  std::erase_if(which, [](uint32_t w) { return w == GALLEY_SCALAR_ATTEMPTED_STEP || w == GALLEY_SCALAR_WINDOW_TOKENS; });
  which.insert(which.begin(), {GALLEY_SCALAR_ATTEMPTED_STEP, GALLEY_SCALAR_WINDOW_TOKENS});
  for (const uint32_t w : which) {
    const bool wide = w == GALLEY_SCALAR_ATTEMPTED_STEP || w == GALLEY_SCALAR_APPLIED_STEP || w == GALLEY_SCALAR_RANDOM;
    ScalarSlot one;
    one.which = w;
    one.dtype = w == GALLEY_SCALAR_LOSS || w == GALLEY_SCALAR_WINDOW_TOKENS ? GALLEY_F64
                : wide                                                      ? GALLEY_I64
                : w == GALLEY_SCALAR_APPLY || w == GALLEY_SCALAR_FOUND_INF  ? GALLEY_I32
                                                                            : GALLEY_F32;
    one.bytes = galley_dtype_bytes(one.dtype) * (w == GALLEY_SCALAR_RANDOM ? 4 : 1);
    slot(std::move(one));
  }
}

void Builder::option(const std::string& name, std::vector<double> values) {
  ScalarSlot one;
  one.bytes = 4;
  one.option = name;
  one.rate = name.ends_with(".lr");
  one.schedule = {"", std::move(values)};
  slot(std::move(one));
}

Operand Builder::number(uint32_t dtype) {
  ScalarSlot one;
  one.which = 1000 + static_cast<uint32_t>(program.slots.size());
  one.dtype = dtype;
  one.bytes = galley_dtype_bytes(dtype);
  slot(std::move(one));
  return of(program.slots.back(), GALLEY_WRITE);
}

void Builder::own_steps(double scale) {
  const Operand count = number(GALLEY_I64);
  const int64_t bytes = program.tensors[static_cast<size_t>(program.scalars)].bytes;
  program.step_image = tensor("step image", {128}, Life::Run, 0, GALLEY_U8);
  program.readback = tensor("readback", {bytes}, Life::Run, 0, GALLEY_U8);
  const auto block = [&](uint32_t access, int64_t size) {
    Operand out = operand(program.scalars, access, access);
    out.shape = {size};
    return out;
  };
  Operand numbers = block(GALLEY_WRITE, bytes / 4);
  numbers.dtype = GALLEY_F32;
  kernel(SegmentKind::Load, fill, {}, {numbers}, 0);
  copy(SegmentKind::Window, program.step_image, program.scalars, 0, 0).outputs[0] = block(GALLEY_WRITE, 128);
  AttrList where;
  where.set("count", count.offset);
  where.set("scale", scale);
  where.set("rows", program.rows);
  for (const ScalarSlot& s : program.slots) {
    where.set(s.option.empty() ? std::to_string(s.which) : "option", s.offset);
    if (!s.option.empty()) where.set("table", s.schedule.table);
  }
  for (auto* k : {&begin_window, &end_step})
    kernel(k == &begin_window ? SegmentKind::Window : SegmentKind::Update, *k, {block(GALLEY_READ_WRITE, bytes)}, {})
        .launch()
        ->nodes[0]
        .attrs = where;
  copy(SegmentKind::Update, program.scalars, program.readback, 0, 0);
  for (Trained& t : program.trained)
    if (t.sum_squares.present()) t.sum_squares.tensor = program.readback;
  sum_weights();
}

void Builder::sum_weights() {
  program.checksums =
      tensor("checksums", {static_cast<int64_t>(program.frozen.size() + program.trained.size()), 2}, Life::Run, 0, GALLEY_I32);
  for (const SegmentKind kind : {SegmentKind::Frozen, SegmentKind::Trained})
    for (const WeightChecksum& s : weight_checksums(program, kind))
      if (s.checksum.present()) kernel(kind, checksum, {s.bytes}, {s.checksum});
}

Operand Builder::of(const ScalarSlot& slot, uint32_t access) const {
  const int64_t count = slot.bytes / galley_dtype_bytes(slot.dtype);
  return {.tensor = program.scalars,
          .offset = slot.offset,
          .shape = count == 1 ? Shape{} : Shape{count},
          .dtype = slot.dtype,
          .access = access,
          .later = access,
          .format = nullptr};
}

Operand Builder::scalar(uint32_t which, uint32_t access) const {
  for (const ScalarSlot& slot : program.slots)
    if (slot.which == which) return of(slot, access);
  return {};
}

TensorId Builder::input(const std::string& name, int64_t numbers, int64_t micro_batches) {
  const TensorId id = tensor(name, {numbers});
  program.window = tensor("window", {4 * numbers * micro_batches}, Life::Run, 0, GALLEY_U8);
  program.inputs = {{name, id}};
  return id;
}

Operand Builder::option(const std::string& name) const {
  for (const ScalarSlot& slot : program.slots)
    if (slot.option == name) return of(slot, GALLEY_READ);
  return {};
}

Plan Builder::plan() const {
  Plan plan;
  plan.classes.resize(2);
  plan.placements.resize(program.tensors.size());
  for (size_t t = 0; t < program.tensors.size(); ++t) {
    int64_t& planned = plan.classes[program.tensors[t].memory].planned;
    plan.placements[t].offset = planned;
    planned += (program.tensors[t].bytes + 63) / 64 * 64;
  }
  for (size_t s = 0; s < program.segments.size(); ++s) {
    plan.segment_begin[s] = plan.end;
    for (const Instruction& code : program.segments[s].code) {
      const auto use = [&](const std::vector<Operand>& operands) {
        for (const Operand& operand : operands) {
          if (!operand.present()) continue;
          Placement& place = plan.placements[static_cast<size_t>(operand.tensor)];
          place.first = place.first < 0 ? plan.end : place.first;
          place.last = plan.end;
        }
      };
      use(code.inputs);
      use(code.outputs);
      ++plan.end;
    }
  }
  return plan;
}

Running::Running(Builder builder_, bool is_lazy, Poison poison) : builder(std::move(builder_)), plan(builder.plan()), machine(target()) {
  auto made = Executor::create(builder.program, plan, machine, device(is_lazy), {.watching = watching(poison)});
  if (made.ok()) executor = std::move(*made);
  else error = made.error();
}

}  // namespace galley::small
