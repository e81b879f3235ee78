// One library of a plugin: looked at before it is loaded, loaded once in a process, never unloaded.
#pragma once

#include <filesystem>
#include <string>

#include "galley/device.h"
#include "galley/entry.h"
#include "galley/format.h"
#include "galley/kernel.h"
#include "galley/op.h"
#include "host/base/result.hpp"
#include "host/plugins/manifest.hpp"

namespace galley {

/// Whether `file` is a shared library for this processor, from its first bytes alone: a missing file, something else than ELF, another architecture.
Status check_library_file(const std::filesystem::path& file);

/// Loads a library of the manifest's plugin and calls its `open`. Checks that the symbol is there, that the ABI is not newer than the host's, that id and version are
/// the manifest's, and that every table is complete. Errors: one line, exit code Plugin. A library that this process has already opened is handed out again.
/// [main-thread]
Result<const galley_entry*> open_library(const std::filesystem::path& file, const Manifest& manifest);

}  // namespace galley
