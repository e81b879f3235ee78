// One process of several that mpirun starts: opens the plugin "mpi" as the host does, runs the ops of exchanges by its kernels and compares
// with what this process computes itself from the numbers of all ranks, to the bit. tests/python/mpi_exchange.py runs it.
//
//   mpi-exchange ops SEED     all ops, and exchange()
//   mpi-exchange ranks        as many ranks as the launcher has not: how `open` refuses them
//   mpi-exchange apart        ranks that do not agree about their parts: how that ends
//   mpi-exchange abort        a rank that waits for one that does not come, until a thread aborts: it does not return
//   mpi-exchange alone        one rank, which touches no MPI
//   mpi-exchange time BYTES   seconds of sums of this size
#include <dlfcn.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <thread>

#include "galley/cpp/exchange.hpp"
#include "galley/cpp/half.hpp"
#include "host/plan/target.hpp"
#include "host/plugins/host_table.hpp"
#include "host/plugins/isa.hpp"
#include "host/plugins/loader.hpp"

namespace galley::test {
namespace {

using Bytes = std::vector<unsigned char>;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

// ---- Numbers ------------------------------------------------------------------------------------------------------------------

uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}
uint64_t key_of(uint64_t seed, uint64_t of_case, int64_t rank) {
  return mixed(mixed(seed * 1000003 + of_case) + static_cast<uint64_t>(rank));
}

/// A number of 16 bits, whose sums are rounded.
template <class Bits>
struct Short {
  Bits bits = {};
  Short() = default;
  explicit Short(double x) { sdk::from_float(static_cast<float>(x), bits); }
  double wide() const { return static_cast<double>(sdk::to_float(bits)); }
  friend Short operator*(Short a, Short b) { return Short(a.wide() * b.wide()); }
  Short& operator+=(Short x) { return *this = Short(wide() + x.wide()); }
};

/// Numbers whose sum depends on the order: of sizes from 2⁻⁸ to 2⁸.
template <class T>
std::vector<T> numbers(uint64_t key, int64_t count) {
  std::vector<T> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t bits = mixed(key + i * 0x9E3779B97F4A7C15ull);
    if constexpr (std::is_integral_v<T>) {
      out[i] = static_cast<T>(bits);
    } else {
      const auto size = static_cast<T>(static_cast<double>(bits >> 12) * 0x1p-52 - .5);
      out[i] = size * static_cast<T>(bits & 1 ? 0x1p8 : bits & 2 ? 0x1p-8 : 1.0);
    }
  }
  return out;
}

// ---- One op -------------------------------------------------------------------------------------------------------------------

struct Operand {
  uint32_t dtype;
  std::vector<int64_t> shape;
  void* data;
};

