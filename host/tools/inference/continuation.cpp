#include "host/tools/inference/continuation.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace galley {

/// So many tokens of the prompt are decoded with what follows: how a token is written may depend on the one before it.
constexpr size_t kContext = 16;

Continuation::Continuation(const TextCodec& codec, const Stops& stops, std::vector<TokenId> tokens)
    : codec_(codec),
      stops_(stops),
      tokens_(std::move(tokens)),
      from_(tokens_.size() - std::min(tokens_.size(), kContext)),
      begin_(codec.decode(std::span(tokens_).subspan(from_)).size()) {}

void Continuation::take(std::span<const float> logits, const Draw& how, uint32_t random) {
  const TokenId token = draw_token(logits, how, tokens_, random);
  ++made_;
  if (std::ranges::find(stops_.tokens, token) != stops_.tokens.end()) {
    ended_ = "end";
    return;
  }
  tokens_.push_back(token);
  text_ = codec_.decode(std::span(tokens_).subspan(from_));
  text_.erase(0, std::min(begin_, text_.size()));
  size_t end = text_.size();
  for (const std::string& stop : stops_.texts) end = std::min(end, text_.find(stop));
  if (end < text_.size()) {
    text_.resize(end);
    ended_ = "stop";
  } else if (made_ == stops_.most || static_cast<int64_t>(tokens_.size()) == stops_.context) {
    ended_ = "length";
  }
}

size_t Continuation::certain() const {
  size_t end = text_.size();
  if (!ended_.empty()) return end;
  while (!codec_.bytes() && end >= 3 && text_.compare(end - 3, 3, "\xEF\xBF\xBD") == 0) end -= 3;
  for (const std::string& stop : stops_.texts)
    for (size_t part = std::min(stop.size(), end); part > 0; --part)
      if (text_.compare(end - part, part, stop, 0, part) == 0) {
        end -= part;
        break;
      }
  return end;
}

Status finish_texts(Generator& generator, std::span<Continuation> texts, const Draw& how,
                    const std::function<uint32_t(size_t text, uint64_t drawn)>& random) {
  std::vector<std::span<const TokenId>> tokens(static_cast<size_t>(generator.rows()));
  while (std::ranges::any_of(texts, [](const Continuation& text) { return text.ended().empty(); })) {
    for (size_t r = 0; r < tokens.size(); ++r) tokens[r] = texts[std::min(r, texts.size() - 1)].tokens();
    const std::span<const float> logits = TRY(generator.logits(tokens));
    const size_t width = logits.size() / tokens.size();
    for (size_t r = 0; r < texts.size(); ++r)
      if (texts[r].ended().empty()) texts[r].take(logits.subspan(r * width, width), how, random(r, static_cast<uint64_t>(texts[r].made())));
  }
  return ok();
}

}  // namespace galley
