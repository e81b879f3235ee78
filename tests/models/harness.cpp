#include "tests/models/harness.hpp"

#include "galley/cpp/plugin.hpp"
#include "models/devices/cpu/machine.hpp"
#include "tests/models/device.hpp"
#include "tests/models/near.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace galley::test {
namespace {

constexpr unsigned char poison = 0xFF;  // NaN in every floating dtype

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

}  // namespace

const galley_entry* open_library(const std::string& file) {
  static const galley_host host = {sizeof(galley_host), 1, GALLEY_ABI_MAJOR, GALLEY_ABI_MINOR, nullptr, log, parallel, service};
  void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) throw std::runtime_error(dlerror());
  auto* entry = static_cast<galley_entry*>(dlsym(handle, GALLEY_ENTRY_SYMBOL));
  if (!entry) throw std::runtime_error(file + " does not export " GALLEY_ENTRY_SYMBOL);
  galley_error error = GALLEY_ERROR_INIT;
  if (entry->open && entry->open(&host, &error) != GALLEY_OK) throw std::runtime_error(file + ": " + error.text);
  return entry;
}

namespace {

/// Adds a plugin's ops and kernels.
void open_plugin(const std::string& folder, Plugin* plugin) {
  const std::string library = folder + folder.substr(folder.rfind('/'));  // called after the folder
  const galley_entry* entry = open_library(library + ".so");
  plugin->ops.insert(plugin->ops.end(), entry->ops, entry->ops + entry->n_ops);
  const char* only = std::getenv("GALLEY_TEST_LEVEL");
  const auto add_level = [&](const std::string& isa, const std::string& file) {
    if (only && isa != only) return;
    entry = open_library(file);
    auto level = std::find_if(plugin->levels.begin(), plugin->levels.end(), [&](const Level& l) { return l.isa == isa; });
    if (level == plugin->levels.end()) level = plugin->levels.insert(level, {isa, {}, {}});
    level->kernels.insert(level->kernels.end(), entry->kernels, entry->kernels + entry->n_kernels);
    level->codecs.insert(level->codecs.end(), entry->codecs, entry->codecs + entry->n_codecs);
  };
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  if (only && std::string(only) == "cuda" && TestDevice::get()) {
    only = TestDevice::get()->target().isa;
    add_level(only, library + (std::string(only) == "emulated" ? "-cuda-emulated.so" : "-cuda.so"));
  }
  // The first one, so that the last one is the best of this processor. A plugin need not have kernels for GPUs, or have them alone.
  const auto there = [&](const char* kind) { return std::filesystem::exists(library + kind + ".so"); };
  if (!TestDevice::get() && there("-cuda-emulated")) add_level("emulated", library + "-cuda-emulated.so");
  const bool on_cpu = there("-cpu-v3") || there("-cpu-v4") || !there("-cuda-emulated");
  for (const auto& [level, runs] : {std::pair("v3", v3), std::pair("v4", v4)})
    if (runs && on_cpu) add_level(std::string("x86-64-") + level, library + "-cpu-" + level + ".so");
  if (plugin->levels.empty()) throw std::runtime_error("this processor runs none of the kernel libraries");
}

/// By name, but first `models`, whose ops others use. A build may be of a part. Where GPUs alone are tested, those that have kernels for them.
std::vector<std::string> folders_with_kernels(const std::string& plugins) {
  const std::string only = std::getenv("GALLEY_TEST_LEVEL") ? std::getenv("GALLEY_TEST_LEVEL") : "";
  const bool gpu = only == "cuda" || only == "emulated";
  std::vector<std::string> out;
  for (const auto& folder : std::filesystem::directory_iterator(plugins)) {
    const std::string library = folder.path() / folder.path().filename();
    const auto there = [&](const char* kind) { return std::filesystem::exists(library + kind + ".so"); };
    if (there("") && ((!gpu && there("-cpu-v3")) || there("-cuda-emulated") || there("-cuda"))) out.push_back(folder.path());
  }
  std::sort(out.begin(), out.end());
  std::stable_partition(out.begin(), out.end(), [&](const std::string& folder) { return folder == plugins + "/models"; });
  return out;
}

std::string test_seed_text() {
  const char* given = std::getenv("GALLEY_TEST_SEED");
  return given ? given : std::to_string(std::random_device()());
}

}  // namespace

void set_threads(int n) {
  // Under ThreadSanitizer each thread makes fibers of its own, which takes longer than the tests.
  static const bool one = std::getenv("GALLEY_TEST_ONE_THREAD") != nullptr;
  thread_count = one ? 1 : n;
}

const Plugin& models() {
  static const Plugin all = [] {
    Plugin plugin;
    const char *binary = std::getenv("GALLEY_BINARY"), *others = std::getenv("GALLEY_TEST_PLUGINS");
    try {
      for (const std::string& folder : folders_with_kernels(std::string(binary ? binary : ".") + "/plugins")) open_plugin(folder, &plugin);
      std::istringstream folders(others ? others : "");
      for (std::string folder; std::getline(folders, folder, ':');) open_plugin(folder, &plugin);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "a plugin cannot be opened (GALLEY_BINARY is the build folder): %s\n", error.what());
      std::exit(1);
    }
    return plugin;
  }();
  return all;
}

