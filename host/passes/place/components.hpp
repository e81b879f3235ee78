// The components that a format makes of a tensor's numbers, and the ops that other ops and formats name.
#pragma once

#include <string>
#include <vector>

#include "host/graph/graph.hpp"
#include "host/plugins/loader.hpp"

namespace galley {

struct Component {
  std::string suffix;  ///< what the component's name has after the tensor's
  uint32_t dtype = GALLEY_F32;
  Shape shape;
  int64_t numbers = 0;    ///< how many of the tensor's numbers one element stands for
  std::string file_name;  ///< as in galley_component; "": the tensor's name and the suffix
  bool in_files = true;   ///< whether files have it
};

/// What a file calls a component of the tensor that it calls `tensor`.
std::string name_in_file(const Component& component, const std::string& tensor);

/// The components of a tensor in a format, if its shape were `shape`: its own, or that of a piece of it. An answer that makes no sense is
/// exit code Plugin.
Result<std::vector<Component>> components_of(Plugins& plugins, const GraphTensor& t, const Shape& shape);

/// The op of this name; exit code Plugin names `needed_by` where no plugin has it.
Result<const galley_op*> op_named(Plugins& plugins, const std::string& name, const std::string& needed_by);

/// What is left of `value` in the format of `of`, which has its shape and dtype: a tensor that two new nodes make.
Result<galley_tensor> pack_and_unpack(Graph& graph, Plugins& plugins, galley_tensor of, galley_tensor value);

}  // namespace galley
