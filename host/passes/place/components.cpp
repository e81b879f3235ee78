#include "host/passes/place/components.hpp"

#include <algorithm>

#include "galley/format.h"
#include "host/base/printable.hpp"
#include "host/plugins/abi.hpp"
#include "host/plugins/call.hpp"
#include "host/plugins/library.hpp"

namespace galley {
namespace {

bool makes_sense(const galley_component& c) {
  return c.suffix && c.rank <= GALLEY_MAX_RANK && galley_dtype_bytes(c.dtype) && c.numbers >= 0 &&
         std::all_of(c.extents, c.extents + c.rank, [](int64_t extent) { return extent >= 0; });
}

/// What is saved of a component is found by its suffix.
Status check_components(const galley_component* components, uint32_t n, const std::string& format, const std::string& tensor) {
  for (uint32_t i = 0; i < n; ++i)
    if (!makes_sense(components[i]))
      return plugin_error(format + ": component " + std::to_string(i + 1) + " of '" + tensor +
                          "' has no suffix, or a shape or dtype that makes no sense");
  for (uint32_t i = 0; i < n; ++i)
    for (uint32_t other = 0; other < i; ++other)
      if (galley_same_text(components[i].suffix, components[other].suffix))
        return plugin_error(format + ": components " + std::to_string(other + 1) + " and " + std::to_string(i + 1) + " of '" + tensor +
                                "' have one suffix, '" + printable(components[i].suffix, Lines::Escape) + "'",
                            "what is saved of a component is found by it");
  return ok();
}

}  // namespace

bool divides(const Cut& cut, const Component& component) { return component.numbers > 0 || cut.owned(); }

int64_t element_at(const Cut& cut, const Component& component, int64_t number) {
  if (number == 0) return 0;
  return number == cut.ends.back() ? elements(component.shape) : number / component.numbers;
}

std::string name_in_file(const Component& component, const std::string& tensor) {
  if (component.file_name.empty()) return tensor + component.suffix;
  std::string out = component.file_name;
  if (const size_t star = out.find('*'); star != std::string::npos) out.replace(star, 1, tensor.substr(0, tensor.rfind('.')));
  return out;
}

Result<std::vector<Component>> components_of(Plugins& plugins, const GraphTensor& t, const Shape& shape) {
  const Registered<galley_format> format = plugins.format(t.storage.format);
  galley_component components[GALLEY_MAX_COMPONENTS];
  galley_component* pointers[GALLEY_MAX_COMPONENTS];
  for (size_t i = 0; i < GALLEY_MAX_COMPONENTS; ++i) {
    components[i] = new_struct<galley_component>();
    components[i].suffix = "";
    pointers[i] = &components[i];
  }
  uint32_t n = 0;
  const auto attrs = t.storage.attrs.view();
  TRY_STATUS(call_plugin(format.caller(), "format '" + t.storage.format + "' cannot store '" + t.name + "'", [&](galley_error* error) {
    return format.table->components(format.table->self, shape.data(), static_cast<uint32_t>(shape.size()), attrs.data(),
                                    static_cast<uint32_t>(attrs.size()), pointers, &n, error);
  }));
  if (n == 0 || n > GALLEY_MAX_COMPONENTS)
    return plugin_error("format '" + t.storage.format + "' makes " + std::to_string(n) + " components of '" + t.name + "'");
  TRY_STATUS(check_components(components, n, "format '" + t.storage.format + "' of plugin '" + format.plugin->manifest.id + "'", t.name));
  std::vector<Component> out;
  for (uint32_t i = 0; i < n; ++i) {
    const galley_component& c = components[i];
    const bool named = c.file_name && *c.file_name;
    out.push_back({c.suffix, c.dtype, Shape(c.extents, c.extents + c.rank), c.numbers, named ? c.file_name : "", named || !c.file_name});
  }
  return out;
}

Result<const galley_op*> op_named(Plugins& plugins, const std::string& name, const std::string& needed_by) {
  if (const galley_op* found = plugins.op(name).table) return found;
  return plugin_error("no plugin provides the op '" + name + "' that '" + needed_by + "' needs");
}

Result<galley_tensor> pack_and_unpack(Graph& graph, Plugins& plugins, galley_tensor of, galley_tensor value) {
  const galley_format& format = *plugins.format(graph.tensor(of).storage.format).table;
  AttrList attrs = graph.tensor(of).storage.attrs;
  GraphTensor numbers;
  numbers.name = "stored " + graph.tensor(value).name;
  numbers.dtype = graph.tensor(of).dtype;
  numbers.shape = graph.tensor(of).shape;
  const std::string name = graph.tensor(of).name;
  std::vector<galley_tensor> packed;
  for (const Component& component : TRY(components_of(plugins, graph.tensor(of), numbers.shape))) {
    GraphTensor t;
    t.name = "packed " + graph.tensor(value).name + component.suffix;
    t.dtype = component.dtype;
    t.shape = component.shape;
    packed.push_back(TRY(graph.make(std::move(t))));
  }
  TRY(graph.append(TRY(op_named(plugins, format.pack_op, name)), "pack " + graph.tensor(value).name, {value}, attrs, &packed));
  attrs.set("dtype", dtype_text(numbers.dtype));
  std::vector<galley_tensor> out = {TRY(graph.make(std::move(numbers)))};
  TRY(graph.append(TRY(op_named(plugins, format.unpack_op, name)), "unpack " + name, std::move(packed), std::move(attrs), &out));
  return out[0];
}

}  // namespace galley
