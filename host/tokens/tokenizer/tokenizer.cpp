#include "host/tokens/tokenizer/tokenizer.hpp"

#include <algorithm>

namespace galley {
namespace {

/// Appends [begin, end) to spans in order, joined to the last one where they meet.
void append(std::vector<TextSpan>* spans, size_t begin, size_t end) {
  if (begin == end) return;
  if (!spans->empty() && spans->back().end == begin) spans->back().end = end;
  else spans->push_back({begin, end});
}

}  // namespace

/// One text on its way to ids. Added tokens of the raw text stand between pieces; a piece is normalized. Added tokens of the normalized
/// piece stand between stretches; a stretch is cut into words, and the model turns each word into ids.
class Tokenizer::TextEncoder {
 public:
  TextEncoder(const Tokenizer& tokenizer, Encoding how, Work& work, std::vector<TokenId>* ids)
      : tokenizer_(tokenizer), how_(how), work_(work), ids_(ids) {}

  /// Where in the text special tokens are not looked for, and which of its bytes count; `counts` gets a bit for each id.
  void mark(std::span<const TextSpan> plain, std::span<const TextSpan> counting, std::vector<bool>* counts) {
    plain_ = plain;
    counting_ = counting;
    counts_ = counts;
  }

  Status encode(std::string_view text) {
    size_t done = 0;
    for (AddedTokens::Found found; TRY(tokenizer_.raw_.find(text, done, how_.special, plain_, &found)); done = found.end) {
      TRY_STATUS(encode_piece(text, done, found.begin));
      add(*found.token, counting_, found);
    }
    return encode_piece(text, done, text.size());
  }

 private:
  /// A piece as the normalizer makes it, and the marks moved into it.
  struct Piece {
    std::string_view text;
    std::vector<TextSpan> plain, counting;
    PreTokenizer::Start start = PreTokenizer::Start::Inside;
  };

  Status encode_piece(std::string_view text, size_t begin, size_t end) {
    if (begin == end) return ok();
    Piece piece = {text.substr(begin, end - begin), {}, {}};
    const Normalizer::Begin how = begin == 0 ? how_.begin : Normalizer::Begin::Here;
    std::string normalized;
    bool front = false;
    if (!tokenizer_.normalizer_.empty()) piece.text = normalized = TRY(tokenizer_.normalizer_.apply(piece.text, how, &front));
    // What follows left out characters does not begin the text, to the library.
    if (how == Normalizer::Begin::Before) piece.start = PreTokenizer::Start::Cut;
    else if (begin == 0 && !front) piece.start = PreTokenizer::Start::Text;
    if (counts_) {
      piece.counting = TRY(moved(counting_, text.substr(begin, end - begin), begin, piece.text.size()));
      if (tokenizer_.normalized_.has_special()) piece.plain = TRY(moved(plain_, text.substr(begin, end - begin), begin, piece.text.size()));
    }
    size_t done = 0;
    for (AddedTokens::Found found; TRY(tokenizer_.normalized_.find(piece.text, done, how_.special, piece.plain, &found));
         done = found.end) {
      TRY_STATUS(encode_stretch(piece.text.substr(done, found.begin - done), piece));
      add(*found.token, piece.counting, found);
    }
    return encode_stretch(piece.text.substr(done), piece);
  }

  Status encode_stretch(std::string_view stretch, const Piece& piece) {
    const PreTokenizer::Start start = stretch.data() == piece.text.data() ? piece.start : PreTokenizer::Start::Inside;
    bool known = true;
    TRY_STATUS(tokenizer_.pre_.cut(stretch, start, work_.steps_, [&](std::string_view word) {
      const WordIds* made = known ? tokenizer_.model_.encode(word, work_.model_) : nullptr;
      known = made != nullptr;
      if (!known) return;
      ids_->insert(ids_->end(), made->ids.begin(), made->ids.end());
      if (counts_) count(word, *made, piece);
    }));
    return known ? ok() : Status(Model::problem_of(work_.model_));
  }

  void add(const AddedToken& token, std::span<const TextSpan> counting, const AddedTokens::Found& found) {
    ids_->push_back(token.id);
    if (counts_) counts_->push_back(touches(counting, found.begin, found.end));
  }

  /// The bits of a word's ids, which stand in it one after the other.
  void count(std::string_view word, const WordIds& made, const Piece& piece) {
    const auto place = [&](size_t at) {
      return static_cast<size_t>(work_.steps_.source(word.data() + std::min(at, word.size())) - piece.text.data());
    };
    size_t at = 0, begin = place(0);
    for (const uint32_t bytes : made.bytes) {
      at += bytes;
      const size_t end = place(at);
      counts_->push_back(touches(piece.counting, begin, end));
      begin = end;
    }
  }

  /// Spans of the text that touch a piece of it, as spans of what the normalizer makes of the piece: a border comes to lie after as much
  /// as the text before it becomes.
  Result<std::vector<TextSpan>> moved(std::span<const TextSpan> spans, std::string_view piece, size_t begin, size_t normalized) const {
    const Normalizer& normalizer = tokenizer_.normalizer_;
    const auto place = [&](size_t at) -> Result<size_t> {
      const size_t inside = at <= begin ? 0 : std::min(at - begin, piece.size());
      if (normalizer.empty()) return inside;
      return inside == piece.size() ? normalized : TRY(normalizer.apply(piece.substr(0, inside))).size();
    };
    std::vector<TextSpan> out;
    for (const TextSpan& span : spans)
      if (span.begin < begin + piece.size() && span.end > begin) out.push_back({TRY(place(span.begin)), TRY(place(span.end))});
    return out;
  }

  const Tokenizer& tokenizer_;
  const Encoding how_;
  Work& work_;
  std::vector<TokenId>* const ids_;
  std::span<const TextSpan> plain_, counting_;
  std::vector<bool>* counts_ = nullptr;  // null: nobody asks
};

Status Tokenizer::placed(Status status) const {
  if (status) return ok();
  Error error = std::move(status).error();
  error.cause = origin_ + ": " + error.cause;
  return error;
}

Status Tokenizer::encode(std::string_view text, Encoding how, Work& work, std::vector<TokenId>* out) const {
  if (how.around == Around::Template) out->insert(out->end(), before_.begin(), before_.end());
  TRY_STATUS(placed(TextEncoder(*this, how, work, out).encode(text)));
  if (how.around == Around::Template) out->insert(out->end(), after_.begin(), after_.end());
  return ok();
}

Status Tokenizer::encode(std::span<const Segment> segments, Work& work, std::vector<TokenId>* ids, std::vector<bool>* counts) const {
  std::string text;
  std::vector<TextSpan> plain, counting;
  for (const Segment& segment : segments) {
    const size_t begin = text.size();
    text += segment.text;
    if (!segment.control) append(&plain, begin, text.size());
    if (segment.counts) append(&counting, begin, text.size());
  }
  TextEncoder encoder(*this, {}, work, ids);
  encoder.mark(plain, counting, counts);
  return placed(encoder.encode(text));
}

TokenId Tokenizer::find(std::string_view token) const {
  const auto it = std::find(tokens_.begin(), tokens_.end(), token);
  return token.empty() || it == tokens_.end() ? -1 : static_cast<TokenId>(it - tokens_.begin());
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  std::vector<std::string> tokens;
  for (const TokenId id : ids) {
    const auto at = static_cast<size_t>(id);
    if (id < 0 || at >= tokens_.size() || tokens_[at].empty()) continue;
    tokens.push_back(tokens_[at]);
  }
  return decoder_.join(std::move(tokens));
}

}  // namespace galley
