// How the labels that a model gives compare with those of the data: accuracy, F1 and confusion of one validation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace galley {

/// The class of the largest logit; of equal ones the first.
size_t likeliest(std::span<const float> logits);

class Scores {
 public:
  /// `several`: a place may have any number of labels; one that the model gives has a logit above 0.
  Scores(size_t classes, bool several) : classes_(classes), several_(several), counts_(several ? 4 * classes : classes * classes) {}

  void clear();
  /// A place has one label.
  void add(std::span<const float> logits, int32_t label);
  /// For each class, whether the place has it: 1 or 0.
  void add(std::span<const float> logits, std::span<const int32_t> labels);

  /// The share of places whose label, or all of whose labels, are right; 0 where there is none.
  double accuracy() const { return places_ ? static_cast<double>(right_) / static_cast<double>(places_) : 0; }
  /// The mean over classes of F1 = 2 TP / (2 TP + FP + FN) (macro). One label a place: classes that are neither in the data nor given are
  /// left out. Several: such a class counts as 0.
  double f1() const;
  int64_t places() const { return places_; }
  size_t classes() const { return classes_; }
  bool several() const { return several_; }
  /// One label a place: how often `given` was said where `label` is right.
  int64_t said(size_t label, size_t given) const { return counts_[label * classes_ + given]; }
  /// Of one class.
  struct Counts {
    int64_t true_positive = 0, false_positive = 0, false_negative = 0;
    double f1() const;
  };
  Counts counts(size_t label) const;

 private:
  size_t classes_;
  bool several_;
  std::vector<int64_t> counts_;  ///< (classes, classes); `several`: (classes, 4): not there and not given, given, there, both
  int64_t places_ = 0, right_ = 0;
};

}  // namespace galley
