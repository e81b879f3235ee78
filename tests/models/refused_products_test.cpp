// Products that cuBLASLt has no algorithm for: Galley's own tiles make them, with the bytes that the tiles make alone. So where the library
// refuses everything, and where it refuses what the real one is known to refuse (models/cuda/emulated/gemm.hpp).
#include <gtest/gtest.h>

#include <cstring>

#include "tests/models/harness.hpp"
#include "tests/setting.hpp"

namespace galley::test {
namespace {

constexpr const char* kRefuses = "GALLEY_EMULATED_LT_REFUSES";

class RefusedProducts : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    set_threads(1);
    problem = Problem::draw(GetParam().op, *GetParam().example, random);
  }
  /// Bytes of its outputs; none if it does not take the case.
  std::vector<std::string> bytes_by(const std::string& name) {
    const Level& level = *emulated_level();
    for (const galley_kernel* kernel : level.kernels) {
      if (name != kernel->name) continue;
      auto plan = sdk::fresh<galley_kernel_plan>();
      galley_error error = GALLEY_ERROR_INIT;
      if (query(kernel, level.isa, problem, {}, &plan, &error) == GALLEY_UNSUPPORTED) return {};
      const Execution r = execute(kernel, level.isa, problem);
      EXPECT_EQ(r.status, GALLEY_OK) << r.text;
      EXPECT_TRUE(r.intact()) << name << " wrote outside of an operand or of the workspace";
      std::vector<std::string> out;
      for (const Memory& m : r.outputs) out.emplace_back(reinterpret_cast<const char*>(m.data()), static_cast<size_t>(m.bytes()));
      return out;
    }
    ADD_FAILURE() << "there is no kernel " << name;
    return {};
  }
  std::mt19937_64 random{seed()};
  Problem problem;
};

std::vector<Case> products() {
  std::vector<Case> out;
  if (!emulated_level()) return out;
  for (const Case& c : cases())
    for (const char* op : {"linear", "linear_dx", "linear_dw", "linear_int8"})
      if (std::strcmp(op, c.op->name) == 0) out.push_back(c);
  return out;
}

TEST_P(RefusedProducts, ComeOutByTiles) {
  const std::string op = GetParam().op->name;
  const auto library = bytes_by(op + ".cublaslt"), tiles = bytes_by(op == "linear_int8" ? op + ".cuda" : op + ".tiles");
  if (library.empty() || tiles.empty()) return;  // of other dtypes, or a weight that only one of them unpacks
  {
    const Setting all(kRefuses, "1");
    EXPECT_EQ(bytes_by(op + ".cublaslt"), tiles) << "everything is refused";
  }
  const Setting known(kRefuses, "known");
  const auto made = bytes_by(op + ".cublaslt");
  EXPECT_TRUE(made == library || made == tiles) << "what is known to be refused is";
}

INSTANTIATE_TEST_SUITE_P(Ops, RefusedProducts, testing::ValuesIn(products()), [](const auto& c) { return c.param.name(); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RefusedProducts);

}  // namespace
}  // namespace galley::test
