#include "host/tokens/rows.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace galley {
namespace {

constexpr uint64_t kRowsVersion = 2;
constexpr size_t kBuffer = size_t{1} << 16;  // items read at once

/// A row in its section: its first piece; after the last one stands one more.
struct RowEntry {
  uint64_t first = 0, counted = 0;
};

/// Calls `document(begin, tokens, identity)` for each.
Status for_each_document(const TokenStore& store, const std::function<Status(uint64_t, uint64_t, uint64_t)>& document) {
  std::vector<DocumentEnd> buffer(kBuffer);
  uint64_t begin = 0;
  for (uint64_t at = 0; at < store.facts().documents; at += buffer.size()) {
    const auto some = std::span(buffer).first(static_cast<size_t>(std::min<uint64_t>(buffer.size(), store.facts().documents - at)));
    TRY_STATUS(store.read_documents(at, some));
    for (const DocumentEnd& end : some) {
      TRY_STATUS(document(begin, end.end - begin, end.identity));
      begin = end.end;
    }
  }
  return ok();
}

uint64_t lot_of(uint64_t identity, uint64_t seed) { return XXH3_64bits_withSeed(&identity, sizeof identity, seed); }

/// Documents whose lot is at most this are held out. Two passes, so that not all lots have to be in memory.
Result<uint64_t> last_lot(const TokenStore& store, uint64_t seed, uint64_t wanted) {
  std::vector<uint64_t> counts(1 << 16);
  TRY_STATUS(for_each_document(store, [&](uint64_t, uint64_t tokens, uint64_t identity) {
    counts[lot_of(identity, seed) >> 48] += tokens > 1;
    return ok();
  }));
  uint64_t bucket = 0, before = 0;
  while (before + counts[bucket] < wanted) before += counts[bucket++];
  std::vector<uint64_t> lots;
  TRY_STATUS(for_each_document(store, [&](uint64_t, uint64_t tokens, uint64_t identity) {
    const uint64_t lot = lot_of(identity, seed);
    if (lot >> 48 == bucket && tokens > 1) lots.push_back(lot);
    return ok();
  }));
  const auto nth = lots.begin() + static_cast<std::ptrdiff_t>(wanted - before - 1);
  std::nth_element(lots.begin(), nth, lots.end());
  return *nth;
}

/// What a document that is cut keeps for training; all of it where it is too small to be cut.
uint64_t kept_of_lone(uint64_t tokens, double validation) {
  if (tokens < 4) return tokens;
  const auto held = static_cast<uint64_t>(std::llround(static_cast<double>(tokens) * validation));
  return tokens - std::clamp<uint64_t>(held, 2, tokens - 2);
}

/// Which labels of a piece count; pieces come in rising order.
class LabelCounter {
 public:
  LabelCounter(const TokenStore& store, bool everything) : store_(store), everything_(everything) {}
  Result<uint64_t> operator()(uint64_t begin, uint64_t length) {
    if (everything_) return length;
    uint64_t counted = 0;
    for (uint64_t at = begin + 1; at <= begin + length; ++at) counted += TRY(counts(at));
    return counted;
  }
  /// Positions up to the end of the last run of labels that count, the label after which does not; 0: there is none.
  Result<uint64_t> whole_runs(uint64_t begin, uint64_t length) {
    uint64_t end = 0;
    bool inside = false;
    for (uint64_t at = begin + 1; at <= begin + length + 1; ++at) {
      const bool now = TRY(counts(at));
      if (inside && !now) end = at - 1 - begin;
      inside = now;
    }
    return end;
  }

 private:
  Result<bool> counts(uint64_t at) {
    if (at < first_ || at >= first_ + tokens_.size()) {
      first_ = at;
      tokens_.resize(static_cast<size_t>(std::min<uint64_t>(kBuffer, store_.facts().tokens - at)));
      TRY_STATUS(store_.read_tokens(at, tokens_));
    }
    return (tokens_[at - first_] & kUncounted) == 0;
  }

  const TokenStore& store_;
  bool everything_;
  uint64_t first_ = 0;
  std::vector<uint32_t> tokens_;
};

std::string key_of(const TokenStore& store, const RowOptions& options) {
  KeyHash hash;
  hash.add(kRowsVersion);
  hash.add(store.key());
  hash.add(options.pack.length);
  hash.add(static_cast<uint64_t>(options.pack.packing));
  hash.add(static_cast<uint64_t>(options.pack.overlong));
  hash.add(static_cast<uint64_t>(options.pack.by_length));
  hash.add(std::to_string(options.validation));
  hash.add(options.validation > 0 ? options.seed : 0);
  hash.add(static_cast<uint64_t>(options.everything_counts));
  return hash.digits();
}

/// One split on its way to the file.
class SplitWriter {
 public:
  SplitWriter(const RowOptions& options, const TokenStore& store, CacheWriter& writer, Split split)
      : writer_(writer),
        section_(2 * static_cast<size_t>(split)),
        counter_(store, options.everything_counts),
        packer_(
            options.pack, [this](std::span<const Piece> pieces) { return write(pieces); },
            [this](uint64_t begin, uint64_t length) { return counter_(begin, length); },
            [this](uint64_t begin, uint64_t length) { return counter_.whole_runs(begin, length); }) {}

