// Splits a model's file into several, as programs expect large models, with an index.
#pragma once

#include <cstdint>
#include <filesystem>

#include "host/base/result.hpp"

namespace galley {

/// What Hugging Face's programs put into one file.
inline constexpr int64_t kShardBytes = 5'000'000'000;

/// Splits FOLDER/model.safetensors, if it is there and its tensors have more bytes than `most`, into model-00001-of-0000N.safetensors and
/// so on, with model.safetensors.index.json. No file has tensors of more bytes than that, but for one tensor that has. The disk has to have
/// room for one such file besides, because the end of the old file goes as soon as it is in the new one. Whoever calls it works in a folder
/// aside.
Status split_weights(const std::filesystem::path& folder, int64_t most);

}  // namespace galley
