// linear_int8 on the processor. First all of x becomes codes, once for all products of a launch that read it: columns of outliers are
// found, then rows are coded. Then a task is 256 rows of y by 64 columns: a panel of W's codes is laid out for the sums (sums.hpp), which
// serves all of these rows; sums are scaled, and the products of outliers' columns added.
//
// A weight that is not stored in "int8-rows" is multiplied in F32, by x̂ in F32: no strategy of the project asks for it, but one may store
// weights in another way.
//
// Bits. Sums of codes are exact; those of outliers are in the order of their columns.
#include <deque>
#include <utility>

#include "galley/cpp/groups.hpp"
#include "ops/linear_int8/rows.hpp"
#include "ops/linear_int8/sums.hpp"

namespace galley::cpu::int8 {
namespace {

using sdk::Node;

constexpr int64_t kRows = 256;    // of a task
constexpr int64_t kColumns = 32;  // of outliers that are multiplied at a time

/// What tasks of both kernels share: y, cut into blocks, and a bias.
class Blocks {
 public:
  Blocks(const Node& node) : rows_(node), N_(sdk::columns(node.out(0))), across_(divide_up(N_, panel)), bias_(node, 2), y_(node, 0) {}

  int64_t tasks() const { return divide_up(rows_.R, kRows) * across_; }
  struct Block {
    int64_t first, rows, column, columns;
  };
  Block block(int64_t task) const {
    const int64_t first = task / across_ * kRows, column = task % across_ * panel;
    return {first, std::min(kRows, rows_.R - first), column, std::min(panel, N_ - column)};
  }
  /// Writes or adds value(i, j), row and column within the block, and the bias.
  template <class Value>
  void finish(const Block& b, const Value& value) const {
    Buffer bias_buffer, buffer;
    const float* const bias = bias_ ? bias_.read(b.column, b.columns, bias_buffer) : nullptr;
    by_access(y_.adds(), [&](auto add) {
      for (int64_t i = 0; i < b.rows; ++i) {
        const int64_t at = (b.first + i) * N_ + b.column;
        float* const to = y_.open(at, b.columns, buffer);
        if (bias)
          for (int64_t j = 0; j < b.columns; ++j) put(add, to[j], value(i, j) + bias[j]);
        else
          for (int64_t j = 0; j < b.columns; ++j) put(add, to[j], value(i, j));
        y_.close(at, b.columns, to);
      }
    });
  }
  const Rows& rows() const { return rows_; }
  int64_t N() const { return N_; }

 private:
  Rows rows_;
  int64_t N_, across_;
  Input bias_;
  Output y_;
};

int64_t lanes_of(const galley_target& target) { return std::max<int64_t>(1, target.threads); }

/// Workspace of one lane, for products of at most so many rows and so deep.
struct Lane {
  Lane(int64_t most_rows, int64_t K, Room& room)
      : words(room.take<int32_t>(divide_up(std::min(depth, K), 2) * panel)),
        sums(room.take<int32_t>(std::min(kRows, most_rows) * panel)),
        added(room.take<float>(std::min(kRows, most_rows) * panel)),
        x(room.take<float>(std::min(kRows, most_rows) * kColumns)),
        w(room.take<float>(kColumns * panel)),
        numbers(room.take<float>(K)) {}
  int32_t *words, *sums;
  float *added, *x, *w, *numbers;
};

/// x as codes, for all products of a launch that read it.
struct CodedRows {
  CodedRows(const Node& node, Room& room)
      : rows(node),
        outliers(rows, room),
        units(room.take<float>(rows.R)),
        row_codes(round_up(rows.K, 64)),
        codes(room.take<int16_t>(rows.R * row_codes)) {}

