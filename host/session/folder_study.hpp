// What people name where a command takes a folder: a run, a model, or an adapter in PEFT's format.
#pragma once

#include <filesystem>
#include <memory>

#include "host/session/session.hpp"

namespace galley {

enum class FolderKind : uint8_t { Run, Model, Adapter };

/// By the file that lies in it: run.toml, adapter_config.json or config.json. None of them, or no such folder, is exit code Recipe.
Result<FolderKind> kind_of_folder(const std::filesystem::path& folder);

/// The next step where there is no such folder: one that looks like the name of a model on the Hugging Face hub is not looked for there.
std::string missing_folder_hint(const std::filesystem::path& folder);

struct FolderOptions {
  std::filesystem::path base;  ///< of an adapter: its base model's folder; "": the one that adapter_config.json names
  int64_t length = 0;          ///< positions of a row; 0: 512, or all of a model's where it has fewer; a run has its recipe's
};

/// A folder that is studied to sample or to export, and where the weights are that its files do not hold.
struct FolderStudy {
  std::unique_ptr<Study> study;
  std::filesystem::path state;  ///< of a run: the state to take weights from; "": all were loaded

  /// Opens it, and takes the weights.
  Result<std::unique_ptr<Session>> open(const SessionOptions& options = {}) const;
};

/// Of a model or an adapter, a recipe of Galley's own stands for the one that it lacks. To export, the final model or adapter of a run
/// stands for a state that has been removed.
Result<FolderStudy> study_folder(const std::filesystem::path& folder, const FolderOptions& given, StudyOptions options);

}  // namespace galley
