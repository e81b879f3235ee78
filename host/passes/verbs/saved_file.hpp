// Checks where a plugin may save something: one rule for files of tensors and for documents.
#pragma once

#include <string>

namespace galley {

enum class Saved { Tensors, Document };

/// Says what is wrong with a path below the run's directory that a plugin has named; returns "" if nothing is. The file has to lie in
/// "model", in "adapter" or in another folder that is not the run's own, under a plain name that ends in ".safetensors" only for tensors.
std::string saved_file_problem(const std::string& file, Saved what);

}  // namespace galley
