// What programs of several processes share that run the ops of exchanges by a plugin's kernels (tests/mpi, tests/gpu/nccl): numbers that are the
// same wherever they are made, the node that a kernel gets, and checks of each op against what this process computes itself from the numbers of
// all ranks, to the bit.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "galley/cpp/exchange.hpp"
#include "galley/cpp/half.hpp"
#include "host/plan/target.hpp"
#include "host/plugins/host_table.hpp"
#include "host/plugins/loader.hpp"

namespace galley::test {

inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

// ---- Numbers ------------------------------------------------------------------------------------------------------------------

inline uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

/// A type that is added as the dtype is. 16 bits that are only moved are those of BF16.
template <class T>
inline constexpr uint32_t dtype_of = GALLEY_F32;
template <>
inline constexpr uint32_t dtype_of<double> = GALLEY_F64;
template <>
inline constexpr uint32_t dtype_of<uint32_t> = GALLEY_I32;
template <>
inline constexpr uint32_t dtype_of<uint8_t> = GALLEY_U8;
template <>
inline constexpr uint32_t dtype_of<uint16_t> = GALLEY_BF16;
template <>
inline constexpr uint32_t dtype_of<sdk::Bf16> = GALLEY_BF16;
template <>
inline constexpr uint32_t dtype_of<sdk::F16> = GALLEY_F16;

template <class T>
T made_of(uint64_t bits) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(bits);
  } else {
    const double number = (static_cast<double>(bits >> 12) * 0x1p-52 - .5) * (bits & 1 ? 0x1p8 : bits & 2 ? 0x1p-8 : 1.0);
    if constexpr (std::is_floating_point_v<T>) {
      return static_cast<T>(number);
    } else {
      T out;
      sdk::from_float(static_cast<float>(number), out);
      return out;
    }
  }
}
template <class T>
T sum_of(T a, T b) {
  if constexpr (std::is_arithmetic_v<T>) {
    return a + b;
  } else {
    T out;
    sdk::from_float(sdk::to_float(a) + sdk::to_float(b), out);
    return out;
  }
}

/// Numbers whose sum depends on the order: of sizes from 2⁻⁸ to 2⁸.
template <class T>
std::vector<T> numbers(uint64_t seed, uint64_t of_case, int64_t rank, int64_t count) {
  const uint64_t key = mixed(mixed(seed * 1000003 + of_case) + static_cast<uint64_t>(rank));
  std::vector<T> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i) out[i] = made_of<T>(mixed(key + i * 0x9E3779B97F4A7C15ull));
  return out;
}

// ---- One op -------------------------------------------------------------------------------------------------------------------

struct Operand {
  uint32_t dtype;
  std::vector<int64_t> shape;
  void* data;  ///< of the host
};

/// The node of an exchange, as kernels see it: y (or nothing) of x. The operands outlive it.
struct ExchangeNode {
  ExchangeNode(const std::string& op, const sdk::Attrs& attrs, const Operand& in, const Operand* out, bool adds) {
    const auto view = [](const Operand& o, uint32_t access, const char* name) {
      return sdk::operand(nullptr, o.shape.data(), static_cast<uint32_t>(o.shape.size()), o.dtype, access, name);
    };
    x = y = view(in, GALLEY_READ, "x");
    if (out) y = view(*out, adds ? GALLEY_ACCUMULATE : GALLEY_WRITE, "y");
    node.op = op.c_str();
    node.name = "h.0.exchange";
    node.inputs = inputs;
    node.n_inputs = 1;
    node.outputs = outputs;
    node.n_outputs = out ? 1 : 0;
    node.attrs = attrs.data();
    node.n_attrs = attrs.count();
    node.block = -1;
  }
  ExchangeNode(const ExchangeNode&) = delete;
  ExchangeNode& operator=(const ExchangeNode&) = delete;

  galley_operand x, y;
  const galley_operand *inputs[1] = {&x}, *outputs[1] = {&y};
  galley_node_view node = sdk::fresh<galley_node_view>();
  const galley_node_view* nodes[1] = {&node};
};

/// What a kernel of the plugin says of a node.
struct Ran {
  galley_status status = GALLEY_OK;
  std::string text;
};

/// A plugin that joins processes, opened as the host does, and this process among them.
class World {
 public:
  World(std::string plugin, const std::vector<std::filesystem::path>& folders, int64_t rank, int64_t ranks)
      : plugins_(Plugins::scan(folders)), id_(std::move(plugin)), rank_(rank), ranks_(ranks) {
    for (const auto& found : plugins_->all()) {
      if (found->manifest.id != id_) continue;
      const Status loaded = plugins_->load(*found);
      require(loaded.ok(), loaded.ok() ? "" : loaded.error().cause);
      require(found->library->ranks.size() == 1, "the plugin has no ranks");
      table_ = found->library->ranks[0];
    }
    require(table_ != nullptr, "there is no plugin '" + id_ + "' in " + folders.at(0).string());
  }
  virtual ~World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Runs the kernel as often as that, from one capture where that is more than once and the device has captures. `with`: the ranks that it is given.
  virtual Ran run(const std::string& op, const sdk::Attrs& attrs, const Operand& in, const Operand* out, bool adds, void* with,
                  int times) = 0;

