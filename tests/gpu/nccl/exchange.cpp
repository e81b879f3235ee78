// One process of several that a launcher has started: opens the plugin "nccl" and the emulated GPU as the host does, runs the ops of exchanges
// by the plugin's kernels and compares with what this process computes itself from the numbers of all ranks, to the bit.
// tests/python/nccl_exchange.py runs it, with the NCCL and the driver of the tests (mock.cpp, driver.cpp).
//
//   nccl-exchange ops SEED     all ops, and exchange()
//   nccl-exchange few          some of them, on small tensors
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

// ---- All ops ------------------------------------------------------------------------------------------------------------------

class Checks {
 public:
  Checks(World& world, uint64_t seed) : world_(world), seed_(seed), n_(world.ranks()), r_(world.rank()) {}

  template <class T>
  void sums(uint32_t dtype, int64_t count) {
    const auto all = of_all<T>(count);
    const auto start = numbers<T>(seed_, ++case_, 0, count);
    std::vector<T> plain = all[0], added = start, backwards = start;
    for (size_t r = 1; r < all.size(); ++r) add(plain, all[r]);
    for (size_t r = 0; r < all.size(); ++r) add(added, all[r]), add(backwards, all[all.size() - 1 - r]);
    if (!same(added, backwards)) ++ordered;

    const sdk::Attrs attrs = sdk::Attrs().s("axis", "data").i("ranks", n_);
    std::vector<T> x = own(all), y(static_cast<size_t>(count));
    const Operand of_x = {dtype, {count}, x.data()}, of_y = {dtype, {count}, y.data()};
    run("all_reduce", attrs, of_x, &of_y, false);
    expect(same(y, plain), "all_reduce", dtype, count);
    y = start;
    run("all_reduce", attrs, of_x, &of_y, true);
    expect(same(y, added), "all_reduce that adds", dtype, count);
    expect(same(x, own(all)), "all_reduce leaves x", dtype, count);
    run("all_reduce_here", attrs, of_x, nullptr, false);
    expect(same(x, plain), "all_reduce_here", dtype, count);
  }

  /// Twice over: y = y + x of rank 0 + …, from one capture.
  void captured(int64_t count) {
    const auto all = of_all<float>(count);
    const auto start = numbers<float>(seed_, ++case_, 0, count);
    std::vector<float> x = own(all), y = start, wanted = start;
    for (int twice = 0; twice < 2; ++twice)
      for (const auto& one : all) add(wanted, one);
    const Operand of_x = {GALLEY_F32, {count}, x.data()}, of_y = {GALLEY_F32, {count}, y.data()};
    run("all_reduce", sdk::Attrs().s("axis", "data").i("ranks", n_), of_x, &of_y, true, true);
    expect(same(y, wanted), "all_reduce that is replayed", GALLEY_F32, count);
  }

  /// `ends`: of the parts; `start`: whose the first is.
  void parts(const std::vector<int64_t>& ends, int64_t start) {
    const int64_t count = ends.back();
    const auto all = of_all<float>(count);
    const auto [first, size] = own_part(ends, start);
    const sdk::Attrs attrs = of_parts(ends, start);
    std::vector<float> x = own(all), plain = all[0], before = numbers<float>(seed_, ++case_, r_, size), y(static_cast<size_t>(size));
    for (size_t r = 1; r < all.size(); ++r) add(plain, all[r]);
    std::vector<float> added = before;
    for (const auto& of_rank : all) add(added, std::vector<float>(of_rank.begin() + first, of_rank.begin() + first + size));
    const Operand whole = {GALLEY_F32, {count}, x.data()}, part = {GALLEY_F32, {size}, y.data()};
    run("reduce_scatter", attrs, whole, &part, false);
    expect(same(y, std::vector<float>(plain.begin() + first, plain.begin() + first + size)), "reduce_scatter", GALLEY_F32, count);
    std::copy(before.begin(), before.end(), y.begin());
    run("reduce_scatter", attrs, whole, &part, true);
    expect(same(y, added), "reduce_scatter that adds", GALLEY_F32, count);
    expect(same(x, own(all)), "reduce_scatter leaves x", GALLEY_F32, count);

    gathered<uint8_t>(GALLEY_U8, ends, start);
    gathered<uint16_t>(GALLEY_BF16, ends, start);
    gathered<float>(GALLEY_F32, ends, start);
    gathered<double>(GALLEY_F64, ends, start);
  }
  template <class T>
  void gathered(uint32_t dtype, const std::vector<int64_t>& ends, int64_t start) {
    const auto [first, size] = own_part(ends, start);
    const auto whole = numbers<T>(seed_, ++case_, 0, ends.back());
    std::vector<T> part(whole.begin() + first, whole.begin() + first + size), y(whole.size()), here(whole.size());
    const Operand in = {dtype, {size}, part.data()}, out = {dtype, {ends.back()}, y.data()};
    run("all_gather", of_parts(ends, start), in, &out, false);
    expect(same(y, whole), "all_gather", dtype, ends.back());
    std::copy(part.begin(), part.end(), here.begin() + first);
    const Operand in_place = {dtype, {ends.back()}, here.data()};
    run("all_gather_here", of_parts(ends, start), in_place, nullptr, false);
    expect(same(here, whole), "all_gather_here", dtype, ends.back());
  }

