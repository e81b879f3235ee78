#include "tests/models/harness.hpp"

#include "galley/cpp/plugin.hpp"
#include "models/devices/cpu/machine.hpp"

#include <dlfcn.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

namespace galley::test {
namespace {

int thread_count = 1;

void parallel(void*, int64_t blocks, void (*fn)(void*, int64_t), void* context) {
  static thread_local bool inside = false;
  if (inside || thread_count == 1) {
    for (int64_t block = 0; block < blocks; ++block) fn(context, block);
    return;
  }
  std::atomic<int64_t> next = blocks;  // from the last one down: an order that no kernel should count on
  const auto work = [&] {
    inside = true;
    for (int64_t block; (block = --next) >= 0;) fn(context, block);
    inside = false;
  };
  std::vector<std::thread> others;
  for (int k = 1; k < thread_count; ++k) others.emplace_back(work);
  work();
  for (std::thread& t : others) t.join();
}

const void* service(void*, const char*) { return nullptr; }
void log(void*, uint32_t, const char* text) { std::fprintf(stderr, "%s\n", text); }

const galley_entry* open_library(const std::string& file, void** handle) {
  static const galley_host host = {sizeof(galley_host), 1, GALLEY_ABI_MAJOR, GALLEY_ABI_MINOR, nullptr, log, parallel, service};
  *handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!*handle) throw std::runtime_error(dlerror());
  auto* entry = static_cast<galley_entry*>(dlsym(*handle, GALLEY_ENTRY_SYMBOL));
  if (!entry) throw std::runtime_error(file + " does not export " GALLEY_ENTRY_SYMBOL);
  galley_error error = GALLEY_ERROR_INIT;
  if (entry->open && entry->open(&host, &error) != GALLEY_OK) throw std::runtime_error(file + ": " + error.text);
  return entry;
}

Plugin open_plugin(const std::string& folder, const std::string& id) {
  Plugin plugin;
  void* handle = nullptr;
  const galley_entry* entry = open_library(folder + "/" + id + ".so", &handle);
  plugin.ops.assign(entry->ops, entry->ops + entry->n_ops);
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  for (const auto& [level, runs] : {std::pair("v3", v3), std::pair("v4", v4)}) {
    if (!runs) continue;
    std::string file = folder;
    file.append("/").append(id).append("-cpu-").append(level).append(".so");
    entry = open_library(file, &handle);
    Level l;
    l.isa = std::string("x86-64-") + level;
    for (uint32_t k = 0; k < entry->n_kernels; ++k) l.kernels.push_back(entry->kernels[k]);
    plugin.levels.push_back(std::move(l));
  }
  if (entry = open_library(folder + "/" + id + "-cuda-emulated.so", &handle); entry)
    plugin.levels.push_back({"emulated", {entry->kernels, entry->kernels + entry->n_kernels}});
  if (plugin.levels.empty()) throw std::runtime_error("this processor runs none of the kernel libraries");
  return plugin;
}

std::string test_seed_text() {
  const char* given = std::getenv("GALLEY_TEST_SEED");
  return given ? given : std::to_string(std::random_device()());
}

}  // namespace

void set_threads(int n) { thread_count = n; }

const Plugin& models() {
  static const Plugin plugin = [] {
    const char* binary = std::getenv("GALLEY_BINARY");
    try {
      return open_plugin(std::string(binary ? binary : ".") + "/plugins/models", "models");
    } catch (const std::exception& error) {
      std::fprintf(stderr, "the plugin 'models' cannot be opened (GALLEY_BINARY is the build folder): %s\n", error.what());
      std::exit(1);
    }
  }();
  return plugin;
}

const galley_op* Plugin::op(const std::string& name) const {
  for (const galley_op* op : ops)
    if (name == op->name) return op;
  return nullptr;
}

const galley_kernel* Level::kernel(const std::string& op) const {
  for (const galley_kernel* k : kernels)
    if (op == k->op) return k;
  return nullptr;
}