class World {
 public:
  explicit World(const std::string& binary) {
    const std::filesystem::path folders[] = {binary + "/plugins"};
    plugins_ = Plugins::scan(folders);
    target_.isa = cpu_isa();
    target_.threads = 2;
    set_compute_threads(2);
    for (const auto& plugin : plugins_->all()) {
      if (plugin->manifest.id != "mpi") continue;
      const Status loaded = plugins_->load(*plugin);
      require(loaded.ok(), loaded.ok() ? "" : loaded.error().cause);
      require(plugin->library->ranks.size() == 1, "the plugin has no ranks");
      table_ = plugin->library->ranks[0];
    }
    require(table_ != nullptr, "there is no plugin 'mpi' in " + binary + "/plugins");
  }
  ~World() {
    if (handle_) table_->close(handle_);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  galley_status open(int64_t rank, int64_t ranks, galley_error* error) {
    const TargetView target(target_);
    auto o = sdk::fresh<galley_ranks_options>();
    o.target = target.get();
    o.rank = o.local_rank = rank;
    o.ranks = o.local_ranks = ranks;
    o.job = "test";
    rank_ = rank;
    ranks_ = ranks;
    return table_->open(table_->self, &o, &handle_, error);
  }
  const galley_ranks& table() const { return *table_; }
  void* handle() const { return handle_; }
  /// Kernels as a processor has them that is no better than this.
  void use_level(const std::string& isa) { target_.isa = isa; }
  int64_t rank() const { return rank_; }
  int64_t ranks() const { return ranks_; }

  /// What a kernel of the plugin says of a node. `with`: the ranks that it is given.
  struct Ran {
    galley_status status = GALLEY_OK;
    std::string text;
    int64_t workspace = 0;
  };
  Ran run(const std::string& op, const sdk::Attrs& attrs, const Operand& in, const Operand* out, bool adds, void* with, int times = 1) {
    const galley_kernel* kernel = nullptr;
    for (const auto& found : plugins_->kernels(op, "cpu", target_.isa))
      if (found.plugin->manifest.id == "mpi") kernel = found.table;
    const Registered<galley_op> contract = plugins_->op(op);
    require(kernel && contract, op + " has no kernel of the plugin, or no contract");
    galley_operand x = sdk::operand(nullptr, in.shape.data(), static_cast<uint32_t>(in.shape.size()), in.dtype, GALLEY_READ, "x"), y = x;
    if (out)
      y = sdk::operand(nullptr, out->shape.data(), static_cast<uint32_t>(out->shape.size()), out->dtype,
                       adds ? GALLEY_ACCUMULATE : GALLEY_WRITE, "y");
    const galley_operand *const inputs[] = {&x}, *const outputs[] = {&y};
    auto node = sdk::fresh<galley_node_view>();
    node.op = op.c_str();
    node.name = "h.0.exchange";
    node.inputs = inputs;
    node.n_inputs = 1;
    node.outputs = outputs;
    node.n_outputs = out ? 1 : 0;
    node.attrs = attrs.data();
    node.n_attrs = attrs.count();
    node.block = -1;
    galley_error error = GALLEY_ERROR_INIT;
    const auto failed = [&](galley_status status) { return Ran{status, error.text}; };
    // The shape rule takes it, and says that y is what it is.
    auto shape = sdk::fresh<galley_shape>();
    galley_shape* const shapes[] = {&shape};
    require(contract.table->infer(contract.table->self, &node, shapes, &error) == GALLEY_OK, op + ": " + error.text);
    for (uint32_t k = 0; out && k < shape.rank; ++k)
      require(shape.rank == y.rank && shape.extents[k] == y.shape[k], op + ": y has another shape");

    const TargetView target(target_);
    const galley_node_view* const nodes[] = {&node};
    auto plan = sdk::fresh<galley_kernel_plan>();
    if (const auto status = kernel->query(kernel->self, nodes, 1, target.get(), &plan, &error)) return failed(status);
    require(plan.workspace_bytes <= std::max<int64_t>(256 << 10, ranks_ << 20),
            op + " asks for " + std::to_string(plan.workspace_bytes) + " bytes");
    Bytes workspace(static_cast<size_t>(plan.workspace_bytes) + 64, 0xA5);
    x.data = in.data;
    if (out) y.data = out->data;
    auto setup = sdk::fresh<galley_kernel_setup>();
    setup.target = target.get();
    setup.workspace = plan.workspace_bytes ? workspace.data() : nullptr;
    setup.workspace_bytes = plan.workspace_bytes;
    setup.ranks = with;
    void* state = nullptr;
    if (const auto status = kernel->prepare(kernel->self, nodes, 1, &setup, &state, &error)) return failed(status);
    galley_status status = GALLEY_OK;
    for (int k = 0; k < times && status == GALLEY_OK; ++k) status = kernel->enqueue(state, nullptr, &error);
    kernel->release(state);
    if (status != GALLEY_OK) return failed(status);
    for (size_t k = static_cast<size_t>(plan.workspace_bytes); k < workspace.size(); ++k)
      require(workspace[k] == 0xA5, op + " wrote after its workspace");
    return {GALLEY_OK, "", plan.workspace_bytes};
  }

 private:
  std::unique_ptr<Plugins> plugins_;
  Target target_;
  const galley_ranks* table_ = nullptr;
  void* handle_ = nullptr;
  int64_t rank_ = 0, ranks_ = 1;
};

// ---- All ops ------------------------------------------------------------------------------------------------------------------

class Checks {
 public:
  Checks(World& world, uint64_t seed) : world_(world), seed_(seed), n_(world.ranks()), r_(world.rank()) {}

