// Data from files: data.text, data.jsonl, data.prompts, data.chat, data.tokens. Its rows, an epoch after the other.
//
//   files        files and patterns, for text directories too; documents.hpp says which files they mean
//   tokenizer    "model" (the default), "bytes", or the path of a tokenizer.json (text_codec.hpp)
//   validation   a share of the documents that is held out, whole ones (rows.hpp says which), or files of its own. Default: 0.05 when the
//                recipe validates, else nothing
//   packing      "best-fit" (the default), "sequential", "none" (pack.hpp)
//   overlong     "split" or "truncate": documents of more than a row. Default: prompts and conversations are truncated, others split
//   group_by_length  with packing = "none": micro-batches of rows of like length
//   separator    text: what ends a document within a file; tokens: the id that does
//   eos          false: nothing is put behind documents (document_encoder.hpp)
//   skip_bad     lines that are no documents are left out and counted instead of refused
//   text, prompt, answer, messages, template, system, ignore, train_on   document_encoder.hpp, chat.hpp
//   dtype        tokens: "uint16" (the default) or "uint32"
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/data/rows.hpp"
#include "host/data/stream.hpp"

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
