// Studies the folder that a person names in a command: a run, a model, or an adapter in PEFT's format.
#pragma once

#include <filesystem>
#include <memory>

#include "host/session/session.hpp"

namespace galley {

enum class FolderKind : uint8_t { Run, Model, Adapter };

/// Tells a folder by the file in it: run.toml, adapter_config.json or config.json. None of them, or no such folder, is exit code Recipe.
Result<FolderKind> kind_of_folder(const std::filesystem::path& folder);

/// Returns the hint for a folder that is not there: Galley does not look for a name like those of models on the Hugging Face hub there.
std::string missing_folder_hint(const std::filesystem::path& folder);

struct FolderOptions {
  std::filesystem::path base;  ///< the folder of an adapter's base model; "": the one that adapter_config.json names
  int64_t length = 0;          ///< positions of a row; 0: 512, or all of a model's if it has fewer; a run has its recipe's
};

/// The study of a folder, to sample or to export, and the state with the weights that its files do not hold.
struct FolderStudy {
  std::unique_ptr<Study> study;
  std::filesystem::path state;  ///< the state of a run from which weights are loaded; "": all were loaded

  /// Opens a session and loads the state's weights.
  Result<std::unique_ptr<Session>> open(const SessionOptions& options = {}) const;
};

/// Studies a folder. A model or an adapter has no recipe: one of Galley's own replaces it. For an export, the final model or adapter of a
/// run replaces a state that has been removed.
Result<FolderStudy> study_folder(const std::filesystem::path& folder, const FolderOptions& given, StudyOptions options);

}  // namespace galley