  template <class T>
  void sums(uint32_t dtype, int64_t count) {
    const auto all = of_all<T>(count);
    const auto start = numbers<T>(next(), count);
    std::vector<T> plain = all[0], added = start, backwards = start;
    for (size_t r = 1; r < all.size(); ++r) add(plain, all[r]);
    for (size_t r = 0; r < all.size(); ++r) add(added, all[r]), add(backwards, all[all.size() - 1 - r]);
    if (!same(added, backwards)) ++ordered_;

    const sdk::Attrs attrs = sdk::Attrs().s("axis", "data").i("ranks", n_);
    std::vector<T> x = own(all), y(static_cast<size_t>(count));
    const std::vector<int64_t> shape = {count};
    const Operand of_x = {dtype, shape, x.data()}, of_y = {dtype, shape, y.data()};
    run("all_reduce", attrs, of_x, &of_y, false);
    expect(same(y, plain), "all_reduce", dtype, count);
    y = start;
    const Operand again = {dtype, shape, y.data()};
    run("all_reduce", attrs, of_x, &again, true);
    expect(same(y, added), "all_reduce that adds", dtype, count);
    expect(same(x, own(all)), "all_reduce leaves x", dtype, count);
    run("all_reduce_here", attrs, of_x, nullptr, false);
    expect(same(x, plain), "all_reduce_here", dtype, count);
  }

  template <class T>
  void scattered(uint32_t dtype, const std::vector<int64_t>& ends, int64_t start) {
    const int64_t count = ends.back();
    const auto all = of_all<T>(count);
    const auto [first, size] = own_part(ends, start);
    const sdk::Attrs attrs = of_parts(ends, start);
    std::vector<T> x = own(all), plain = all[0], before = numbers<T>(next(), size), y(static_cast<size_t>(size));
    for (size_t r = 1; r < all.size(); ++r) add(plain, all[r]);
    std::vector<T> added = before;
    for (const auto& of_rank : all) add(added, std::vector<T>(of_rank.begin() + first, of_rank.begin() + first + size));
    const Operand whole = {dtype, {count}, x.data()}, part = {dtype, {size}, y.data()};
    run("reduce_scatter", attrs, whole, &part, false);
    expect(same(y, std::vector<T>(plain.begin() + first, plain.begin() + first + size)), "reduce_scatter", dtype, count);
    y = before;
    const Operand again = {dtype, {size}, y.data()};
    run("reduce_scatter", attrs, whole, &again, true);
    expect(same(y, added), "reduce_scatter that adds", dtype, count);
    expect(same(x, own(all)), "reduce_scatter leaves x", dtype, count);
  }

  /// `ends`: of the parts; `start`: whose the first is.
  void parts(const std::vector<int64_t>& ends, int64_t start) {
    scattered<float>(GALLEY_F32, ends, start);
    scattered<double>(GALLEY_F64, ends, start);
    scattered<Short<sdk::Bf16>>(GALLEY_BF16, ends, start);
    scattered<Short<sdk::F16>>(GALLEY_F16, ends, start);
    gathered<uint8_t>(GALLEY_U8, ends, start);
    gathered<uint16_t>(GALLEY_BF16, ends, start);
    gathered<float>(GALLEY_F32, ends, start);
    gathered<double>(GALLEY_F64, ends, start);
  }

