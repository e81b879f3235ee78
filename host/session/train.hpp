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

/// Trains from where the directory's newest state is, or from the beginning, to the recipe's last step, saves and exports. Where nothing is
/// left to do, says so and opens nothing. Without a source (null) opens it by `open`.
Status train(const Study& study, std::unique_ptr<Source> source, const std::function<Result<std::unique_ptr<Source>>()>& open,
             const std::filesystem::path& directory, const TrainOptions& options);

}  // namespace galley
