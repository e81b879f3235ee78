// Where a plugin may save something: the one rule for the tensors' files and for documents.
#pragma once

#include <string>

namespace galley {

enum class Saved { Tensors, Document };

/// What is wrong with a path below the run's directory that a plugin has named, or "". It has to lie in "model", in "adapter" or in another
/// folder that is not the run's own, under a plain name. Tensors end in ".safetensors" and documents do not.
std::string saved_file_problem(const std::string& file, Saved what);

}  // namespace galley
