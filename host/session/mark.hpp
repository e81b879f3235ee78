// Marks runs as a user's own. A run's directory is data that anybody may have packed, and the files of an archive belong to whoever unpacks
// it. So run.toml begins with a mark, which only somebody with this user's key can make. The key is of random bits, is made when it is
// first needed, and never leaves $XDG_STATE_HOME/galley/key, or ~/.local/state/galley/key.
#pragma once

#include <string>
#include <string_view>

#include "host/base/result.hpp"

namespace galley {

/// Returns the text with a first line that marks it. An error if no key can be kept.
Result<std::string> with_mark(const std::string& text);

/// Returns whether the text has a mark by this user's key. Makes no key.
bool has_mark(std::string_view text);

}  // namespace galley
