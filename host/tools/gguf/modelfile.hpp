// Writes the Modelfile by which Ollama runs a GGUF file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/session/study.hpp"

namespace galley {

/// Returns the text of a Modelfile: FROM `from`, the context, what ends a reply, and the model's chat template in Ollama's words. These are found
/// out by rendering conversations: what is before and after each kind of message. Where rendered conversations are not made of such
/// pieces, there is no TEMPLATE, and `notes` says so. Source of the grammar and of what a template is given: docs/modelfile.md and
/// docs/template.md of https://github.com/ollama/ollama.
Result<std::string> modelfile_text(const Study& study, const std::string& from, int64_t context, std::vector<std::string>* notes);

}  // namespace galley
