// Locks a plan in a file, and compares another plan with it: what takes more, and what less.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/base/value.hpp"
#include "host/plan/program.hpp"
#include "host/session/study.hpp"

namespace galley {

/// A tensor of a plan as a lock remembers it.
struct LockedTensor {
  std::string memory;  ///< the name of the memory class
  std::string within;  ///< "run", "window", or the segment in which it lives
  std::string name, owner;
  int64_t bytes = 0;
  bool peak = false;  ///< it is in use at the peak of its memory class
  size_t column = 0;  ///< of a plan: which of tensor_columns() it is
};

struct LockedClass {
  std::string name;
  int64_t planned = 0;
  std::array<int64_t, owner_names.size()> owners = {};  ///< bytes at the peak
};

struct LockedPlan {
  std::string galley, machine;  ///< the version, and "cpu (avx2)"
  std::vector<LockedClass> classes;
  std::vector<LockedTensor> tensors;
};

/// Returns what is locked of a plan.
LockedPlan locked_plan(const Study& study);
/// Returns it as JSON, one tensor on each line in the program's order, so that versions of the file can be compared.
std::string lock_text(const LockedPlan& plan);
/// Reads a locked plan. Exit code Recipe if there is no such file, or it is no locked plan.
Result<LockedPlan> read_lock(const std::filesystem::path& file);

struct TensorChange {
  static constexpr size_t kGone = SIZE_MAX;
  std::string name, memory, owner, owner_was;
  int64_t bytes = 0, was = 0;
  bool is_new = false;
  bool peak = false, peak_was = false;
  size_t column = kGone;
  /// Returns the bytes that it adds at the peak.
  int64_t at_peak() const { return (peak ? bytes : 0) - (peak_was ? was : 0); }
  /// "new", "gone", "joins the peak", "leaves the peak", "grew", "shrank", or "now saved" where it has another owner.
  std::string kind() const;
};

struct PlanChange {
  struct OfClass {
    LockedClass now, was;
  };
  std::string machine, machine_was, galley_was;
  std::vector<OfClass> classes;       ///< of both plans
  std::vector<TensorChange> tensors;  ///< those that changed: by what they add to the peak, then by bytes, the largest first
  bool grew() const;                  ///< a memory class has more planned bytes
};

/// Compares two plans. Tensors are the same if memory, segment and name are; several such tensors are compared in their order.
PlanChange change_of(const LockedPlan& now, const LockedPlan& was);

/// {file, machine, machine_was, galley_was, classes: [{name, planned, was, owners: {saved: {bytes, was}}}], tensors: [{name, memory, owner,
/// owner_was, bytes, was, at_peak, kind, column}]}; of what is new, owner_was and was are null, of what is gone column is.
Value change_json(const PlanChange& change, const std::string& file);
/// Returns a change in lines of at most `columns`.
std::string change_text(const PlanChange& change, const std::string& file, size_t columns);

}  // namespace galley
