#include "host/exec/proof.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "host/base/listed.hpp"
#include "host/exec/convert.hpp"

namespace galley {
namespace {

constexpr size_t kNames = 4;  // in a message

std::string counted(const std::vector<std::string>& names, size_t of, const char* what) {
  return std::to_string(names.size()) + " of " + std::to_string(of) + " " + what;
}

// Half of the last place of a number around 1; 0 for dtypes whose steps are not known here.
double half_place(uint32_t dtype) {
  switch (dtype) {
    case GALLEY_F64: return 0x1p-54;
    case GALLEY_F32: return 0x1p-25;
    case GALLEY_F16: return 0x1p-12;
    case GALLEY_BF16: return 0x1p-9;
    default: return 0;
  }
}

}  // namespace

Proof::Proof(Executor& executor)
    : executor_(executor),
      program_(executor.program()),
      frozen_checksums_(executor, SegmentKind::Frozen),
      trained_checksums_(executor, SegmentKind::Trained) {
  frozen_.resize(program_.frozen.size());
  before_.resize(program_.trained.size());
  now_.resize(std::max(frozen_.size(), before_.size()));
  pending_.assign(program_.trained.size(), true);
  waiting_.resize(program_.trained.size());
  for (size_t i = 0; i < program_.trained.size(); ++i) {
    const bool none = program_.trained[i].flags & GALLEY_TENSOR_ZERO_GRADIENT;
    if (none) pending_[i] = false;
    waiting_[i] = !none && program_.trained[i].sum_squares.present();
  }
}

Status Proof::after_load() { return frozen_checksums_.take(frozen_); }

std::map<std::string, uint64_t> Proof::frozen() const {
  std::map<std::string, uint64_t> out;
  for (size_t i = 0; i < frozen_.size(); ++i) out[program_.tensors[static_cast<size_t>(program_.frozen[i])].name] = frozen_[i];
  return out;
}

Status Proof::finish() {
  std::vector<std::string> changed;
  TRY_STATUS(frozen_checksums_.take(std::span(now_).first(frozen_.size())));
  for (size_t i = 0; i < frozen_.size(); ++i)
    if (now_[i] != frozen_[i]) changed.push_back(program_.tensors[static_cast<size_t>(program_.frozen[i])].name);
  if (changed.empty()) {
    const std::vector<std::string> none = without_gradient();
    if (last_applied_ < 2 || none.size() < program_.trained.size()) return ok();
    return run_error("no trainable tensor got a gradient in any step: " + listed(none, kNames),
                     "nothing has trained: see whether anything that reaches the loss reads them, and whether labels count");
  }
  return run_error(counted(changed, frozen_.size(), "frozen tensors have changed since they were loaded: ") + listed(changed, kNames),
                   "a kernel wrote where it must only read; nothing of this run should be used");
}

bool Proof::learns(int64_t applied) const {
  return std::all_of(program_.slots.begin(), program_.slots.end(),
                     [&](const ScalarSlot& slot) { return !slot.rate || slot.factor * slot.schedule.at(applied) > 0; });
}

bool Proof::learned_before(int64_t applied) const {
  for (int64_t step = 1; step < applied; ++step)
    if (learns(step)) return true;
  return false;
}

double Proof::learning_rate(int64_t applied) const {
  double most = 0;
  for (const ScalarSlot& slot : program_.slots)
    if (slot.rate) most = std::max(most, slot.schedule.at(applied));
  return most;
}

bool Proof::compares() const { return compared_ < kPatience && std::find(pending_.begin(), pending_.end(), true) != pending_.end(); }

Status Proof::before_step(const ProofStep& begin) {
  compares_ = begin.applied >= 2 && begin.window_tokens > 0 && learns(begin.applied) && compares();
  return compares_ ? trained_checksums_.take(before_) : ok();
}

Status Proof::after_step(const ProofStep& begin) {
  if (begin.window_tokens == 0 || executor_.scalar(GALLEY_SCALAR_APPLY) == 0) return ok();
  last_applied_ = begin.applied;
  TRY_STATUS(check_finite(begin));
  TRY_STATUS(check_gradients(begin));
  return compares_ ? check_movement(begin) : ok();
}

Status Proof::check_finite(const ProofStep& begin) {
  std::vector<std::string> broken;
  for (const Trained& trained : program_.trained) {
    if (!trained.sum_squares.present()) continue;
    const double sum = sum_squares(trained);
    if (!std::isfinite(sum)) broken.push_back(trained.name);
  }
  if (broken.empty()) return ok();
  return run_error(counted(broken, program_.trained.size(), "trainable tensors got a gradient that is not finite in step ") +
                       std::to_string(begin.attempted) + ": " + listed(broken, kNames),
                   "a lower learning rate or clipping keeps the loss from diverging; in F16, scaling the loss does");
}

Status Proof::check_gradients(const ProofStep& begin) {
  const bool any = std::any_of(program_.trained.begin(), program_.trained.end(),
                               [&](const Trained& t) { return !t.sum_squares.present() || sum_squares(t) != 0; });
  silent_ = any ? 0 : silent_ + 1;
  std::vector<std::string> none;
  for (size_t i = 0; i < waiting_.size(); ++i) {
    if (!waiting_[i]) continue;
    const Trained& trained = program_.trained[i];
    const double sum = sum_squares(trained);
    waiting_[i] = sum == 0;
    if (!waiting_[i]) continue;
    const bool late = trained.flags & GALLEY_TENSOR_LATE_GRADIENT;
    if (late ? learned_before(begin.applied - kSpan + 1) : begin.applied >= kSpan) none.push_back(trained.name);
  }
  if (none.empty()) return ok();
  return run_error(counted(none, program_.trained.size(), "trainable tensors got no gradient in any step up to ") +
                       std::to_string(begin.attempted) + ": " + listed(none, kNames),
                   "they do not train: see whether anything that reaches the loss reads them, or freeze them");
}

std::vector<std::string> Proof::without_gradient() const {
  std::vector<std::string> out;
  for (size_t i = 0; i < waiting_.size(); ++i)
    if (waiting_[i]) out.push_back(program_.trained[i].name);
  return out;
}

void Proof::restore(const std::vector<std::string>& without_gradient) {
  for (size_t i = 0; i < waiting_.size(); ++i)
    if (std::find(without_gradient.begin(), without_gradient.end(), program_.trained[i].name) == without_gradient.end())
      waiting_[i] = false;
}

// An update can be too small for the dtype: a norm's weight of 1 in BF16 does not feel a step of 1e-5. Neither the optimizer nor its size
// of step is known here; that no common one makes it smaller than lr · min(1, rms of the gradient), within a factor of 16, tells when
// rounding is no excuse.
Result<bool> Proof::rounding_holds(const Trained& trained, const ProofStep& begin) {
  const uint32_t dtype = program_.tensors[static_cast<size_t>(trained.parameter)].dtype;
  const double place = half_place(dtype);
  if (place == 0 || !trained.sum_squares.present()) return true;
  const double factor = executor_.scalar(GALLEY_SCALAR_GRADIENT_FACTOR);
  const double sum = sum_squares(trained);
  const double rms = factor * std::sqrt(sum / static_cast<double>(std::max<int64_t>(1, trained.count)));
  double largest = 0;
  TRY_STATUS(executor_.machine().show(trained.parameter, [&](std::span<const std::byte> bytes) -> Status {
    const int64_t width = std::max<int64_t>(1, galley_dtype_bytes(dtype));
    for (int64_t i = 0; i < static_cast<int64_t>(bytes.size()) / width; ++i) {
      double value = 0;
      convert(&value, GALLEY_F64, bytes.data() + i * width, dtype, 1);
      largest = std::max(largest, std::fabs(value));
    }
    return ok();
  }));
  return learning_rate(begin.applied) * std::min(1.0, rms) <= 16 * place * largest;
}

Status Proof::check_movement(const ProofStep& begin) {
  std::vector<std::string> still;
  TRY_STATUS(trained_checksums_.take(std::span(now_).first(before_.size())));
  for (size_t i = 0; i < pending_.size(); ++i) {
    if (!pending_[i]) continue;
    const Trained& trained = program_.trained[i];
    pending_[i] = now_[i] == before_[i];
    if (!pending_[i]) continue;
    const bool held = TRY(rounding_holds(trained, begin));
    if (!held) still.push_back(trained.name);
  }
  ++compared_;
  compares_ = false;
  if (still.empty()) return ok();
  return run_error(counted(still, program_.trained.size(), "trainable tensors got a gradient and did not move in step ") +
                       std::to_string(begin.attempted) + ": " + listed(still, kNames),
                   "the strategy that updates them does not write them");
}

std::vector<std::string> Proof::unmoved() const {
  std::vector<std::string> names;
  if (compared_ > 0)
    for (size_t i = 0; i < pending_.size(); ++i)
      if (pending_[i] && !waiting_[i]) names.push_back(program_.trained[i].name);
  return names;
}

}  // namespace galley
