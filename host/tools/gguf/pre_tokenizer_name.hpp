// Finds what llama.cpp calls the way in which a tokenizer.json splits a text before its merges.
#pragma once

#include <string>

#include "host/base/result.hpp"
#include "host/base/value.hpp"

namespace galley {

/// Returns the value of "tokenizer.ggml.pre" for the "pre_tokenizer" of byte-pair encoding over bytes. One that llama.cpp has no name for is
/// an error of exit code Recipe that says what it is. `ignores_merges`: a word that is a token is that token, whatever the merges say.
Result<std::string> pre_tokenizer_name(const Value& pre_tokenizer, bool ignores_merges);

}  // namespace galley
