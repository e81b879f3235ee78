// One process of several that a launcher has started: opens the plugin "nccl" and the emulated GPU as the host does, runs the ops of exchanges
// by the plugin's kernels and compares with what this process computes itself from the numbers of all ranks, to the bit.
// tests/python/nccl_exchange.py runs it, with the NCCL and the driver of the tests (mock.cpp, driver.cpp).
//
//   nccl-exchange ops SEED     all ops, and exchange()
//   nccl-exchange few          some of them, on small tensors
//   nccl-exchange groups SEED  all ops among the halves of the ranks, and among all in between
//   nccl-exchange halves       ranks that do not agree about these halves
//   nccl-exchange unread       ranks that send what nobody receives
//   nccl-exchange open         only comes and goes
//   nccl-exchange apart        ranks that do not agree about their parts
//   nccl-exchange abort        ranks that wait on the GPU for one that does not come, until a thread aborts
//   nccl-exchange gone         the last rank leaves without a word
//   nccl-exchange alone        one rank, which touches no NCCL
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/gpu/nccl/world.hpp"

namespace galley::test {
namespace {

void all_ops(World& world, uint64_t seed, bool few) {
  Checks c(world, seed);
  const int64_t n = world.ranks();
  // Around what is gathered whole (1 MiB of all ranks), and more than a slot of the workspace has (8 MiB of each).
  const int64_t small = (1 << 20) / 4 / n, slot = (8 << 20) / 4;
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{3}, int64_t{7}, int64_t{1000}, small, small + 1})
    c.sums<float>(count);
  if (!few && n == 2) c.sums<float>(n * slot + n + 1);
  for (const int64_t count : {int64_t{1}, int64_t{1001}, small / 2 + 1}) {
    if (few && count > 1) break;
    c.sums<double>(count);
    c.sums<uint32_t>(count);
    c.sums<sdk::Bf16>(2 * count + 1);
    c.sums<sdk::F16>(2 * count + 1);
  }
  c.parts_of_all_kinds<float>(few ? std::vector<int64_t>{1, 33} : std::vector<int64_t>{1, 33, 20001});
  c.repeated(1001);
  c.repeated(small + 5);
  if (!few) {
    c.gathered<uint8_t>(c.one_has_all((17 << 20) + 3), 1);
    c.parts<float>(c.one_has_all(slot + 5), 1);
  }
  for (const int64_t bytes : {0, 1, 1001}) c.exchanged(bytes);
  if (!few) c.exchanged((1 << 20) + 5);
  c.refusals();
  // What the op's contract refuses, and its kernels too; of the latter rank 0 has all numbers.
  float x[4] = {}, y[4] = {};
  const Operand in = {GALLEY_F32, {4}, x}, part = {GALLEY_BF16, {world.rank() == 0 ? 4 : 0}, y}, bytes = {GALLEY_U8, {4}, x},
                of_bytes = {GALLEY_U8, {4}, y};
  c.refused(world.run("all_reduce", Checks::of_whole(n), bytes, &of_bytes, false, world.handle(), 1), GALLEY_UNSUPPORTED,
            "sums are of F32, F64, I32, BF16 or F16");
  c.refused(world.run("reduce_scatter", c.of_parts(c.one_has_all(4), 0), in, &part, false, world.handle(), 1), GALLEY_UNSUPPORTED,
            "sums in another dtype");
  c.end();
  std::printf("rank %lld of %lld: %lld checks hold\n", static_cast<long long>(world.rank()), static_cast<long long>(n), c.checks());
}

/// Each half of the ranks by itself, with stride 1 and with stride 2, and all: one after the other, and no rank waits for another half.
void groups(World& world, uint64_t seed) {
  const int64_t n = world.ranks(), half = n / 2;
  Checks near(world, seed, half, 1), far(world, seed, half, 2), all(world, seed);
  const auto each = [&](const auto& check) {
    for (Checks* c : {&near, &far, &all}) check(*c);
  };
  const int64_t small = (1 << 20) / 4 / half, slot = (8 << 20) / 4;
  for (const int64_t count : {0, 1, 1000}) each([&](Checks& c) { c.sums<float>(count); });
  each([&](Checks& c) {
    c.sums<double>(1001);
    c.sums<uint32_t>(1001);
    c.sums<sdk::Bf16>(2003);
    c.sums<sdk::F16>(2003);
  });
  each([&](Checks& c) { c.parts_of<float>(33, 0); });
  far.parts_of<float>(33, half + 1);
  for (Checks* c : {&near, &far}) {
    c->sums<float>(small);
    c->sums<float>(small + 1);
    c->sums<sdk::Bf16>(2 * small + 3);
    c->repeated(1001);
    c->repeated(small + 5);
  }
  if (n == 4) near.scattered<float>(near.one_has_all(slot + 5), 1);  // more than one message has
  for (Checks* c : {&near, &far}) c->end();
  std::printf("rank %lld of %lld: %lld checks hold\n", static_cast<long long>(world.rank()), static_cast<long long>(n),
              near.checks() + far.checks());
}

