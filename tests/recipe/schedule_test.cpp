// Schedules: their numbers, functions of the step, and what is wrong with them.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "host/base/schedule.hpp"
#include "tests/recipe/helper.hpp"

namespace galley {
namespace {

Schedule lr(const std::string& value, int steps = 10) {
  const Recipe recipe = RecipeFolder().recipe(with("steps = " + std::to_string(steps) + ",", "use 'adamw' { lr = " + value + " }"));
  const auto* schedule = recipe.uses.at(0).options.at("lr").as<Schedule>();
  EXPECT_NE(schedule, nullptr);
  return schedule ? *schedule : Schedule{};
}

std::string rate_cause(const std::string& value) { return RecipeFolder().cause(uses("use 'adamw' { lr = " + value + " }")); }

/// What transformers' schedules give at step `i` (from 0) of N, for a peak of 1: the multiplier of LambdaLR.
double linear_of_transformers(int64_t i, int64_t warmup, int64_t steps) {
  if (i < warmup) return static_cast<double>(i) / static_cast<double>(std::max<int64_t>(1, warmup));
  return std::max(0.0, static_cast<double>(steps - i) / static_cast<double>(std::max<int64_t>(1, steps - warmup)));
}
double cosine_of_transformers(int64_t i, int64_t warmup, int64_t steps) {
  if (i < warmup) return static_cast<double>(i) / static_cast<double>(std::max<int64_t>(1, warmup));
  const double progress = static_cast<double>(i - warmup) / static_cast<double>(std::max<int64_t>(1, steps - warmup));
  return std::max(0.0, 0.5 * (1 + std::cos(std::numbers::pi * 0.5 * 2.0 * progress)));
}

TEST(Schedule, FallsAsInTransformers) {
  for (const int64_t warmup : {0, 1, 3, 9}) {
    const std::string options = " { peak = 1.0, warmup = " + std::to_string(warmup) + " }";
    const Schedule linear = lr("linear" + options), cosine = lr("cosine" + options);
    for (int64_t i = warmup; i < 10; ++i) {
      EXPECT_NEAR(linear.at(i + 1), linear_of_transformers(i, warmup, 10), 1e-15) << warmup << " " << i;
      EXPECT_NEAR(cosine.at(i + 1), cosine_of_transformers(i, warmup, 10), 1e-15) << warmup << " " << i;
    }
  }
}

double constant_of_transformers(int64_t i, int64_t warmup) {
  return i < warmup ? static_cast<double>(i) / std::max(1.0, static_cast<double>(warmup)) : 1.0;
}
double inverse_sqrt_of_transformers(int64_t i, int64_t warmup, int64_t timescale) {
  if (i < warmup) return static_cast<double>(i) / static_cast<double>(std::max<int64_t>(1, warmup));
  const int64_t shift = timescale - warmup;
  return 1.0 / std::sqrt(static_cast<double>(i + shift) / static_cast<double>(timescale));
}
double wsd_of_transformers(int64_t i, int64_t warmup, int64_t stable, int64_t decay, const std::string& type, double least) {
  if (i < warmup) return static_cast<double>(i) / static_cast<double>(std::max<int64_t>(1, warmup)) * (1 - least) + least;
  if (i < warmup + stable) return 1.0;
  if (i >= warmup + stable + decay) return least;
  const double progress = static_cast<double>(i - warmup - stable) / static_cast<double>(std::max<int64_t>(1, decay));
  const double factor = type == "linear"   ? 1.0 - progress
                        : type == "cosine" ? 0.5 * (1.0 + std::cos(std::numbers::pi * 0.5 * 2.0 * progress))
                                           : 1.0 - std::sqrt(progress);
  return std::max(0.0, factor * (1.0 - least) + least);
}

TEST(Schedule, TheOthersAreThoseOfTransformers) {
  for (const int64_t warmup : {0, 3}) {
    const std::string options = "{ peak = 1.0, warmup = " + std::to_string(warmup);
    const Schedule constant = lr("constant_with_warmup " + options + " }"), root = lr("inverse_sqrt " + options + " }"),
                   slow = lr("inverse_sqrt " + options + ", timescale = 7 }");
    for (int64_t i = warmup; i < 10; ++i) {
      EXPECT_EQ(constant.at(i + 1), constant_of_transformers(i, warmup));
      EXPECT_NEAR(root.at(i + 1), inverse_sqrt_of_transformers(i, warmup, warmup ? warmup : 10'000), 1e-15) << warmup << " " << i;
      EXPECT_NEAR(slow.at(i + 1), inverse_sqrt_of_transformers(i, warmup, 7), 1e-15) << warmup << " " << i;
    }
    for (const std::string type : {"cosine", "linear", "1-sqrt"}) {
      const Schedule wsd = lr("wsd " + options + ", decay = 4, decay_type = '" + type + "', floor = 0.25 }");
      for (int64_t i = warmup; i < 10; ++i)
        EXPECT_NEAR(wsd.at(i + 1), wsd_of_transformers(i, warmup, 10 - warmup - 4, 4, type, 0.25), 1e-15) << type << " " << i;
    }
  }
  EXPECT_EQ(lr("wsd { peak = 1.0, warmup = 2, decay = 0.3, decay_type = '1-sqrt' }").text,
            "wsd{peak=1.0, warmup=2, decay=0.3, decay_type=1-sqrt}");
  EXPECT_EQ(lr("wsd { peak = 1.0 }").table, lr("wsd { peak = 1.0, decay = 1 }").table) << "a tenth of ten steps";
}

// Rounded up to whole steps, as transformers' warmup_ratio.
TEST(Schedule, WarmupMayBeAShareOfTheRun) {
  EXPECT_EQ(lr("cosine { peak = 1.0, warmup = 0.2 }").table, lr("cosine { peak = 1.0, warmup = 2 }").table);
  EXPECT_EQ(lr("linear { peak = 1.0, warmup = 0.21 }").table, lr("linear { peak = 1.0, warmup = 3 }").table);
  EXPECT_EQ(lr("constant_with_warmup { peak = 1.0, warmup = 1.0 }").table, lr("constant_with_warmup { peak = 1.0, warmup = 1 }").table);
  EXPECT_EQ(lr("cosine { peak = 1.0, warmup = 0.03 }").text, "cosine{peak=1.0, warmup=0.03}");
  std::string hint;
  EXPECT_EQ(RecipeFolder().cause(uses("use 'adamw' { lr = cosine { peak = 1,\n warmup = 2.5 } }"), {}, &hint),
            "r.lua:6: 'warmup' of cosine must be a whole number of steps, or a share of the run below 1, not 2.5");
  EXPECT_EQ(hint, "write warmup = 3 for steps, or warmup = 0.03 for three hundredths of the run");
}

TEST(Schedule, EveryStepTrains) {
  for (const std::string shape : {"linear", "cosine", "wsd", "inverse_sqrt", "constant_with_warmup"}) {
    for (const int warmup : {0, 1, 5, 9}) {
      const Schedule s = lr(shape + " { peak = 1.0, warmup = " + std::to_string(warmup) + " }");
      EXPECT_GT(*std::min_element(s.table.begin(), s.table.end()), 0) << shape << " " << warmup;
    }
  }
  EXPECT_EQ(lr("linear { peak = 1.0 }", 2).table, (std::vector<double>{1.0, 0.5}));
  EXPECT_EQ(lr("cosine { peak = 1 }", 1).table, std::vector<double>{1.0});
}

TEST(Schedule, Cosine) {
  const Schedule s = lr("cosine { peak = 2.0, warmup = 4, floor = 0.5 }", 12);
  ASSERT_EQ(s.table.size(), 12u);
  EXPECT_EQ(s.text, "cosine{peak=2.0, warmup=4, floor=0.5}");
  for (int64_t step = 1; step <= 4; ++step) EXPECT_DOUBLE_EQ(s.at(step), 2.0 * static_cast<double>(step) / 5);
  EXPECT_EQ(s.at(5), 2.0);
  EXPECT_DOUBLE_EQ(s.at(7), 0.5 + 1.5 * (1 + std::cos(std::numbers::pi * 0.25)) / 2);
  EXPECT_DOUBLE_EQ(s.at(9), 0.5 + 1.5 / 2);  // halfway
  EXPECT_DOUBLE_EQ(s.at(12), 0.5 + 1.5 * (1 + std::cos(std::numbers::pi * 0.875)) / 2);
  EXPECT_EQ(s.at(1000), s.at(12));
  EXPECT_EQ(lr("cosine { peak = 1, min = 0.5 }", 5).table, lr("cosine { peak = 1, floor = 0.5 }", 5).table);
}

TEST(Schedule, Linear) {
  const Schedule s = lr("linear { peak = 1.0, warmup = 2, min = 0.2 }", 10);
  EXPECT_EQ(s.text, "linear{peak=1.0, warmup=2, floor=0.2}");
  EXPECT_DOUBLE_EQ(s.at(1), 1.0 / 3);
  EXPECT_DOUBLE_EQ(s.at(2), 2.0 / 3);
  EXPECT_EQ(s.at(3), 1.0);
  EXPECT_DOUBLE_EQ(s.at(7), 0.6);
  EXPECT_DOUBLE_EQ(s.at(10), 0.3);
}

// A run that is cut short to try something out: it goes on, and says so.
TEST(Schedule, WarmupLongerThanTheRun) {
  const RecipeFolder folder;
  for (const int warmup : {20, 10, 9}) {
    const Recipe recipe = folder.recipe(uses("use 'adamw' { lr = cosine { peak = 1.5,\n warmup = " + std::to_string(warmup) + " } }"));
    const auto* schedule = recipe.uses.at(0).options.at("lr").as<Schedule>();
    EXPECT_DOUBLE_EQ(schedule->at(1), 1.5 / (warmup + 1));
    if (warmup < 10) {
      EXPECT_TRUE(recipe.warnings.empty());
      EXPECT_EQ(schedule->at(10), 1.5);
      continue;
    }
    ASSERT_EQ(recipe.warnings.size(), 1u);
    EXPECT_EQ(folder.without(recipe.warnings[0]), "r.lua:6: the cosine schedule of 'lr' never reaches its peak of 1.5: the warm-up takes " +
                                                      std::to_string(warmup) + " steps, the run has 10");
  }
}

TEST(Errors, FloorAboveThePeak) {
  std::string hint;
  EXPECT_EQ(RecipeFolder().cause(uses("use 'adamw' { lr = cosine { peak = 1e-3,\n floor = 0.5 } }"), {}, &hint),
            "r.lua:6: the cosine schedule of 'lr' falls from its peak of 0.001 to a floor of 0.5, which is above it");
  EXPECT_EQ(hint, "what rises is a function: lr = function(step, steps) return … end");
  EXPECT_EQ(rate_cause("linear { peak = 1e-3, min = 0.5 }"),
            "r.lua:5: the linear schedule of 'lr' falls from its peak of 0.001 to a floor of 0.5, which is above it");
  EXPECT_EQ(rate_cause("linear { peak = -1 }"),
            "r.lua:5: the linear schedule of 'lr' falls from its peak of -1.0 to a floor of 0.0, which is above it");
  EXPECT_EQ(rate_cause("linear { peak = 0.5, min = 0.5 }"), "");
}

TEST(Schedule, Constant) {
  const Schedule s = lr("constant(0.25)");
  EXPECT_EQ(s.text, "constant(0.25)");
  EXPECT_EQ(s.table, std::vector<double>{0.25});
  EXPECT_EQ(s.at(77), 0.25);
}

TEST(Schedule, Functions) {
  const RecipeFolder folder;
  const Recipe recipe = folder.recipe(with(
      "steps = 4,", "use 'sgd' { lr = function(step, steps) return step / steps end, groups = { { wd = function(s) return s end } } }"));
  const Use& sgd = recipe.uses.at(0);
  EXPECT_EQ(sgd.options.at("lr").as<Schedule>()->table, (std::vector<double>{0.25, 0.5, 0.75, 1}));
  EXPECT_EQ(folder.without(sgd.options.at("lr").as<Schedule>()->text), "function at r.lua:5");
  const Value& wd = sgd.options.at("groups").as<List>()->at(0).as<Table>()->at("wd");
  EXPECT_EQ(wd.as<Schedule>()->table, (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(lr("math.sqrt", 4).table, (std::vector<double>{1, std::sqrt(2.0), std::sqrt(3.0), 2}));
}

TEST(Schedule, TenThousandStepsOfAFunctionAreQuick) {
  EXPECT_EQ(lr("function(s) local x = 0 for i = 1, 10 do x = x + i end return x end", 10000).table.size(), 10000u);
}

TEST(Errors, OfSchedules) {
  EXPECT_EQ(rate_cause("cosine {}"), "r.lua:5: 'peak' of cosine is missing");
  EXPECT_EQ(rate_cause("cosine(1e-3)"), "r.lua:5: cosine takes a table in braces, got number");
  EXPECT_EQ(rate_cause("cosine { 1e-3 }"), "r.lua:5: cosine takes named options, got a list");
  EXPECT_EQ(rate_cause("cosine {\n  peak = 'x' }"), "r.lua:6: 'peak' of cosine must be a number, not 'x'");
  EXPECT_EQ(rate_cause("cosine { peak = 1,\n  warmup = -1 }"),
            "r.lua:6: 'warmup' of cosine must be a whole number of steps, or a share of the run below 1, not -1");
  EXPECT_EQ(rate_cause("cosine { peak = 1,\n  warmup = 'x' }"),
            "r.lua:6: 'warmup' of cosine must be a whole number of steps, or a share of the run below 1, not 'x'");
  EXPECT_EQ(rate_cause("wsd { peak = 1, decay_type = 'sqrt' }"),
            "r.lua:5: 'decay_type' of wsd must be 'cosine', 'linear' or '1-sqrt', not 'sqrt'");
  EXPECT_EQ(rate_cause("constant_with_warmup { peak = 1, floor = 1 }"), "r.lua:5: unknown option 'floor' of constant_with_warmup");
  EXPECT_EQ(rate_cause("cosine { peak = 1, wramup = 1 }"), "r.lua:5: unknown option 'wramup' of cosine; did you mean 'warmup'?");
  EXPECT_EQ(rate_cause("linear { peak = 1, floor = 0, min = 0 }"), "r.lua:5: 'floor' and 'min' are two names of the same");
  EXPECT_EQ(rate_cause("cosine { peak = 1 / 0 }"), "r.lua:5: 'peak' is not a finite number");
  EXPECT_EQ(rate_cause("cosine { peak = constant(1) }"), "r.lua:5: 'peak' of cosine must be a number, not a schedule");
  EXPECT_EQ(rate_cause("constant('x')"), "r.lua:5: 'value' of constant must be a number, not 'x'");
  EXPECT_EQ(rate_cause("constant()"), "r.lua:5: constant takes a number");
  EXPECT_EQ(rate_cause("constant { 1 }"), "r.lua:5: constant takes a number");
}

TEST(Errors, OfFunctions) {
  EXPECT_EQ(rate_cause("function(s) return s > 2 and 0 / 0 or 1 end"),
            "r.lua:5: the schedule of 'lr' returned nan at step 3; it must be a finite number");
  EXPECT_EQ(rate_cause("function(s) return 1 / (3 - s) end"),
            "r.lua:5: the schedule of 'lr' returned inf at step 3; it must be a finite number");
  EXPECT_EQ(rate_cause("function(s) if s < 5 then return 1 end end"),
            "r.lua:5: the schedule of 'lr' returned nil at step 5; it must be a finite number");
  EXPECT_EQ(rate_cause("function(s) return '1' end"),
            "r.lua:5: the schedule of 'lr' returned a string at step 1; it must be a finite number");
  EXPECT_EQ(rate_cause("function(s)\n return s + nothing end"), "r.lua:6: 'nothing' is not defined; did you mean 'string'?");
  EXPECT_EQ(rate_cause("function(s) error('my own') end"), "r.lua:5: my own");
  EXPECT_EQ(rate_cause("function(s) error('my own', 0) end"), "r.lua:5: my own");
  EXPECT_EQ(rate_cause("error"), "r.lua:5: error() was called with a number and not a text");
  EXPECT_EQ(rate_cause("tostring"), "r.lua:5: the schedule of 'lr' returned a string at step 1; it must be a finite number");
  const RecipeFolder folder;
  EXPECT_EQ(folder.cause(uses("use 'x' { y = function()\n while true do end end }"), limited(0.1)),
            "r.lua:6: stopped after 0.1 s of processor time");
  EXPECT_EQ(folder.cause(with("steps = 1e7,", "use 'a' { x = linear { peak = 1 }, y = linear { peak = 1 }, z = linear { peak = 1 } }")),
            "r.lua:5: the schedules of the recipe have more than 20000000 values together");
}

}  // namespace
}  // namespace galley