  template <class T>
  void gathered(uint32_t dtype, const std::vector<int64_t>& ends, int64_t start) {
    const auto [first, size] = own_part(ends, start);
    const auto whole = numbers<T>(next(), ends.back());
    std::vector<T> part(whole.begin() + first, whole.begin() + first + size), y(whole.size());
    const Operand in = {dtype, {size}, part.data()}, out = {dtype, {ends.back()}, y.data()};
    run("all_gather", of_parts(ends, start), in, &out, false);
    expect(same(y, whole), "all_gather", dtype, ends.back());
    std::vector<T> here(whole.size());
    std::copy(part.begin(), part.end(), here.begin() + first);
    const Operand in_place = {dtype, {ends.back()}, here.data()};
    run("all_gather_here", of_parts(ends, start), in_place, nullptr, false);
    expect(same(here, whole), "all_gather_here", dtype, ends.back());
  }

  void exchanged(int64_t bytes) {
    const auto all = of_all<uint8_t>(bytes);
    std::vector<uint8_t> got(static_cast<size_t>(n_ * bytes));
    galley_error error = GALLEY_ERROR_INIT;
    require(world_.table().exchange(world_.handle(), own(all).data(), bytes, got.data(), &error) == GALLEY_OK, error.text);
    std::vector<uint8_t> wanted;
    for (const auto& one : all) wanted.insert(wanted.end(), one.begin(), one.end());
    expect(same(got, wanted), "exchange", GALLEY_U8, bytes);
  }

  void refusals() {
    float x[4] = {}, y[4] = {};
    const Operand in = {GALLEY_F32, {4}, x}, out = {GALLEY_F32, {4}, y};
    const auto refused = [&](const World::Ran& ran, galley_status status, const std::string& text) {
      require(ran.status == status && ran.text.find(text) != std::string::npos,
              "refused with " + std::to_string(ran.status) + ": " + ran.text);
      ++checks;
    };
    const sdk::Attrs here = sdk::Attrs().s("axis", "data").i("ranks", n_), more = sdk::Attrs().s("axis", "data").i("ranks", n_ + 3),
                     one = sdk::Attrs().s("axis", "data").i("ranks", 1);
    refused(world_.run("all_reduce", here, in, &out, false, nullptr), GALLEY_INVALID,
            "h.0.exchange: all_reduce is planned for " + std::to_string(n_) + " ranks, and the run has 1");
    refused(world_.run("all_reduce", more, in, &out, false, world_.handle()), GALLEY_INVALID,
            "is planned for " + std::to_string(n_ + 3) + " ranks, and the run has " + std::to_string(n_));
    refused(world_.run("all_reduce", one, in, &out, false, world_.handle()), GALLEY_UNSUPPORTED, "there is one rank");
  }

  int64_t checks = 0;
  int64_t ordered() const { return ordered_; }

 private:
  template <class T>
  std::vector<std::vector<T>> of_all(int64_t count) {
    std::vector<std::vector<T>> out;
    const uint64_t of_case = next();
    for (int64_t r = 0; r < n_; ++r) out.push_back(numbers<T>(key_of(seed_, of_case, r), count));
    return out;
  }
  template <class T>
  const std::vector<T>& own(const std::vector<std::vector<T>>& all) const {
    return all[static_cast<size_t>(r_)];
  }
  uint64_t next() { return ++case_; }
  /// Where this rank's part begins, and how many numbers it has.
  std::pair<int64_t, int64_t> own_part(const std::vector<int64_t>& ends, int64_t start) const {
    const auto j = static_cast<size_t>(((r_ - start) % n_ + n_) % n_);
    const int64_t first = j ? ends[j - 1] : 0;
    return {first, ends[j] - first};
  }
  template <class T>
  static void add(std::vector<T>& to, const std::vector<T>& x) {
    for (size_t i = 0; i < to.size(); ++i) to[i] += x[i];
  }
  template <class T>
  static bool same(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && (a.empty() || !std::memcmp(a.data(), b.data(), a.size() * sizeof(T)));
  }
  sdk::Attrs of_parts(const std::vector<int64_t>& ends, int64_t start) const {
    return sdk::Attrs().s("axis", "data").i("ranks", n_).i("rank", r_).i("start", start).list("ends", ends);
  }
  void run(const std::string& op, const sdk::Attrs& attrs, const Operand& in, const Operand* out, bool adds) {
    const World::Ran ran = world_.run(op, attrs, in, out, adds, world_.handle());
    require(ran.status == GALLEY_OK, ran.text);
  }
  void expect(bool holds, const char* what, uint32_t dtype, int64_t count) {
    require(holds, std::string(what) + " of " + std::to_string(count) + " numbers of dtype " + std::to_string(dtype) + " has other bytes");
    ++checks;
  }

