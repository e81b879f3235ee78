#include "host/exec/state.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <map>

#include "host/base/file.hpp"
#include "host/exec/checksum.hpp"
#include "host/exec/state_text.hpp"
#include "tests/exec/small.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;
using small::Builder;
using small::Running;
using Floats = std::vector<float>;

constexpr int64_t kSteps = 6, kKeep = 2;

// Each step adds d to w, which rests in the second class, and counts in m.
struct OneStep {
  OneStep() {
    w = b.tensor("w", {700}, Life::Run, 1);
    m = b.tensor("m", {3});
    d = b.tensor("d", {700});
    const TensorId sum = b.tensor("sum", {700}), in = b.tensor("in", {700}), one = b.tensor("one", {3}), more = b.tensor("more", {3});
    b.kernel(SegmentKind::Load, small::count_up, {}, {b.write(d)}, 0.5);
    b.kernel(SegmentKind::Load, small::fill, {}, {b.write(one)}, 1);
    b.kernel(SegmentKind::Load, small::fill, {}, {b.write(m)}, 0);
    b.kernel(SegmentKind::Load, small::fill, {}, {b.write(in)}, 2);
    b.copy(SegmentKind::Load, in, w, 0, 0);
    b.copy(SegmentKind::Update, w, in, 0, 0);
    b.kernel(SegmentKind::Update, small::add, {b.read(in), b.read(d)}, {b.write(sum)});
    b.copy(SegmentKind::Update, sum, w, 0, 0);
    b.kernel(SegmentKind::Update, small::add, {b.read(m), b.read(one)}, {b.write(more)});
    b.copy(SegmentKind::Update, more, m, 0, 0);
    b.program.resume = {{"w", w}, {"adamw.m of w", m}};
  }
  Builder b;
  TensorId w, m, d;
};

StateInfo info(int64_t step) {
  StateInfo out;
  out.attempted = out.next_window = step;
  out.applied = step - 1;
  out.device = "cpu";
  out.isa = "x86-64-v3";
  out.products = "bf16 16";
  out.data = 0xfedcba9876543210;
  out.recipe = "00ff";
  out.plugins = {{"adamw", "1.2.0", 3}, {"models", "1.0.0", 1}};
  out.weights = {{"base.weight", 0x12}, {"it's \"odd\"", 0xffffffffffffffff}};
  out.without_gradient = {"q.weight"};
  return out;
}

// A run: from the newest state, or the begin, to the end, saving every second step.
Status play(const fs::path& states, int64_t steps = kSteps) {
  OneStep model;
  Running r(model.b);
  TRY_STATUS(clean_states(states, kKeep));
  TRY_STATUS(r.executor->load());
  int64_t step = 0;
  if (const auto latest = TRY(find_latest(states))) {
    const StateInfo saved = TRY(read_state(*latest));
    TRY_STATUS(check_state(saved, info(1), *latest));
    TRY_STATUS(load_state(*latest, r.builder.program, r.executor->machine()));
    step = saved.attempted;
  }
  while (step < steps) {
    ++step;
    TRY_STATUS(r.executor->run_update());
    if (step % 2 == 0) TRY_STATUS(save_state(states, kKeep, info(step), r.builder.program, r.executor->machine()));
  }
  return ok();
}

std::map<std::string, std::string> contents_of(const fs::path& folder) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    out[entry.path().lexically_relative(folder)] = entry.is_directory() ? "" : *read_text(entry.path());
  return out;
}

std::vector<std::string> names(const fs::path& folder) {
  std::vector<std::string> out;
  for (const auto& [name, text] : contents_of(folder)) out.push_back(name);
  return out;
}

const std::vector<std::string> kWhole = {"step-00000004", "step-00000004/state.safetensors", "step-00000004/state.toml",
                                         "step-00000006", "step-00000006/state.safetensors", "step-00000006/state.toml"};

TEST(State, ComesBackAsItWas) {
  const fs::path states = small::scratch() / "run" / "state";
  ASSERT_TRUE(play(states).ok());
  EXPECT_EQ(names(states), kWhole);
  const auto latest = *find_latest(states);
  ASSERT_TRUE(latest);
  EXPECT_EQ(latest->filename(), "step-00000006");
  const auto read = read_state(*latest);
  ASSERT_TRUE(read.ok()) << read.error().cause;
  EXPECT_EQ(*read, info(6));
  for (const bool lazy : {false, true}) {
    OneStep model;
    Running r(model.b, lazy, lazy ? Poison::Yes : Poison::No);
    ASSERT_TRUE(r.executor->load().ok());
    const Status loaded = load_state(*latest, r.builder.program, r.executor->machine());
    ASSERT_TRUE(loaded.ok()) << loaded.error().cause;
    EXPECT_EQ(r.values(model.m), Floats(3, 6));
    EXPECT_EQ(r.values(model.w)[10], 2 + 6 * 10.5f);
  }
}