std::string Case::name() const {
  std::string text = std::string(op->name) + "_" + example->node->name;
  for (char& c : text)
    if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z')) c = '_';
  return text;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const galley_op* op : models().ops)
    for (uint32_t k = 0; k < op->n_cases; ++k) all.push_back({op, op->cases[k]});
  return all;
}

uint64_t seed() {
  static const uint64_t value = [] {
    const std::string text = test_seed_text();
    std::printf("GALLEY_TEST_SEED=%s\n", text.c_str());
    return std::strtoull(text.c_str(), nullptr, 10);
  }();
  return value;
}

// ---- Numbers ----------------------------------------------------------------------------------------------------------------------

int64_t Tensor::count() const {
  int64_t n = 1;
  for (const int64_t extent : shape) n *= extent;
  return n;
}

bool floating(uint32_t dtype) { return dtype == GALLEY_F64 || dtype == GALLEY_F32 || dtype == GALLEY_F16 || dtype == GALLEY_BF16; }

double rounded(double value, uint32_t dtype) {
  if (dtype == GALLEY_F64 || !floating(dtype) || value == 0 || !std::isfinite(value)) return value;
  if (dtype == GALLEY_F32) return static_cast<float>(value);
  const int bits = dtype == GALLEY_F16 ? 11 : 8, smallest = dtype == GALLEY_F16 ? -14 : -126;
  const int exponent = std::max(std::ilogb(value), smallest);
  const double unit = std::ldexp(1.0, exponent - bits + 1), result = std::nearbyint(value / unit) * unit;
  const double limit = dtype == GALLEY_F16 ? 65520.0 : 0x1.FFp127;
  return std::fabs(value) >= limit ? std::copysign(INFINITY, value) : result;
}

namespace {

template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}
template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

uint16_t f16_bits(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | 0x7E00;
  value = std::fabs(rounded(value, GALLEY_F16));
  if (std::isinf(value)) return sign | 0x7C00;
  if (value < 0x1p-14) return static_cast<uint16_t>(sign | static_cast<int>(value * 0x1p24));
  const int exponent = std::ilogb(value);
  return static_cast<uint16_t>(sign | (exponent + 15) << 10 | (static_cast<int>(std::ldexp(value, 10 - exponent)) & 0x3FF));
}
double f16_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 0x3FF;
  double value = exponent == 31 ? (mantissa ? NAN : INFINITY)
                 : exponent     ? std::ldexp(1024 + mantissa, exponent - 25)
                                : std::ldexp(mantissa, -24);
  return bits & 0x8000 ? -value : value;
}

void store_as(std::byte* to, uint32_t dtype, double v) {
  switch (dtype) {
    case GALLEY_F64: return store(to, v);
    case GALLEY_F32: return store(to, static_cast<float>(v));
    case GALLEY_BF16: return store(to, static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(rounded(v, dtype))) >> 16));
    case GALLEY_F16: return store(to, f16_bits(v));
    case GALLEY_I64: return store(to, static_cast<int64_t>(v));
    case GALLEY_I32: return store(to, static_cast<int32_t>(v));
    case GALLEY_U32: return store(to, static_cast<uint32_t>(v));
    case GALLEY_I16: return store(to, static_cast<int16_t>(v));
    case GALLEY_U16: return store(to, static_cast<uint16_t>(v));
    case GALLEY_I8: return store(to, static_cast<int8_t>(v));
    default: return store(to, static_cast<uint8_t>(v));
  }
}
double load_as(const std::byte* from, uint32_t dtype) {
  switch (dtype) {
    case GALLEY_F64: return load<double>(from);
    case GALLEY_F32: return load<float>(from);
    case GALLEY_BF16: return std::bit_cast<float>(static_cast<uint32_t>(load<uint16_t>(from)) << 16);
    case GALLEY_F16: return f16_value(load<uint16_t>(from));
    case GALLEY_I64: return static_cast<double>(load<int64_t>(from));
    case GALLEY_I32: return load<int32_t>(from);
    case GALLEY_U32: return load<uint32_t>(from);
    case GALLEY_I16: return load<int16_t>(from);
    case GALLEY_U16: return load<uint16_t>(from);
    case GALLEY_I8: return load<int8_t>(from);
    default: return load<uint8_t>(from);
  }
}

