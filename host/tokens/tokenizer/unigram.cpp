#include "host/tokens/tokenizer/unigram.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "host/tokens/tokenizer/unicode.hpp"

namespace galley {
namespace {

constexpr double kPenalty = 10;  // so much less likely than the least likely piece is a character that none covers
constexpr size_t kNowhere = std::numeric_limits<size_t>::max();

}  // namespace

Result<Unigram> Unigram::create(Pieces pieces, UnigramOptions options) {
  Unigram out;
  out.options_ = options;
  if (pieces.empty()) return recipe_error("'vocab' is empty");
  if (options.unknown >= static_cast<int64_t>(pieces.size()))
    return recipe_error("'unk_id' = " + std::to_string(options.unknown) + ", but the vocabulary has " + std::to_string(pieces.size()) +
                        " pieces");
  std::vector<std::pair<std::string_view, int32_t>> keys;
  double least = std::numeric_limits<double>::infinity();
  for (size_t id = 0; id < pieces.size(); ++id) {
    const auto& [piece, score] = pieces[id];
    if (!std::isfinite(score))
      return recipe_error("the score of piece " + std::to_string(id) + ", '" + piece + "', is not a finite number");
    if (piece.size() > Trie::kLongestToken)
      return recipe_error("piece " + std::to_string(id) + " has " + std::to_string(piece.size()) + " bytes; 16384 are the most");
    least = std::min(least, score);
    keys.emplace_back(piece, static_cast<int32_t>(id));
    out.scores_.push_back(score);
  }
  out.unknown_score_ = least - kPenalty;
  out.trie_ = Trie(std::move(keys));
  for (int b = 0; b < 256; ++b) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", b);
    out.bytes_.push_back(out.trie_.find(name));
  }
  return out;
}

/// Neighbours that no piece covers, as one. The token for the unknown itself may stand in a text, which the library takes for unknown, too.
void Unigram::add_unknown(std::string_view text, WordIds* out) const {
  if (const TokenId whole = trie_.find(text); whole >= 0) return out->add(whole, text.size());
  const auto has_token = [&](char c) { return bytes_[static_cast<uint8_t>(c)] >= 0; };
  if (options_.byte_fallback && std::all_of(text.begin(), text.end(), has_token)) {
    for (const char c : text) out->add(bytes_[static_cast<uint8_t>(c)], 1);
    return;
  }
  out->add(options_.unknown, text.size());
}

Encoded Unigram::encode(std::string_view word, Room& room, WordIds* out) const {
  auto& best = room.best_;
  best.assign(word.size() + 1, {0, kNowhere, -1});
  const auto offer = [&](size_t begin, size_t end, TokenId id, double score) {
    Room::Best& at = best[end];
    if (at.begin == kNowhere || score > at.score) at = {score, begin, id};
  };
  size_t steps = 0;
  const size_t most = Trie::steps_for(word.size());
  for (size_t begin = 0; begin < word.size();) {
    if (steps > most) return Encoded::TooSlow;
    const size_t character = static_cast<uint8_t>(word[begin]) < 0x80 ? 1 : next_code_point(word.substr(begin)).bytes;
    const double so_far = best[begin].score;
    bool covered = false;
    uint32_t node = Trie::kRoot;
    for (size_t end = begin; end < word.size(); ++steps) {
      node = trie_.next(node, static_cast<uint8_t>(word[end++]));
      if (node == Trie::kRoot) break;
      const TokenId id = trie_.value(node);
      if (id < 0) continue;
      offer(begin, end, id, scores_[static_cast<size_t>(id)] + so_far);
      covered |= end - begin == character;
    }
    if (!covered) {
      const double score = unknown_score_ + so_far;
      Room::Best& at = best[begin + character];
      if (at.begin == kNowhere || score > at.score) {
        if (options_.unknown < 0) return Encoded::Unknown;
        at = {score, begin, options_.unknown};
      }
    }
    begin += character;
  }
  auto& path = room.path_;
  path.clear();
  for (size_t end = word.size(); end > 0; end = best[end].begin) path.emplace_back(best[end].begin, best[end].id);
  for (size_t i = path.size(); i > 0;) {
    const auto [begin, id] = path[--i];
    const bool unknown = id == options_.unknown;
    while (unknown && i > 0 && path[i - 1].second == options_.unknown) --i;
    const size_t end = i > 0 ? path[i - 1].first : word.size();
    if (unknown) add_unknown(word.substr(begin, end - begin), out);
    else out->add(id, end - begin);
  }
  return Encoded::Yes;
}

}  // namespace galley
