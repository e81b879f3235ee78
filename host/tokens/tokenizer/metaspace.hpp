// What pre-tokenizer and decoder of SentencePiece's files have in common.
#pragma once

#include <string>

#include "host/tokens/tokenizer/fields.hpp"

namespace galley {

/// Before what a Metaspace puts the character that stands for a space.
enum class Prepend : uint8_t { Never, First, Always };

struct Metaspace {
  std::string space;  ///< the character that stands for a space
  Prepend prepend = Prepend::Always;
  static Result<Metaspace> read(const JsonObject& object);
};

}  // namespace galley