const Level* emulated_level() {
  const auto& levels = models().levels;
  const auto found = std::find_if(levels.begin(), levels.end(), [](const Level& l) { return l.isa == "emulated"; });
  return TestDevice::get() || found == levels.end() ? nullptr : &*found;
}

const galley_op* Plugin::op(const std::string& name) const {
  for (const galley_op* op : ops)
    if (name == op->name) return op;
  return nullptr;
}

const galley_codec* Level::codec(const std::string& format) const {
  for (const galley_codec* c : codecs)
    if (format == c->format) return c;
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

// ---- Nodes ------------------------------------------------------------------------------------------------------------------------

const galley_operand_rule* rule_of(const galley_op* op, bool output, size_t i) {
  return output ? op->outputs[i] : op->inputs[std::min<size_t>(i, op->n_inputs - 1)];
}
int64_t rows_of(const galley_operand_rule* rule, const Tensor& t) {
  return rule->flags & GALLEY_OPERAND_SAME_ROWS ? t.count() : t.count() / t.columns();
}
std::vector<int64_t> shape_of_rows(const galley_operand_rule* rule, const Tensor& t, int64_t rows) {
  return rule->flags & GALLEY_OPERAND_SAME_ROWS ? std::vector<int64_t>{rows} : std::vector<int64_t>{rows, t.columns()};
}

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
           0,
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
  if (op->infer(op->self, view.node(), pointers.data(), &error) != GALLEY_OK) throw std::runtime_error(error.text);
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
  // What forward hands on belongs to its inputs: where a query sees one key, the gradient of their score is 0 for no other o.
  if (std::string_view(op->name) == "attention_grad") {
    Problem forward = p;
    forward.op = models().op("attention");
    forward.inputs.resize(forward.op->n_inputs);
    forward.infer();
    run_reference(forward);
    for (size_t i = 0; i < 2; ++i) {
      Tensor& in = *p.inputs[forward.inputs.size() + i];
      for (size_t k = 0; k < in.values.size(); ++k) in.values[k] = rounded(forward.outputs[i]->values[k], in.dtype);
    }
  }
  p.infer();
  return p;
}

void with_f64(Problem& p, const std::function<void(const galley_node_view*)>& body) {
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
  body(view.node());
  for (const Memory& m : memory)
    if (!m.intact()) throw std::runtime_error(std::string(p.op->name) + ": the reference wrote outside of an operand");
  const auto read = [&](std::optional<Tensor>& t, void* data) {
    if (t) t->values = unpack(data, floating(t->dtype) ? GALLEY_F64 : t->dtype, t->count());
  };
  for (size_t i = 0; i < p.inputs.size(); ++i) read(p.inputs[i], inputs[i]);
  for (size_t i = 0; i < p.outputs.size(); ++i) read(p.outputs[i], outputs[i]);
}

void run_reference(Problem& p) {
  if (!p.op->reference) throw std::runtime_error(std::string(p.op->name) + " has no reference");
  with_f64(p, [&](const galley_node_view* node) {
    galley_error error = GALLEY_ERROR_INIT;
    if (p.op->reference(p.op->self, node, &error) != GALLEY_OK) throw std::runtime_error(error.text);
  });
}

Movements movements(const Problem& problem) {
  constexpr double kShare = 1e-5;
  constexpr int kDraws = 8;
  std::mt19937_64 random{seed()};
  Problem right = problem;
  run_reference(right);
  Movements all{std::vector<std::vector<double>>(problem.outputs.size()), std::vector<std::vector<double>>(problem.inputs.size())};
  const auto widen = [](std::vector<double>& to, const std::optional<Tensor>& a, const std::optional<Tensor>& b) {
    if (!a) return;
    to.resize(a->values.size());
    for (size_t k = 0; k < to.size(); ++k)
      if (const double moved = std::fabs(a->values[k] - b->values[k]); std::isfinite(moved)) to[k] = std::max(to[k], moved);
  };
  for (int draw = 0; draw < kDraws; ++draw) {
    Problem off = problem;
    for (auto& in : off.inputs)
      if (in && floating(in->dtype))
        for (double& v : in->values) v *= random() & 1 ? 1 + kShare : 1 - kShare;
    run_reference(off);
    for (size_t i = 0; i < all.outputs.size(); ++i) widen(all.outputs[i], right.outputs[i], off.outputs[i]);
    for (size_t i = 0; i < all.inputs.size(); ++i) widen(all.inputs[i], right.inputs[i], off.inputs[i]);
  }
  return all;
}

namespace {

std::optional<double> bf16_per_f32;

}  // namespace

void set_bf16_per_f32(std::optional<double> peak) { bf16_per_f32 = peak; }

