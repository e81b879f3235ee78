#include "host/passes/verbs/saved_file.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "host/base/new_file.hpp"

namespace galley {
namespace {

constexpr std::string_view tensors_end = ".safetensors";
/// What the run keeps itself: a folder, and files whose names no folder can have.
constexpr std::array<std::string_view, 11> own_names = {"state",           "best",        "run.toml",   "recipe.lua",   "metrics.jsonl",
                                                        "generated.jsonl", "memory.json", "usage.json", "choices.json", "report.html",
                                                        "profile.json"};
/// What the host writes of the model.
constexpr std::array<std::string_view, 2> own_files = {"model/model.safetensors", "model/config.json"};
constexpr size_t longest_name = 255;  // on Linux

template <class List>
bool among(const List& list, std::string_view what) {
  return std::find(list.begin(), list.end(), what) != list.end();
}

}  // namespace

std::string saved_file_problem(const std::string& file, Saved what) {
  const std::filesystem::path path = file;
  if (!path.has_parent_path() || !path.has_filename() || path.is_absolute() || *path.begin() == ".." ||
      path.lexically_normal().native() != file)
    return std::string("must lie in a folder of the run: ") +
           (what == Saved::Tensors ? "\"adapter/adapter_model.safetensors\"" : "\"adapter/adapter_config.json\"");
  if (std::any_of(file.begin(), file.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }))
    return "has a control character in its name";
  for (const std::filesystem::path& part : path) {
    if (part.native().size() > longest_name)
      return "has a name of " + std::to_string(part.native().size()) + " bytes; " + std::to_string(longest_name) + " is the most";
    if (place_of(part.native())) return "has a name that ends in '.tmp-' and 16 digits, as that of what is written aside does";
  }
  if (among(own_names, path.begin()->native()))
    return "lies in '" + path.begin()->native() +
           "', which is the run's own: a plugin saves in 'model', in 'adapter' or in a folder of its own";
  if (among(own_files, file)) return "is written by Galley itself: choose another name";
  if (file.ends_with(tensors_end) != (what == Saved::Tensors))
    return what == Saved::Tensors ? "must end in '.safetensors'" : "ends in '.safetensors', as only tensors' files do";
  return {};
}

}  // namespace galley
