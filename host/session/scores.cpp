#include "host/session/scores.hpp"

#include <algorithm>

namespace galley {

size_t likeliest(std::span<const float> logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

std::vector<double> Scores::numbers() const {
  std::vector<double> out(counts_.begin(), counts_.end());
  out.push_back(static_cast<double>(places_));
  out.push_back(static_cast<double>(right_));
  return out;
}

void Scores::take(std::span<const double> numbers) {
  for (size_t i = 0; i < counts_.size(); ++i) counts_[i] = static_cast<int64_t>(numbers[i]);
  places_ = static_cast<int64_t>(numbers[counts_.size()]);
  right_ = static_cast<int64_t>(numbers[counts_.size() + 1]);
}

void Scores::clear() {
  std::fill(counts_.begin(), counts_.end(), 0);
  places_ = right_ = 0;
}

void Scores::add(std::span<const float> logits, int32_t label) {
  const size_t given = likeliest(logits), right = static_cast<size_t>(label);
  ++places_;
  right_ += given == right;
  ++counts_[right * classes_ + given];
}

void Scores::add(std::span<const float> logits, std::span<const int32_t> labels) {
  bool right = true;
  for (size_t c = 0; c < classes_; ++c) {
    const bool there = labels[c] == 1, given = logits[c] > 0;
    right = right && there == given;
    ++counts_[4 * c + 2 * static_cast<size_t>(there) + static_cast<size_t>(given)];
  }
  ++places_;
  right_ += right;
}

double Scores::Counts::f1() const {
  const int64_t all = 2 * true_positive + false_positive + false_negative;
  return all ? 2 * static_cast<double>(true_positive) / static_cast<double>(all) : 0;
}

Scores::Counts Scores::counts(size_t label) const {
  if (several_) return {counts_[4 * label + 3], counts_[4 * label + 1], counts_[4 * label + 2]};
  Counts out = {said(label, label), 0, 0};
  for (size_t other = 0; other < classes_; ++other) {
    if (other == label) continue;
    out.false_positive += said(other, label);
    out.false_negative += said(label, other);
  }
  return out;
}

double Scores::f1() const {
  double sum = 0;
  int64_t n = 0;
  for (size_t c = 0; c < classes_; ++c) {
    const Counts of = counts(c);
    if (!several_ && of.true_positive + of.false_positive + of.false_negative == 0) continue;
    sum += of.f1();
    ++n;
  }
  return n ? sum / static_cast<double>(n) : 0;
}

}  // namespace galley