galley_target target_for(const std::string& isa) {
  if (TestDevice* device = TestDevice::get(); device && isa == device->target().isa) return device->target();
  galley_target target = sdk::fresh<galley_target>();
  target.device = isa == "emulated" ? "cuda" : "cpu";
  target.isa = isa.c_str();
  target.threads = 2;
  target.workspace_budget = 64 << 20;
  const auto library = [](const char* name, const char* version) {
    galley_library out = sdk::fresh<galley_library>();
    out.name = name;
    out.version = version;
    return out;
  };
  static const galley_library cublaslt = library("cublaslt", "13.0"), cudnn = library("cudnn", "9.19");
  static const galley_library* const libraries[] = {&cublaslt, &cudnn};
  if (isa == "emulated") {
    target.libraries = libraries;
    target.n_libraries = 2;
  }
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
  return kernel->query(kernel->self, &node, 1, &target, plan, error);
}

namespace {
std::set<const galley_kernel*> kernels_that_ran;
}

bool has_run(const galley_kernel* kernel) { return kernels_that_ran.contains(kernel); }

Launch launch(const galley_kernel* kernel, const std::string& isa, const std::vector<const galley_node_view*>& planned,
              const std::vector<const galley_node_view*>& nodes, int times) {
  compares_results_of(kernel->name);
  Launch r;
  const galley_target target = target_for(isa);
  const auto n = static_cast<uint32_t>(nodes.size());
  galley_error error = GALLEY_ERROR_INIT;
  void* state = nullptr;
  auto plan = sdk::fresh<galley_kernel_plan>();
  r.status = kernel->query(kernel->self, planned.data(), n, &target, &plan, &error);
  if (r.status == GALLEY_OK) {
    r.workspace = Memory(plan.workspace_bytes, poison);
    r.constants = Memory(plan.constants_bytes, poison);
    auto setup = sdk::fresh<galley_kernel_setup>();
    setup.target = &target;
    setup.workspace = plan.workspace_bytes ? r.workspace.data() : nullptr;
    setup.workspace_bytes = plan.workspace_bytes;
    setup.constants = plan.constants_bytes ? r.constants.data() : nullptr;
    setup.constants_bytes = plan.constants_bytes;
    if (TestDevice* device = TestDevice::get(); device && isa == device->target().isa) {
      std::map<const std::byte*, Extent> memory;
      const auto add = [&](const void* address) {
        if (!address) return;
        const Extent extent = memory_around(address);
        memory[extent.begin] = extent;
      };
      const std::function<void(const galley_operand*)> add_operand = [&](const galley_operand* operand) {
        if (!operand) return;
        add(operand->data);
        for (uint32_t i = 0; i < operand->n_components; ++i) add_operand(operand->components[i]);
      };
      for (const galley_node_view* node : nodes) {
        for (uint32_t i = 0; i < node->n_inputs; ++i) add_operand(node->inputs[i]);
        for (uint32_t i = 0; i < node->n_outputs; ++i) add_operand(node->outputs[i]);
      }
      add(setup.workspace);
      add(setup.constants);
      std::vector<Extent> all;
      for (const auto& [begin, extent] : memory) all.push_back(extent);
      r.status = device->launch(*kernel, nodes, setup, all, times, &error);
      if (r.status == GALLEY_OK) kernels_that_ran.insert(kernel);
      r.text = error.text;
      return r;
    }
    r.status = kernel->prepare(kernel->self, nodes.data(), n, &setup, &state, &error);
  }
  if (r.status == GALLEY_OK) {
    for (int k = 0; k < times && r.status == GALLEY_OK; ++k) r.status = kernel->enqueue(state, nullptr, &error);
    if (r.status == GALLEY_OK) kernels_that_ran.insert(kernel);
    kernel->release(state);
  }
  r.text = error.text;
  return r;
}

Execution execute(const galley_kernel* kernel, const std::string& isa, const Problem& p, const How& how) {
  Execution r;
  std::vector<void*> inputs, outputs;
  for (const auto& t : p.inputs) {
    r.inputs.push_back(t ? pack(*t, t->dtype) : Memory(0, 0));
    inputs.push_back(t ? r.inputs.back().data() : nullptr);
  }
  // Twice where nothing is added up or updated: a kernel that counts on what its workspace held would show. Once where a barrier is missing:
  // who reads too early would find what the first time left there.
  bool again = !std::getenv("GALLEY_CUDA_MUTANT");
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
  const View planned(p, {}, {}, how.access, false), placed(p, inputs, outputs, how.access, false);
  Launch made = launch(kernel, isa, {planned.node()}, {placed.node()}, 1 + again);
  r.workspace = std::move(made.workspace);
  r.constants = std::move(made.constants);
  r.status = made.status;
  r.text = made.text;
  return r;
}

bool Execution::intact() const {
  bool all = workspace.intact() && constants.intact();
  for (const auto* list : {&inputs, &outputs})
    for (const Memory& m : *list) all = all && m.intact();
  return all;
}

}  // namespace galley::test
