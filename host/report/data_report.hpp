// What the data is, for people.
#pragma once

#include <string>

#include "host/data/stream.hpp"

namespace galley {

/// "data: 1,203 conversations' lines …": what was found and how it is packed, a line or two.
std::string data_line(const DataReport& report);

/// "12,345".
std::string grouped(uint64_t number);

/// The share of positions that are padding, in percent.
double padding_percent(const RowFacts& facts, uint64_t length);

}  // namespace galley
