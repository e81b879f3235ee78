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
  std::vector<Observer*> observers = {};              ///< told in this order
  std::vector<const LoadedStrategy*> listeners = {};  ///< told as those of the recipe are
  /// Lets the model write the texts of the recipe's `evaluate`; `after` is called after each batch.
  std::function<Result<TextsEvent>(Session&, const std::function<Status(int64_t done, int64_t all)>& after)> write = {};
  /// Asked between steps; true: finish those that are enqueued, save, and end with exit code Interrupted. False: the steps up to `goal`
  /// will be done before it is asked again; 0: none.
  std::function<bool(int64_t goal)> stop = {};
  int64_t until = 0;  ///< save and end after this step, as if it had been interrupted there; 0: the last one
};

/// Opens the data. Called at most once, and not where nothing is left to do.
using OpenSource = std::function<Result<std::unique_ptr<Source>>()>;

/// Trains from where the directory's newest state is, or from the beginning, to the recipe's last step, saves and exports. With `until`
/// before the last step it saves there and is done; where that has been reached, it does nothing.
Status train(const Study& study, const OpenSource& open, const std::filesystem::path& directory, const TrainOptions& options);

/// Whether a run has ended with the step of its newest state, before the recipe's last one.
Result<bool> ends_with(const Study& study, const std::filesystem::path& latest);

/// Whether a run of this study, which saves at the end, has done all steps, or ended before, and is exported.
Result<bool> is_complete(const Study& study, const std::filesystem::path& directory);

}  // namespace galley