  void exchanged(int64_t bytes) {
    const auto all = of_all<uint8_t>(bytes);
    std::vector<uint8_t> got(static_cast<size_t>(n_ * bytes)), wanted;
    galley_error error = GALLEY_ERROR_INIT;
    const galley_status status = world_.table().exchange(world_.handle(), own(all).data(), bytes, got.data(), &error);
    require(status == GALLEY_OK, error.text);
    for (const auto& one : all) wanted.insert(wanted.end(), one.begin(), one.end());
    expect(same(got, wanted), "exchange", GALLEY_U8, bytes);
  }

  void refusals() {
    float x[4] = {}, y[4] = {};
    const Operand in = {GALLEY_F32, {4}, x}, out = {GALLEY_F32, {4}, y}, bytes = {GALLEY_U8, {4}, x}, of_bytes = {GALLEY_U8, {4}, y};
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
    refused(world_.run("all_reduce", here, bytes, &of_bytes, false, world_.handle()), GALLEY_UNSUPPORTED,
            "sums are of F32, F64, I32, BF16 or F16");
    std::vector<int64_t> ends;
    for (int64_t j = 1; j <= n_; ++j) ends.push_back(j == n_ ? 4 : 0);
    const Operand part = {GALLEY_BF16, {r_ == n_ - 1 ? 4 : 0}, y};
    refused(world_.run("reduce_scatter", of_parts(ends, 0), in, &part, false, world_.handle()), GALLEY_UNSUPPORTED,
            "sums in another dtype");
  }

  int64_t checks = 0, ordered = 0;

 private:
  template <class T>
  std::vector<std::vector<T>> of_all(int64_t count) {
    std::vector<std::vector<T>> out;
    ++case_;
    for (int64_t r = 0; r < n_; ++r) out.push_back(numbers<T>(seed_, case_, r, count));
    return out;
  }
  template <class T>
  const std::vector<T>& own(const std::vector<std::vector<T>>& all) const {
    return all[static_cast<size_t>(r_)];
  }
  /// Where this rank's part begins, and how many numbers it has.
  std::pair<int64_t, int64_t> own_part(const std::vector<int64_t>& ends, int64_t start) const {
    const auto j = static_cast<size_t>(((r_ - start) % n_ + n_) % n_);
    const int64_t first = j ? ends[j - 1] : 0;
    return {first, ends[j] - first};
  }
  template <class T>
  static void add(std::vector<T>& to, const std::vector<T>& x) {
    for (size_t i = 0; i < to.size(); ++i) to[i] = sum_of(to[i], x[i]);
  }
  template <class T>
  static bool same(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && (a.empty() || !std::memcmp(a.data(), b.data(), a.size() * sizeof(T)));
  }
  sdk::Attrs of_parts(const std::vector<int64_t>& ends, int64_t start) const {
    return sdk::Attrs().s("axis", "data").i("ranks", n_).i("rank", r_).i("start", start).list("ends", ends);
  }
  void run(const std::string& op, const sdk::Attrs& attrs, const Operand& in, const Operand* out, bool adds, bool captured = false) {
    const World::Ran ran = world_.run(op, attrs, in, out, adds, world_.handle(), captured);
    require(ran.status == GALLEY_OK, op + ": " + ran.text);
  }
  void expect(bool holds, const char* what, uint32_t dtype, int64_t count) {
    require(holds, std::string(what) + " of " + std::to_string(count) + " numbers of dtype " + std::to_string(dtype) + " has other bytes");
    ++checks;
  }

  World& world_;
  uint64_t seed_, case_ = 0;
  int64_t n_, r_;
};

