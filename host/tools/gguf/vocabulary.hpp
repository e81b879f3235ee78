// Writes what a model's folder says of its tokens as keys of a GGUF file, by which llama.cpp turns text into the same ids.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/tools/gguf/gguf_keys.hpp"

namespace galley {

/// Adds the keys "tokenizer.…" for a model of `vocabulary` ids, from tokenizer.json and the files beside it. Supported are byte-pair
/// encoding over bytes, if llama.cpp knows how the text is split before (tokenizer.ggml.pre), and SentencePiece's with tokens for bytes; any
/// other tokenizer is an error of exit code Recipe that names what is not supported. A folder without a tokenizer.json gives "no_vocab".
/// `notes` gets what llama.cpp does otherwise.
Status add_vocabulary(const std::filesystem::path& folder, int64_t vocabulary, GgufKeys* keys, std::vector<std::string>* notes);

}  // namespace galley
