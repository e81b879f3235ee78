// Amounts as people read them.
#pragma once

#include <cstdint>
#include <string>

#include "host/base/result.hpp"

namespace galley {

/// "1.50 GiB"
std::string bytes_text(int64_t bytes);
/// "24GiB", "512MB", "1.5e9": bytes.
Result<int64_t> parse_bytes(const std::string& text);
/// "123.69 M"
std::string count_text(double count);

/// "2026-01-31T09:30:00Z", of seconds since 1970.
std::string time_text(int64_t seconds);

}  // namespace galley