  World& world_;
  uint64_t seed_, case_ = 0;
  int64_t n_, r_, ordered_ = 0;
};

void all_ops(World& world, uint64_t seed, const std::string& level) {
  world.use_level(level);
  Checks c(world, seed);
  const int64_t n = world.ranks();
  set_compute_threads(static_cast<int>(1 + world.rank() % 2));  // no byte depends on how many
  // Around what is gathered whole (256 KiB of all ranks), and more than a round of messages has (1 MiB of each).
  const int64_t small = (256 << 10) / 4 / n, round = n * (1 << 20) / 4;
  for (const int64_t count :
       {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{3}, int64_t{7}, int64_t{1000}, small - 1, small, small + 1, round + n + 1})
    c.sums<float>(GALLEY_F32, count);
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{1001}, small / 2, small / 2 + 1, small + 3}) {
    c.sums<double>(GALLEY_F64, count);
    c.sums<uint32_t>(GALLEY_I32, count);
    c.sums<Short<sdk::Bf16>>(GALLEY_BF16, count);
    c.sums<Short<sdk::F16>>(GALLEY_F16, count);
  }
  for (const int64_t start : {int64_t{0}, int64_t{1}, n + 1})
    for (const int64_t most : {int64_t{1}, int64_t{33}, int64_t{20001}}) {
      std::vector<int64_t> even, uneven, last, first;
      for (int64_t j = 1; j <= n; ++j) {
        even.push_back(most * j);
        uneven.push_back(j == 1 ? 0 : most * j * j / 3);
        last.push_back(j == n ? most : 0);
        first.push_back(most);
      }
      for (const auto& ends : {even, uneven, last, first}) c.parts(ends, start);
    }
  c.parts(std::vector<int64_t>(static_cast<size_t>(n), 0), 1);
  // A part of more than a message's 16 MiB, and one of more than a round's 1 MiB.
  std::vector<int64_t> one_has_all(static_cast<size_t>(n), (17 << 20) + 3);
  c.gathered<uint8_t>(GALLEY_U8, one_has_all, 1);
  one_has_all.assign(static_cast<size_t>(n), (1 << 18) + 5);
  c.parts(one_has_all, 1);
  for (const int64_t bytes : {0, 1, 1001}) c.exchanged(bytes);
  if (n == 2) c.exchanged((16 << 20) + 5);
  c.refusals();
  require(c.ordered() > 5, "sums are the same in another order: this test would not see one");
  galley_error error = GALLEY_ERROR_INIT;
  int64_t culprit = 0;
  require(world.table().check(world.handle(), &culprit, &error) == GALLEY_OK && culprit == -1, "check() finds what is well lost");
  std::printf("rank %lld of %lld: %lld checks hold at %s\n", static_cast<long long>(world.rank()), static_cast<long long>(n),
              static_cast<long long>(c.checks), level.c_str());
}

