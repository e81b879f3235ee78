// A text that grows token by token, until something ends it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "host/tokens/text_codec.hpp"
#include "host/tools/inference/generate.hpp"

namespace galley {

/// What ends a text.
struct Stops {
  std::vector<TokenId> tokens;     ///< any of these
  std::vector<std::string> texts;  ///< before any of these
  int64_t most = 200;              ///< so many new tokens
  int64_t context = 0;             ///< so many in all; 0: any number
};

/// Used by one thread. Refers to the codec and the stops.
class Continuation {
 public:
  Continuation(const TextCodec& codec, const Stops& stops, std::vector<TokenId> tokens);

  /// Appends the token that `random` draws from these logits; see draw_token().
  void take(std::span<const float> logits, const Draw& how, uint32_t random);
  /// Returns what has ended the text: "end" (a token), "stop" (a text) or "length"; "": nothing yet.
  const std::string& ended() const { return ended_; }
  /// All tokens, those of the prompt included; without one that has ended the text.
  const std::vector<TokenId>& tokens() const { return tokens_; }
  int64_t made() const { return made_; }  ///< tokens that were drawn
  /// Returns the text after the prompt.
  const std::string& text() const { return text_; }
  /// Returns how many bytes of the text later tokens will not change: not the beginning of a character, or of a text that would end it.
  size_t certain() const;

 private:
  const TextCodec& codec_;
  const Stops& stops_;
  std::vector<TokenId> tokens_;
  size_t from_, begin_;  ///< of the tokens that are decoded: the first, and how many bytes those of the prompt are
  std::string text_, ended_;
  int64_t made_ = 0;
};

/// Continues texts, at most Generator::rows() of them, until all have ended. `random` gives the 32 uniform bits that draw a text's token:
/// of the text by its index here, and by how many it has drawn.
Status finish_texts(Generator& generator, std::span<Continuation> texts, const Draw& how,
                    const std::function<uint32_t(size_t text, uint64_t drawn)>& random);

}  // namespace galley
