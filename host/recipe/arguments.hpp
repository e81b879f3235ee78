// The arguments of a recipe: arg("name", default) in its text, --set name=value on the command line.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/base/value.hpp"

namespace galley {

/// Remembers what a recipe asks for. Used by one thread at a time.
class Arguments {
 public:
  explicit Arguments(std::map<std::string, std::string> sets) : sets_(std::move(sets)) {}

  /// Returns the argument's value, in the type of `otherwise`: boolean ("true", "false"), integer, number, or string; a string if
  /// `otherwise` is nil. An argument that is neither given nor has a default is remembered and gives "" until finish() reports it, so that
  /// one run finds all of them.
  Result<Value> ask(const std::string& name, const Value& otherwise, const Place& place);

  bool missing() const { return !missing_.empty(); }
  /// Checks for names on the command line that nobody asked for, and for missing arguments: the error lists all arguments. `names` are
  /// further arguments of the recipe that it may not have come to; `always` may be given though no recipe asks for them; `file` is the
  /// recipe as the user typed it; `library` has what other trainers call arguments (foreign.hpp).
  Status finish(const std::string& file, const std::filesystem::path& library, const std::vector<std::string>& names,
                const std::vector<std::string>& always) const;

  /// Returns the values that were given for arguments that are strings: they may name files anywhere.
  const std::vector<std::string>& given_texts() const { return given_texts_; }

 private:
  std::string usage(const std::vector<std::string>& names) const;

  std::map<std::string, std::string> sets_;
  std::vector<std::string> asked_;               // names, in the order of the recipe
  std::map<std::string, std::string> defaults_;  // of those that have one
  std::vector<std::pair<std::string, Place>> missing_;
  std::vector<std::string> given_texts_;
};

}  // namespace galley