/// A rank takes another half for its own than the others do: it sends what nobody receives, or waits for what nobody sends.
void halves(World& world) {
  std::vector<float> x(1001), y(1001);
  const Operand in = {GALLEY_F32, {1001}, x.data()}, out = {GALLEY_F32, {1001}, y.data()};
  const sdk::Attrs attrs = Checks::of_whole(world.ranks() / 2).i("stride", world.rank() == 0 ? 2 : 1);
  (void)world.run("all_reduce", attrs, in, &out, false, world.handle(), 1);
}

/// A rank takes the parts of all others for empty ones.
void unread(World& world) {
  std::vector<int64_t> ends;
  for (int64_t j = 0; j < world.ranks(); ++j) ends.push_back(j < world.rank() ? 0 : 4);
  std::vector<float> x(4), y(4);
  const Operand in = {GALLEY_F32, {4}, x.data()}, out = {GALLEY_F32, {4}, y.data()};
  (void)world.run("all_gather", Checks::of_whole(world.ranks()).i("rank", world.rank()).list("ends", ends), in, &out, false, world.handle(),
                  1);
}

/// The sum of a tensor for which ranks wait.
Ran summed(World& world) {
  std::vector<float> x(1001), y(1001);
  const Operand in = {GALLEY_F32, {1001}, x.data()}, out = {GALLEY_F32, {1001}, y.data()};
  return world.run("all_reduce", Checks::of_whole(world.ranks()), in, &out, false, world.handle(), 1);
}
void say(const World& world, const Ran& ran, galley_status checked, const char* text) {
  std::printf("rank %lld: status %d, '%s', check %d '%s'\n", static_cast<long long>(world.rank()), ran.status, ran.text.c_str(), checked,
              text);
}

void aborted(World& world, bool gone) {
  const galley_ranks& table = world.table();
  galley_error error = GALLEY_ERROR_INIT;
  int64_t culprit = 0;
  if (world.rank() == world.ranks() - 1) {
    if (gone) std::_Exit(0);
    std::this_thread::sleep_for(std::chrono::seconds(3));
    return table.abort(world.handle());
  }
  std::thread watch([&] {
    if (!gone) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    galley_error found = GALLEY_ERROR_INIT;
    while (gone && table.check(world.handle(), &culprit, &found) == GALLEY_OK) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (gone) {
      std::printf("rank %lld finds '%s'", static_cast<long long>(world.rank()), found.text);
      (void)table.check(world.handle(), &culprit, &found);
      std::printf(", then '%s'\n", found.text);
    }
    table.abort(world.handle());
  });
  const Ran waited = summed(world);
  watch.join();
  const Ran then = summed(world);
  const galley_status checked = table.check(world.handle(), &culprit, &error);
  std::printf("rank %lld waited with status %d\n", static_cast<long long>(world.rank()), waited.status);
  say(world, then, checked, error.text);
  char mine = 1, all[8] = {};
  const galley_status exchanged = table.exchange(world.handle(), &mine, 1, all, &error);
  std::printf("rank %lld: exchange %d '%s'\n", static_cast<long long>(world.rank()), exchanged, error.text);
}

int main_of(const std::vector<std::string>& words) {
  const auto number = [&](const char* name, int64_t otherwise) { return variable(name).empty() ? otherwise : std::stoll(variable(name)); };
  const std::string what = words.at(0);
  galley_error error = GALLEY_ERROR_INIT;
  {
    Gpu world(variable("GALLEY_BINARY"), number("RANK", 0), number("WORLD_SIZE", 1));
    if (const galley_status status = world.open(variable("MEETING"), "torchrun." + variable("TORCHELASTIC_RUN_ID"), &error)) {
      std::printf("open: status %d, '%s', '%s'\n", status, error.text, error.hint);
      return 1;
    }
    if (what == "ops" || what == "few") all_ops(world, words.size() > 1 ? std::stoull(words[1]) : 1, what == "few");
    if (what == "groups") groups(world, std::stoull(words.at(1)));
    if (what == "halves") halves(world);
    if (what == "unread") unread(world);
    if (what == "apart") (void)apart(world);
    if (what == "alone") {
      Checks c(world, 1);
      c.exchanged(1001);
      require(::dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD) == nullptr, "one rank opens NCCL");
      std::printf("alone: %lld checks hold\n", c.checks());
    }
    if (what == "abort" || what == "gone") aborted(world, what == "gone");
    else world.close();
  }
  close_libraries();
  std::printf("rank %s ends\n", variable("RANK").c_str());
  return 0;
}

}  // namespace
}  // namespace galley::test

int main(int argc, char** argv) { return galley::test::main_with(galley::test::main_of, argc, argv); }
