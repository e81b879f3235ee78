// Describes the data of a run for people.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "host/data/source.hpp"

namespace galley {

/// "data.chat: 540 documents in 208 rows of 256, …": what was found and how it is packed, and lines on what was left out.
std::string data_line(const DataReport& report);

/// "4 bad lines left out", …: what is not there as it was in the files.
std::vector<std::string> left_out(const DataReport& report);

/// A sentence where a large part of the tokens does not fit its rows, with what can be done; "": it is none.
std::string truncation_warning(const DataReport& report);

/// "a step takes 8 rows: 120 steps an epoch, 360 in the run", or "": there are no epochs. `tokens`: windows go by tokens, so only the run
/// is known.
std::string epochs_text(int64_t steps, double epochs, int64_t rows_a_step, uint64_t rows_an_epoch, bool by_tokens);

/// The numbers by name, for run.toml and for programs.
std::vector<std::pair<std::string, int64_t>> facts_of(const DataReport& report);

/// Returns "12,345".
std::string grouped(uint64_t number);

/// Returns the share of positions that are padding, in percent.
double padding_percent(const RowFacts& facts, uint64_t length);

}  // namespace galley