constexpr int64_t guard = 64;
constexpr std::byte guard_byte{0xA5};

}  // namespace

Memory::Memory(int64_t bytes, unsigned char fill) : storage_(new std::byte[static_cast<size_t>(bytes + 3 * guard)]), bytes_(bytes) {
  const auto address = reinterpret_cast<uintptr_t>(storage_.get()) + guard;
  data_ = storage_.get() + guard + (64 - address % 64) % 64;
  std::memset(data_ - guard, static_cast<int>(guard_byte), static_cast<size_t>(guard));
  std::memset(data_, fill, static_cast<size_t>(bytes));
  std::memset(data_ + bytes, static_cast<int>(guard_byte), static_cast<size_t>(guard));
}

bool Memory::intact() const {
  for (int64_t k = 0; k < guard; ++k)
    if (data_[-1 - k] != guard_byte || data_[bytes_ + k] != guard_byte) return false;
  return true;
}

Memory pack(const Tensor& t, uint32_t dtype) {
  const int64_t size = galley_dtype_bytes(dtype);
  Memory m(t.count() * size, 0xFF);
  for (size_t i = 0; i < t.values.size(); ++i) store_as(m.data() + static_cast<int64_t>(i) * size, dtype, t.values[i]);
  return m;
}

std::vector<double> unpack(const void* data, uint32_t dtype, int64_t count) {
  std::vector<double> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    values[static_cast<size_t>(i)] = load_as(static_cast<const std::byte*>(data) + i * galley_dtype_bytes(dtype), dtype);
  return values;
}

// ---- Nodes ------------------------------------------------------------------------------------------------------------------------

View::View(const Problem& p, const std::vector<void*>& inputs, const std::vector<void*>& outputs, const std::vector<uint32_t>& access,
           bool as_f64) {
  operands_.reserve(p.inputs.size() + p.outputs.size());
  const auto describe = [&](const std::optional<Tensor>& t, void* data, uint32_t how, const char* name) -> const galley_operand* {
    if (!t) return nullptr;
    const uint32_t dtype = as_f64 && floating(t->dtype) ? GALLEY_F64 : t->dtype;
    operands_.push_back(galley::sdk::operand(data, t->shape.data(), static_cast<uint32_t>(t->shape.size()), dtype, how, name));
    return &operands_.back();
  };
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    const galley_operand_rule* rule = p.op->inputs[std::min<size_t>(i, p.op->n_inputs - 1)];
    inputs_.push_back(describe(p.inputs[i], inputs.empty() ? nullptr : inputs[i],
                               rule->flags & GALLEY_OPERAND_INOUT ? GALLEY_READ_WRITE : GALLEY_READ, rule->name));
  }
  for (size_t i = 0; i < p.outputs.size(); ++i)
    outputs_.push_back(
        describe(p.outputs[i], outputs.empty() ? nullptr : outputs[i], access.empty() ? GALLEY_WRITE : access[i], p.op->outputs[i]->name));
  view_ = {sizeof(galley_node_view),
           1,
           p.op->name,
           p.name.c_str(),
           inputs_.data(),
           outputs_.data(),
           p.attrs,
           static_cast<uint32_t>(inputs_.size()),
           static_cast<uint32_t>(outputs_.size()),
           p.n_attrs,
           p.flags,
           p.first_row,
           p.length,
           -1};
}