  const galley_ranks& table() const { return *table_; }
  void* handle() const { return handle_; }
  int64_t rank() const { return rank_; }
  int64_t ranks() const { return ranks_; }

 protected:
  galley_status open_ranks(const std::string& meeting, const std::string& job, galley_error* error) {
    const TargetView target(target_);
    auto o = sdk::fresh<galley_ranks_options>();
    o.target = target.get();
    o.rank = o.local_rank = rank_;
    o.ranks = o.local_ranks = ranks_;
    o.job = job.c_str();
    o.meeting = meeting.empty() ? nullptr : meeting.c_str();
    return table_->open(table_->self, &o, &handle_, error);
  }
  const galley_kernel& kernel_of(const std::string& op, const char* device) const {
    const galley_kernel* kernel = nullptr;
    for (const auto& found : plugins_->kernels(op, device, target_.isa))
      if (found.plugin->manifest.id == id_) kernel = found.table;
    require(kernel != nullptr, op + " has no kernel of the plugin");
    return *kernel;
  }

  std::unique_ptr<Plugins> plugins_;
  Target target_;
  void* handle_ = nullptr;

 private:
  std::string id_;
  const galley_ranks* table_ = nullptr;
  int64_t rank_, ranks_;
};

// ---- All ops ------------------------------------------------------------------------------------------------------------------

class Checks {
 public:
  /// Among all ranks of the run.
  Checks(World& world, uint64_t seed) : world_(world), seed_(seed), n_(world.ranks()), r_(world.rank()) {}
  /// Among groups of so many of them, whose numbers are `stride` apart. Each group has its own numbers.
  Checks(World& world, uint64_t seed, int64_t ranks, int64_t stride)
      : world_(world), seed_(seed), n_(ranks), r_(world.rank() / stride % ranks), stride_(stride) {
    case_ = static_cast<uint64_t>(100 * stride + in_run(0)) * 100'000;
  }

  template <class T>
  void sums(int64_t count) {
    const auto all = of_all<T>(count);
    const auto start = numbers<T>(seed_, ++case_, 0, count);
    std::vector<T> plain = all[0], added = start, backwards = start;
    for (size_t r = 1; r < all.size(); ++r) add(plain, all[r]);
    for (size_t r = 0; r < all.size(); ++r) add(added, all[r]), add(backwards, all[all.size() - 1 - r]);
    ordered_ += !same(added, backwards);

    std::vector<T> x = own(all), y(static_cast<size_t>(count));
    const Operand of_x = operand(x), of_y = operand(y);
    run("all_reduce", along(), of_x, &of_y, false);
    expect<T>(same(y, plain), "all_reduce", count);
    std::copy(start.begin(), start.end(), y.begin());
    run("all_reduce", along(), of_x, &of_y, true);
    expect<T>(same(y, added), "all_reduce that adds", count);
    expect<T>(same(x, own(all)), "all_reduce leaves x", count);
    run("all_reduce_here", along(), of_x, nullptr, false);
    expect<T>(same(x, plain), "all_reduce_here", count);
  }

  /// Twice over: y = y + x of rank 0 + …
  void repeated(int64_t count) {
    const auto all = of_all<float>(count);
    std::vector<float> x = own(all), y = numbers<float>(seed_, ++case_, 0, count), wanted = y;
    for (int twice = 0; twice < 2; ++twice)
      for (const auto& one : all) add(wanted, one);
    const Operand of_x = operand(x), of_y = operand(y);
    run("all_reduce", along(), of_x, &of_y, true, 2);
    expect<float>(same(y, wanted), "all_reduce that is repeated", count);
  }

