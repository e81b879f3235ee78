// Verdicts on arms of which the truth is known: runs are made up, and what is said of each is compared with what a person should hear.
#include "host/tools/compare/verdict.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "host/tools/compare/compare_report.hpp"
#include "host/tools/compare/printed.hpp"

namespace galley {
namespace {

/// A comparison of made-up runs: each has two steps and a validation before and after them. Training takes the loss from 5 to about 4.
class MadeUp {
 public:
  explicit MadeUp(std::vector<double> baseline) {
    for (size_t s = 0; s < baseline.size(); ++s) comparison.seeds.push_back(static_cast<int64_t>(s) + 1);
    add("plain", std::move(baseline));
    for (size_t s = 0; s < comparison.seeds.size(); ++s) control.push_back(run("control", s, results[0][s].losses, known(1e-7, 1e-7)));
  }

  /// Last validation losses, by seed.
  void add(const std::string& name, std::vector<double> losses, Difference difference = known(0.1, 0.1)) {
    auto study = std::make_shared<Study>();
    study->target.memories.resize(1);
    study->plan.classes.resize(1);
    comparison.arms.push_back({name, {}, {}, {}, study, {}, study});
    std::vector<RunResult>& runs = results.emplace_back();
    for (size_t s = 0; s < losses.size(); ++s) {
      runs.push_back(run(name, s, {5.1, losses[s]}, difference));
      runs.back().validation = {{0, 5.0}, {2, losses[s]}};
    }
  }
  void differences(const std::string& name, std::vector<double> values) {
    for (size_t s = 0; s < values.size(); ++s) values[s] += results[0][s].validation.at(2);
    add(name, std::move(values));
  }

  ArmVerdict verdict(size_t arm = 1) const {
    const auto verdicts = judge(comparison, results, control);
    ArmVerdict wrong;
    if (!verdicts) wrong.sentence = verdicts.error().cause;
    return verdicts ? (*verdicts)[arm] : wrong;
  }
  std::string table() const { return compare_table(comparison, *judge(comparison, results, control)); }

  static Difference known(double loss, double tensor) {
    Difference out;
    out.identical = loss == 0;
    out.first_step = loss == 0 ? 0 : 1;
    out.largest_loss = loss;
    out.largest_tensor = tensor;
    out.tensor = tensor > 0 ? "w" : "";
    out.tensors = 3;
    out.alike = loss == 0 ? 3 : 0;
    return out;
  }

  Comparison comparison;
  std::vector<std::vector<RunResult>> results;
  std::vector<RunResult> control;