void Problem::infer() {
  outputs.clear();
  const View view(*this, {}, {}, {}, false);
  std::vector<galley_shape> shapes(op->n_outputs, {sizeof(galley_shape), 1, 0, 0, {}, 0});
  std::vector<galley_shape*> pointers;
  for (galley_shape& s : shapes) pointers.push_back(&s);
  galley_error error = GALLEY_ERROR_INIT;
  if (op->infer(view.node(), pointers.data(), &error) != GALLEY_OK) throw std::runtime_error(error.text);
  for (const galley_shape& s : shapes) {
    auto& out = outputs.emplace_back();
    if (s.dtype) out = Tensor{s.dtype, {s.extents, s.extents + s.rank}, {}};
  }
}

Problem Problem::draw(const galley_op* op, const galley_op_case& c, std::mt19937_64& random) {
  Problem p;
  p.op = op;
  p.name = c.node->name;
  p.attrs = c.node->attrs;
  p.n_attrs = c.node->n_attrs;
  p.flags = c.node->flags;
  p.first_row = c.node->first_row;
  p.length = c.node->length;
  for (uint32_t i = 0; i < c.node->n_inputs; ++i) {
    auto& in = p.inputs.emplace_back();
    const galley_operand* o = c.node->inputs[i];
    if (!o) continue;
    in = Tensor{o->dtype, {o->shape, o->shape + o->rank}, {}};
    for (int64_t k = 0; k < in->count(); ++k) {
      if (floating(o->dtype)) in->values.push_back(rounded(std::uniform_real_distribution(c.low[i], c.high[i])(random), o->dtype));
      else
        in->values.push_back(static_cast<double>(
            std::uniform_int_distribution<int64_t>(static_cast<int64_t>(c.low[i]), static_cast<int64_t>(c.high[i]))(random)));
    }
  }
  p.infer();
  return p;
}

void run_reference(Problem& p) {
  std::vector<Memory> memory;
  std::vector<void*> inputs, outputs;
  const auto place = [&](std::optional<Tensor>& t, std::vector<void*>& addresses) {
    if (t) memory.push_back(pack(*t, floating(t->dtype) ? GALLEY_F64 : t->dtype));
    addresses.push_back(t ? memory.back().data() : nullptr);
  };
  for (auto& t : p.inputs) place(t, inputs);
  for (auto& t : p.outputs) {
    if (t) t->values.clear();
    place(t, outputs);
  }
  const View view(p, inputs, outputs, {}, true);
  galley_error error = GALLEY_ERROR_INIT;
  if (!p.op->reference) throw std::runtime_error(std::string(p.op->name) + " has no reference");
  if (p.op->reference(view.node(), &error) != GALLEY_OK) throw std::runtime_error(error.text);
  for (const Memory& m : memory)
    if (!m.intact()) throw std::runtime_error(std::string(p.op->name) + ": the reference wrote outside of an operand");
  const auto read = [&](std::optional<Tensor>& t, void* data) {
    if (t) t->values = unpack(data, floating(t->dtype) ? GALLEY_F64 : t->dtype, t->count());
  };
  for (size_t i = 0; i < p.inputs.size(); ++i) read(p.inputs[i], inputs[i]);
  for (size_t i = 0; i < p.outputs.size(); ++i) read(p.outputs[i], outputs[i]);
}

namespace {

std::optional<double> bf16_per_f32;

}  // namespace

void set_bf16_per_f32(std::optional<double> peak) { bf16_per_f32 = peak; }