TEST(State, AProgramThatKeepsLessReadsItsPart) {
  const fs::path states = small::scratch() / "state", state = states / "step-00000006";
  ASSERT_TRUE(play(states).ok());
  OneStep model;
  model.b.program.resume.pop_back();
  Running r(model.b);
  ASSERT_TRUE(r.executor->load().ok());
  EXPECT_FALSE(load_state(state, r.builder.program, r.executor->machine()).ok());
  EXPECT_TRUE(load_state(state, r.builder.program, r.executor->machine(), StateTensors::Some).ok());
  EXPECT_EQ(r.values(model.w)[10], 2 + 6 * 10.5f);
  EXPECT_EQ(r.values(model.m), Floats(3, 0));
}

TEST(State, InAnEmptyPlaceThereIsNone) {
  const fs::path states = small::scratch() / "state";
  EXPECT_FALSE(find_latest(states)->has_value());
  EXPECT_TRUE(clean_states(states, 1).ok());
  EXPECT_FALSE(fs::exists(states));
}

TEST(State, WhatIsBrokenIsCleanedAndTheRestIsNot) {
  const fs::path states = small::scratch() / "state";
  ASSERT_TRUE(play(states).ok());
  const auto whole = contents_of(states);
  fs::create_directories(states / "step-00000008");
  std::ofstream(states / "step-00000008" / "state.safetensors") << "half";
  fs::create_directories(states / ".tmp-step-00000010");
  std::ofstream(states / ".tmp-step-00000010" / "state.toml") << "half";
  fs::copy(states / "step-00000004", states / "step-00000002", fs::copy_options::recursive);
  EXPECT_EQ((*find_latest(states))->filename(), "step-00000006");
  ASSERT_TRUE(clean_states(states, kKeep).ok());
  EXPECT_EQ(contents_of(states), whole);
}

TEST(State, DamageIsNamed) {
  const fs::path states = small::scratch() / "state", state = states / "step-00000006";
  ASSERT_TRUE(play(states).ok());
  const auto damage = [&](const char* file, size_t at) {
    const std::string before = *read_text(state / file);
    std::string text = before;
    text[at] = static_cast<char>(text[at] ^ 1);
    std::ofstream(state / file) << text;
    OneStep model;
    Running r(model.b);
    const Status loaded = load_state(state, r.builder.program, r.executor->machine());
    std::ofstream(state / file) << before;
    return loaded.ok() ? "not found"
                       : fs::path(loaded.error().cause.substr(0, loaded.error().cause.find(' '))).filename().string() +
                             loaded.error().cause.substr(loaded.error().cause.find(' '));
  };
  const size_t tensors = read_text(state / "state.safetensors")->size();
  EXPECT_TRUE(damage("state.safetensors", tensors - 1).starts_with("step-00000006: tensor 'w' has the checksum "))
      << damage("state.safetensors", tensors - 1);
  EXPECT_TRUE(damage("state.safetensors", 9).starts_with("step-00000006: ")) << damage("state.safetensors", 9);
  for (size_t at = 0; at < read_text(state / "state.toml")->size(); at += 13) EXPECT_NE(damage("state.toml", at), "not found") << at;
  EXPECT_EQ(damage("state.safetensors", 0).find("not found"), std::string::npos);
}

TEST(State, BelongsToItsRun) {
  const fs::path states = small::scratch() / "state", state = states / "step-00000006";
  ASSERT_TRUE(play(states).ok());
  const StateInfo saved = *read_state(state);
  EXPECT_TRUE(check_state(saved, info(1), state).ok());
  const auto refusal = [&](auto change) {
    StateInfo now = info(1);
    change(now);
    const Status status = check_state(saved, now, state);
    if (status.ok()) return std::string();
    EXPECT_EQ(status.error().exit, Exit::Recipe);
    return status.error().cause.substr(status.error().cause.find("cannot"));
  };
  EXPECT_EQ(refusal([](StateInfo& s) { s.plugins[0].version = "1.3.0"; }), "");
  EXPECT_EQ(refusal([](StateInfo& s) { s.weights["base.weight"] = 0x13; }),
            "cannot resume: the base model has changed: its weight 'base.weight' is not what it was");
  EXPECT_EQ(refusal([](StateInfo& s) { s.plugins[0].state_version = 4, s.plugins[0].version = "2.0.0"; }),
            "cannot resume: the state version of plugin 'adamw' was 3 (version 1.2.0) and is 4 (version 2.0.0) now");
  EXPECT_EQ(refusal([](StateInfo& s) { s.plugins.pop_back(); }), "cannot resume: plugin 'models' 1.0.0 is not there any more");
  EXPECT_EQ(refusal([](StateInfo& s) {
              s.plugins.push_back({"ema", "1", 1});
            }),
            "cannot resume: plugin 'ema' had no part in this run before");
  EXPECT_EQ(refusal([](StateInfo& s) { s.isa = "x86-64-v4"; }),
            "cannot resume: the instruction set was 'x86-64-v3' and is 'x86-64-v4' now");
  EXPECT_EQ(refusal([](StateInfo& s) { s.products = "bf16 2"; }),
            "cannot resume: the speed of matrix products beside F32 was 'bf16 16' and is 'bf16 2' now");
  EXPECT_EQ(refusal([](StateInfo& s) { s.recipe = "ff00"; }), "cannot resume: the recipe was 00ff and is ff00 now");
  EXPECT_EQ(refusal([](StateInfo& s) { s.data = 1; }), "cannot resume: the data was fedcba9876543210 and is 0000000000000001 now");

  OneStep other;
  other.b.program.resume[1].first = "adamw.v of w";
  Running r(other.b);
  const Status loaded = load_state(state, r.builder.program, r.executor->machine());
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(loaded.error().cause.find("tensor 'adamw.v of w' is missing"), std::string::npos);
}

