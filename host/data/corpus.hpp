// Data from files: data.text, data.jsonl, data.prompts, data.chat, data.tokens. Its rows, an epoch after the other.
// host/recipe/declared.cpp says what options they have; document_encoder.hpp, chat.hpp, documents.hpp, pack.hpp and rows.hpp what these do.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/data/stream.hpp"
#include "host/tokens/rows.hpp"

namespace galley {

/// What can be said before the files are read.
struct CorpusInfo {
  int64_t vocabulary = 0;     ///< every id is below this; 0: not known
  bool validation = false;    ///< some is asked for
  bool one_document = false;  ///< no row has two documents: they are not packed, or there is one
  std::string summary;        ///< "12 documents, 48213 bytes; 5% of them held out"
};
Result<CorpusInfo> describe_corpus(const DataSpec& spec, const Recipe& recipe);

/// Prepares the data, or finds it prepared, and opens it. Ids have to be below `vocabulary`.
Result<std::unique_ptr<RowStream>> open_corpus(const DataSpec& spec, const Recipe& recipe, int64_t vocabulary,
                                               const PrepareOptions& options);

/// Whether the kind is one of these.
bool is_corpus(const std::string& kind);

}  // namespace galley
