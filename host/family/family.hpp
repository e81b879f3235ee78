// Runs model families: a family is a short Lua file that turns a Hugging Face configuration into a graph.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "host/base/value.hpp"
#include "host/graph/draft.hpp"
#include "host/recipe/recipe.hpp"

namespace galley {

/// The folders of Galley's own Lua: models/families/*.lua and models/lib/*.lua.
struct FamilyFolders {
  std::filesystem::path families;
  std::filesystem::path library;
};

struct ModelConfig {
  Table config;
  std::filesystem::path folder;  ///< the model's folder with its weights, or its GGUF file; empty if the recipe gives the configuration
  std::string origin;            ///< "DIR/config.json", "FILE.gguf" or "recipe.lua:3": for messages
  std::string model_type;
  bool random = false;                  ///< initialize instead of loading
  Learning learning;                    ///< what the model learns, by the family's task
  std::string architecture = {};        ///< the class of transformers as which it is saved
  std::vector<std::string> fresh = {};  ///< parameters that the files do not have and that begin anew; set by build_family()
  bool gguf = false;                    ///< weights and configuration come from a GGUF file
  int64_t added_rows = 0;               ///< of tables of the vocabulary, after those that the files have
};

/// The key of a configuration made from a GGUF file that has weights in blocks: the list of their types.
inline constexpr const char* kGgufTypes = "gguf_types";

/// Reads the configuration that a recipe names: config.json, or the keys of a GGUF file, and no weights. A model_type or an architecture
/// that no family knows is an error that lists those there are.
Result<ModelConfig> read_model_config(const Recipe& recipe, const FamilyFolders& folders);

/// Says whether a row of a micro-batch has one document. Then the loader's input "first_key" would be 0 throughout: the model is built
/// without it, so that the planner knows attention to be plainly causal.
enum class RowDocuments : uint8_t { One, Several };

/// Runs the family on the configuration and closes Lua again: fills `draft` with the forward section, and the configuration with every
/// value that the family takes where it says nothing, and with the architecture, so that other programs read the same model from it. A key
/// that the family neither reads nor declares harmless is an error by name. [main-thread] [plan-time]
Status build_family(ModelConfig& model, const FamilyFolders& folders, RowDocuments documents, Draft& draft);

/// Adds the config.json that is saved with the model: the configuration as build_family() has left it, with the dtype of the saved weights
/// ("float32") and the keys that strategies set.
void describe_model(const ModelConfig& model, const std::string& dtype, const std::vector<ConfigKey>& keys,
                    std::vector<Document>& documents);

}  // namespace galley