  template <class Way, class Memory>
  void make(int64_t n_lanes, const Memory& memory) {
    using X = typename Way::X;
    auto* const all = reinterpret_cast<X*>(codes);
    outliers.find(rows);
    for_each_row(rows, outliers, n_lanes, memory, [&](int64_t r, const float* __restrict numbers, float scale, float inverse) {
      units[r] = int8_rows::unit(scale);
      X* __restrict to = all + r * row_codes;
      for (int64_t k = 0; k < rows.K; ++k) to[k] = static_cast<X>(int8_rows::code(numbers[k], inverse) + Way::offset);
      std::fill(to + rows.K, to + row_codes, static_cast<X>(Way::offset));
    });
  }

  Rows rows;
  Outliers outliers;
  float* units;       ///< of rows: what a code of 1 stands for
  int64_t row_codes;  ///< from one row to the next
  int16_t* codes;     ///< room for those of either way to multiply
};

/// A product whose W is in the format "int8-rows".
class CodedProduct {
 public:
  CodedProduct(const Node& node, const CodedRows* x)
      : blocks_(node), x_(x), coded_(node.in(1)), w_{coded_.codes, blocks_.N(), blocks_.rows().K, coded_.columns} {}
  int64_t tasks() const { return blocks_.tasks(); }

  template <class Way>
  void task(int64_t task, const Lane& lane) const {
    using X = typename Way::X;
    using W = typename Way::W;
    constexpr auto group = static_cast<int64_t>(4 / sizeof(W));
    const Blocks::Block b = blocks_.block(task);
    const int64_t K = w_.K, next = x_->row_codes * static_cast<int64_t>(sizeof(X));
    auto* const words = reinterpret_cast<W*>(lane.words);
    int32_t taken[panel] = {};
    std::fill_n(lane.sums, b.rows * panel, 0);
    for (int64_t k = 0; k < K; k += depth) {
      const int64_t last = std::min(K, k + depth), n = divide_up(last - k, group);
      make_panel(w_, b.column, k, last, words);
      if constexpr (Way::offset != 0) add_up(words, n, taken);
      add_sums<Way>(reinterpret_cast<const char*>(x_->codes) + b.first * next + k * static_cast<int64_t>(sizeof(X)), next, b.rows, words, n,
                    lane.sums);
    }
    for (int64_t j = 0; j < panel; ++j) taken[j] *= Way::offset;
    float units[panel] = {};
    for (int64_t j = 0; j < b.columns; ++j) units[j] = int8_rows::unit(coded_.scales[b.column + j]);
    const float* const of_rows = x_->units + b.first;
    const auto scaled = [&](int64_t i, int64_t j) {
      return static_cast<float>(lane.sums[i * panel + j] - taken[j]) * (of_rows[i] * units[j]);
    };
    if (x_->outliers.count() == 0) return blocks_.finish(b, scaled);
    add_outliers(b, lane, units);
    blocks_.finish(b, [&](int64_t i, int64_t j) { return scaled(i, j) + lane.added[i * panel + j]; });
  }

 private:
  /// Adds the codes of each output: what one more in each code of x makes of a sum.
  template <class W>
  static void add_up(const W* words, int64_t n, int32_t* sums) {
    constexpr auto group = static_cast<int64_t>(4 / sizeof(W));
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < panel; ++j) {
        int32_t sum = 0;
        for (int64_t c = 0; c < group; ++c) sum += words[(i * panel + j) * group + c];
        sums[j] += sum;
      }
  }

  /// Products of outliers' columns, in F32.
  void add_outliers(const Blocks::Block& b, const Lane& lane, const float* units) const {
    const Outliers& outliers = x_->outliers;
    std::fill_n(lane.added, b.rows * panel, 0.0f);
    for (int64_t first = 0; first < outliers.count(); first += kColumns) {
      const int64_t n = std::min(kColumns, outliers.count() - first);
      for (int64_t c = 0; c < n; ++c) {
        const int64_t k = outliers.at(first + c);
        for (int64_t j = 0; j < b.columns; ++j) lane.w[c * panel + j] = int8_rows::value(w_.at(b.column + j, k), units[j]);
        for (int64_t j = b.columns; j < panel; ++j) lane.w[c * panel + j] = 0;
        for (int64_t i = 0; i < b.rows; ++i) lane.x[i * kColumns + c] = x_->rows.at(b.first + i, k);
      }
      for (int64_t i = 0; i < b.rows; ++i) {
        float* __restrict sums = lane.added + i * panel;
        for (int64_t c = 0; c < n; ++c) {
          const float x = lane.x[i * kColumns + c];
          const float* __restrict w = lane.w + c * panel;
          for (int64_t j = 0; j < panel; ++j) sums[j] = fma(x, w[j], sums[j]);
        }
      }
    }
  }

