// One process of several that mpirun starts: opens the plugin "mpi" as the host does, runs the ops of exchanges by its kernels and compares
// with what this process computes itself from the numbers of all ranks, to the bit. tests/python/mpi_exchange.py runs it.
//
//   mpi-exchange ops SEED     all ops, and exchange()
//   mpi-exchange groups SEED  all ops among the halves of the ranks, and among all in between
//   mpi-exchange ranks        as many ranks as the launcher has not: how `open` refuses them
//   mpi-exchange apart        ranks that do not agree about their parts: how that ends
//   mpi-exchange abort        a rank that waits for one that does not come, until a thread aborts: it does not return
//   mpi-exchange alone        one rank, which touches no MPI
//   mpi-exchange time BYTES   seconds of sums of this size
#include <dlfcn.h>

#include <chrono>
#include <thread>

#include "host/plugins/isa.hpp"
#include "tests/exchanges.hpp"

namespace galley::test {
namespace {

class Processors final : public World {
 public:
  Processors(const std::string& binary, int64_t rank, int64_t ranks) : World("mpi", {binary + "/plugins"}, rank, ranks) {
    target_.isa = cpu_isa();
    target_.threads = 2;
    set_compute_threads(2);
  }
  ~Processors() override {
    if (handle_) table().close(handle_);
  }
  galley_status open(galley_error* error) { return open_ranks("", "test", error); }
  /// Kernels as a processor has them that is no better than this.
  void use_level(const std::string& isa) { target_.isa = isa; }

  Ran run(const std::string& op, const sdk::Attrs& attrs, const Operand& in, const Operand* out, bool adds, void* with,
          int times) override {
    const galley_kernel& kernel = kernel_of(op, "cpu");
    const Registered<galley_op> contract = plugins_->op(op);
    require(contract.table != nullptr, op + " has no contract");
    ExchangeNode of(op, attrs, in, out, adds);
    galley_error error = GALLEY_ERROR_INIT;
    const auto failed = [&](galley_status status) { return Ran{status, error.text}; };
    // The shape rule takes it, and says that y is what it is.
    auto shape = sdk::fresh<galley_shape>();
    galley_shape* const shapes[] = {&shape};
    require(contract.table->infer(contract.table->self, &of.node, shapes, &error) == GALLEY_OK, op + ": " + error.text);
    for (uint32_t k = 0; out && k < shape.rank; ++k)
      require(shape.rank == of.y.rank && shape.extents[k] == of.y.shape[k], op + ": y has another shape");

    const TargetView target(target_);
    auto plan = sdk::fresh<galley_kernel_plan>();
    if (const auto status = kernel.query(kernel.self, of.nodes, 1, target.get(), &plan, &error)) return failed(status);
    require(plan.workspace_bytes <= std::max<int64_t>(256 << 10, ranks() << 20),
            op + " asks for " + std::to_string(plan.workspace_bytes) + " bytes");
    std::vector<unsigned char> workspace(static_cast<size_t>(plan.workspace_bytes) + 64, 0xA5);
    of.x.data = in.data;
    if (out) of.y.data = out->data;
    auto setup = sdk::fresh<galley_kernel_setup>();
    setup.target = target.get();
    setup.workspace = plan.workspace_bytes ? workspace.data() : nullptr;
    setup.workspace_bytes = plan.workspace_bytes;
    setup.ranks = with;
    void* state = nullptr;
    if (const auto status = kernel.prepare(kernel.self, of.nodes, 1, &setup, &state, &error)) return failed(status);
    galley_status status = GALLEY_OK;
    for (int k = 0; k < times && status == GALLEY_OK; ++k) status = kernel.enqueue(state, nullptr, &error);
    kernel.release(state);
    if (status != GALLEY_OK) return failed(status);
    for (size_t k = static_cast<size_t>(plan.workspace_bytes); k < workspace.size(); ++k)
      require(workspace[k] == 0xA5, op + " wrote after its workspace");
    return {};
  }
};

void all_ops(Processors& world, uint64_t seed, const std::string& level) {
  world.use_level(level);
  Checks c(world, seed);
  const int64_t n = world.ranks();
  set_compute_threads(static_cast<int>(1 + world.rank() % 2));  // no byte depends on how many
  // Around what is gathered whole (256 KiB of all ranks), and more than a round of messages has (1 MiB of each).
  const int64_t small = (256 << 10) / 4 / n, round = n * (1 << 20) / 4;
  for (const int64_t count :
       {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{3}, int64_t{7}, int64_t{1000}, small - 1, small, small + 1, round + n + 1})
    c.sums<float>(count);
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{1001}, small / 2, small / 2 + 1, small + 3}) {
    c.sums<double>(count);
    c.sums<uint32_t>(count);
    c.sums<sdk::Bf16>(count);
    c.sums<sdk::F16>(count);
  }
  c.repeated(1001);
  c.parts_of_all_kinds<float, double, sdk::Bf16, sdk::F16>({1, 33, 20001});
  // A part of more than a message's 16 MiB, and one of more than a round's 1 MiB.
  c.gathered<uint8_t>(c.one_has_all((17 << 20) + 3), 1);
  c.parts<float, double, sdk::Bf16, sdk::F16>(c.one_has_all((1 << 18) + 5), 1);
  for (const int64_t bytes : {0, 1, 1001}) c.exchanged(bytes);
  if (n == 2) c.exchanged((16 << 20) + 5);
  c.refusals();
  c.end();
  std::printf("rank %lld of %lld: %lld checks hold at %s\n", static_cast<long long>(world.rank()), static_cast<long long>(n), c.checks(),
              level.c_str());
}

