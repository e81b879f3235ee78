// data.text { files = { … }, tokenizer = "bytes", validation = 0.05 }: documents from files, one a file, packed into rows.
//
//   files       files, directories and patterns; documents.hpp says which files they mean
//   tokenizer   "bytes": a token is a byte, ids 0 … 255, nothing put before, between or behind documents
//   validation  the share of documents, whole ones, that is held out: at least one, never all. Which ones depends on the seed and on
//               their names below the directory that was given. A lone document is cut: its end is held out. Default: 0.05 when the
//               recipe validates, else nothing
//
// pack.hpp says how rows come about. An epoch shows every row once, in an order that the seed and the epoch decide; windows run on over the
// end of an epoch. Validation shows all rows of the held-out documents once, in a fixed order.
#pragma once

#include <memory>
#include <span>

#include "host/data/source.hpp"

namespace galley {

/// The parts of open_data() and describe_data() for this kind.
Result<DataInfo> describe_text(const DataSpec& spec, const Recipe& recipe);
Result<std::unique_ptr<Source>> open_text(const DataSpec& spec, const Recipe& recipe, const Accumulation& micro_batches,
                                          std::span<std::byte> memory);

}  // namespace galley