  /// `ends`: of the parts; `start`: whose the first is.
  template <class T>
  void scattered(const std::vector<int64_t>& ends, int64_t start) {
    const int64_t count = ends.back();
    const auto all = of_all<T>(count);
    const auto [first, size] = own_part(ends, start);
    const auto part_of = [&, first = first, size = size](const std::vector<T>& x) {
      return std::vector<T>(x.begin() + first, x.begin() + first + size);
    };
    std::vector<T> x = own(all), y(static_cast<size_t>(size)), plain = part_of(all[0]), added = numbers<T>(seed_, ++case_, r_, size);
    const std::vector<T> before = added;
    for (size_t r = 1; r < all.size(); ++r) add(plain, part_of(all[r]));
    for (const auto& of_rank : all) add(added, part_of(of_rank));
    const Operand whole = operand(x), part = operand(y);
    run("reduce_scatter", of_parts(ends, start), whole, &part, false);
    expect<T>(same(y, plain), "reduce_scatter", count);
    std::copy(before.begin(), before.end(), y.begin());
    run("reduce_scatter", of_parts(ends, start), whole, &part, true);
    expect<T>(same(y, added), "reduce_scatter that adds", count);
    expect<T>(same(x, own(all)), "reduce_scatter leaves x", count);
  }
  template <class T>
  void gathered(const std::vector<int64_t>& ends, int64_t start) {
    const auto [first, size] = own_part(ends, start);
    const auto whole = numbers<T>(seed_, ++case_, 0, ends.back());
    std::vector<T> part(whole.begin() + first, whole.begin() + first + size), y(whole.size()), here(whole.size());
    const Operand in = operand(part), out = operand(y), in_place = operand(here);
    run("all_gather", of_parts(ends, start), in, &out, false);
    expect<T>(same(y, whole), "all_gather", ends.back());
    std::copy(part.begin(), part.end(), here.begin() + first);
    run("all_gather_here", of_parts(ends, start), in_place, nullptr, false);
    expect<T>(same(here, whole), "all_gather_here", ends.back());
  }
  /// Sums of these types; what is gathered has numbers of 1, 2, 4 and 8 bytes.
  template <class... Added>
  void parts(const std::vector<int64_t>& ends, int64_t start) {
    (scattered<Added>(ends, start), ...);
    gathered<uint8_t>(ends, start);
    gathered<uint16_t>(ends, start);
    gathered<float>(ends, start);
    gathered<double>(ends, start);
  }
  /// Parts that are equal, unequal and empty, of about so many numbers.
  template <class... Added>
  void parts_of(int64_t most, int64_t start) {
    std::vector<int64_t> even, uneven, last, first;
    for (int64_t j = 1; j <= n_; ++j) {
      even.push_back(most * j);
      uneven.push_back(j == 1 ? 0 : most * j * j / 3);
      last.push_back(j == n_ ? most : 0);
      first.push_back(most);
    }
    for (const auto& ends : {even, uneven, last, first}) parts<Added...>(ends, start);
  }
  /// The same, beginning with each rank.
  template <class... Added>
  void parts_of_all_kinds(const std::vector<int64_t>& sizes) {
    for (const int64_t start : {int64_t{0}, int64_t{1}, n_ + 1})
      for (const int64_t most : sizes) parts_of<Added...>(most, start);
    parts<Added...>(one_has_all(0), 1);
  }
  std::vector<int64_t> one_has_all(int64_t count) const { return std::vector<int64_t>(static_cast<size_t>(n_), count); }

  void exchanged(int64_t bytes) {
    const auto all = of_all<uint8_t>(bytes);
    std::vector<uint8_t> got(static_cast<size_t>(n_ * bytes)), wanted;
    galley_error error = GALLEY_ERROR_INIT;
    require(world_.table().exchange(world_.handle(), own(all).data(), bytes, got.data(), &error) == GALLEY_OK, error.text);
    for (const auto& one : all) wanted.insert(wanted.end(), one.begin(), one.end());
    expect<uint8_t>(same(got, wanted), "exchange", bytes);
  }

  void refused(const Ran& ran, galley_status status, const std::string& text) {
    require(ran.status == status && ran.text.find(text) != std::string::npos,
            "refused with " + std::to_string(ran.status) + ": " + ran.text);
    ++checks_;
  }
  void refusals() {
    float x[4] = {}, y[4] = {};
    const Operand in = {GALLEY_F32, {4}, x}, out = {GALLEY_F32, {4}, y};
    const std::string n = std::to_string(n_), more = std::to_string(n_ + 3);
    refused(world_.run("all_reduce", along(), in, &out, false, nullptr, 1), GALLEY_INVALID,
            "h.0.exchange: all_reduce is planned for " + n + " ranks, and the run has 1");
    refused(world_.run("all_reduce", of_whole(n_ + 3), in, &out, false, world_.handle(), 1), GALLEY_INVALID,
            "is planned for " + more + " ranks, and the run has " + n);
    refused(world_.run("all_reduce", of_whole(1), in, &out, false, world_.handle(), 1), GALLEY_UNSUPPORTED, "there is one rank");
    refused(world_.run("all_reduce", of_whole(n_).i("stride", 2), in, &out, false, world_.handle(), 1), GALLEY_INVALID,
            "h.0.exchange: all_reduce is planned for " + n + " ranks with stride 2, and the run has " + n);
    const int64_t other = (r_ + 1) % n_;
    const std::string r = std::to_string(r_);
    const Operand part = {GALLEY_F32, {other == 0 ? 4 : 0}, y};
    refused(world_.run("reduce_scatter", of_whole(n_).i("rank", other).list("ends", one_has_all(4)), in, &part, false, world_.handle(), 1),
            GALLEY_INVALID,
            "h.0.exchange: reduce_scatter is planned for rank " + std::to_string(other) + " of its axis, and rank " + r +
                " of the run has place " + r + " there");
  }