  Status add(uint64_t begin, uint64_t tokens) {
    facts.documents += tokens > 1;
    facts.longest = std::max(facts.longest, tokens);
    return packer_.add(begin, tokens);
  }
  Status finish() {
    TRY_STATUS(packer_.finish());
    facts.packed = packer_.facts();
    const RowEntry end = {pieces_, 0};
    return writer_.append(section_ + 1, std::span(&end, 1));
  }

  RowFacts facts;

 private:
  Status write(std::span<const Piece> pieces) {
    RowEntry row = {pieces_, 0};
    for (const Piece& piece : pieces) row.counted += piece.counted;
    pieces_ += pieces.size();
    TRY_STATUS(writer_.append(section_, pieces));
    return writer_.append(section_ + 1, std::span<const RowEntry>(&row, 1));
  }

  CacheWriter& writer_;
  size_t section_;
  LabelCounter counter_;
  Packer packer_;
  uint64_t pieces_ = 0;
};

constexpr size_t kSplitFacts = kCacheFacts / 2;

}  // namespace

RowFile::RowFile(CacheFile file) : file_(std::move(file)) {
  for (size_t p = 0; p < 2; ++p) {
    const auto fact = [&](size_t i) { return file_.fact(p * kSplitFacts + i); };
    facts_[p] = {fact(0), fact(1), {fact(2), fact(3), fact(4), fact(5), fact(6), fact(7), fact(8)}};
  }
}

Result<RowFile::Row> RowFile::row(Split split, uint64_t index) const {
  RowEntry entries[2];
  TRY_STATUS(file_.read(2 * static_cast<size_t>(split) + 1, index, std::span<RowEntry>(entries)));
  return Row{entries[0].first, entries[1].first - entries[0].first, entries[0].counted};
}

Result<RowFile> pack_documents(const TokenStore& store, const RowOptions& options) {
  const std::string key = key_of(store, options);
  if (std::optional<CacheFile> found = TRY(CacheFile::open(key, "rows"))) return RowFile(std::move(*found));

  uint64_t documents = 0, lone = 0;
  TRY_STATUS(for_each_document(store, [&](uint64_t, uint64_t tokens, uint64_t) {
    documents += tokens > 1;
    if (tokens > 1) lone = tokens;
    return ok();
  }));
  const bool holds = options.validation > 0 && documents > 0;
  uint64_t kept = UINT64_MAX, lot = 0;  // of a lone document; of many
  if (holds && documents == 1) {
    kept = kept_of_lone(lone, options.validation);
  } else if (holds) {
    const auto wanted = static_cast<uint64_t>(std::llround(static_cast<double>(documents) * options.validation));
    lot = TRY(last_lot(store, options.seed, std::clamp<uint64_t>(wanted, 1, documents - 1)));
  }

  const auto writer = TRY(CacheWriter::create(key, "rows"));
  SplitWriter train(options, store, *writer, Split::Train), validation(options, store, *writer, Split::Validation);
  TRY_STATUS(for_each_document(store, [&](uint64_t begin, uint64_t tokens, uint64_t identity) -> Status {
    if (tokens < 2) return ok();
    if (!holds || documents > 1) return (holds && lot_of(identity, options.seed) <= lot ? validation : train).add(begin, tokens);
    const Status status = train.add(begin, kept);
    return status && kept < tokens ? validation.add(begin + kept, tokens - kept) : status;
  }));
  CacheFacts facts = {};
  for (SplitWriter* split : {&train, &validation}) {
    TRY_STATUS(split->finish());
    const RowFacts& f = split->facts;
    const uint64_t list[kSplitFacts] = {f.documents,      f.longest,     f.packed.rows, f.packed.pieces, f.packed.positions,
                                        f.packed.counted, f.packed.idle, f.packed.cut,  f.packed.dropped};
    std::copy(std::begin(list), std::end(list), facts.begin() + (split == &train ? 0 : kSplitFacts));
  }
  return RowFile(TRY(writer->finish(facts)));
}

}  // namespace galley
