// Reads data.batch { path = "batch.safetensors" }: one fixed batch, the same in every window. The file's tensors are I32 or I64 (rows, S):
//
//   input_ids
//   labels          as transformers takes them. Next tokens are NOT shifted: the label of position s is labels[s + 1], or none if that
//                   belongs to another document. Masked tokens and labels of tokens are those of their own position; labels of rows are
//                   (rows), or (rows, labels) of 0 and 1; targets are (rows, T)
//   position_ids    0 … S − 1 if it is absent, also with documents and padding, as in transformers
//   document_ids    neighbours with equal numbers are a document, and attention does not cross documents. A number that comes again later
//                   in the row is an error
//   attention_mask  1, or 0 for padding before or after the tokens of a row. Padding between tokens, and padding whose label counts,
//                   are errors: the one cannot be said with first_key, and what transformers computes for the other depends on its
//                   attention kernel
//
//   token_type_ids     0 if it is absent
//   decoder_input_ids  (rows, T); if it is absent, the targets after the token that begins one
//
// Only models that read them may have the last two. Any other tensor is an error that names it. A recipe without `batch` takes all rows as
// one micro-batch. With it, the rows fill micro-batch after micro-batch, and the rest of the window is padding. `length` may be above S.
#pragma once

#include <memory>
#include <span>

#include "host/data/source.hpp"

namespace galley {

/// Do the work of describe_data() and open_data() for this kind. describe_batch reads the file's header only.
Result<DataInfo> describe_batch(const DataSpec& spec, const Recipe& recipe);
Result<std::unique_ptr<Source>> open_batch(const DataInfo& info, const DataSpec& spec, const Recipe& recipe, int64_t vocabulary,
                                           const Windows& windows);

}  // namespace galley
