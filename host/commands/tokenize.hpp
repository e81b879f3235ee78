// The command `galley tokenize`, which converts between texts and ids, as JSON lines.
#pragma once

#include <filesystem>

#include "host/base/result.hpp"

namespace galley {

enum class Direction : uint8_t { Encode, Decode };
enum class Template : uint8_t { No, Yes };  ///< whether to add the tokens that the post-processor puts around each text

/// Converts each line {"text": …} of stdin to a line {"ids": […]} on stdout, in order; Decode: the reverse. Any other line is an error with
/// its number. Bytes that are not UTF-8 become U+FFFD; their number is reported on stderr. Uses `threads` threads.
Status tokenize(const std::filesystem::path& tokenizer, Direction direction, Template around, size_t threads);

}  // namespace galley
