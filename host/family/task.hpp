// Finds the family of a model, the task that it has, and what it learns from.
#pragma once

#include <string>

#include "host/family/lua_file.hpp"

namespace galley {

/// Returns the family that knows a model_type; an error lists all of them.
Result<Family> find_family(const std::string& model_type, const FamilyFolders& folders, const std::string& origin);

/// A task of a family's models: an entry of its list `tasks`, or the task of a family without one.
struct Task {
  std::string name;          ///< "masked-lm"
  std::string architecture;  ///< the class of transformers for the model's type; "": none is saved
  Fill labels = Fill::NextTokens;
  bool learns = true;    ///< false: there are no labels
  bool several = false;  ///< a row may have several labels
};

/// Returns the task that the recipe names, else the one that the configuration was saved for, else the usual one.
Result<Task> choose_task(Family& family, const Recipe& recipe, const ModelConfig& model);

/// Returns what the model learns from with a task. Writes the recipe's labels into the configuration.
Result<Learning> learning_of(const Task& task, const Recipe& recipe, Table& config);

}  // namespace galley
