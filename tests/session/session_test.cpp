#include "host/session/session.hpp"

#include <gtest/gtest.h>
#include <map>

#include <cmath>
#include <limits>

#include "host/plugins/abi.hpp"
#include "host/session/listeners.hpp"
#include "host/session/run_lock.hpp"
#include "host/session/train.hpp"
#include "tests/base/folder.hpp"
#include "tests/base/nobody.hpp"
#include "tests/exec/small.hpp"

namespace galley {
namespace {

using small::Builder;

/// One row of ids a window, as many windows as anybody wants.
class Rows final : public Source {
 public:
  Status fill(int64_t window, WindowBuffer& buffer) const override {
    buffer.window = window;
    buffer.micro_batches = 1;
    for (size_t f = 0; f < kPlainFills; ++f) std::ranges::fill(buffer.tensor(0, static_cast<Fill>(f)), 1);
    buffer.valid_tokens = buffer.count_valid();
    return ok();
  }
  int64_t validation_batches() const override { return validations; }
  Status fill_validation(int64_t batch, WindowBuffer& buffer) const override { return fill(batch, buffer); }
  int64_t validations = 0;
};

// Writes the norm, and skips the step when that is not finite: attempted step, apply, norm.
void run_judge(const sdk::Node& node, void*) {
  const int64_t step = *node.read<int64_t>(0);
  *node.update<float>(2) = step == 2 ? std::numeric_limits<float>::infinity() : static_cast<float>(step);
  if (node.f("value", 0) != 0 && step == 2) *node.update<int32_t>(1) = 0;
}
const galley_kernel judge = sdk::kernel<run_judge>("judge.test", "judge");

/// A study by hand of one weight that follows a constant gradient.
std::unique_ptr<Study> study_of(bool skips, double gradient = 1) {
  Builder b;
  b.program.rows = 1;
  b.program.length = 4;
  b.program.window =
      b.tensor("window", {static_cast<int64_t>(Loader::bytes({1, 4}, 1, small::target().steps_under_way()))}, Life::Run, 0, GALLEY_U8);
  for (const Fill fill : {Fill::Tokens, Fill::NextTokens, Fill::Positions, Fill::FirstKey})
    b.program.inputs.push_back({info_of(fill).name, b.tensor(info_of(fill).name, {1, 4}, Life::Run, 0, GALLEY_I32), fill});
  b.scalars({GALLEY_SCALAR_ATTEMPTED_STEP, GALLEY_SCALAR_APPLIED_STEP, GALLEY_SCALAR_APPLY, GALLEY_SCALAR_GRADIENT_NORM,
             GALLEY_SCALAR_GRADIENT_FACTOR, GALLEY_SCALAR_LOSS});
  b.option("sgd.lr", {0.5, 0.25, 0.125});
  const TensorId p = b.tensor("p", {4}), g = b.tensor("p.grad", {4});
  const Operand s = b.number(GALLEY_F64);
  b.kernel(SegmentKind::Load, small::fill, {}, {b.write(p)}, 1);
  b.kernel(SegmentKind::Micro, small::fill, {}, {b.write(g)}, gradient);
  b.kernel(SegmentKind::Update, small::sum_squares, {b.read(g)}, {s});
  b.kernel(SegmentKind::Update, judge,
           {b.scalar(GALLEY_SCALAR_ATTEMPTED_STEP), b.scalar(GALLEY_SCALAR_APPLY, GALLEY_READ_WRITE),
            b.scalar(GALLEY_SCALAR_GRADIENT_NORM, GALLEY_READ_WRITE)},
           {}, skips ? 1 : 0);
  b.kernel(SegmentKind::Update, small::descend,
           {b.update(p), b.read(g), b.option("sgd.lr"), b.scalar(GALLEY_SCALAR_GRADIENT_FACTOR), b.scalar(GALLEY_SCALAR_APPLY)}, {});
  b.program.trained = {{.name = "p", .parameter = p, .gradient = g, .sum_squares = s, .count = 4}};
  b.program.resume = {{"p", p}};
  b.own_steps();

  auto out = std::make_unique<Study>();
  out->recipe.steps = 4;
  out->data.layout = {1, 4};
  out->draft = std::make_unique<Draft>([](std::string_view) { return nullptr; }, [] { return std::vector<std::string>(); }, Extents{1, 4});
  out->device.table = &small::device(false);
  out->target = small::target();
  out->plan = b.plan();
  out->program = std::move(b.program);
  return out;
}

std::unique_ptr<Session> session_of(const Study& study) {
  auto session = Session::open(study, std::make_unique<Rows>());
  EXPECT_TRUE(session.ok()) << session.error().cause;
  return std::move(session).value();
}

Result<StepEvent> step_of(Session& session) {
  TRY_STATUS(session.enqueue());
  return session.finished();
}

TEST(Session, StepsOneAfterTheOther) {
  const auto study = study_of(true);
  const auto session = session_of(*study);
  ASSERT_TRUE(session->start().ok());
  const auto step = step_of(*session);
  ASSERT_TRUE(step.ok()) << step.error().cause;
  EXPECT_EQ(step->step, 1);
  EXPECT_EQ(step->tokens, 4);
  EXPECT_EQ(step->lr, 0.5);
  EXPECT_EQ(step->grad_norm, 1);
  EXPECT_TRUE(step->applied);
  EXPECT_GE(step->seconds, 0);
}

TEST(Session, SeveralOptimizersHaveAMetricEach) {
  const auto study = study_of(false);
  std::vector<ScalarSlot>& slots = study->program.slots;
  const auto rate = std::find_if(slots.begin(), slots.end(), [](const ScalarSlot& s) { return s.rate; });
  ASSERT_NE(rate, slots.end());
  ScalarSlot other = *rate, scaled = *rate;
  other.option = "adamw.learning_rate";
  other.schedule.table = {0.001};
  scaled.factor = 0.5;
  for (const ScalarSlot& s : {scaled, other, other}) slots.push_back(s);
  const auto session = session_of(*study);
  ASSERT_TRUE(session->start().ok());
  const auto step = step_of(*session);
  ASSERT_TRUE(step.ok()) << step.error().cause;
  EXPECT_EQ(step->lr, 0.5);
  std::map<std::string, double> reported;
  for (const ReportedMetric& m : step->reported) reported.emplace(m.name, m.value);
  EXPECT_EQ(reported, (std::map<std::string, double>{{"lr.sgd", 0.5}, {"lr.adamw", 0.001}, {"lr.adamw.2", 0.001}}));
}

TEST(Session, ASkippedStepDoesNotCountAsApplied) {
  const auto study = study_of(true);
  const auto session = session_of(*study);
  ASSERT_TRUE(session->start().ok());
  const std::vector<double> rates = {0.5, 0.25, 0.25, 0.125};  // the schedule follows the applied steps
  for (size_t i = 0; i < rates.size(); ++i) {
    const auto step = step_of(*session);
    ASSERT_TRUE(step.ok()) << step.error().cause;
    EXPECT_EQ(step->applied, i != 1);
    EXPECT_EQ(std::isfinite(step->grad_norm), i != 1);
    EXPECT_EQ(step->lr, rates[i]) << i;
  }
  const std::filesystem::path states = small::scratch() / "state";
  ASSERT_TRUE(session->save(states, 1).ok());
  const auto saved = read_state(states / "step-00000004");
  ASSERT_TRUE(saved.ok());
  EXPECT_EQ(saved->attempted, 4);
  EXPECT_EQ(saved->applied, 3);
}

TEST(Session, AnInfiniteNormThatNobodySkipsEndsTheRun) {
  const auto study = study_of(false);
  const auto session = session_of(*study);
  ASSERT_TRUE(session->start().ok());
  ASSERT_TRUE(step_of(*session).ok());
  const auto step = step_of(*session);
  ASSERT_FALSE(step.ok());
  EXPECT_NE(step.error().cause.find("step 2: loss 0, gradient norm inf"), std::string::npos) << step.error().cause;
}

TEST(Session, ARunThatTrainedNothingDoesNotEndWell) {
  const auto study = study_of(true, 0);
  const auto session = session_of(*study);
  ASSERT_TRUE(session->start().ok());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(step_of(*session).ok());
  EXPECT_EQ(session->proof().without_gradient(), std::vector<std::string>{"p"});
  EXPECT_FALSE(session->finish().ok());
}

TEST(Session, TwoAtOnceDoNotMeet) {
  const auto study = study_of(true);
  const auto a = session_of(*study), b = session_of(*study);
  ASSERT_TRUE(a->start().ok());
  ASSERT_TRUE(b->start().ok());
  for (int64_t i = 1; i <= 3; ++i) {
    ASSERT_TRUE(step_of(*a).ok());
    if (i == 2) {
      ASSERT_TRUE(step_of(*b).ok());
    }
  }
  EXPECT_EQ(a->steps_done(), 3);
  EXPECT_EQ(b->steps_done(), 1);
}

/// Writes down what a run tells.
class Listener final : public Observer {
 public:
  Status started(const StartEvent& e) override { return add("started " + std::to_string(e.steps_done)); }
  Status step(const StepEvent& e) override { return add("step " + std::to_string(e.step)); }
  Status validated(const ValidationEvent&) override { return add("validated"); }
  Status saving() override { return add("saving"); }
  Status note(const std::string& text) override { return add(text); }
  Status ended(const EndEvent&) override { return add("ended"); }
  std::vector<std::string> told;

