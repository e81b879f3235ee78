// The options of one `use`, held against the manifest before anything of the plugin is loaded.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "galley/entry.h"
#include "host/base/result.hpp"
#include "host/plugins/manifest.hpp"
#include "host/recipe/recipe.hpp"

namespace galley {

/// Immutable once made. Stays where it is, because the plugin keeps pointers into it.
class Options {
 public:
  /// Unknown names, wrong types, values out of range, schedules where none may be, required options that are missing and paths that do
  /// not exist are errors with the recipe's line, exit code Recipe. Paths are absolute already. `owner`: for messages; "": the strategy.
  static Result<std::unique_ptr<const Options>> create(const StrategySpec& spec, const Use& use, const std::string& owner = {});

  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  /// For `create`; lives as long as this.
  const galley_options* table() const { return &table_; }
  /// Every option that has a value, defaults included, in the form of OptionSpec::accept; paths absolute.
  const Table& values() const { return values_; }
  /// Null when it was not given and has no default.
  const Value* find(std::string_view name) const;
  /// Null when the option does not follow a schedule.
  const Schedule* schedule(std::string_view name) const;
  /// The number at a step (from 1), whether scheduled or not; none for an option that is no number or has no value.
  std::optional<double> number(std::string_view name, int64_t step) const;
  /// An option that the plugin has asked for as another type than its manifest says; "": none.
  const std::string& misread() const { return misread_; }
  void note_misread(const char* name) const { misread_ = name; }
  /// The options that the plugin has asked for, in `create` and by verbs of graphs; those that are not there, too.
  const std::set<std::string>& asked() const { return asked_; }
  void note_asked(const std::string& name) const { asked_.insert(name); }

 private:
  explicit Options(Table values);
  static const galley_options* table_at(const void* handle, const char* name, uint64_t index);
  Table values_;
  galley_options table_ = {};
  std::map<std::string, std::vector<std::unique_ptr<const Options>>> tables_;  ///< of options that are lists of tables
  mutable std::string misread_;
  mutable std::set<std::string> asked_;
};

}  // namespace galley
