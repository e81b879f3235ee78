// Reads data from files (data.text, data.jsonl, data.prompts, data.chat, data.tokens) as rows, one epoch after another.
// host/recipe/declared.cpp has their options; document_encoder.hpp, chat.hpp, documents.hpp, pack.hpp and rows.hpp (host/tokens) say what
// the options do.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/sources/stream.hpp"
#include "host/tokens/rows.hpp"

namespace galley {

/// What is known of the data before the files are read.
struct CorpusInfo {
  int64_t vocabulary = 0;     ///< every id is below this; 0: not known
  bool validation = false;    ///< validation data is asked for
  bool one_document = false;  ///< no row has two documents: they are not packed, or there is only one
  std::string summary;        ///< "12 documents, 48213 bytes; 5% of them held out"
};
Result<CorpusInfo> describe_corpus(const DataSpec& spec, const Recipe& recipe);

/// Opens the data, and prepares it first if that has not been done yet. Ids have to be below `vocabulary`.
Result<std::unique_ptr<RowStream>> open_corpus(const DataSpec& spec, const Recipe& recipe, int64_t vocabulary,
                                               const PrepareOptions& options);

}  // namespace galley