void all_ops(World& world, uint64_t seed, bool few) {
  Checks c(world, seed);
  const int64_t n = world.ranks();
  // Around what is gathered whole (1 MiB of all ranks), and more than a slot of the workspace has (8 MiB of each).
  const int64_t small = (1 << 20) / 4 / n, slot = (8 << 20) / 4;
  std::vector<int64_t> counts = {0, 1, 2, 3, 7, 1000, small, small + 1};
  if (!few && n == 2) counts.push_back(n * slot + n + 1);
  for (const int64_t count : counts) c.sums<float>(GALLEY_F32, count);
  for (const int64_t count : {int64_t{1}, int64_t{1001}, small / 2 + 1}) {
    if (few && count > 1) break;
    c.sums<double>(GALLEY_F64, count);
    c.sums<uint32_t>(GALLEY_I32, count);
    c.sums<sdk::Bf16>(GALLEY_BF16, 2 * count + 1);
    c.sums<sdk::F16>(GALLEY_F16, 2 * count + 1);
  }
  for (const int64_t start : {int64_t{0}, int64_t{1}, n + 1})
    for (const int64_t most : {int64_t{1}, int64_t{33}, int64_t{20001}}) {
      if (few && most > 33) break;
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
  c.captured(1001);
  c.captured(small + 5);
  if (!few) {
    std::vector<int64_t> one_has_all(static_cast<size_t>(n), (17 << 20) + 3);
    c.gathered<uint8_t>(GALLEY_U8, one_has_all, 1);
    one_has_all.assign(static_cast<size_t>(n), slot + 5);
    c.parts(one_has_all, 1);
  }
  for (const int64_t bytes : {0, 1, 1001}) c.exchanged(bytes);
  if (!few) c.exchanged((1 << 20) + 5);
  c.refusals();
  require(c.ordered > 5, "sums are the same in another order: this test would not see one");
  galley_error error = GALLEY_ERROR_INIT;
  int64_t culprit = 0;
  require(world.table().check(world.handle(), &culprit, &error) == GALLEY_OK && culprit == -1, "check() finds what is well lost");
  std::printf("rank %lld of %lld: %lld checks hold\n", static_cast<long long>(world.rank()), static_cast<long long>(n),
              static_cast<long long>(c.checks));
}

/// The sum of a tensor for which ranks wait.
World::Ran summed(World& world) {
  std::vector<float> x(1001), y(1001);
  const Operand in = {GALLEY_F32, {1001}, x.data()}, out = {GALLEY_F32, {1001}, y.data()};
  return world.run("all_reduce", sdk::Attrs().s("axis", "data").i("ranks", world.ranks()), in, &out, false, world.handle());
}
void say(const World& world, const World::Ran& ran, galley_status checked, const char* text) {
  std::printf("rank %lld: status %d, '%s', check %d '%s'\n", static_cast<long long>(world.rank()), ran.status, ran.text.c_str(), checked,
              text);
}

/// Each rank means to have another part than the others say.
void apart(World& world) {
  const int64_t n = world.ranks();
  std::vector<int64_t> ends;
  for (int64_t j = 1; j <= n; ++j) ends.push_back(j == n ? 90 : 10 * j + (world.rank() == n - 1));
  std::vector<float> x(90), y(90);
  const int64_t size = ends[static_cast<size_t>(world.rank())] - (world.rank() ? ends[static_cast<size_t>(world.rank()) - 1] : 0);
  const Operand in = {GALLEY_F32, {90}, x.data()}, out = {GALLEY_F32, {size}, y.data()};
  (void)world.run("reduce_scatter", sdk::Attrs().s("axis", "data").i("ranks", n).i("rank", world.rank()).list("ends", ends), in, &out,
                  false, world.handle());
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
  const World::Ran waited = summed(world);
  watch.join();
  const World::Ran then = summed(world);
  const galley_status checked = table.check(world.handle(), &culprit, &error);
  std::printf("rank %lld waited with status %d\n", static_cast<long long>(world.rank()), waited.status);
  say(world, then, checked, error.text);
  char mine = 1, all[8] = {};
  const galley_status exchanged = table.exchange(world.handle(), &mine, 1, all, &error);
  std::printf("rank %lld: exchange %d '%s'\n", static_cast<long long>(world.rank()), exchanged, error.text);
}

int main_of(const std::vector<std::string>& words) {
  const auto variable = [](const char* name) {
    const char* text = std::getenv(name);
    return text ? std::string(text) : "";
  };
  const auto number = [&](const char* name, int64_t otherwise) { return variable(name).empty() ? otherwise : std::stoll(variable(name)); };
  const std::string what = words.at(0);
  galley_error error = GALLEY_ERROR_INIT;
  {
    World world(variable("GALLEY_BINARY"), number("RANK", 0), number("WORLD_SIZE", 1));
    if (const galley_status status = world.open(variable("MEETING"), "torchrun." + variable("TORCHELASTIC_RUN_ID"), &error)) {
      std::printf("open: status %d, '%s', '%s'\n", status, error.text, error.hint);
      return 1;
    }
    if (what == "ops" || what == "few") all_ops(world, words.size() > 1 ? std::stoull(words[1]) : 1, what == "few");
    if (what == "apart") apart(world);
    if (what == "alone") {
      Checks c(world, 1);
      c.exchanged(1001);
      require(::dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD) == nullptr, "one rank opens NCCL");
      std::printf("alone: %lld checks hold\n", static_cast<long long>(c.checks));
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

int main(int argc, char** argv) {
  try {
    return galley::test::main_of({argv + 1, argv + argc});
  } catch (const std::exception& wrong) {
    std::printf("wrong: %s\n", wrong.what());
    std::fflush(stdout);
    std::_Exit(1);  // ranks that the others wait for do not wait for them
  }
}
