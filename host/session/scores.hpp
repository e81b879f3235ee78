// Compares the labels that a model gives with those of the data: accuracy, F1 and confusion of one validation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace galley {

/// Returns the class with the largest logit; of equal ones the first.
size_t likeliest(std::span<const float> logits);

class Scores {
 public:
  /// `several` says that a place may have any number of labels; the model then gives each label whose logit is above 0.
  Scores(size_t classes, bool several) : classes_(classes), several_(several), counts_(several ? 4 * classes : classes * classes) {}

  void clear();
  /// Adds a place with one label.
  void add(std::span<const float> logits, int32_t label);
  /// Adds a place that has a class if its element of `labels` is 1, and not if it is 0.
  void add(std::span<const float> logits, std::span<const int32_t> labels);

  /// Returns the share of places whose label is right, or whose labels all are; 0 if there are no places.
  double accuracy() const { return places_ ? static_cast<double>(right_) / static_cast<double>(places_) : 0; }
  /// Returns the mean over classes of F1 = 2 TP / (2 TP + FP + FN) (macro). Of classes that are neither in the data nor given, it leaves
  /// out those of places with one label, and counts the others as 0.
  double f1() const;
  int64_t places() const { return places_; }
  size_t classes() const { return classes_; }
  bool several() const { return several_; }
  /// Returns how often the model gave `given` where `label` is right, for places with one label.
  int64_t said(size_t label, size_t given) const { return counts_[label * classes_ + given]; }
  /// The counts of one class.
  struct Counts {
    int64_t true_positive = 0, false_positive = 0, false_negative = 0;
    double f1() const;
  };
  Counts counts(size_t label) const;
  /// Returns all counts, for adding up those of other processes; take() puts the sums in their place.
  std::vector<double> numbers() const;
  void take(std::span<const double> numbers);

 private:
  size_t classes_;
  bool several_;
  std::vector<int64_t> counts_;  ///< (classes, classes); if `several`, (classes, 4): not there and not given, given, there, both
  int64_t places_ = 0, right_ = 0;
};

}  // namespace galley
