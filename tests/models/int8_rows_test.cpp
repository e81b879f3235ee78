// Weights in the format "int8-rows": codes and scales beside bitsandbytes', and linear_int8 on codes: beside the products of LLM.int8() in
// float64, and beside its own definition with the numbers that the codes stand for.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <limits>

#include "galley/cpp/int8_rows.hpp"
#include "galley/cpp/node.hpp"
#include "host/base/safetensors.hpp"
#include "tests/models/near.hpp"
#include "tests/models/together.hpp"

namespace galley::test {
namespace {

namespace int8_rows = sdk::int8_rows;

std::filesystem::path int8_fixture(const std::string& file) {
  const char* source = std::getenv("GALLEY_SOURCE");
  return std::filesystem::path(source ? source : ".") / "tests/fixtures/int8" / (file + ".safetensors");
}

/// A tensor of a file, as numbers.
Tensor int8_stored(const std::string& file, const std::string& name) {
  const auto reader = tensor_files::Reader::open(int8_fixture(file));
  EXPECT_TRUE(reader.ok()) << reader.error().cause;
  const tensor_files::Entry* entry = reader->find(name);
  EXPECT_TRUE(entry) << name;
  std::vector<std::byte> bytes(static_cast<size_t>(entry->bytes));
  EXPECT_TRUE(reader->read(*entry, bytes).ok());
  Tensor out;
  out.shape = entry->shape;
  if (entry->dtype == safetensors::Dtype::I8) {
    out.dtype = GALLEY_I8;
    for (const std::byte b : bytes) out.values.push_back(static_cast<int8_t>(b));
  } else {
    out.dtype = entry->dtype == safetensors::Dtype::F16 ? GALLEY_F16 : GALLEY_F32;
    out.values = unpack(bytes.data(), out.dtype, out.count());
  }
  return out;
}

/// A matrix in the format, made by the pack op's definition.
struct Int8Weight {
  Int8Weight(const Tensor& numbers, bool columns) : shape(numbers.shape) {
    Problem packed;
    packed.op = models().op("int8_rows_pack");
    packed.name = "packed";
    attrs.i("columns", columns);
    packed.attrs = attrs.data();
    packed.n_attrs = attrs.count();
    packed.inputs = {Tensor{GALLEY_F32, numbers.shape, numbers.values}};
    packed.infer();
    run_reference(packed);
    codes = *packed.outputs[0];
    scales = *packed.outputs[1];
  }
  /// What the codes stand for.
  std::vector<double> numbers() const {
    Problem unpacked;
    unpacked.op = models().op("int8_rows_unpack");
    unpacked.name = "unpacked";
    unpacked.attrs = attrs.data();
    unpacked.n_attrs = attrs.count();
    unpacked.inputs = {codes, scales};
    unpacked.infer();
    run_reference(unpacked);
    return unpacked.outputs[0]->values;
  }
  std::vector<int64_t> shape;
  sdk::Attrs attrs;
  Tensor codes, scales;
};

/// linear_int8 with its weight in the format.
class Int8Node {
 public:
  Int8Node(Problem problem, const Int8Weight& w, const How& how = {}, int64_t off = 0)
      : problem_(std::move(problem)),
        placed_(problem_, how, off),
        codes_(pack(w.codes, GALLEY_I8, off)),
        scales_(pack(w.scales, GALLEY_F32)),
        view_(problem_, placed_.inputs, placed_.outputs, how.access, false) {
    node_ = *view_.node();
    for (uint32_t i = 0; i < node_.n_inputs; ++i) inputs_.push_back(node_.inputs[i]);
    components_[0] = *inputs_[1];
    components_[0].dtype = GALLEY_I8;
    components_[0].data = codes_.data();
    components_[1] = *inputs_[1];
    components_[1].dtype = GALLEY_F32;
    components_[1].data = scales_.data();
    components_[1].shape = w.scales.shape.data();
    components_[1].rank = 1;
    weight_ = *inputs_[1];
    weight_.data = nullptr;
    weight_.format = int8_rows::kName;
    weight_.components = pointers_;
    weight_.n_components = 2;
    weight_.attrs = w.attrs.data();
    weight_.n_attrs = w.attrs.count();
    inputs_[1] = &weight_;
    node_.inputs = inputs_.data();
  }
  Int8Node(const Int8Node&) = delete;