/// Each rank means to have another part than the others say.
void apart(World& world) {
  const int64_t n = world.ranks();
  std::vector<int64_t> ends;
  for (int64_t j = 1; j <= n; ++j) ends.push_back(j == n ? 90 : 10 * j + (world.rank() == n - 1));
  std::vector<float> x(90), y(90);
  const int64_t size = ends[static_cast<size_t>(world.rank())] - (world.rank() ? ends[static_cast<size_t>(world.rank()) - 1] : 0);
  const Operand in = {GALLEY_F32, {90}, x.data()}, out = {GALLEY_F32, {size}, y.data()};
  const World::Ran ran =
      world.run("reduce_scatter", sdk::Attrs().s("axis", "data").i("ranks", n).i("rank", world.rank()).list("ends", ends), in, &out, false,
                world.handle());
  galley_error error = GALLEY_ERROR_INIT;
  int64_t culprit = -2;
  const galley_status status = world.table().check(world.handle(), &culprit, &error);
  std::printf("rank %lld: status %d, '%s', check %d '%s', culprit %lld\n", static_cast<long long>(world.rank()), ran.status,
              ran.text.c_str(), status, error.text, static_cast<long long>(culprit));
}

void aborted(World& world) {
  if (world.rank() == world.ranks() - 1) {
    std::this_thread::sleep_for(std::chrono::seconds(50));
  } else {
    std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      world.table().abort(world.handle());
    }).detach();
    Checks(world, 1).exchanged(1001);
  }
  std::printf("rank %lld waits no more\n", static_cast<long long>(world.rank()));
}

void timed(World& world, int64_t bytes) {
  std::vector<float> x = numbers<float>(key_of(1, 1, world.rank()), bytes / 4), y(x.size());
  const int64_t count = bytes / 4;
  const Operand in = {GALLEY_F32, {count}, x.data()}, out = {GALLEY_F32, {count}, y.data()};
  const sdk::Attrs attrs = sdk::Attrs().s("axis", "data").i("ranks", world.ranks());
  const auto run = [&](int times) {
    const auto begin = std::chrono::steady_clock::now();
    const World::Ran ran = world.run("all_reduce", attrs, in, &out, false, world.handle(), times);
    require(ran.status == GALLEY_OK, ran.text);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  run(1);
  const int times = static_cast<int>(std::clamp<int64_t>((1 << 28) / std::max<int64_t>(bytes, 1), 3, 2000));
  const double seconds = run(times) / times;
  if (world.rank() == 0)
    std::printf("all_reduce of %lld bytes: %.6f s, %.2f GB/s\n", static_cast<long long>(bytes), seconds,
                1e-9 * static_cast<double>(bytes) / seconds);
}

int main_of(const std::vector<std::string>& words) {
  const auto variable = [](const char* name) {
    const char* text = std::getenv(name);
    return text ? std::string(text) : "";
  };
  const std::string what = words.at(0), rank = variable("OMPI_COMM_WORLD_RANK"), ranks = variable("OMPI_COMM_WORLD_SIZE");
  galley_error error = GALLEY_ERROR_INIT;
  {
    World world(variable("GALLEY_BINARY"));
    const bool alone = what == "alone";
    const int64_t r = alone ? 0 : std::stoll(rank.empty() ? "0" : rank),
                  n = alone ? 1 : std::stoll(ranks.empty() ? "1" : ranks) + (what == "ranks");
    if (const galley_status status = world.open(r, n, &error)) {
      std::printf("open: status %d, '%s', '%s'\n", status, error.text, error.hint);
      return 1;
    }
    if (what == "ops") {
      for (const char* level : {"x86-64-v3", "x86-64-v4"})
        if (isa_rank(level, cpu_isa())) all_ops(world, std::stoull(words.at(1)), level);
    }
    if (what == "apart") apart(world);
    else if (what == "abort") aborted(world);
    else if (what == "time") timed(world, std::stoll(words.at(1)));
    else if (alone) {
      Checks c(world, 1);
      c.exchanged(1001);
      require(::dlopen("libmpi.so.40", RTLD_NOW | RTLD_NOLOAD) == nullptr, "one rank opens MPI");
      std::printf("alone: %lld checks hold\n", static_cast<long long>(c.checks));
    }
  }
  close_libraries();
  return 0;
}

}  // namespace
}  // namespace galley::test

int main(int argc, char** argv) {
  try {
    return galley::test::main_of({argv + 1, argv + argc});
  } catch (const std::exception& wrong) {
    std::printf("wrong: %s\n", wrong.what());
    return 1;
  }
}
