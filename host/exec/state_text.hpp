// state.toml as text and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "host/base/result.hpp"
#include "host/exec/state.hpp"

namespace galley {

/// The format that is written. A later one may mean other things, so only the same is read.
inline constexpr int64_t kStateFormat = 3;

struct StateText {
  StateInfo info;
  std::map<std::string, uint64_t> checksums;  ///< checksum of each tensor, by its name in the file
};

/// Plugins come out in the order of their ids. Ends in a line with the checksum of all before it.
std::string state_text(const StateInfo& info, const std::map<std::string, uint64_t>& checksums);

/// `file` is for messages. Exit code Failed.
Result<StateText> parse_state(std::string_view text, const std::filesystem::path& file);

}  // namespace galley
