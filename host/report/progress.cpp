#include "host/report/progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "host/plan/timing.hpp"
#include "host/report/plan_report.hpp"
#include "host/session/study.hpp"

namespace galley {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// "1:02:03", "2:03", "4 s" into a caller's buffer: the step loop allocates nothing.
const char* duration(char (&text)[24], double seconds) {
  const auto s = std::llround(seconds);
  if (s >= 3600) std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
  else if (s >= 60) std::snprintf(text, sizeof text, "%lld:%02lld", s / 60, s % 60);
  else std::snprintf(text, sizeof text, "%lld s", s);
  return text;
}

/// "  37 % of peak", or nothing where the target's peak is evidently none.
const char* share_of_peak(char (&text)[32], double ideal_seconds, double seconds) {
  const double share = 100 * ideal_seconds / seconds;
  text[0] = '\0';
  if (share <= 100) std::snprintf(text, sizeof text, "  %.0f %% of peak", share);
  return text;
}

constexpr double plain_interval = 5;  // seconds between lines where nobody watches

}  // namespace

Progress::Progress() : terminal_(isatty(STDOUT_FILENO)) {}

Status Progress::started(const StartEvent& start) {
  const Program& program = start.study.program;
  steps_ = start.study.recipe.steps;
  ideal_a_micro_batch_ = arithmetic_seconds(program, SegmentKind::Micro, start.study.target);
  return ok();
}

void Progress::clear() {
  if (drawn_) std::fputs("\r\x1b[K", stdout);
  drawn_ = false;
}

Status Progress::step(const StepEvent& m) {
  ++seen_;
  const double seconds = std::max(m.seconds - m.aside, 1e-9);
  // The first step of a process touches everything for the first time: it does not count in the estimate once there is another.
  if (seen_ <= 2) smoothed_ = seconds;
  else smoothed_ += 0.1 * (seconds - smoothed_);
  aside_ += m.aside;
  const double ideal = ideal_a_micro_batch_ * static_cast<double>(m.micro_batches);
  line_.ideal += ideal;
  line_.tokens += static_cast<double>(m.tokens);
  line_.seconds += seconds;
  char eta[24], share[32];
  duration(eta, (smoothed_ + aside_ / static_cast<double>(seen_)) * static_cast<double>(steps_ - m.step));
  if (terminal_) {
    constexpr int width = 24;
    const double rate = static_cast<double>(m.tokens) / smoothed_;
    const auto filled = static_cast<int>(m.step * width / std::max<int64_t>(steps_, 1));
    std::printf("\r\x1b[K  [%.*s%.*s] %lld/%lld  loss %.4f  %.0f tok/s%s  ETA %s", filled, "========================", width - filled,
                "                        ", static_cast<long long>(m.step), static_cast<long long>(steps_), m.loss, rate,
                share_of_peak(share, ideal, smoothed_), eta);
    std::fflush(stdout);
    drawn_ = true;
    return ok();
  }
  const double t = now();
  if (m.step != 1 && m.step != steps_ && t - last_line_ < plain_interval) return ok();
  last_line_ = t;
  const double rate = line_.tokens / line_.seconds;
  share_of_peak(share, line_.ideal, line_.seconds);
  line_ = {};
  std::printf("step %lld/%lld  loss %.4f  grad_norm %.3g  lr %.3g  %.0f tok/s%s  ETA %s\n", static_cast<long long>(m.step),
              static_cast<long long>(steps_), m.loss, m.grad_norm, m.lr, rate, share, eta);
  std::fflush(stdout);
  return ok();
}

Status Progress::validated(const ValidationEvent& v) {
  clear();
  std::printf("step %lld/%lld  validation loss %.4f\n", static_cast<long long>(v.step), static_cast<long long>(steps_), v.loss);
  std::fflush(stdout);
  return ok();
}

Status Progress::note(const std::string& text) {
  clear();
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
  return ok();
}

Status Progress::ended(const EndEvent& end) {
  if (drawn_) std::fputs("\n", stdout);
  drawn_ = false;
  for (const std::string& line : memory_lines(end)) std::printf("%s\n", line.c_str());
  std::fflush(stdout);
  return ok();
}

BytesProgress::BytesProgress(std::string what) : what_(std::move(what)), terminal_(isatty(STDERR_FILENO)), begin_(now()), last_(begin_) {}

BytesProgress::~BytesProgress() {
  if (drawn_ && terminal_) std::fputs("\r\x1b[K", stderr);
}

void BytesProgress::update(uint64_t done, uint64_t total) {
  const double t = now(), interval = terminal_ ? 0.2 : plain_interval;
  if (t - begin_ < 1 || t - last_ < interval || total == 0) return;
  last_ = t;
  drawn_ = true;
  const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const double rate = static_cast<double>(done) / (t - begin_);
  char eta[24];
  duration(eta, static_cast<double>(total - std::min(done, total)) / std::max(rate, 1.0));
  constexpr int width = 24;
  const auto filled = static_cast<int>(share * width);
  if (terminal_)
    std::fprintf(stderr, "\r\x1b[K  %s [%.*s%.*s]", what_.c_str(), filled, "========================", width - filled,
                 "                        ");
  else std::fprintf(stderr, "%s:", what_.c_str());
  std::fprintf(stderr, " %.0f %%  %.1f of %.1f MB  %.1f MB/s  ETA %s%s", 100 * share, 1e-6 * static_cast<double>(done),
               1e-6 * static_cast<double>(total), 1e-6 * rate, eta, terminal_ ? "" : "\n");
  std::fflush(stderr);
}

}  // namespace galley
