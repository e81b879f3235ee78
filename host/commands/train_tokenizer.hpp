// The command `galley tokenize --train`, which trains a tokenizer on text files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "host/base/result.hpp"

namespace galley {

/// Trains a byte-level BPE of `vocabulary` tokens on the files (named as for data.text), with GPT-2's word rule and <|endoftext|> as token
/// 0. Writes tokenizer.json and tokenizer_config.json into `out`, which must not have a tokenizer.json yet. The same files give the same
/// tokenizer, whatever the number of threads.
Status train_tokenizer(const std::vector<std::string>& files, size_t vocabulary, const std::filesystem::path& out, size_t threads);

}  // namespace galley
