#include "host/report/progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "host/base/units.hpp"
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

/// "12.3 k", with a unit to follow.
void scaled(char (&text)[24], double value) {
  static constexpr const char* prefixes[] = {"", "k", "M", "G", "T"};
  size_t p = 0;
  for (; p < 4 && value >= 999.5; ++p) value /= 1000;
  std::snprintf(text, sizeof text, "%.3g %s", value, prefixes[p]);
}

/// "  37 % of peak", or nothing where the target's peak is evidently none.
const char* share_of_peak(char (&text)[32], double ideal_seconds, double seconds) {
  const double share = 100 * ideal_seconds / seconds;
  text[0] = '\0';
  if (share <= 100) std::snprintf(text, sizeof text, "  %.0f %% of peak", share);
  return text;
}

/// "12.3 k positions/s, 4.1 k tokens/s": one number where all positions count.
void rates(char (&text)[80], double positions, double tokens, double seconds) {
  char all[24], counted[24];
  scaled(all, positions / seconds);
  scaled(counted, tokens / seconds);
  if (positions == tokens) std::snprintf(text, sizeof text, "%stok/s", all);
  else std::snprintf(text, sizeof text, "%spositions/s, %stok/s", all, counted);
}

constexpr double plain_interval = 5;  // seconds between lines where nobody watches
constexpr double drawn_interval = 0.2;

}  // namespace

int terminal_columns() {
  winsize size = {};
  return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void Progress::Work::add(const StepEvent& m, double ideal_seconds) {
  ideal += ideal_seconds;
  positions += static_cast<double>(m.positions);
  tokens += static_cast<double>(m.tokens);
  seconds += std::max(m.seconds, 1e-9);
}

Progress::Progress() : terminal_(isatty(STDOUT_FILENO)) {}

void Progress::show(const char* what, int64_t done, int64_t all) {
  const double t = now();
  if (shown_ < 0) shown_ = t;
  if (t - shown_ < (terminal_ ? drawn_interval : plain_interval) || done == all) return;
  shown_ = t;
  char text[128];
  std::snprintf(text, sizeof text, "%s%s %lld of %lld", terminal_ ? "  " : "", what, static_cast<long long>(done),
                static_cast<long long>(all));
  if (terminal_) {
    draw(text);
  } else {
    std::printf("%s\n", text);
    std::fflush(stdout);
  }
}

Status Progress::loading(int64_t done, int64_t all) {
  show("loading the weights: instruction", done, all);
  return ok();
}

Status Progress::started(const StartEvent& start) {
  clear();
  shown_ = -1;
  const Program& program = start.study.program;
  steps_ = start.study.recipe.steps;
  ideal_a_micro_batch_ = arithmetic_seconds(program, SegmentKind::Micro, start.study.target);
  return ok();
}

void Progress::clear() {
  if (drawn_) std::fputs("\r\x1b[K", stdout);
  drawn_ = false;
}

void Progress::draw(const char* text) {
  const int columns = terminal_columns();  // a terminal may be resized at any time
  std::printf("\r\x1b[K%.*s", std::max(columns - 1, 1), text);
  std::fflush(stdout);
  drawn_ = true;
}

Status Progress::step(const StepEvent& m) {
  ++seen_;
  // The first step of a process touches everything for the first time: it does not count in the estimate once there is another.
  if (seen_ <= 2) smoothed_ = std::max(m.seconds, 1e-9);
  else smoothed_ += 0.1 * (m.seconds - smoothed_);
  if (seen_ == 2) all_ = {};
  aside_ += m.aside;
  const double ideal = ideal_a_micro_batch_ * static_cast<double>(m.micro_batches);
  line_.add(m, ideal);
  all_.add(m, ideal);
  char eta[24], share[32], rate[80], epoch[32] = "";
  duration(eta, (smoothed_ + aside_ / static_cast<double>(seen_)) * static_cast<double>(steps_ - m.step));
  if (m.epoch > 0) std::snprintf(epoch, sizeof epoch, "  epoch %.2f", m.epoch);
  if (terminal_) {
    char text[256], bar[32] = "";
    rates(rate, static_cast<double>(m.positions), static_cast<double>(m.tokens), smoothed_);
    const auto line = [&] {
      return std::snprintf(text, sizeof text, "  %s%lld/%lld%s  loss %.4f  %s%s  ETA %s", bar, static_cast<long long>(m.step),
                           static_cast<long long>(steps_), epoch, m.loss, rate, share_of_peak(share, ideal, smoothed_), eta);
    };
    // The bar takes what the rest leaves.
    const int width = std::min(terminal_columns() - line() - 4, 24);
    if (width >= 6) {
      const auto filled = static_cast<int>(m.step * width / std::max<int64_t>(steps_, 1));
      std::snprintf(bar, sizeof bar, "[%.*s%*s] ", filled, "========================", width - filled, "");
      line();
    }
    draw(text);
    return ok();
  }
  const double t = now();
  if (m.step != 1 && m.step != steps_ && t - last_line_ < plain_interval) return ok();
  last_line_ = t;
  rates(rate, line_.positions, line_.tokens, line_.seconds);
  share_of_peak(share, line_.ideal, line_.seconds);
  line_ = {};
  std::printf("step %lld/%lld%s  loss %.4f  grad_norm %.3g  lr %.3g  %s%s  ETA %s\n", static_cast<long long>(m.step),
              static_cast<long long>(steps_), epoch, m.loss, m.grad_norm, m.lr, rate, share, eta);
  std::fflush(stdout);
  return ok();
}

Status Progress::validating(const ValidatingEvent& v) {
  char what[64];
  std::snprintf(what, sizeof what, "step %lld/%lld  validation: batch", static_cast<long long>(v.step), static_cast<long long>(steps_));
  show(what, v.batch, v.batches);
  return ok();
}

Status Progress::validated(const ValidationEvent& v) {
  clear();
  shown_ = -1;
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
  if (all_.seconds > 0) {
    char rate[80];
    rates(rate, all_.positions, all_.tokens, all_.seconds);
    std::printf("%lld steps in this process: %s, without validation and saving\n", static_cast<long long>(seen_), rate);
  }
  for (const std::string& line : memory_lines(end)) std::printf("%s\n", line.c_str());
  std::fflush(stdout);
  return ok();
}

BytesProgress::BytesProgress(std::string what) : what_(std::move(what)), terminal_(isatty(STDERR_FILENO)), begin_(now()), last_(begin_) {}

BytesProgress::~BytesProgress() {
  if (drawn_ && terminal_) std::fputs("\r\x1b[K", stderr);
}

void BytesProgress::update(uint64_t done, uint64_t total) {
  const double t = now(), interval = terminal_ ? drawn_interval : plain_interval;
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
