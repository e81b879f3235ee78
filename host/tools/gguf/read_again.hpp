// Reads a GGUF file that was written with Galley's own reader, and compares what it computes with what the model computes of which it was
// made.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "host/session/study.hpp"

namespace galley {

/// How far the logits of some positions are from those of the model. A tenth of a percent of `apart` is what BF16 makes of a usual model.
struct LogitsApart {
  int64_t positions = 0;
  double apart = 0;       ///< the root mean square of the differences over that of the model's logits
  double divergence = 0;  ///< Kullback-Leibler, from the model's distribution to the file's: the mean of all positions, in nats
  int64_t same = 0;       ///< positions with the same likeliest token
};

/// Returns "32 positions: …", a sentence for people.
std::string apart_text(const LogitsApart& apart);

/// Computes the logits after each of `length` tokens, of which the first half is drawn and the second is what the model continues with. Of
/// a model with an encoder, what is drawn is its source, and all tokens are the model's. The models are in memory one after the other.
/// `options`: those with which the export was studied.
Result<LogitsApart> read_again(const std::filesystem::path& model, const std::filesystem::path& gguf, int64_t length,
                               const StudyOptions& options);

}  // namespace galley
