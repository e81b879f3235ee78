// SentencePiece's "precompiled_charsmap" (Kudo, Richardson 2018, arXiv:1808.06226): replacements of characters, as the `tokenizers`
// library applies them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/base/result.hpp"

namespace galley {

/// Returns the bytes that a text in base64 says; nothing if it is none.
std::optional<std::string> bytes_of_base64(std::string_view text);

/// Immutable. [thread-safe]
///
/// The map's bytes: the size of a table in bytes (U32), the table, and the replacements, each ended by a zero. The table is a trie in a
/// double array (Aoe 1989, in the layout of Yata's Darts-clone), whose values are places in the replacements. A unit of 32 bits:
///   0 … 7   the byte that leads to it        8  whether a value follows
///   9       the offset is 256 times as large  10 … 30 the offset to its children; bit 31: it is a value, in 0 … 30
class Precompiled {
 public:
  /// `map`: in base64, as the file has it. A table that leads outside of itself or of the replacements is an error.
  static Result<Precompiled> read(std::string_view map);
  /// Grapheme by grapheme: one of less than 6 bytes that begins with something that the map has becomes what stands for the shortest such
  /// beginning; of all others each character does by itself.
  std::string apply(std::string_view text) const;
  /// How many times as long it can make a text.
  double growth() const { return growth_; }

 private:
  Status check();
  std::optional<std::string_view> find(std::string_view text) const;
  std::string_view replacement(uint32_t at) const;
  std::vector<uint32_t> units_;
  std::string replacements_;
  std::array<bool, 128> ascii_ = {};  // whether it is replaced
  double growth_ = 1;
};

}  // namespace galley
