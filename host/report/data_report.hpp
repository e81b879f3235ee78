// What the data is, for people.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "host/data/stream.hpp"

namespace galley {

/// "data.chat: 540 documents in 208 rows of 256, …": what was found and how it is packed, and lines on what was left out.
std::string data_line(const DataReport& report);

/// "4 bad lines left out", …: what is not there as it was in the files.
std::vector<std::string> left_out(const DataReport& report);

/// The numbers by name, for run.toml and for programs.
std::vector<std::pair<std::string, int64_t>> facts_of(const DataReport& report);

/// "12,345".
std::string grouped(uint64_t number);

/// The share of positions that are padding, in percent.
double padding_percent(const RowFacts& facts, uint64_t length);

}  // namespace galley
