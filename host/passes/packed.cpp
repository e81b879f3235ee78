#include "host/passes/packed.hpp"

#include <algorithm>

#include "host/plan/dtype.hpp"

namespace galley {
namespace {

using tensor_files::Entry;

std::string described(const Component& component) {
  if (const auto dtype = safetensors_dtype(component.dtype)) return tensor_files::describe(*dtype, component.shape);
  return dtype_name(component.dtype) + (" " + shape_text(component.shape));
}

bool fits(const Entry& entry, const Component& component) {
  return dtype_of(entry.dtype) == component.dtype &&
         (tensor_files::in_blocks(entry.dtype) ? tensor_files::block_shape(entry) : entry.shape) == component.shape;
}

}  // namespace

std::vector<std::string> source_names(const GraphTensor& t) {
  std::vector<std::string> names = {t.source.name.empty() ? t.name : t.source.name};
  names.insert(names.end(), t.source.aliases.begin(), t.source.aliases.end());
  return names;
}

Result<bool> PackedFiles::hold(const GraphTensor& t, std::span<const Component> components) {
  if (tensor_files::Reader::file_of(t.source.path).empty()) return false;
  auto at = readers_.find(t.source.path);
  if (at == readers_.end()) at = readers_.emplace(t.source.path, TRY(tensor_files::Reader::open(t.source.path))).first;
  const tensor_files::Reader& reader = at->second;
  if (!std::ranges::all_of(components, &Component::in_files)) return false;
  const std::vector<std::string> names = source_names(t);

  std::vector<const Entry*> entries;
  bool some = false, all = true;
  for (const Component& component : components) {
    const Entry* entry = nullptr;
    bool own_name = false;  // the component has a name that its numbers do not have
    for (size_t n = 0; n < names.size() && !entry; ++n) {
      const std::string name = name_in_file(component, names[n]);
      entry = reader.find(name);
      own_name = name != names[n];
    }
    entries.push_back(entry);
    all = all && entry && fits(*entry, component);
    some = some || (entry && (own_name || !is_floating(dtype_of(entry->dtype))));
  }
  if (all || !some) return all;
  for (size_t k = 0; k < components.size(); ++k) {
    if (!entries[k])
      return recipe_error(t.source.path + ": tensor '" + name_in_file(components[k], names[0]) + "', " + described(components[k]) +
                              ", is missing; the file has other components of '" + t.name + "' in format '" + t.storage.format + "'",
                          "a file has to hold all components of a tensor, or its numbers under the name '" + names[0] + "'");
    if (!fits(*entries[k], components[k]))
      return recipe_error(reader.files()[entries[k]->file].path().string() + ": tensor '" + entries[k]->name + "' is " +
                              tensor_files::describe(entries[k]->dtype, entries[k]->shape) + ", but in format '" + t.storage.format +
                              "' it is " + described(components[k]),
                          "the file may have been packed with other options of the format; the recipe has to use the same ones");
  }
  return true;
}

}  // namespace galley
