// The bound of reference mode for long sums: a sum that is made in F32, one number after the other, keeps to it however long it is, and
// what is wrong by one of the numbers, or by a rounding to fewer digits, does not.
#include "host/proofs/numbers.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <span>

#include "galley/cpp/plugin.hpp"

namespace galley {
namespace {

using sdk::Node;

constexpr int64_t results = 32;

void no_shape(const Node&, sdk::Shapes&) {}
void products_reference(const Node& n) {  // y = x·Wᵀ
  const int64_t K = sdk::columns(n.in(0));
  for (int64_t i = 0; i < sdk::count(n.out(0)); ++i) {
    double sum = 0;
    for (int64_t k = 0; k < K; ++k) sum += n.read<double>(0)[k] * n.read<double>(1)[i * K + k];
    n.write<double>(0)[i] = sum;
  }
}

void narrow_reference(const Node& n) {  // 1 / the root mean square of each row
  const int64_t K = sdk::columns(n.in(0));
  for (int64_t r = 0; r < sdk::rows(n.in(0)); ++r) {
    double sum = 0;
    for (int64_t k = 0; k < K; ++k) sum += n.read<double>(0)[r * K + k] * n.read<double>(0)[r * K + k];
    n.write<double>(0)[r] = 1 / std::sqrt(sum / static_cast<double>(K));
  }
}

/// `role`: of x and of y.
const galley_op* products_op(uint32_t role) {
  using sdk::Op;
  static Op by_rows("products", ""), whole("products", "");
  static const auto made = [](Op& op, uint32_t of) {
    return op.input("x", of, GALLEY_OPERAND_COMPUTE)
        .input("w", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_COMPUTE)
        .output("y", of)
        .infer<no_shape>()
        .reference<products_reference>()
        .table();
  };
  static const galley_op *const rows_table = made(by_rows, GALLEY_ROLE_ROWS), *const whole_table = made(whole, GALLEY_ROLE_WHOLE);
  return role == GALLEY_ROLE_ROWS ? rows_table : whole_table;
}

float in_bits(float x, int bits) {  // of the mantissa, to nearest
  int exponent = 0;
  const float f = std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(f, bits + 1)), exponent - bits - 1);
}

/// Sums of n products of random numbers, of both signs or of one; `kinds`: of so many different ones, or of as many as there are.
class Sums {
 public:
  Sums(int64_t n, bool mixed, uint32_t dtype = GALLEY_F32, uint32_t role = GALLEY_ROLE_ROWS, int64_t kinds = 0) : n_(n) {
    std::mt19937 random(static_cast<uint32_t>(n));
    std::uniform_real_distribution<float> number(mixed ? -1.0f : 0.0f, 1.0f);
    const int bits = dtype == GALLEY_BF16 ? 7 : 23;
    x_.resize(static_cast<size_t>(n));
    w_.resize(static_cast<size_t>(n * results));
    for (auto* list : {&x_, &w_})
      for (float& value : *list) value = in_bits(number(random), bits);
    for (int64_t i = 0; kinds > 0 && i < results * n; ++i) {
      x_[static_cast<size_t>(i % n)] = x_[static_cast<size_t>(i % n % kinds)];
      w_[static_cast<size_t>(i)] = w_[static_cast<size_t>(i / n * n + i % n % kinds)];
    }
    code_ = launch_of({"sums", products_op(role)}, {operand(0, {1, n}, dtype), operand(1, {results, n}, dtype)},
                      {operand(2, {1, results}, GALLEY_F32)});
    for (int way = 0; way <= kMoved; ++way) {
      auto made = evaluate(
          code_, 1, [&](const Operand& o) { return read(o); }, {}, way);
      EXPECT_TRUE(made.ok());
      ways_.push_back(std::move(*(*made)[0].outputs[0]));
    }
  }

  /// The largest share of its bound that results have which are made so: of what is summed up so far, product k of result i.
  double share(const std::function<float(float sum, float x, float w, int64_t k)>& add) const {
    Numbers got = ways_[0];
    for (int64_t i = 0; i < results; ++i) {
      float sum = 0;
      for (int64_t k = 0; k < n_; ++k) sum = add(sum, x_[static_cast<size_t>(k)], w_[static_cast<size_t>(i * n_ + k)], k);
      got.floats[static_cast<size_t>(i)] = static_cast<double>(sum);
    }
    const Numbers* const moved[] = {&ways_[1], &ways_[2], &ways_[3]};
    return compare(got, ways_[0], moved, nullptr, {unit_of(code_, code_.launch()->nodes[0]), terms()}).share;
  }
  double right() const {
    return share([](float sum, float x, float w, int64_t) { return sum + x * w; });
  }
  double one_left_out() const {
    return share([this](float sum, float x, float w, int64_t k) { return k == n_ / 2 ? sum : sum + x * w; });
  }
  double in_fewer_bits(int bits) const {
    return share([bits](float sum, float x, float w, int64_t) { return sum + in_bits(x, bits) * in_bits(w, bits); });
  }
  double held_in(int bits) const {
    return share([bits](float sum, float x, float w, int64_t) { return in_bits(sum + x * w, bits); });
  }
  int64_t terms() const { return terms_of(code_, code_.launch()->nodes[0], 0, true); }

 private:
  static Operand operand(TensorId tensor, Shape shape, uint32_t dtype) {
    Operand out;
    out.tensor = tensor;
    out.shape = std::move(shape);
    out.dtype = dtype;
    return out;
  }
  Result<Numbers> read(const Operand& o) const {
    Numbers out = Numbers::of(o);
    const std::vector<float>& from = o.tensor == 0 ? x_ : w_;
    std::copy(from.begin(), from.end(), out.floats.begin());
    return out;
  }

