// Asks formats for the components that they make of a tensor's numbers, and finds ops that other ops and formats name.
#pragma once

#include <string>
#include <vector>

#include "host/graph/graph.hpp"
#include "host/passes/cuts.hpp"
#include "host/plugins/loader.hpp"

namespace galley {

struct Component {
  std::string suffix;  ///< comes after the tensor's name in the component's
  uint32_t dtype = GALLEY_F32;
  Shape shape;
  int64_t numbers = 0;    ///< how many of the tensor's numbers one element stands for
  std::string file_name;  ///< as in galley_component; "": the tensor's name and the suffix
  bool in_files = true;   ///< whether files have it
};

/// Returns whether processes have parts of a component of a tensor that is divided so. If not, each has the whole component.
bool divides(const Cut& cut, const Component& component);
/// Returns the element of such a component with which the numbers from `number` on begin.
int64_t element_at(const Cut& cut, const Component& component, int64_t number);

/// Returns a component's name in a file that calls its tensor `tensor`.
std::string name_in_file(const Component& component, const std::string& tensor);

/// Returns the components of a tensor in its format, for the tensor's own shape or that of a piece of it. An answer that makes no sense is
/// exit code Plugin.
Result<std::vector<Component>> components_of(Plugins& plugins, const GraphTensor& t, const Shape& shape);

/// Returns the op of this name. If no plugin has it, the error (exit code Plugin) names `needed_by`.
Result<const galley_op*> op_named(Plugins& plugins, const std::string& name, const std::string& needed_by);

/// Appends two nodes that pack `value` into the format of `of` and unpack it again; returns the result. Shape and dtype are the same.
Result<galley_tensor> pack_and_unpack(Graph& graph, Plugins& plugins, galley_tensor of, galley_tensor value);

}  // namespace galley