  Blocks blocks_;
  const CodedRows* x_;
  int8_rows::Coded coded_;
  Codes w_;
};

/// One launch of products, also of several that read one x.
class CodedProducts {
 public:
  static void query(const sdk::Nodes& nodes, const galley_target& target, galley_kernel_plan& plan) {
    for (const Node& node : nodes) {
      if (!int8_rows::Coded::holds(node.in(1))) sdk::unsupported("W in int8-rows only");
      if (int8_rows::Coded(node.in(1)).columns != (node.i("transposed", 0) != 0)) sdk::unsupported("scales of W that are not its outputs'");
      if (!is_number(node.in(0).dtype)) sdk::unsupported("dtypes");
    }
    Room room(nullptr);  // counts only
    const CodedProducts made(nodes, target, room);
    plan.workspace_bytes = room.bytes();
    plan.priority = 1;
  }
  CodedProducts(const sdk::Nodes& nodes, const galley_kernel_setup& setup) : CodedProducts(nodes, *setup.target, Room(setup.workspace)) {}

  void run() {
#if defined(__AVX512BW__)
    return vnni() ? multiply<Fours512>() : multiply<Pairs512>();
#elif defined(__AVX2__)
    return multiply<Pairs256>();
#else
    return multiply<Plain>();
#endif
  }

 private:
  CodedProducts(const sdk::Nodes& nodes, const galley_target& target, Room&& room) : CodedProducts(nodes, target, room) {}
  CodedProducts(const sdk::Nodes& nodes, const galley_target& target, Room& room) {
    std::vector<const Node*> makers;  // of each x
    int64_t most_rows = 0, deepest = 0;
    for (const Node& node : nodes) {
      const auto same = [&](const Node* other) {  // planned nodes have names, and no addresses
        const galley_operand &a = other->in(0), &b = node.in(0);
        return other->f("threshold", 6) == node.f("threshold", 6) && (a.data ? a.data == b.data : galley_same_text(a.name, b.name));
      };
      const auto at = std::find_if(makers.begin(), makers.end(), same);
      const auto index = static_cast<size_t>(at - makers.begin());
      if (at == makers.end()) {
        makers.push_back(&node);
        inputs_.emplace_back(node, room);
      }
      products_.emplace_back(node, &inputs_[index]);
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + products_.back().tasks());
      most_rows = std::max(most_rows, sdk::rows(node.in(0)));
      deepest = std::max(deepest, sdk::columns(node.in(0)));
    }
    for (int64_t i = 0; i < lanes_of(target); ++i) lanes_.emplace_back(most_rows, deepest, room);
  }

#if defined(__AVX512BW__)
  static bool vnni() {
    static const bool has = __builtin_cpu_supports("avx512vnni");
    return has;
  }
#endif

  template <class Way>
  void multiply() {
    const auto n_lanes = static_cast<int64_t>(lanes_.size());
    for (CodedRows& x : inputs_) x.make<Way>(n_lanes, [&](int64_t lane) { return lanes_[static_cast<size_t>(lane)].numbers; });
    in_lanes(n_lanes, ends_.back(), [&](int64_t task, int64_t lane) {
      const auto which = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), task) - ends_.begin());
      products_[which].template task<Way>(task - (which ? ends_[which - 1] : 0), lanes_[static_cast<size_t>(lane)]);
    });
  }

  std::deque<CodedRows> inputs_;
  std::vector<CodedProduct> products_;
  std::vector<int64_t> ends_;  ///< of each product's tasks
  std::vector<Lane> lanes_;
};