galley_target target_for(const std::string& isa) {
  galley_target target = sdk::fresh<galley_target>();
  target.device = isa == "emulated" ? "cuda" : "cpu";
  target.isa = isa.c_str();
  target.threads = 2;
  target.workspace_budget = 64 << 20;
  // The peaks of this machine: kernels tell by them which instructions there are.
  static const std::vector<galley_peak> peaks = [] {
    galley_target machine = sdk::fresh<galley_target>();
    cpu::describe(&machine);
    std::vector<galley_peak> all;
    for (uint32_t i = 0; i < machine.n_peaks; ++i) all.push_back(*machine.peaks[i]);
    return all;
  }();
  static const std::vector<const galley_peak*> pointers = [] {
    std::vector<const galley_peak*> all;
    for (const galley_peak& peak : peaks) all.push_back(&peak);
    return all;
  }();
  if (bf16_per_f32 && peaks.size() > 1) {
    static std::vector<galley_peak> other;
    static std::vector<const galley_peak*> to_other;
    other = peaks;
    other[1].flops = *bf16_per_f32 * peaks[0].flops;
    to_other = {&other[0], &other[1]};
    target.peaks = to_other.data();
    target.n_peaks = 2;
    return target;
  }
  target.peaks = pointers.data();
  target.n_peaks = static_cast<uint32_t>(pointers.size());
  return target;
}

galley_status query(const galley_kernel* kernel, const std::string& isa, const Problem& p, const How& how, galley_kernel_plan* plan,
                    galley_error* error) {
  const View view(p, {}, {}, how.access, false);
  const galley_node_view* node = view.node();
  const galley_target target = target_for(isa);
  return kernel->query(&node, 1, &target, plan, error);
}

Execution execute(const galley_kernel* kernel, const std::string& isa, const Problem& p, const How& how) {
  constexpr unsigned char poison = 0xFF;  // NaN in every floating dtype
  Execution r;
  std::vector<void*> inputs, outputs;
  for (const auto& t : p.inputs) {
    r.inputs.push_back(t ? pack(*t, t->dtype) : Memory(0, 0));
    inputs.push_back(t ? r.inputs.back().data() : nullptr);
  }
  // Twice where nothing is added up or updated: a kernel that counts on what its workspace held would show.
  bool again = true;
  for (uint32_t i = 0; i < p.op->n_inputs; ++i) again = again && !(p.op->inputs[i]->flags & GALLEY_OPERAND_INOUT);
  for (size_t i = 0; i < p.outputs.size(); ++i) {
    const auto& t = p.outputs[i];
    const bool adds = !how.access.empty() && how.access[i] == GALLEY_ACCUMULATE, elsewhere = !how.in_place.empty() && how.in_place[i] >= 0;
    if (!t) r.outputs.emplace_back(0, 0);
    else if (adds) r.outputs.push_back(pack({t->dtype, t->shape, how.initial[i]}, t->dtype));
    else r.outputs.emplace_back(t->count() * galley_dtype_bytes(t->dtype), poison);
    outputs.push_back(t ? r.outputs.back().data() : nullptr);
    if (elsewhere) outputs.back() = inputs[static_cast<size_t>(how.in_place[i])];
    again = again && !adds && !elsewhere;
  }
  auto plan = sdk::fresh<galley_kernel_plan>();
  galley_error error = GALLEY_ERROR_INIT;
  void* state = nullptr;
  r.status = query(kernel, isa, p, how, &plan, &error);
  const View view(p, inputs, outputs, how.access, false);
  const galley_node_view* node = view.node();
  const galley_target target = target_for(isa);
  if (r.status == GALLEY_OK) {
    r.workspace = Memory(plan.workspace_bytes, poison);
    auto setup = sdk::fresh<galley_kernel_setup>();
    setup.target = &target;
    setup.workspace = r.workspace.data();
    setup.workspace_bytes = plan.workspace_bytes;
    r.status = kernel->prepare(&node, 1, &setup, &state, &error);
  }
  if (r.status == GALLEY_OK) {
    for (int k = 0; k < 1 + again && r.status == GALLEY_OK; ++k) r.status = kernel->enqueue(state, nullptr, &error);
    kernel->release(state);
  }
  r.text = error.text;
  return r;
}

bool Execution::intact() const {
  bool all = workspace.intact();
  for (const auto* list : {&inputs, &outputs})
    for (const Memory& m : *list) all = all && m.intact();
  return all;
}

}  // namespace galley::test
