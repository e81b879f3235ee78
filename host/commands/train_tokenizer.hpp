// `galley tokenize --train`: a tokenizer of one's own, from one's own text.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "host/base/result.hpp"

namespace galley {

/// Trains a byte-level BPE of `vocabulary` tokens on the files (as data.text means them), with GPT-2's words and <|endoftext|> as token
/// 0, and writes tokenizer.json and tokenizer_config.json into `out`, which must not have them yet. The same files give the same
/// tokenizer, whatever the threads.
Status train_tokenizer(const std::vector<std::string>& files, size_t vocabulary, const std::filesystem::path& out, size_t threads);

}  // namespace galley