/// W as numbers.
class Numbers {
 public:
  static void query(const Node& node, const galley_target& target, galley_kernel_plan& plan) {
    if (!all_numbers(node)) sdk::unsupported("dtypes");
    Room room(nullptr);  // counts only
    const Numbers made(node, target, std::move(room));
    plan.workspace_bytes = room.bytes();
    plan.priority = 0;
  }
  Numbers(const Node& node, const galley_kernel_setup& setup) : Numbers(node, *setup.target, Room(setup.workspace)) {}

  void run() {
    const Rows& rows = blocks_.rows();
    const auto n_lanes = static_cast<int64_t>(lanes_.size());
    outliers_.find(rows);
    for_each_row(
        rows, outliers_, n_lanes, [&](int64_t lane) { return lanes_[static_cast<size_t>(lane)].numbers; },
        [&](int64_t r, const float* __restrict numbers, float scale, float inverse) {
          float* const to = x_ + r * rows.K;
          for (int64_t k = 0; k < rows.K; ++k) to[k] = int8_rows::value(int8_rows::code(numbers[k], inverse), int8_rows::unit(scale));
          for (const int32_t k : outliers_) to[k] = rows.at(r, k);
        });
    in_lanes(n_lanes, blocks_.tasks(), [&](int64_t task, int64_t lane) { block(blocks_.block(task), lanes_[static_cast<size_t>(lane)]); });
  }

 private:
  Numbers(const Node& node, const galley_target& target, Room&& room)
      : blocks_(node),
        w_(node, 1),
        transposed_(node.i("transposed", 0) != 0),
        outliers_(blocks_.rows(), room),
        x_(room.take<float>(blocks_.rows().R * blocks_.rows().K)) {
    for (int64_t i = 0; i < lanes_of(target); ++i) lanes_.emplace_back(blocks_.rows().R, blocks_.rows().K, room);
  }

  void block(const Blocks::Block& b, const Lane& lane) const {
    const int64_t K = blocks_.rows().K, N = blocks_.N();
    std::fill_n(lane.added, b.rows * panel, 0.0f);
    std::fill_n(lane.w, kColumns * panel, 0.0f);
    Buffer buffer;
    for (int64_t first = 0; first < K; first += kColumns) {
      const int64_t n = std::min(kColumns, K - first);
      if (transposed_) {
        for (int64_t c = 0; c < n; ++c) std::copy_n(w_.read((first + c) * N + b.column, b.columns, buffer), b.columns, lane.w + c * panel);
      } else {
        for (int64_t j = 0; j < b.columns; ++j) {
          const float* const from = w_.read((b.column + j) * K + first, n, buffer);
          for (int64_t c = 0; c < n; ++c) lane.w[c * panel + j] = from[c];
        }
      }
      for (int64_t i = 0; i < b.rows; ++i) {
        const float* const x = x_ + (b.first + i) * K + first;
        float* __restrict sums = lane.added + i * panel;
        for (int64_t c = 0; c < n; ++c) {
          const float* __restrict w = lane.w + c * panel;
          for (int64_t j = 0; j < panel; ++j) sums[j] = fma(x[c], w[j], sums[j]);
        }
      }
    }
    blocks_.finish(b, [&](int64_t i, int64_t j) { return lane.added[i * panel + j]; });
  }

  Blocks blocks_;
  Input w_;
  bool transposed_;
  Outliers outliers_;
  float* x_;  ///< x̂
  std::vector<Lane> lanes_;
};

const bool added = sdk::add(sdk::nodes_kernel<CodedProducts>("linear_int8.codes", "linear_int8", GALLEY_KERNEL_DEVICE,
                                                             GALLEY_KERNEL_FORMATS | GALLEY_KERNEL_GROUPS)) &&
                   sdk::add(sdk::kernel_of<Numbers>("linear_int8.numbers", "linear_int8"));

}  // namespace
}  // namespace galley::cpu::int8
