// Writes state.toml as text, and reads it back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "host/base/result.hpp"
#include "host/exec/state.hpp"

namespace galley {

/// The format that is written. Only the same format is read, because another may mean other things.
inline constexpr int64_t kStateFormat = 4;

struct StateText {
  StateInfo info;
  std::map<std::string, uint64_t> checksums;  ///< the checksum of each tensor, by its name in the file
};

/// Returns the text, with plugins in the order of their ids. Its last line is the checksum of all before it.
std::string state_text(const StateInfo& info, const std::map<std::string, uint64_t>& checksums);

/// Reads the text; `file` is for messages. Errors have exit code Failed.
Result<StateText> parse_state(std::string_view text, const std::filesystem::path& file);

}  // namespace galley
