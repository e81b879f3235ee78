// Which runs are one's own. A run's directory is data that anybody may have packed, and the files of an archive belong to whoever unpacks
// it. So run.toml begins with a mark, which only somebody with this user's key can make: a key of random bits that is made when it is first
// needed, and never leaves $XDG_STATE_HOME/galley/key, or ~/.local/state/galley/key.
#pragma once

#include <string>
#include <string_view>

#include "host/base/result.hpp"

namespace galley {

/// The text with a first line that marks it. An error where no key can be kept.
Result<std::string> with_mark(const std::string& text);

/// Whether the text has a mark by this user's key. Makes no key.
bool has_mark(std::string_view text);

}  // namespace galley