 private:
  RunResult run(const std::string& name, size_t seed, std::vector<double> losses, Difference difference) const {
    RunResult out;
    out.directory = name + std::to_string(seed);
    out.losses = std::move(losses);
    out.seconds.assign(out.losses.size(), 0.01);
    out.known.emplace("plain" + std::to_string(seed), std::move(difference));
    return out;
  }
};

const std::vector<double> plain = {3.89, 4.26, 4.04, 3.96, 5.13};  // mean 4.256: training has gained .744, and 2 % of it are .0149

TEST(Verdict, Identical) {
  MadeUp c(plain);
  c.add("lean", plain, MadeUp::known(0, 0));
  EXPECT_EQ(c.verdict().verdict, Verdict::Identical);
  EXPECT_EQ(c.verdict().sentence, "identical to the byte: all losses and 3 tensors, with 5 seeds");
}

TEST(Verdict, TheSameToRounding) {
  MadeUp c(plain);
  for (size_t s = 0; s < plain.size(); ++s) c.control[s].losses[1] *= 1 + 1e-6;
  std::vector<double> losses = plain;
  for (double& loss : losses) loss *= 1 - 2e-6;
  c.add("halves", losses, MadeUp::known(2e-6, 2e-7));
  EXPECT_EQ(c.verdict().verdict, Verdict::Rounding) << c.verdict().sentence;
  EXPECT_EQ(c.verdict().sentence, "the same to rounding: losses differ by up to 2.0e-6, from step 1 on; tensors by up to 2.0e-7 (w)");
}

// Each run lies within what rounding does, and yet all lie on one side: a rate that is 2 % higher, say.
TEST(Verdict, AllSeedsOnOneSideIsMoreThanRounding) {
  const std::vector<double> of_control = {-0.0031, 0.0005, -0.0004, 0.0002, 0.0020};
  const auto judged = [&](const std::vector<double>& differences) {
    MadeUp c(plain);
    for (size_t s = 0; s < plain.size(); ++s) c.control[s] = c.results[0][s];
    for (size_t s = 0; s < plain.size(); ++s) {
      c.control[s].known = {{"plain" + std::to_string(s), MadeUp::known(0.004, 0.02)}};
      c.control[s].losses = {5.1 * 1.004, plain[s] * 1.004};
      c.control[s].validation[2] += of_control[s];
    }
    std::vector<double> losses = plain;
    for (size_t s = 0; s < plain.size(); ++s) losses[s] += differences[s];
    c.add("nearly", losses, MadeUp::known(0.008, 0.03));
    return c.verdict();
  };
  EXPECT_EQ(judged({-0.0138, -0.0159, -0.0158, -0.0160, -0.0130}).verdict, Verdict::Better);
  EXPECT_EQ(judged({0.0099, 0.0101, 0.0100, 0.0100, 0.0102}).verdict, Verdict::Same);
  EXPECT_EQ(judged({0.0012, 0.0008, -0.0013, 0.0005, 0.0028}).verdict, Verdict::Rounding);
  EXPECT_EQ(judged({0.0030, 0.0031, 0.0029, 0.0031, 0.0030}).verdict, Verdict::Rounding);
}

TEST(Verdict, SevenMillionthsAreTheSame) {
  MadeUp c(plain);
  c.differences("eight", {1.2e-5, 3e-6, 4e-6, 1.1e-5, 5e-6});
  const ArmVerdict v = c.verdict();
  EXPECT_EQ(v.verdict, Verdict::Same);
  EXPECT_TRUE(v.decision.apart);  // no matter of chance, and of no consequence
  EXPECT_EQ(
      v.sentence,
      "the same within 1.1e-5: the validation loss is 7.0e-6 ± 5.2e-6 higher (95 %, paired t-test, 5 seeds); the margin is 0.015, 2 % of "
      "what training gained");
}

TEST(Verdict, AlwaysTheSameDifferenceBelowTheMargin) {
  MadeUp c(plain);
  c.differences("shifted", {0, 0, 0, 0, 0});
  EXPECT_EQ(c.verdict().verdict, Verdict::Same);
  EXPECT_FALSE(c.verdict().decision.apart);
}

TEST(Verdict, Better) {
  MadeUp c(plain);
  c.differences("good", {-0.11, -0.13, -0.12, -0.10, -0.14});
  EXPECT_EQ(c.verdict().verdict, Verdict::Better);
  EXPECT_EQ(c.verdict().sentence, "better by 0.120 ± 0.020: the validation loss is lower (95 %, paired t-test, 5 seeds)");
}

TEST(Verdict, Worse) {
  MadeUp c(plain);
  c.differences("bad", {0.31, 0.25, 0.28, 0.35, 0.29});
  EXPECT_EQ(c.verdict().verdict, Verdict::Worse);
  EXPECT_TRUE(c.verdict().sentence.starts_with("worse by 0.296 ± 0.046")) << c.verdict().sentence;
}

TEST(Verdict, WorseByPerhapsLessThanTheMargin) {
  MadeUp c(plain);
  c.differences("hardly", {0.02, 0.01, 0.03, 0.015, 0.025});
  EXPECT_EQ(c.verdict().verdict, Verdict::Worse);
  EXPECT_NE(c.verdict().sentence.find("it may be less than the margin, 0.015"), std::string::npos) << c.verdict().sentence;
}

TEST(Verdict, UndecidedSaysHowManySeedsItWouldTake) {
  MadeUp c(plain);
  c.differences("noisy", {0.05, -0.04, 0.03, -0.06, 0.01});
  const ArmVerdict v = c.verdict();
  EXPECT_EQ(v.verdict, Verdict::Undecided);
  EXPECT_FALSE(v.decided());
  EXPECT_EQ(
      v.sentence,
      "undecided: the validation loss is 0.002 ± 0.058 lower (95 %, paired t-test, 5 seeds); about 86 seeds would be needed to tell a "
      "difference of 0.015, 2 % of what training gained");
  c.comparison.margin = {0.2, 0};
  EXPECT_EQ(c.verdict().verdict, Verdict::Same);
  EXPECT_NE(c.verdict().sentence.find("; the margin is 0.20"), std::string::npos) << c.verdict().sentence;
}

TEST(Verdict, OneSeedAstrayIsNamed) {
  MadeUp c(plain);
  c.differences("fast", {-0.24, -0.32, 1.21, -0.20, -0.35});
  const ArmVerdict v = c.verdict();
  EXPECT_EQ(v.verdict, Verdict::Undecided);
  ASSERT_TRUE(v.astray);
  EXPECT_EQ(*v.astray, 2);
  EXPECT_NE(v.sentence.find("; seed 3 goes astray: 1.21 higher, the others between 0.350 lower and 0.200 lower"), std::string::npos)
      << v.sentence;
  EXPECT_NE(c.table().find("  by seed: 1: 3.650 (-0.240), 2: 3.940 (-0.320), 3: 5.250 (+1.21),"), std::string::npos) << c.table();
  // Four of five seeds that agree are no reason to call the fifth astray where it is within the margin.
  MadeUp small(plain);
  small.differences("eight", {1e-6, 1e-6, 1.1e-6, 9e-7, 5e-3});
  EXPECT_FALSE(small.verdict().astray);
}

TEST(Verdict, FewSeedsAndLossesThatAreNotFinite) {
  MadeUp few({3.9, 4.0});
  few.differences("bad", {0.3, 0.3});
  EXPECT_EQ(few.verdict().verdict, Verdict::Numbers);
  EXPECT_NE(few.verdict().sentence.find("a verdict takes 5 seeds"), std::string::npos);
  MadeUp c(plain);
  c.differences("wild", {0, 0, std::numeric_limits<double>::quiet_NaN(), 0, 0});
  EXPECT_EQ(c.verdict().verdict, Verdict::Numbers);
  EXPECT_NE(c.verdict().sentence.find("a loss is not finite"), std::string::npos);
}

TEST(Verdict, WhereTrainingGainsNothingNoMarginFollows) {
  MadeUp c({5.2, 5.3, 5.1, 5.4, 5.2});
  c.differences("noisy", {0.05, -0.04, 0.03, -0.06, 0.01});
  EXPECT_EQ(c.verdict().verdict, Verdict::Undecided);
  EXPECT_NE(c.verdict().sentence.find("training gained nothing"), std::string::npos) << c.verdict().sentence;
  EXPECT_EQ(margin_of(c.comparison.margin, c.results[0]).value, 0);
}

TEST(Verdict, OtherStepsAreJudgedByLossesAlone) {
  MadeUp c(plain);
  c.differences("short", {0.11, 0.13, 0.12, 0.10, 0.14});
  for (RunResult& run : c.results[1]) {
    run.losses = {run.losses[1]};
    run.validation = {{0, 5.0}, {1, run.validation.at(2)}};
  }
  EXPECT_EQ(c.verdict().verdict, Verdict::Worse);
  EXPECT_EQ(c.verdict().other_steps, 1);
}

TEST(Verdict, WithoutValidationTheTrainingLossCounts) {
  MadeUp c(plain);
  c.differences("good", {-0.11, -0.13, -0.12, -0.10, -0.14});
  for (auto& arm : c.results)
    for (RunResult& run : arm) run.validation.clear();
  EXPECT_EQ(c.verdict().verdict, Verdict::Better);
  EXPECT_NE(c.verdict().sentence.find("the training loss is lower"), std::string::npos);
  EXPECT_NEAR(*margin_of(c.comparison.margin, c.results[0]).gained, 5.1 - 4.256, 1e-12);
}

TEST(NumberText, AsPagesWriteIt) {
  EXPECT_EQ(number_text(7.083e-6), "7.08e-6");
  EXPECT_EQ(number_text(0.02144), "0.0214");
  EXPECT_EQ(number_text(-1.5e9, 2), "-1.5e9");
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(with_half_text(0.02144, 0.83), "0.02 ± 0.83");
  EXPECT_EQ(with_half_text(7.08e-6, 5.5e-6), "7.1e-6 ± 5.5e-6");
  EXPECT_EQ(with_half_text(1e-9, 0.5), "0 ± 0.50");
  EXPECT_EQ(with_half_text(0.5, 0), "0.500 ± 0");
}

}  // namespace
}  // namespace galley