  /// What all_ops() of a program ends with.
  void end() {
    require(ordered_ > 5, "sums are the same in another order: this test would not see one");
    galley_error error = GALLEY_ERROR_INIT;
    int64_t culprit = 0;
    require(world_.table().check(world_.handle(), &culprit, &error) == GALLEY_OK && culprit == -1, "check() finds what is well lost");
  }
  long long checks() const { return checks_; }

  static sdk::Attrs of_whole(int64_t ranks) { return sdk::Attrs().s("axis", "data").i("ranks", ranks); }
  sdk::Attrs of_parts(const std::vector<int64_t>& ends, int64_t start) const {
    return along().i("rank", r_).i("start", start).list("ends", ends);
  }

 private:
  template <class T>
  std::vector<std::vector<T>> of_all(int64_t count) {
    std::vector<std::vector<T>> out;
    ++case_;
    for (int64_t r = 0; r < n_; ++r) out.push_back(numbers<T>(seed_, case_, in_run(r), count));
    return out;
  }
  template <class T>
  const std::vector<T>& own(const std::vector<std::vector<T>>& all) const {
    return all[static_cast<size_t>(r_)];
  }
  /// The number in the run of a rank of the group.
  int64_t in_run(int64_t rank) const { return world_.rank() + (rank - r_) * stride_; }
  sdk::Attrs along() const {
    sdk::Attrs out = of_whole(n_);
    if (n_ < world_.ranks()) out.i("stride", stride_);
    return out;
  }
  /// Where this rank's part begins, and how many numbers it has.
  std::pair<int64_t, int64_t> own_part(const std::vector<int64_t>& ends, int64_t start) const {
    const auto j = static_cast<size_t>(((r_ - start) % n_ + n_) % n_);
    const int64_t first = j ? ends[j - 1] : 0;
    return {first, ends[j] - first};
  }
  template <class T>
  static Operand operand(std::vector<T>& x) {
    return {dtype_of<T>, {std::ssize(x)}, x.data()};
  }
  template <class T>
  static void add(std::vector<T>& to, const std::vector<T>& x) {
    for (size_t i = 0; i < to.size(); ++i) to[i] = sum_of(to[i], x[i]);
  }
  template <class T>
  static bool same(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && (a.empty() || !std::memcmp(a.data(), b.data(), a.size() * sizeof(T)));
  }
  void run(const std::string& op, const sdk::Attrs& attrs, const Operand& in, const Operand* out, bool adds, int times = 1) {
    const Ran ran = world_.run(op, attrs, in, out, adds, world_.handle(), times);
    require(ran.status == GALLEY_OK, op + ": " + ran.text);
  }
  template <class T>
  void expect(bool holds, const char* what, int64_t count) {
    require(holds,
            std::string(what) + " of " + std::to_string(count) + " numbers of dtype " + std::to_string(dtype_of<T>) + " has other bytes");
    ++checks_;
  }

  World& world_;
  uint64_t seed_, case_ = 0;
  int64_t n_, r_, stride_ = 1, ordered_ = 0, checks_ = 0;
};

// ---- What goes wrong, and programs ----------------------------------------------------------------------------------------------------

/// Each rank means to have another part than the others say.
inline Ran apart(World& world) {
  const int64_t n = world.ranks(), rank = world.rank();
  std::vector<int64_t> ends;
  for (int64_t j = 1; j <= n; ++j) ends.push_back(j == n ? 90 : 10 * j + (rank == n - 1));
  std::vector<float> x(90), y(90);
  const int64_t size = ends[static_cast<size_t>(rank)] - (rank ? ends[static_cast<size_t>(rank) - 1] : 0);
  const Operand in = {GALLEY_F32, {90}, x.data()}, out = {GALLEY_F32, {size}, y.data()};
  return world.run("reduce_scatter", Checks::of_whole(n).i("rank", rank).list("ends", ends), in, &out, false, world.handle(), 1);
}

inline std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

/// main() of a program whose words come to `main_of`.
inline int main_with(int (*main_of)(const std::vector<std::string>&), int argc, char** argv) {
  try {
    return main_of({argv + 1, argv + argc});
  } catch (const std::exception& wrong) {
    std::printf("wrong: %s\n", wrong.what());
    std::fflush(stdout);
    std::_Exit(1);  // ranks that the others wait for do not wait for them
  }
}

}  // namespace galley::test
