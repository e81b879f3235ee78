// One library of a plugin: looked at before it is loaded, loaded once in a process, never unloaded.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "galley/device.h"
#include "galley/entry.h"
#include "galley/format.h"
#include "galley/kernel.h"
#include "galley/op.h"
#include "galley/ranks.h"
#include "galley/source.h"
#include "host/base/result.hpp"
#include "host/plugins/call.hpp"
#include "host/plugins/manifest.hpp"

namespace galley {

/// Whether `file` is a shared library for this processor, from its first bytes alone: a missing file, something else than ELF, another
/// architecture.
Status check_library_file(const std::filesystem::path& file);

/// What a library registers: tables that are complete as this version knows them, whatever version the plugin was built for. Lives as
/// long as the process.
struct Library {
  std::vector<const galley_strategy*> strategies;
  std::vector<const galley_op*> ops;
  std::vector<const galley_kernel*> kernels;
  std::vector<const galley_format*> formats;
  std::vector<const galley_device*> devices;
  std::vector<const galley_codec*> codecs;
  std::vector<const galley_source*> sources;
  std::vector<const galley_ranks*> ranks;  ///< one at most
};

/// Loads a library of the manifest's plugin and calls its `open`. Checks that the symbol is there, that the ABI is one that this host
/// runs, that id and version are the manifest's, and that every table is complete. Errors: one line, exit code Plugin. A library that this
/// process has already opened is handed out again, on any thread; one that has not is opened on the main thread.
Result<const Library*> open_library(const std::filesystem::path& file, const Manifest& manifest);

/// Calls what plugins want to be called at the end of the process (galley_entry.close), the last one opened first. Once, when no device is
/// open and no kernel prepared.
void close_libraries();

/// The id of the plugin that registered a table (an op, a kernel, a format, a device, a codec, a strategy), for messages; "" for one that no
/// library did. [thread-safe]
const std::string& plugin_of(const void* table);

/// Who is called through a table: its plugin, or `name` for a table that no library registered.
Caller caller_of(const void* table, const char* name);

}  // namespace galley