// What is said of a state with one text in it for another, and the checksum right.
std::string with(const std::string& from, const std::string& to) {
  std::string text = state_text(info(6), {{"w", 1}});
  text.replace(text.find(from), from.size(), to);
  text.resize(text.rfind("# checksum"));
  const auto read = parse_state(text + "# checksum of the lines above: " + hexadecimal(checksum(text)) + "\n", "state.toml");
  if (read.ok()) return "";
  EXPECT_EQ(read.error().exit, Exit::Failed);
  return read.error().cause;
}

TEST(State, ALaterFormatIsRefusedByItsNumber) {
  const std::string format = std::to_string(kStateFormat);
  EXPECT_EQ(with("format = " + format, "format = 99"), "state.toml: the state has format 99, this Galley reads format " + format);
}

TEST(State, WhatIsMissingIsNamed) {
  EXPECT_EQ(with("isa", "isa"), "");
  EXPECT_EQ(with("without_gradient", "other"), "state.toml: 'without_gradient' is missing");
  EXPECT_EQ(with("[weights]", "[other]"), "state.toml: 'weights' is missing");
  EXPECT_EQ(with("[checksums]", "[other]"), "state.toml: 'checksums' is missing");
}

// A run that is killed at system call number `nth`; true when it came so far. −1: tracing is not allowed here.
int killed_at(int64_t nth, const fs::path& states) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(77);
    ::raise(SIGSTOP);
    ::_exit(play(states).ok() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status)) return -1;
  ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD);
  for (int64_t calls = 0;;) {
    ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
      return 0;
    }
    // Stops before and after each call, so odd numbers kill before it has any effect.
    if (WIFSTOPPED(status) && WSTOPSIG(status) == (SIGTRAP | 0x80) && ++calls == nth) break;
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return 1;
}

TEST(State, KilledAtAnySystemCallItGoesOnTheSame) {
  const fs::path folder = small::scratch();
  ASSERT_TRUE(play(folder / "whole").ok());
  const auto whole = contents_of(folder / "whole");
  int64_t nth = 1, later = 0;
  for (;; nth += 2) {
    const fs::path states = folder / "killed";
    fs::remove_all(states);
    const int killed = killed_at(nth, states);
    if (killed < 0) GTEST_SKIP() << "this machine does not let a process trace its child";
    const auto latest = find_latest(states);
    ASSERT_TRUE(latest.ok());
    later += latest->has_value();
    EXPECT_TRUE(!latest->has_value() || read_state(**latest).ok());
    const Status went_on = play(states);
    ASSERT_TRUE(went_on.ok()) << "call " << nth << ": " << went_on.error().cause;
    ASSERT_EQ(contents_of(states), whole) << "call " << nth;
    if (!killed) break;
  }
  RecordProperty("calls", static_cast<int>(nth / 2));
  EXPECT_GT(nth, 150);
  EXPECT_GT(later, 30);
}

// A disk of its own that is too small for the third state. 77 where mounting is not allowed.
int on_a_small_disk(const fs::path& disk) {
  if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("none", disk.c_str(), "tmpfs", 0, "size=20k") != 0)
    return 77;
  const fs::path states = disk / "state";
  if (!play(states, 4).ok()) return 1;
  const auto before = contents_of(states);
  const Status full = play(states);
  if (full.ok() || full.error().exit != Exit::Failed || full.error().cause.find("No space left") == std::string::npos ||
      full.error().hint.empty())
    return 2;
  if (contents_of(states) != before) return 3;
  if (::mount("none", disk.c_str(), "tmpfs", MS_REMOUNT, "size=1m") != 0) return 4;
  if (!play(states).ok() || names(states) != kWhole) return 5;
  return 0;
}

TEST(State, AFullDiskCostsNothingThatWasThere) {
  const fs::path disk = small::scratch();
  (void)small::device(false);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(on_a_small_disk(disk));
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "mounting is not allowed here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace galley
