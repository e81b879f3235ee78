// Stores documents as tokens on disk: a first pass makes them of people's files; files of tokens that somebody else has made stay as they
// are.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/tokens/cache.hpp"
#include "host/tokens/document_encoder.hpp"
#include "host/tokens/documents.hpp"

namespace galley {

/// The end of a document in the stream of all tokens (it begins where the one before ends), and a hash of its identity: its file, and its
/// number there.
struct DocumentEnd {
  uint64_t end = 0, identity = 0;
};

/// What a first pass has found.
struct StoreFacts {
  uint64_t tokens = 0, documents = 0;
  uint64_t bytes = 0;     ///< bytes of the files
  uint64_t largest = 0;   ///< the largest id
  uint64_t skipped = 0;   ///< bad lines, under skip_bad
  uint64_t repaired = 0;  ///< places that were no UTF-8
  uint64_t small = 0;     ///< documents of fewer than two tokens, left out
  uint64_t binary = 0;    ///< files with a NUL, left out
  uint64_t specials = 0;  ///< special tokens that stood in texts
};

/// A file that data was read from, and a hash of its bytes, hexadecimal.
struct DataFile {
  std::string path, hash;
};

/// Reads stored tokens. Immutable; reading is [thread-safe] and allocates nothing unless it fails.
class TokenStore {
 public:
  const StoreFacts& facts() const { return facts_; }
  /// Returns a hash of what it was made from: stores with equal keys are equal.
  const std::string& key() const { return key_; }
  const std::vector<DataFile>& files() const { return files_; }
  Status read_documents(uint64_t first, std::span<DocumentEnd> out) const { return index_.read(kIndex, first, out); }
  /// Reads tokens [begin, begin + out.size()), with kUncounted.
  Status read_tokens(uint64_t begin, std::span<uint32_t> out) const;

 private:
  friend class StoreBuilder;
  static constexpr size_t kTokens = 0, kIndex = 1;
  struct Raw {
    File file;
    uint64_t begin, end;  // the range of its tokens in the stream
  };
  TokenStore(CacheFile index, std::string key);

  CacheFile index_;
  std::string key_;
  StoreFacts facts_;
  std::vector<DataFile> files_;
  std::vector<Raw> raw_;    // data.tokens: the tokens lie there
  uint64_t raw_bytes_ = 0;  // bytes of a token there: 2 or 4
};

/// Receives how far a first pass has come, in bytes (0 of 0 while files are hashed). The thread that waits for the pass calls it. Its error
/// ends the pass, and nothing is kept of it.
using PrepareProgress = std::function<Status(uint64_t done, uint64_t total)>;

struct PrepareOptions {
  size_t threads = 1;
  PrepareProgress progress = {};
};

/// Returns the store of `documents` under an encoder, and makes it unless it is in the cache. `separator` ends a document within a file of
/// text; "": nothing does. With `skip_bad`, lines that are no documents are counted instead of refused. Memory is bounded whatever the size
/// of the files.
Result<TokenStore> prepare_documents(const DataSpec& spec, const Documents& documents, const DocumentEncoder& encoder,
                                     const std::string& separator, bool skip_bad, const PrepareOptions& options);

/// Returns a store of files with uint16 (token_bytes 2) or uint32 (4) tokens, little-endian. A document is a file, or ends after each token
/// `separator` (−1: none does). The tokens stay where they are.
Result<TokenStore> prepare_tokens(const DataSpec& spec, const Documents& documents, uint64_t token_bytes, int64_t separator,
                                  const PrepareOptions& options);

}  // namespace galley
