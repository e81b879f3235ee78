// The parameters of an adapter, and what it trains of the model itself: biases, and whole modules. They lie in one file, under PEFT's
// names.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "peft/modules.hpp"

namespace galley::peft {

/// The header of an adapter_model.safetensors. Throws sdk::Failure with one line that names the file.
struct AdapterFile {
  AdapterFile() = default;
  explicit AdapterFile(const std::string& path);
  bool there() const { return !tensors.empty(); }
  std::string path;
  Stored tensors;
};

/// How a parameter begins where no file says it: as what `op` makes of `from`, or as zeros.
struct Begin {
  const char* op = nullptr;
  std::vector<galley_tensor> from = {};
  sdk::Attrs attrs = {};
  bool optional = false;  ///< a file need not hold it
};

/// While the model is rewritten.
class Parts {
 public:
  /// `saved_with` says by which module that is trained whole a module is saved: the name of the outermost, or "".
  Parts(sdk::ModelGraph& graph, const AdapterFile& file, std::function<std::string(const std::string&)> saved_with)
      : graph_(graph), file_(file), saved_with_(std::move(saved_with)) {}

  /// A parameter of this name, from the adapter's file where there is one. One with a gradient that is zero at first has it at once then.
  galley_tensor make(const std::string& name, const std::vector<int64_t>& shape, uint64_t flags, const Begin& begin);
  /// Whole modules that are trained: parameters of the adapter's own in the place of the model's, which begin as these. Returns the names
  /// of the modules, and in `all` those of every module.
  std::vector<std::string> take_modules(std::vector<std::string>* all);
  /// Biases that are trained, likewise: of the modules that are adapted, or all.
  enum class Biases { Adapted, All };
  void take_biases(const std::vector<const Module*>& adapted, Biases which);
  /// What the file may hold and is made anew.
  void leave(const std::string& name);
  /// What is left over in the file would be lost. PEFT puts the weight of an adapted head into it, and embeddings if it was asked to; such
  /// a tensor has to hold the model's own numbers, since what is saved here leaves it out.
  void check_all_used(const std::vector<Module>& modules, const char* strategy);

 private:
  void refuse_unread(const Owned& o) const;
  [[noreturn]] void refuse_left(const std::string& name, const std::string& why, const std::string& hint) const;
  bool is_left_model(const std::string& name, const std::vector<int64_t>& stored, const std::vector<Module>& modules);
  galley_tensor own(const std::string& name, galley_tensor of, uint64_t flags, bool optional = false);
  void replace_tied(const Owned& o, galley_tensor taken);

  sdk::ModelGraph& graph_;
  const AdapterFile& file_;
  std::function<std::string(const std::string&)> saved_with_;
  std::map<std::string, std::string> second_;  ///< names in the file that stand for one tensor
  std::set<std::string> used_;
};

/// Claims what an adapter trains: its own parameters, but for the `fixed` ones. Another adapter's are not trained: a folder holds one, and as
/// each claims so strongly, the host names both. The model's own are not, weakly: `freeze` may say that some are trained beside the adapter.
void claim_adapter(const sdk::Claims& claims, const char* strategy, const std::set<std::string>& fixed = {});
/// Whether a parameter of the model itself is trained.
bool trains_model(const sdk::GraphReader& graph);
/// Whether there is a parameter of an adapter whose name ends so.
bool has_own(const sdk::GraphReader& graph, const std::string& end);
/// While exporting: the adapter alone, or with the model where more of it is trained, which its configuration then says (document_trained).
void save(sdk::ExportGraph& graph);

/// While exporting one model.
class Merge {
 public:
  explicit Merge(sdk::ExportGraph& graph);
  /// `value` in the place of a layer's weight. A head whose weight is the embedding's table gets one of its own: the model that is saved
  /// says in config.json that they are two.
  void weight(const Module& m, galley_tensor value);
  /// What `take_modules` and `take_biases` have made goes into the model's own parameters. `own`: words between dots that the adapter's
  /// other parameters have in their names.
  void taken(const std::vector<const char*>& own);

 private:
  void untie(const std::string& head, galley_tensor value);
  galley_tensor own_head() const;
  sdk::ExportGraph& graph_;
  std::vector<Module> modules_;
  std::set<std::string> untied_;
};

}  // namespace galley::peft