  std::vector<double> run(const galley_kernel* kernel, const std::string& isa) {
    const Launch launched = launch(kernel, isa, {&node_}, {&node_});
    EXPECT_EQ(launched.status, GALLEY_OK) << kernel->name << ": " << launched.text;
    EXPECT_TRUE(launched.workspace.intact() && codes_.intact() && scales_.intact());
    for (const Memory& memory : placed_.memory) EXPECT_TRUE(memory.intact());
    return made();
  }
  const galley_node_view* view() const { return &node_; }
  std::vector<double> made() const { return unpack(placed_.outputs[0], problem_.outputs[0]->dtype, problem_.outputs[0]->count()); }
  /// Reads what the other node reads.
  void share(const Int8Node& other) { inputs_[0] = other.inputs_[0]; }
  bool takes(const galley_kernel* kernel, const std::string& isa) const {
    auto plan = sdk::fresh<galley_kernel_plan>();
    galley_error error = GALLEY_ERROR_INIT;
    const galley_target target = target_for(isa);
    const galley_node_view* node = &node_;
    return kernel->query(kernel->self, &node, 1, &target, &plan, &error) == GALLEY_OK;
  }

 private:
  Problem problem_;
  Placed placed_;
  Memory codes_, scales_;
  View view_;
  galley_node_view node_ = {};
  std::vector<const galley_operand*> inputs_;
  galley_operand weight_ = {}, components_[2] = {};
  const galley_operand* pointers_[2] = {&components_[0], &components_[1]};
};

/// body(kernel, isa) for each kernel that takes codes, at each level. Each level has one that takes the node.
template <class Body>
void each_int8_kernel(const Int8Node& node, const Body& body) {
  for (const Level& level : models().levels) {
    int taken = 0;
    for (const galley_kernel* kernel : level.kernels) {
      if (std::string(kernel->op) != "linear_int8" || !(kernel->flags & GALLEY_KERNEL_FORMATS) || !node.takes(kernel, level.isa)) continue;
      SCOPED_TRACE(std::string(kernel->name) + " at " + level.isa);
      ++taken;
      body(kernel, level.isa);
    }
    EXPECT_GT(taken, 0) << level.isa;
  }
}

double int8_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

TEST(Int8Rows, HasTheCodesAndScalesOfBitsandbytes) {
  set_threads(2);
  const Tensor w = int8_stored("rows-absmax", "W"), codes = int8_stored("rows-absmax", "codes"),
               scales = int8_stored("rows-absmax", "scale");
  for (const Level& level : models().levels)
    for (const bool columns : {false, true}) {
      Problem packed;
      packed.op = models().op("int8_rows_pack");
      packed.name = "packed";
      sdk::Attrs attrs;
      attrs.i("columns", columns);
      packed.attrs = attrs.data();
      packed.n_attrs = attrs.count();
      const int64_t N = w.shape[0], K = w.shape[1];
      Tensor x{GALLEY_F32, columns ? std::vector<int64_t>{K, N} : w.shape, w.values};
      std::vector<double> expected = codes.values;
      if (columns)
        for (int64_t n = 0; n < N; ++n)
          for (int64_t k = 0; k < K; ++k) {
            x.values[static_cast<size_t>(k * N + n)] = w.values[static_cast<size_t>(n * K + k)];
            expected[static_cast<size_t>(k * N + n)] = codes.values[static_cast<size_t>(n * K + k)];
          }
      packed.inputs = {x};
      packed.infer();
      const Execution made = alone(level, packed);
      ASSERT_EQ(made.status, GALLEY_OK) << made.text;
      EXPECT_EQ(unpack(made.outputs[0].data(), GALLEY_I8, N * K), expected) << level.isa;
      EXPECT_EQ(unpack(made.outputs[1].data(), GALLEY_F32, N), scales.values) << level.isa;
    }
}

TEST(LinearInt8, MakesTheProductsOfLlmInt8) {
  set_threads(2);
  for (const double threshold : {0.0, 2.0, 6.0}) {  // from 2 on, most columns have outliers and other numbers
    const std::string file = "llm-int8-threshold-" + std::to_string(static_cast<int>(threshold));
    const Tensor w = int8_stored(file, "W"), x = int8_stored(file, "X"), expected = int8_stored(file, "Y");
    const Int8Weight weight(w, false);
    Problem p;
    p.op = models().op("linear_int8");
    p.name = "product";
    sdk::Attrs attrs;
    attrs.f("threshold", threshold);
    p.attrs = attrs.data();
    p.n_attrs = attrs.count();
    p.inputs = {x, Tensor{GALLEY_F32, w.shape, weight.numbers()}, std::nullopt};
    p.infer();
    Int8Node node(p, weight);
    each_int8_kernel(node, [&](const galley_kernel* kernel, const std::string& isa) {
      EXPECT_LT(int8_distance(node.run(kernel, isa), expected.values), 1e-6);
    });
    run_reference(p);
    EXPECT_LT(int8_distance(p.outputs[0]->values, expected.values), 1e-6);
    // Codes of x are those of bitsandbytes: with the unit matrix as W, y is x̂.
    const Tensor codes = int8_stored(file, "x_codes"), scales = int8_stored(file, "x_scale");
    const int64_t R = x.shape[0], K = x.shape[1];
    Tensor unit{GALLEY_F32, {K, K}, std::vector<double>(static_cast<size_t>(K * K))};
    for (int64_t k = 0; k < K; ++k) unit.values[static_cast<size_t>(k * K + k)] = 1;
    Problem coded = p;
    coded.inputs[1] = unit;
    coded.outputs.clear();
    coded.infer();
    run_reference(coded);
    for (int64_t i = 0; i < R * K; ++i) {
      const double code = codes.values[static_cast<size_t>(i)], scale = scales.values[static_cast<size_t>(i / K)];
      const double number = x.values[static_cast<size_t>(i)], y = coded.outputs[0]->values[static_cast<size_t>(i)];
      const bool outlier = code == 0 && y != 0;
      EXPECT_EQ(y, outlier ? number : code * scale / 127) << i;
    }
  }
}

/// The op's own cases, and one with an outlier in a column.
class LinearInt8Cases : public testing::TestWithParam<Case> {};

TEST_P(LinearInt8Cases, OnCodesEqualTheDefinition) {
  std::mt19937_64 random(seed());
  SCOPED_TRACE("GALLEY_TEST_SEED=" + std::to_string(seed()));
  Problem p = Problem::draw(GetParam().op, *GetParam().example, random);
  bool columns = false;
  for (uint32_t i = 0; i < p.n_attrs; ++i)
    if (std::string(p.attrs[i]->name) == "transposed") columns = *static_cast<const int64_t*>(p.attrs[i]->data) != 0;
  Tensor& x = *p.inputs[0];
  if (x.count() > 8) x.values[static_cast<size_t>(random() % x.values.size())] = 7.5;  // an outlier by the default, too
  const Int8Weight weight(*p.inputs[1], columns);
  p.inputs[1]->values = weight.numbers();
  Problem expected = p;
  run_reference(expected);
  std::vector<double> before;
  for (int64_t i = 0; i < p.outputs[0]->count(); ++i)
    before.push_back(rounded(std::uniform_real_distribution(-1.0, 1.0)(random), p.outputs[0]->dtype));
  for (const bool adds : {false, true}) {
    How how;
    if (adds) how = {{GALLEY_ACCUMULATE}, {before}, {}};
    std::vector<double> wanted = expected.outputs[0]->values;
    if (adds)
      for (size_t i = 0; i < wanted.size(); ++i) wanted[i] += before[i];
    each_int8_kernel(Int8Node(p, weight, how), [&](const galley_kernel* kernel, const std::string& isa) {
      std::vector<double> first;
      for (const int threads : {1, 3})
        for (const int64_t off : {0, 8}) {
          set_threads(threads);
          Int8Node node(p, weight, how, off);
          const std::vector<double> got = node.run(kernel, isa);
          if (first.empty()) expect_near(first = got, wanted, p.outputs[0]->dtype, adds ? "added" : "written");
          EXPECT_EQ(got, first) << threads << " threads, " << off << " bytes off";
        }
      set_threads(2);
    });
  }
}

std::vector<Case> of_linear_int8() {
  std::vector<Case> all = cases();
  std::erase_if(all, [](const Case& c) { return std::string(c.op->name) != "linear_int8"; });
  return all;
}
INSTANTIATE_TEST_SUITE_P(Ops, LinearInt8Cases, testing::ValuesIn(of_linear_int8()), [](const auto& c) { return c.param.name(); });

// q, k, v, which read one x, and a layer that reads another: x becomes codes once.
TEST(LinearInt8, InGroupsHasTheBytesThatItHasAlone) {
  std::mt19937_64 random(seed());
  on_all_levels([&](const Level& level, bool again) {
    if (again) return;
    for (const galley_kernel* kernel : level.kernels) {
      const uint64_t flags = GALLEY_KERNEL_FORMATS | GALLEY_KERNEL_GROUPS;
      if (std::string(kernel->op) != "linear_int8" || (kernel->flags & flags) != flags) continue;
      sdk::Attrs attrs;
      attrs.f("threshold", 0.99);
      std::deque<Int8Weight> weights;
      std::deque<Int8Node> alone, together;
      std::vector<const galley_node_view*> nodes;
      const Tensor x = draw(GALLEY_F32, {70, 96}, random);
      for (const auto& [N, K] : {std::pair<int64_t, int64_t>{96, 96}, {64, 96}, {65, 96}, {33, 130}}) {
        Problem p;
        p.op = models().op("linear_int8");
        p.name = "product";
        p.attrs = attrs.data();
        p.n_attrs = attrs.count();
        const Tensor w = draw(GALLEY_F32, {N, K}, random);
        weights.emplace_back(w, false);
        p.inputs = {K == 96 ? x : draw(GALLEY_F32, {70, K}, random), w, std::nullopt};
        p.infer();
        alone.emplace_back(p, weights.back());
        together.emplace_back(p, weights.back());
        if (K == 96) together.back().share(together.front());
        nodes.push_back(together.back().view());
      }
      const Launch made = launch(kernel, level.isa, nodes, nodes);
      ASSERT_EQ(made.status, GALLEY_OK) << made.text;
      EXPECT_TRUE(made.workspace.intact());
      int64_t of_each = 0;
      for (size_t i = 0; i < alone.size(); ++i) {
        EXPECT_EQ(together[i].made(), alone[i].run(kernel, level.isa)) << i;
        of_each += launch(kernel, level.isa, {alone[i].view()}, {alone[i].view()}).workspace.bytes();
      }
      EXPECT_LT(made.workspace.bytes(), of_each);
    }
  });
}

// Several tiles of rows, of outputs and of outliers' columns, none of them whole; x in each dtype, W stored either way.
TEST(LinearInt8, AddsWhatManyColumnsOfOutliersMake) {
  set_threads(2);
  std::mt19937_64 random(seed());
  SCOPED_TRACE("GALLEY_TEST_SEED=" + std::to_string(seed()));
  constexpr int64_t R = 70, K = 100, N = 133;
  for (const uint32_t dtype : {GALLEY_F32, GALLEY_BF16, GALLEY_F16})
    for (const bool transposed : {false, true}) {
      SCOPED_TRACE("dtype " + std::to_string(dtype) + (transposed ? ", transposed" : ""));
      Problem p;
      p.op = models().op("linear_int8");
      p.name = "product";
      sdk::Attrs attrs;
      attrs.f("threshold", 6.0);
      attrs.i("transposed", transposed);
      p.attrs = attrs.data();
      p.n_attrs = attrs.count();
      Tensor x = draw(dtype, {R, K}, random);
      for (int64_t k = 0; k < K; ++k)
        if (k % 7 < 4)  // of 58 columns
          for (int64_t r = k % 5; r < R; r += 9)
            x.values[static_cast<size_t>(r * K + k)] = rounded(std::uniform_real_distribution(6.5, 60.0)(random), dtype);
      const Tensor w = draw(GALLEY_F32, transposed ? std::vector<int64_t>{K, N} : std::vector<int64_t>{N, K}, random);
      const Int8Weight weight(w, transposed);
      p.inputs = {x, Tensor{dtype, w.shape, weight.numbers()}, std::nullopt};
      p.infer();
      Int8Node node(p, weight);
      run_reference(p);
      each_int8_kernel(node, [&](const galley_kernel* kernel, const std::string& isa) {
        expect_near(node.run(kernel, isa), p.outputs[0]->values, p.outputs[0]->dtype, "written");
      });
    }
}

// What no code can stand for is not lost.
TEST(LinearInt8, TellsOfWhatIsNoNumber) {
  set_threads(2);
  std::mt19937_64 random(5);
  const Tensor w = draw(GALLEY_F32, {20, 70}, random);
  const Int8Weight weight(w, false);
  for (const double threshold : {0.0, 6.0})
    for (const double wrong : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      Problem p;
      p.op = models().op("linear_int8");
      p.name = "product";
      sdk::Attrs attrs;
      attrs.f("threshold", threshold);
      p.attrs = attrs.data();
      p.n_attrs = attrs.count();
      Tensor x = draw(GALLEY_F32, {9, 70}, random);
      x.values[3 * 70 + 11] = wrong;
      p.inputs = {x, Tensor{GALLEY_F32, w.shape, weight.numbers()}, std::nullopt};
      p.infer();
      Int8Node node(p, weight);
      each_int8_kernel(node, [&](const galley_kernel* kernel, const std::string& isa) {
        const std::vector<double> y = node.run(kernel, isa);
        for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isfinite(y[i]), i / 20 != 3) << i << ", threshold " << threshold;
      });
    }
}

}  // namespace
}  // namespace galley::test
