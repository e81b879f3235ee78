// Reads a model from a GGUF file. The family says what the file's keys mean, and how it names parameters, in its field `gguf`: a table
// { architectures, config(keys, shapes, short), tensor(name, config), ignored }.
#pragma once

#include <string>
#include <utility>

#include "host/family/family.hpp"

struct lua_State;

namespace galley {

class Sandbox;

/// Pushes what a family knows of GGUF files, its table, or a field of it; nil where there is none. Raises.
void push_gguf(lua_State* L, const char* key);

/// Calls a function of that table with values, or reads another field of it; returns at least one answer, nil where there is none. An
/// error is what the function raised.
Result<List> ask_gguf(Sandbox& lua, const char* key, const List& arguments);

/// What a file calls a parameter, and has otherwise, of what `tensor` returns: a name, and { outer, a, b, turned = 1, added, scale } or
/// nothing.
std::pair<std::string, tensor_files::FileForm> gguf_name(const List& said);

/// Makes the configuration of the file's keys, in the words of config.json, with kGgufTypes where weights are in blocks.
Status read_gguf_model(const std::filesystem::path& file, const FamilyFolders& folders, ModelConfig* out);

/// Lets parameters be read under the names that they have in a GGUF file, and their rows in the order that they have there. `lua` is the
/// family's.
Status name_in_gguf(Sandbox& lua, const ModelConfig& model, Draft& draft);

}  // namespace galley
