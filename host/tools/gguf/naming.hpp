// Asks a model's family how GGUF files call what a configuration and its parameters are: the field `gguf` of the family's table, whose
// functions `write(config)` and `tensor(name, config)` docs/families.md describes.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "host/base/value.hpp"
#include "host/family/lua_file.hpp"

namespace galley {

/// What a file says of a model beside its parameters and its tokens.
struct GgufModel {
  std::string architecture;
  std::vector<std::pair<std::string, Value>> keys;  ///< in the order in which they are written
  Table vectors;                                    ///< by name: the numbers of vectors that are no parameters
  std::vector<std::string> notes;                   ///< what a reader of the file would not expect
};

/// A family that writes GGUF files. Used by one thread.
class GgufNaming {
 public:
  /// Finds the family of a model type and has it describe a configuration in which every default is filled in. A family that writes no such
  /// files, and a configuration that llama.cpp would compute otherwise, are errors of exit code Recipe; `what` begins their text.
  static Result<GgufNaming> create(const std::string& model_type, const FamilyFolders& folders, const Table& config,
                                   const std::string& what);

  const GgufModel& model() const { return model_; }
  /// A parameter's name in the file, and what the file has otherwise.
  struct Named {
    std::string name;
    tensor_files::FileForm form;
  };
  Result<Named> tensor(const std::string& parameter);
  /// What a file says of an adapter of the model, and its tensors by their names in the adapter's folder. `about` is adapter_config.json,
  /// `shapes` are those of the tensors, none of them to ask only whether such an adapter is written. One that is not is exit code Recipe.
  struct Adapter {
    std::vector<std::pair<std::string, Value>> keys;
    std::map<std::string, Named> tensors;
  };
  Result<Adapter> adapter(const Value& about, const Table& shapes);

 private:
  GgufNaming(Family family, Table config) : family_(std::move(family)), config_(std::move(config)) {}
  Family family_;
  Value config_;
  GgufModel model_;
};

}  // namespace galley