 private:
  Status add(std::string what) {
    told.push_back(std::move(what));
    return ok();
  }
};

struct Telling {
  Status status;
  std::vector<std::string> told;
};

Telling run_of(const Study& study, const std::filesystem::path& directory, size_t stop_after = 100, std::unique_ptr<Rows> rows = nullptr) {
  Listener listener;
  TrainOptions options;
  options.observers = {&listener};
  options.stop = [&](int64_t) { return listener.told.size() > stop_after; };
  const auto open = [&]() -> Result<std::unique_ptr<Source>> {
    return std::unique_ptr<Source>(rows ? std::move(rows) : std::make_unique<Rows>());
  };
  Status status = train(study, open, directory, options);
  return {std::move(status), listener.told};
}

using Told = std::vector<std::string>;

TEST(Train, TellsWhatHappens) {
  const auto study = study_of(true);
  study->recipe.save.every = 2;
  const auto run = run_of(*study, small::scratch());
  EXPECT_TRUE(run.status.ok()) << run.status.error().cause;
  EXPECT_EQ(run.told, (Told{"started 0", "step 1", "step 2", "saving", "step 3", "step 4", "saving", "ended", "saving"}));
}

TEST(Train, StopsBetweenStepsAndContinues) {
  const auto study = study_of(true);
  const std::filesystem::path directory = small::scratch();
  const auto first = run_of(*study, directory, 1);
  ASSERT_FALSE(first.status.ok());
  EXPECT_EQ(first.status.error().exit, Exit::Interrupted);
  EXPECT_EQ(first.told, (Told{"started 0", "step 1", "saving", "ended"}));
  EXPECT_EQ(run_of(*study, directory).told, (Told{"started 1", "step 2", "step 3", "step 4", "saving", "ended", "saving"}));
  const Told nothing = run_of(*study, directory).told;
  EXPECT_EQ(nothing, Told{"nothing left to do: all 4 steps are done; --steps N --out NEW goes on to step N"});
}

// Before the first step nothing is lost by it. After a step the run would miss the value.
TEST(Train, StopsInTheFirstValidationAndInNoOther) {
  const auto study = study_of(true);
  study->recipe.validate = {1, true};
  const auto with_validation = [] {
    auto rows = std::make_unique<Rows>();
    rows->validations = 5;
    return rows;
  };
  const auto first = run_of(*study, small::scratch(), 0, with_validation());
  ASSERT_FALSE(first.status.ok());
  EXPECT_EQ(first.status.error().exit, Exit::Interrupted);
  EXPECT_EQ(first.status.error().cause, "interrupted before step 1");
  EXPECT_EQ(first.told, (Told{"started 0"}));
  const auto second = run_of(*study, small::scratch(), 2, with_validation());
  EXPECT_EQ(second.told, (Told{"started 0", "validated", "step 1", "validated", "saving", "ended"}));
}

// A state out of turn, with a folder in it that only its owner could empty.
TEST(Train, OldStatesThatCannotBeRemovedAreAnError) {
  const auto study = study_of(true);
  const Folder folder;
  ASSERT_TRUE(run_of(*study, folder.path()).status.ok());
  const std::filesystem::path states = folder / "state", locked = states / "step-00000001/locked";
  folder.put("state/step-00000001/locked/file", "");
  for (const auto& path : {folder.path(), states, locked.parent_path()}) std::filesystem::permissions(path, std::filesystem::perms(0777));
  std::filesystem::permissions(locked, std::filesystem::perms(0555));
  {
    const Nobody nobody;
    const auto run = run_of(*study, folder.path());
    ASSERT_FALSE(run.status.ok());
    EXPECT_EQ(run.status.error().exit, Exit::Failed);
    EXPECT_EQ(run.status.error().cause, "cannot remove old states in " + states.string() + ": Permission denied");
  }
  std::filesystem::permissions(locked, std::filesystem::perms(0755));
}

TEST(Train, OneAtATimeInADirectory) {
  const auto study = study_of(true);
  const std::filesystem::path directory = small::scratch();
  {
    const auto lock = RunLock::take(directory);
    ASSERT_TRUE(lock.ok());
    const auto run = run_of(*study, directory);
    ASSERT_FALSE(run.status.ok());
    EXPECT_NE(run.status.error().cause.find("is in use"), std::string::npos) << run.status.error().cause;
    EXPECT_TRUE(run.told.empty());
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory)) << "a lock leaves no file";
  EXPECT_TRUE(run_of(*study, directory).status.ok());
}

/// A strategy that listens, by hand: all of its listeners write into one list. `fails`: at what.
struct Hearing {
  std::string fails = {};
  std::vector<std::string> told = {};
  int made = 0;
};
struct Ear {
  Hearing& all;
  std::string name;
  galley_status add(const std::string& what, galley_error* error) const {
    all.told.push_back(name + what);
    if (what != all.fails) return GALLEY_OK;
    fill_error(error, GALLEY_FAILED, "no " + what, "");
    return GALLEY_FAILED;
  }
};

galley_observer hearing_table(uint64_t flags = 0) {
  auto out = new_struct<galley_observer>();
  out.flags = flags;
  out.started = [](void* instance, const galley_started_event* e, void** listener, galley_error* error) {
    auto& all = *static_cast<Hearing*>(instance);
    auto ear = std::make_unique<Ear>(Ear{all, std::string(1, static_cast<char>('a' + all.made++)) + " "});
    const galley_status status = ear->add("started " + std::to_string(e->steps_done), error);
    if (status == GALLEY_OK) *listener = ear.release();
    return status;
  };
  out.step = [](void* l, const galley_step_event* e, galley_error* error) {
    std::string metrics;
    for (uint64_t i = 0; i < e->n_metrics; ++i)
      metrics += std::string(" ") + e->metric_names[i] + " " + std::to_string(static_cast<int>(e->metric_values[i]));
    return static_cast<Ear*>(l)->add("step " + std::to_string(e->step) + metrics + (e->flags & GALLEY_STEP_APPLIED ? "" : " skipped"),
                                     error);
  };
  out.note = [](void* l, const galley_note_event* e, galley_error* error) { return static_cast<Ear*>(l)->add(e->text, error); };
  out.ended = [](void* l, const galley_ended_event* e, galley_error* error) {
    const std::unique_ptr<Ear> ear(static_cast<Ear*>(l));
    return ear->add(
        "ended " + std::to_string(e->how) + " at " + std::to_string(e->steps_done) + (e->error ? std::string(": ") + e->error : ""), error);
  };
  return out;
}

class Heard : public testing::Test {
 protected:
  Listeners::Maker maker(Hearing& all, const galley_observer& table) { return {caller, table, &all}; }