  int64_t n_;
  std::vector<float> x_, w_;
  Instruction code_;
  std::vector<Numbers> ways_;
};

constexpr int64_t lengths[] = {1, 16, 256, 1024, 4096, 32768};

std::string text(int64_t n, bool mixed) { return std::to_string(n) + (mixed ? " of both signs" : " of one sign"); }

// From 4,096 numbers to 32,768 the shares are .08 to .12 and .21 to .27: the bound grows as the error does. From 64 to 1,024 it has room for
// equal numbers.
TEST(SumsOfReference, AreRightHoweverLong) {
  for (const bool mixed : {true, false})
    for (const int64_t n : lengths) {
      const double share = Sums(n, mixed).right();
      EXPECT_LE(share, 0.5) << text(n, mixed);
      if (n < 256) continue;
      EXPECT_GE(share, n < 4096 ? 0.02 : 0.05) << text(n, mixed) << ": the bound says nothing";
    }
}

// Rows of a text that repeats a token: sums of equal numbers, or of two, are rounded in one direction.
TEST(SumsOfReference, AreRightOfEqualNumbers) {
  for (const int64_t n : {16, 64, 256})
    for (const int64_t kinds : {1, 2}) {
      const Sums sums(n, false, GALLEY_F32, GALLEY_ROLE_ROWS, kinds);
      EXPECT_LE(sums.right(), 1) << n << " numbers of " << kinds << " kinds";
      EXPECT_GT(sums.held_in(10), 2) << "a sum in F16, " << n << " numbers of " << kinds << " kinds";
    }
}

// Of many numbers of one sign a single one is less than what their sum may be rounded by.
TEST(SumsOfReference, AreWrongWithoutOneOfThem) {
  for (const bool mixed : {true, false})
    for (const int64_t n : lengths) {
      if (!mixed && n > 4096) continue;
      EXPECT_GT(Sums(n, mixed).one_left_out(), 2) << text(n, mixed);
    }
}

TEST(SumsOfReference, AreWrongInFewerBits) {
  for (const bool mixed : {true, false})
    for (const int64_t n : lengths) {
      const Sums sums(n, mixed);
      EXPECT_GT(sums.held_in(10), 2) << "a sum in F16, " << text(n, mixed);
      if (mixed || n <= 4096) {
        EXPECT_GT(sums.in_fewer_bits(7), 2) << "BF16, " << text(n, mixed);
      }
      if (mixed || n <= 1024) {
        EXPECT_GT(sums.in_fewer_bits(10), 2) << "TF32, " << text(n, mixed);
      }
    }
}

// Where operands are in 16 bit a kernel may round on the way, but its sums are F32.
TEST(SumsOfReference, InBf16) {
  for (const bool mixed : {true, false})
    for (const int64_t n : lengths) {
      const Sums sums(n, mixed, GALLEY_BF16);
      EXPECT_LE(sums.right(), 0.05) << text(n, mixed);
      if (n >= 256) {
        EXPECT_GT(sums.held_in(7), 2) << "a sum in BF16, " << text(n, mixed);
      }
      if (n <= 256) {
        EXPECT_GT(sums.one_left_out(), 2) << text(n, mixed);
      }
    }
}

TEST(SumsOfReference, HaveAsManyNumbersAsTheOpSays) {
  EXPECT_EQ(Sums(100, true).terms(), 100);
  EXPECT_EQ(Sums(100, true, GALLEY_F32, GALLEY_ROLE_WHOLE).terms(), 100);
}

// A row of one number, as a head's norm has for a single head: of thousands of them some do not move in any pattern, and are rounded all
// the same. x is rounded to 16 bit between the links of a chain, which moves it by up to a unit.
TEST(NarrowRowsOfReference, HaveRoomByTheirNeighbours) {
  static sdk::Op op("narrow_rstd", "");
  static const galley_op* const table = op.input("x", GALLEY_ROLE_ROWS, GALLEY_OPERAND_COMPUTE)
                                            .output("rstd", GALLEY_ROLE_ROWS)
                                            .infer<no_shape>()
                                            .reference<narrow_reference>()
                                            .table();
  constexpr int64_t rows = 4000, width = 8;
  Instruction code = launch_of({"norm", table}, {Operand()}, {Operand()});
  code.inputs[0].tensor = 0;
  code.inputs[0].shape = {rows, width};
  code.inputs[0].dtype = GALLEY_BF16;
  code.outputs[0].tensor = 1;
  code.outputs[0].shape = {rows, 1};
  std::mt19937 random(1);
  Numbers x = Numbers::of(code.inputs[0]);
  for (double& value : x.floats) value = in_bits(std::uniform_real_distribution<float>(-1, 1)(random), 7);
  const auto made_of = [&](const Numbers& numbers, int way) {
    auto made = evaluate(
        code, 1, [&](const Operand&) -> Result<Numbers> { return numbers; }, {}, way);
    EXPECT_TRUE(made.ok());
    return std::move(*(*made)[0].outputs[0]);
  };
  std::vector<Numbers> ways;
  for (int way = 0; way <= kMoved; ++way) ways.push_back(made_of(x, way));
  const Numbers* const moved[] = {&ways[1], &ways[2], &ways[3]};
  const LaunchNode& node = code.launch()->nodes[0];
  const auto share = [&](double unit) {
    std::mt19937 again(2);
    Numbers rounded = x;
    for (double& value : rounded.floats) value *= 1 + unit * std::uniform_real_distribution<double>(-1, 1)(again);
    return compare(made_of(rounded, 0), ways[0], moved, nullptr, {unit_of(code, node), terms_of(code, node, 0, true)}).share;
  };
  EXPECT_LE(share(0x1p-8), 1);
  EXPECT_GT(share(0x1p-5), 1) << "the bound says nothing";
}

}  // namespace
}  // namespace galley