/// Each half of the ranks by itself, with stride 1 and with stride 2, and all: one after the other, and no rank waits for another half.
void groups(World& world, uint64_t seed) {
  const int64_t n = world.ranks(), half = n / 2;
  Checks near(world, seed, half, 1), far(world, seed, half, 2), all(world, seed);
  const auto each = [&](const auto& check) {
    for (Checks* c : {&near, &far, &all}) check(*c);
  };
  const int64_t small = (256 << 10) / 4 / half, round = half * (1 << 20) / 4;
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{7}, small, small + 1}) each([&](Checks& c) { c.sums<float>(count); });
  for (Checks* c : {&near, &far}) c->sums<float>(round + half + 1);
  for (const int64_t count : {int64_t{1}, int64_t{1001}, small + 3})
    each([&](Checks& c) {
      c.sums<double>(count);
      c.sums<uint32_t>(count);
      c.sums<sdk::Bf16>(count);
      c.sums<sdk::F16>(count);
    });
  for (const int64_t start : {int64_t{0}, int64_t{1}, half + 1})
    for (const int64_t most : {1, 2001}) each([&](Checks& c) { c.parts_of<float, sdk::Bf16>(most, start); });
  // More than one message has.
  far.scattered<float>(far.one_has_all((1 << 18) + 5), 1);
  if (n == 4) near.gathered<uint8_t>(near.one_has_all((17 << 20) + 3), 1);
  for (Checks* c : {&near, &far}) c->end();
  std::printf("rank %lld of %lld: %lld and %lld checks hold of groups\n", static_cast<long long>(world.rank()), static_cast<long long>(n),
              near.checks(), far.checks());
}

void say_apart(World& world) {
  const Ran ran = apart(world);
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
  std::vector<float> x = numbers<float>(1, 1, world.rank(), bytes / 4), y(x.size());
  const int64_t count = bytes / 4;
  const Operand in = {GALLEY_F32, {count}, x.data()}, out = {GALLEY_F32, {count}, y.data()};
  const sdk::Attrs attrs = Checks::of_whole(world.ranks());
  const auto run = [&](int times) {
    const auto begin = std::chrono::steady_clock::now();
    const Ran ran = world.run("all_reduce", attrs, in, &out, false, world.handle(), times);
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
  const std::string what = words.at(0), rank = variable("OMPI_COMM_WORLD_RANK"), ranks = variable("OMPI_COMM_WORLD_SIZE");
  const bool alone = what == "alone";
  galley_error error = GALLEY_ERROR_INIT;
  {
    Processors world(variable("GALLEY_BINARY"), alone || rank.empty() ? 0 : std::stoll(rank),
                     alone ? 1 : std::stoll(ranks.empty() ? "1" : ranks) + (what == "ranks"));
    if (const galley_status status = world.open(&error)) {
      std::printf("open: status %d, '%s', '%s'\n", status, error.text, error.hint);
      return 1;
    }
    if (what == "ops") {
      for (const char* level : {"x86-64-v3", "x86-64-v4"})
        if (isa_rank(level, cpu_isa())) all_ops(world, std::stoull(words.at(1)), level);
    }
    if (what == "groups") groups(world, std::stoull(words.at(1)));
    if (what == "apart") say_apart(world);
    else if (what == "abort") aborted(world);
    else if (what == "time") timed(world, std::stoll(words.at(1)));
    else if (alone) {
      Checks c(world, 1);
      c.exchanged(1001);
      require(::dlopen("libmpi.so.40", RTLD_NOW | RTLD_NOLOAD) == nullptr, "one rank opens MPI");
      std::printf("alone: %lld checks hold\n", c.checks());
    }
  }
  close_libraries();
  return 0;
}

}  // namespace
}  // namespace galley::test

int main(int argc, char** argv) { return galley::test::main_with(galley::test::main_of, argc, argv); }
