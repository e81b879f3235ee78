// The draft of a program: the graph, what families and strategies are told of the run, and what they note beside the graph. Passes turn it
// into a program.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "host/base/fill.hpp"
#include "host/graph/axes.hpp"
#include "host/graph/graph.hpp"
#include "host/graph/step_scalars.hpp"
#include "host/plan/target.hpp"

namespace galley {

/// The run for which the graph is made.
struct RunOf {
  int64_t steps = 0;          ///< 0: by epochs
  int64_t micro_batches = 0;  ///< 0: not decided yet
  uint32_t purpose = GALLEY_PURPOSE_EVAL;
  std::optional<TargetView> target;           ///< not given: the graph is made for no run
  std::string model_files;                    ///< the model's safetensors file or folder; "": it has none
  std::map<std::string, std::string> config;  ///< the model's config.json, as JSON text by key
  std::shared_ptr<const Axes> axes = std::make_shared<const Axes>(1, 0);
  std::vector<OwnInput> own_inputs;  ///< what the data of a plugin brings besides
};

/// The factors by which strategies multiply the learning rates of single parameters.
struct Rates {
  std::map<galley_tensor, double> factors;
  std::set<galley_tensor> asked;  ///< parameters whose update has asked for its rate
  /// Multiplies the learning rate of a parameter. Must be called before its update is built.
  Status scale(const Graph& graph, galley_tensor parameter, double factor);
};

/// A tensor that a strategy reports as a metric of the step.
struct Reported {
  galley_tensor tensor = 0;
  std::string name;
  int use = no_use;
};

/// A flag (I32, one element) that ends the run when it is not 0 after an update.
struct Stop {
  galley_tensor tensor = 0;
  std::string cause, hint;
  int use = no_use;
  bool done = false;  ///< nothing has failed: the run ends as after its last step
};

/// The tensors that the host reads after each step.
struct Signals {
  std::vector<Reported> reports;
  std::vector<Stop> stops;
  /// Makes a tensor of one number a metric of the step, for the graph's author.
  Status report(const Graph& graph, galley_tensor t, const std::string& name);
};

/// The value that replaces a parameter when the model is saved or evaluated.
struct ExportedValue {
  galley_tensor parameter = 0;
  galley_tensor value = 0;
};

/// A tensor that is saved with the model under a name of its own.
struct ExportedTensor {
  std::string name;
  galley_tensor value = 0;
};

/// A key of config.json and its value, as JSON.
struct ConfigKey {
  std::string key, json;
  int use = no_use;
};

/// What strategies have decided about the files that a run writes.
struct Exports {
  uint32_t model = GALLEY_EXPORT_BOTH;  ///< which parameters are saved
  bool said = false;                    ///< a strategy has set `model`
  std::vector<ExportedValue> values;
  std::set<galley_tensor> in_format;  ///< parameters that are saved as the components of their formats
  std::vector<Document> documents;
  std::vector<ConfigKey> config;
  std::vector<ExportedTensor> tensors;  ///< tensors that are saved beside the parameters

  /// Notes what a strategy wants in `model`. Of several strategies, the one that wants more of the model decides.
  void say(uint32_t what) {
    model = said ? std::max(model, what) : what;
    said = true;
  }
  /// Returns the parameters that are saved.
  std::vector<galley_tensor> saved(const Graph& graph) const;
};

/// The value with which a parameter or state begins, or a component of its format.
struct Beginning {
  galley_tensor value = 0;
  int use = no_use;
};

/// Beginnings by tensor and component. GALLEY_BEGIN_NUMBERS gives all of a tensor's numbers: then it has no other.
using Beginnings = std::map<galley_tensor, std::map<uint32_t, Beginning>>;

struct Draft {
  /// Makes an empty graph; see Graph.
  Draft(OpLookup ops, std::function<std::vector<std::string>()> op_names, const Extents& extents)
      : graph(std::move(ops), std::move(op_names), extents), scalars(graph) {}

  Graph graph;
  StepScalars scalars;
  RunOf run;
  std::vector<std::string> ignored_files;  ///< patterns of tensors in the model's files that are not read
  Rates rates;
  Signals signals;
  std::vector<ExportedValue> evaluated;  ///< the values that replace parameters when the model is evaluated or saved
  Exports exports;
  Beginnings beginnings;

  /// Returns an input of the model: one that it reads already, or one that the data brings by this name.
  Result<galley_tensor> input(const std::string& name);
  /// Returns the values that are saved in the place of parameters: what `export_as` says, else what they are evaluated with.
  std::map<galley_tensor, galley_tensor> saved_values() const;
};

}  // namespace galley
