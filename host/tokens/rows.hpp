// Packs a store's documents into rows, and keeps on disk which pieces lie in which row, for training and for validation.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "host/base/result.hpp"
#include "host/tokens/cache.hpp"
#include "host/tokens/pack.hpp"
#include "host/tokens/store.hpp"

namespace galley {

enum class Split : uint8_t { Train, Validation };

struct RowOptions {
  PackOptions pack;
  double validation = 0;          ///< the share of documents that is held out, whole ones; the end of a lone document
  uint64_t seed = 0;              ///< decides which documents are held out
  bool everything_counts = true;  ///< no token of the store has kUncounted
};

/// What is known of a split.
struct RowFacts {
  uint64_t documents = 0, longest = 0;  ///< tokens of the longest
  Packer::Facts packed;
};

/// Reads rows. Immutable; reading is [thread-safe] and allocates nothing unless it fails.
class RowFile {
 public:
  const RowFacts& facts(Split split) const { return facts_[static_cast<size_t>(split)]; }
  uint64_t count(Split split) const { return facts(split).packed.rows; }
  /// A row's pieces are [first, first + pieces) of its split; `counted` labels of it count.
  struct Row {
    uint64_t first = 0, pieces = 0, counted = 0;
  };
  Result<Row> row(Split split, uint64_t index) const;
  Status read_pieces(Split split, uint64_t first, std::span<Piece> out) const {
    return file_.read(2 * static_cast<size_t>(split), first, out);
  }

 private:
  friend Result<RowFile> pack_documents(const TokenStore& store, const RowOptions& options);
  explicit RowFile(CacheFile file);
  CacheFile file_;
  std::array<RowFacts, 2> facts_;
};

/// Packs the store's documents, or takes them from the cache. Held out is the share of documents with the smallest hashes of the seed and
/// of their identities, at least one document and never all. So a document that is added moves at most one other across the line for each
/// that it adds to the count.
Result<RowFile> pack_documents(const TokenStore& store, const RowOptions& options);

}  // namespace galley
