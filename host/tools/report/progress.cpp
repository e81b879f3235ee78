#include "host/tools/report/progress.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>

#include "host/base/units.hpp"
#include "host/plan/timing.hpp"
#include "host/session/study.hpp"
#include "host/tools/report/columns.hpp"
#include "host/tools/report/loss_curve.hpp"
#include "host/tools/report/plan_report.hpp"
#include "host/tools/report/run_metrics.hpp"
#include "host/tools/report/terminal.hpp"

namespace galley {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// "12.3 k", with a unit to follow.
void scaled(char (&text)[24], double value) {
  static constexpr const char* prefixes[] = {"", "k", "M", "G", "T"};
  size_t p = 0;
  for (; p < 4 && value >= 999.5; ++p) value /= 1000;
  std::snprintf(text, sizeof text, "%.3g %s", value, prefixes[p]);
}

/// Writes "12.3k" or " 999 ": always five columns.
void in_columns(char (&text)[24], double value) {
  static constexpr char prefixes[] = {' ', 'k', 'M', 'G', 'T'};
  size_t p = 0;
  for (; p < 4 && value >= 999.5; ++p) value /= 1000;
  std::snprintf(text, sizeof text, "%4.*f%c", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, prefixes[p]);
}

/// "  37 % of peak FLOP/s", or nothing where the target's peak is evidently none.
const char* share_of_peak(char (&text)[32], double ideal_seconds, double seconds) {
  const double share = 100 * ideal_seconds / seconds;
  text[0] = '\0';
  if (share <= 100) std::snprintf(text, sizeof text, "  %.0f %% of peak FLOP/s", share);
  return text;
}

/// "12.3 k tok/s, 33 % of them in the loss". Tokens are those of all rows, padding and prompts included, as elsewhere.
void rates(char (&text)[80], double positions, double tokens, double seconds) {
  char all[24];
  scaled(all, positions / seconds);
  if (positions == tokens) std::snprintf(text, sizeof text, "%stok/s", all);
  else std::snprintf(text, sizeof text, "%stok/s, %.0f %% of them in the loss", all, 100 * tokens / std::max(positions, 1.0));
}

constexpr double plain_interval = 5;  // seconds between lines where nobody watches
constexpr double drawn_interval = 0.1;
constexpr double shown_after = 0.2;  // of what takes less, nothing is shown

/// The losses of all steps of the run, those of earlier processes too; "" where there is nothing to see.
std::string curve_of(const std::filesystem::path& run, const char* unit) {
  const Result<RunMetrics> read = read_run_metrics(run, 4096);
  if (!read) return "";
  const auto& columns = std::get<Table>(read->steps.at("columns"));
  const auto step = columns.find("step"), loss = columns.find("loss");
  if (step == columns.end() || loss == columns.end()) return "";
  std::vector<double> steps, losses;
  for (const auto& [column, out] : {std::pair(&step->second, &steps), std::pair(&loss->second, &losses)})
    for (const Value& value : std::get<List>(*column)) {
      double x = std::numeric_limits<double>::quiet_NaN();
      value.number(&x);
      out->push_back(x);
    }
  return loss_curve(steps, losses, unit, terminal_columns(), utf8_locale() ? Characters::Braille : Characters::Ascii);
}

}  // namespace

void Progress::Work::add(const StepEvent& m, double ideal_seconds) {
  ideal += ideal_seconds;
  positions += static_cast<double>(m.positions);
  tokens += static_cast<double>(m.tokens);
  seconds += std::max(m.seconds, 1e-9);
}