  std::unique_ptr<Study> study = study_of(true);
  StartEvent start{*study, "run", 2, {}};
  Caller caller{"ears", "ear", {"recipe.lua", 7}};
  galley_observer goes_on = hearing_table(), ends_run = hearing_table(GALLEY_OBSERVER_ENDS_RUN);
  Listener others;
};

TEST_F(Heard, TwoSessionsHaveAListenerEach) {
  Hearing all;
  const Listeners::Maker makers[] = {maker(all, goes_on)};
  Listeners one(makers, {}), two(makers, {});
  const ReportedMetric metrics[] = {{"kept", 3}, {"lost", 4}};
  ASSERT_TRUE(one.note("too early").ok());
  ASSERT_TRUE(one.started(start).ok() && two.started(start).ok());
  ASSERT_TRUE(one.step({.step = 3, .reported = metrics}).ok() && two.step({.step = 3, .applied = false}).ok());
  ASSERT_TRUE(one.validated({.step = 3}).ok() && one.saving().ok());  // it has no such functions
  ASSERT_TRUE(two.paused(3, 4).ok());
  EXPECT_TRUE(two.finish(ok()).ok());
  EXPECT_EQ(one.finish(run_error("no disk")).error().cause, "no disk");
  EXPECT_EQ(all.told, (Told{"a started 2", "b started 2", "a step 3 kept 3 lost 4", "b step 3 skipped", "b ended 2 at 3",
                            "a ended 3 at 3: no disk"}));
}

TEST_F(Heard, OneThatFailsIsToldTheEndAlone) {
  Hearing fails{"step 3"}, hears;
  const Listeners::Maker makers[] = {maker(fails, goes_on), maker(hears, goes_on)};
  Listeners listeners(makers, {&others});
  ASSERT_TRUE(listeners.started(start).ok());
  for (int64_t step = 3; step <= 4; ++step) ASSERT_TRUE(listeners.step({.step = step}).ok());
  EXPECT_TRUE(listeners.finish(ok()).ok());
  const std::string warning =
      "warning: step 3: recipe.lua:7: plugin 'ears' failed in step of ear: no step 3; the run goes on without this listener";
  EXPECT_EQ(fails.told, (Told{"a started 2", "a step 3", "a ended 1 at 4"}));
  EXPECT_EQ(hears.told, (Told{"a started 2", "a " + warning, "a step 3", "a step 4", "a " + warning, "a ended 1 at 4"}));
  EXPECT_EQ(others.told, (Told{warning, warning}));
}

TEST_F(Heard, OneThatEndsTheRunEndsItByItsError) {
  for (const char* at : {"started 2", "step 3", "ended 1 at 3"}) {
    SCOPED_TRACE(at);
    Hearing hears, fails{at};
    const Listeners::Maker makers[] = {maker(hears, goes_on), maker(fails, ends_run)};
    Listeners listeners(makers, {&others});
    Status ran = listeners.started(start);
    if (ran.ok()) ran = listeners.step({.step = 3});
    ran = listeners.finish(std::move(ran));
    ASSERT_FALSE(ran.ok());
    EXPECT_EQ(ran.error().exit, Exit::Plugin);
    EXPECT_NE(ran.error().cause.find(std::string(": no ") + at), std::string::npos) << ran.error().cause;
    // One that was never made has no end.
    EXPECT_EQ(fails.told.back().starts_with("a ended"), !std::string_view(at).starts_with("started"));
    EXPECT_TRUE(hears.told.back().starts_with("a ended"));
  }
  EXPECT_TRUE(others.told.empty());
}

TEST_F(Heard, AnInterruptionStaysOne) {
  Hearing fails{"ended 2 at 2"};
  const Listeners::Maker makers[] = {maker(fails, ends_run)};
  Listeners listeners(makers, {&others});
  ASSERT_TRUE(listeners.started(start).ok());
  EXPECT_EQ(listeners.finish(Error{Exit::Interrupted, "interrupted", ""}).error().exit, Exit::Interrupted);
  EXPECT_EQ(others.told, Told{"warning: step 2: recipe.lua:7: plugin 'ears' failed in ended of ear: no ended 2 at 2"});
}

}  // namespace
}  // namespace galley
