// Amounts as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace galley {

/// "1.50 GiB"
std::string bytes_text(int64_t bytes);
/// "123.69 M"
std::string count_text(double count);

}  // namespace galley