void Progress::show(const char* what, int64_t done, int64_t all) {
  const double t = now();
  if (shown_ < 0) shown_ = t;
  if (t - shown_ < (live_.terminal() ? shown_after : plain_interval) || done == all) return;
  shown_ = t - (live_.terminal() ? shown_after - drawn_interval : 0);
  char text[128];
  int digits = 1;
  for (int64_t rest = all; rest >= 10; rest /= 10) ++digits;
  std::snprintf(text, sizeof text, "%s%s %*lld of %lld", live_.terminal() ? "  " : "", what, digits, static_cast<long long>(done),
                static_cast<long long>(all));
  if (live_.terminal()) {
    live_.show(text);
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
  live_.clear();
  shown_ = -1;
  const Program& program = start.study.program;
  steps_ = start.study.recipe.steps;
  // The first step may take minutes.
  if (start.steps_done > 0)
    print_lines("resumed after step %lld of %lld\n", static_cast<long long>(start.steps_done), static_cast<long long>(steps_));
  else print_lines("the weights are loaded; step 1 of %lld comes next\n", static_cast<long long>(steps_));
  std::fflush(stdout);
  ideal_a_micro_batch_ = arithmetic_seconds(program, SegmentKind::Micro, start.study.target) / static_cast<double>(program.groups());
  return ok();
}

void Progress::draw(const StepEvent& m, double ideal, double seconds_left) {
  char left[24], positions[24], count[48], epoch[24] = "", share[32] = "", rate[64], bar[40] = "";
  duration_text(left, seconds_left);
  in_columns(positions, static_cast<double>(m.positions) / smoothed_);
  const int digits = std::snprintf(count, sizeof count, "%lld", static_cast<long long>(steps_));
  std::snprintf(count, sizeof count, "%*lld/%lld", digits, static_cast<long long>(m.step), static_cast<long long>(steps_));
  if (m.epoch > 0) std::snprintf(epoch, sizeof epoch, "  epoch %5.2f", m.epoch);
  if (ideal > 0) {
    // A target whose peak is evidently none keeps its place.
    const double of_peak = 100 * ideal / smoothed_;
    std::snprintf(share, sizeof share, of_peak <= 100 ? "  %3.0f %% of peak FLOP/s" : "                      ", of_peak);
  }
  const double counted = 100 * static_cast<double>(m.tokens) / static_cast<double>(std::max<int64_t>(m.positions, 1));
  std::snprintf(rate, sizeof rate, m.positions == m.tokens ? "%s tok/s" : "%s tok/s, %3.0f %% in the loss", positions, counted);
  const int columns = live_.columns();
  const auto line = [&] {
    return std::snprintf(drawn_, sizeof drawn_, "  %s%s%s  loss %7.4f  %s%s  ETA %8s", bar, count, epoch, m.loss, rate, share, left);
  };
  // What is needed least goes first where there is no room; a bar takes what the rest leaves.
  if (line() > columns) share[0] = '\0';
  if (line() > columns) std::snprintf(rate, sizeof rate, "%s tok/s", positions);
  if (line() > columns) epoch[0] = '\0';
  if (const int width = std::min(columns - line() - 3, 24); width >= 6) {
    const auto filled = static_cast<int>(m.step * width / std::max<int64_t>(steps_, 1));
    std::snprintf(bar, sizeof bar, "[%.*s%*s] ", filled, "========================", width - filled, "");
  }
  line();
  if (live_.due(drawn_interval) || m.step == steps_) live_.show(drawn_);
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
  const double seconds_left = (smoothed_ + aside_ / static_cast<double>(seen_)) * static_cast<double>(steps_ - m.step);
  if (live_.terminal()) {
    draw(m, ideal, seconds_left);
    return ok();
  }
  const double t = now();
  if (m.step != 1 && m.step != steps_ && t - last_line_ < plain_interval) return ok();
  last_line_ = t;
  char eta[24], share[32], rate[80], epoch[32] = "";
  duration_text(eta, seconds_left);
  if (m.epoch > 0) std::snprintf(epoch, sizeof epoch, "  epoch %.2f", m.epoch);
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
  live_.clear();
  shown_ = -1;
  char text[64];
  std::snprintf(text, sizeof text, "validation loss %.4f", v.loss);
  std::string said = text;
  for (const ReportedMetric& metric : v.reported) {
    std::snprintf(text, sizeof text, "  %.40s %.*f", metric.name, metric.value < 10 ? 4 : 1, metric.value);
    said += text;
  }
  print_lines("step %lld/%lld  %s\n", static_cast<long long>(v.step), static_cast<long long>(steps_), said.c_str());
  std::fflush(stdout);
  if (v.step > 0) validated_ = said + " at step " + std::to_string(v.step);
  return ok();
}

Status Progress::writing(int64_t step, int64_t done, int64_t all) {
  char what[64];
  std::snprintf(what, sizeof what, "step %lld/%lld  texts:", static_cast<long long>(step), static_cast<long long>(steps_));
  show(what, done, all);
  return ok();
}

Status Progress::written(const TextsEvent& t) {
  live_.clear();
  shown_ = -1;
  char match[40] = "", text[160];
  if (t.match) std::snprintf(match, sizeof match, "match %.4f  ", *t.match);
  std::snprintf(text, sizeof text, "step %lld/%lld  %s%zu texts written\n", static_cast<long long>(t.step), static_cast<long long>(steps_),
                match, t.texts.size());
  print_lines(text);
  std::fflush(stdout);
  return ok();
}

Status Progress::note(const std::string& text) {
  live_.clear();
  std::printf("%s\n", shown(text).c_str());
  std::fflush(stdout);
  return ok();
}

Status Progress::paused(int64_t step, int64_t steps) {
  pauses_ = true;
  return note("step " + std::to_string(step) + " of " + std::to_string(steps) + " is done and saved");
}

Status Progress::ended(const EndEvent& end) {
  if (drawn_[0]) live_.show(drawn_);
  live_.keep();
  if (live_.terminal()) std::fputs(curve_of(end.start.directory, end.start.study.loss_unit().c_str()).c_str(), stdout);
  if (all_.seconds > 0) {
    char rate[80];
    rates(rate, all_.positions, all_.tokens, all_.seconds);
    print_lines("%lld steps in this process: %s, without validation and saving\n", static_cast<long long>(seen_), rate);
  }
  if (!validated_.empty()) {
    char best[64];
    std::snprintf(best, sizeof best, "the lowest loss %.4f at step %lld", end.best, static_cast<long long>(end.best_step));
    print_lines(validated_ + (end.best_step > 0 ? std::string("; ") + best : std::string()) + "\n");
  }
  for (const std::string& line : memory_lines(end)) print_lines(line + "\n");
  std::fflush(stdout);
  return ok();
}

BytesProgress::BytesProgress(std::string what) : what_(std::move(what)), begin_(now()), last_(begin_) {}

void BytesProgress::update(uint64_t done, uint64_t total) {
  const double t = now(), interval = live_.terminal() ? drawn_interval : plain_interval;
  if (t - begin_ < 1 || t - last_ < interval || total == 0) return;
  last_ = t;
  const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const double rate = static_cast<double>(done) / (t - begin_);
  char eta[24], text[200], bar[40] = "";
  duration_text(eta, static_cast<double>(total - std::min(done, total)) / std::max(rate, 1.0));
  constexpr int width = 16;
  const auto filled = static_cast<int>(share * width);
  if (live_.terminal()) std::snprintf(bar, sizeof bar, "[%.*s%*s] ", filled, "================", width - filled, "");
  std::snprintf(text, sizeof text, "%s%s %s%3.0f %%  %.0f of %.0f MB  %.1f MB/s  ETA %s", live_.terminal() ? "  " : "", what_.c_str(), bar,
                100 * share, 1e-6 * static_cast<double>(done), 1e-6 * static_cast<double>(total), 1e-6 * rate, eta);
  if (live_.terminal()) live_.show(text);
  else std::fprintf(stderr, "%s\n", text);
}

}  // namespace galley
