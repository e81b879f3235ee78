// A run in a directory: from where its newest state is to the recipe's last step, with validation, saving and export as the recipe says.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "host/session/session.hpp"

namespace galley {

struct TrainOptions {
  SessionOptions session = {};
  std::vector<Observer*> observers = {};  ///< told in this order
  std::function<bool()> stop = {};        ///< asked between steps; true: save and end with exit code Interrupted
};

/// Opens the data. Called at most once, and not where nothing is left to do.
using OpenSource = std::function<Result<std::unique_ptr<Source>>()>;

/// Trains from where the directory's newest state is, or from the beginning, to the recipe's last step, saves and exports.
Status train(const Study& study, const OpenSource& open, const std::filesystem::path& directory, const TrainOptions& options);

}  // namespace galley
