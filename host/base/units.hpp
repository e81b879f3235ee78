// Prints amounts for people, and parses them.
#pragma once

#include <cstdint>
#include <string>

#include "host/base/result.hpp"

namespace galley {

/// Returns "1.50 GiB".
std::string bytes_text(int64_t bytes);
/// Parses "24GiB", "512MB" or "1.5e9" as bytes.
Result<int64_t> parse_bytes(const std::string& text);
/// Returns "123.69 M".
std::string count_text(double count);

/// Returns "2026-01-31T09:30:00Z" for seconds since 1970.
std::string time_text(int64_t seconds);

}  // namespace galley
