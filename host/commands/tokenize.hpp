// `galley tokenize`: a filter between texts and ids, as JSON lines.
#pragma once

#include <filesystem>

#include "host/base/result.hpp"

namespace galley {

enum class Direction : uint8_t { Encode, Decode };
enum class Template : uint8_t { No, Yes };  ///< the tokens that the post-processor puts around each text

/// Lines {"text": …} of stdin become lines {"ids": […]} on stdout, in order; Decode: the other way. A line that is neither is an error
/// with its number. What is no UTF-8 becomes U+FFFD and is counted on stderr. The lines are worked on by `threads` threads.
Status tokenize(const std::filesystem::path& tokenizer, Direction direction, Template around, size_t threads);

}  // namespace galley
