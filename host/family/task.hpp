// Which family a model is of, what the model is to do, and what it learns from then.
#pragma once

#include <string>

#include "host/family/lua_file.hpp"

namespace galley {

/// The family that knows a model_type; an error lists all of them.
Result<Family> find_family(const std::string& model_type, const FamilyFolders& folders, const std::string& origin);

/// One thing that models of a family do: an entry of its list `tasks`, or what a family without one does.
struct Task {
  std::string name;          ///< "masked-lm"
  std::string architecture;  ///< of transformers, for the model's type; "": none is saved
  Fill labels = Fill::NextTokens;
  bool learns = true;    ///< false: there are no labels
  bool several = false;  ///< a row may have several labels
};

/// What the recipe says, else what the configuration was saved for, else the usual.
Result<Task> choose_task(Family& family, const Recipe& recipe, const ModelConfig& model);

/// What it learns from then. The recipe's labels go into the configuration.
Result<Learning> learning_of(const Task& task, const Recipe& recipe, Table& config);

}  // namespace galley
