// Finds the files that data names in its option `files`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/recipe/recipe.hpp"

namespace galley {

/// A file of documents.
struct TextDocument {
  std::filesystem::path path;
  std::string identity;  ///< its path below the directory that was given, or its name: the same wherever the corpus lies
  uint64_t size = 0;     ///< bytes, at least 2: fewer hold no pair of a token and its successor
  bool named = false;    ///< given by its own name: if it is binary, that is an error, and it is not skipped
};

struct Documents {
  std::vector<TextDocument> files;
  int64_t small = 0;   ///< files of fewer than two bytes, left out
  int64_t binary = 0;  ///< files with a NUL in their first 8 KiB, left out
};

/// Finds the files. Each of `files` is a file, a directory or a pattern (* ? [a-z] within a name, ** for any directories). A directory is
/// walked in the order of paths; left out are what is not a regular file (links too), directories whose name begins with a dot, build
/// output (build, node_modules, __pycache__, and every directory with a CMakeCache.txt or CACHEDIR.TAG), and what Galley's own runs left
/// (every directory with a run.toml), so that a run inside the corpus is no part of it. Patterns pass over the same directories where **
/// walks. A file that comes twice counts once. Errors: nothing there, a pattern that matches nothing, a file that cannot be read, a named
/// file that is binary or no regular file, and a file or directory that no Confinement holds, if there is any. Lines and Tokens: a
/// directory is an error, and files may be binary and of any size.
enum class FileKind : uint8_t { Text, Lines, Tokens };
Result<Documents> find_documents(const DataSpec& spec, const std::vector<std::string>& files, FileKind kind);

}  // namespace galley
