// Writes messages to the person at the terminal: everything but results goes to stderr, through here.
#pragma once

#include <string_view>

#include "host/base/result.hpp"

namespace galley {

enum class LogLevel { Debug, Note, Warning, Error };

/// Writes "galley: warning: <text>", "galley: note: …" or "galley: debug: …" on one line: what does not print is escaped. An error is
/// written as it is, "galley: <text>", and may have two lines. Lines of debugging are shown where the environment says GALLEY_LOG=debug.
/// [thread-safe]
void log(LogLevel level, std::string_view text);

/// Prepares what messages need, while there is memory, and reads GALLEY_LOG, which may be "debug".
Status open_log();

}  // namespace galley
