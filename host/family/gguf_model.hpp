// Reads a model from a GGUF file. The family says what the file's keys mean, and how it names parameters, in its field `gguf`: a table
// { architectures, config(keys, shapes, short), tensor(name, config), ignored }.
#pragma once

#include "host/family/family.hpp"

struct lua_State;

namespace galley {

class Sandbox;

/// Pushes what a family knows of GGUF files, its table, or a field of it; nil where there is none. Raises.
void push_gguf(lua_State* L, const char* key);

/// What a file has otherwise than a parameter, of the table that `tensor` returns, { outer, a, b, turned = 1, added, scale }, or of nothing.
tensor_files::FileForm gguf_form(const Value& said);

/// Makes the configuration of the file's keys, in the words of config.json, with kGgufTypes where weights are in blocks.
Status read_gguf_model(const std::filesystem::path& file, const FamilyFolders& folders, ModelConfig* out);

/// Lets parameters be read under the names that they have in a GGUF file, and their rows in the order that they have there. `lua` is the
/// family's.
Status name_in_gguf(Sandbox& lua, const ModelConfig& model, Draft& draft);

}  // namespace galley
