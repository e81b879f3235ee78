// Completes the text files that export writes beside the tensors.
#pragma once

#include "host/session/study.hpp"

namespace galley {

/// Adds the model's configuration and tokenizer to strategies' documents, and leaves out what lies beside no tensors.
Status complete_documents(Study& s);

}  // namespace galley
