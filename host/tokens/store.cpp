#include "host/tokens/store.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "host/base/ordered.hpp"
#include "host/tokens/line_file.hpp"
#include "host/tokens/lines.hpp"
#include "host/tokens/pieces.hpp"
#include "host/tokens/spec.hpp"
#include "host/tokens/tokenizer/unicode.hpp"

namespace galley {
namespace {

constexpr uint64_t kStoreVersion = 2;  // of what a first pass makes: another one makes it again
constexpr size_t kFileBuffer = size_t{1} << 20;
constexpr size_t kJob = size_t{64} << 10;  // bytes of text in a job of short documents
constexpr size_t kKept = size_t{4} << 20;  // of a job's memory that is used again

/// A part of the input, and what becomes of it.
struct Job {
  std::vector<TextPiece> pieces;
  LineBlock lines;
  size_t file = 0;

  std::vector<uint32_t> tokens;
  std::vector<uint64_t> ends;        // of documents, in tokens
  std::vector<uint64_t> identities;  // of them
  int64_t repaired = 0;
  uint64_t skipped = 0, specials = 0;

  void clear() {
    if (tokens.capacity() * sizeof(uint32_t) > kKept) tokens = {};
    tokens.clear();
    ends.clear();
    identities.clear();
    repaired = 0;
    skipped = 0;
    specials = 0;
  }
};

uint64_t identity_of(const TextDocument& document, uint64_t number) {
  return XXH3_64bits_withSeed(document.identity.data(), document.identity.size(), number);
}

}  // namespace

TokenStore::TokenStore(CacheFile index, std::string key) : index_(std::move(index)), key_(std::move(key)) {
  facts_ = {index_.fact(0), index_.fact(1), index_.fact(2), index_.fact(3), index_.fact(4),
            index_.fact(5), index_.fact(6), index_.fact(7), index_.fact(8)};
}

Status TokenStore::read_tokens(uint64_t begin, std::span<uint32_t> out) const {
  if (raw_.empty()) return index_.read(kTokens, begin, out);
  auto at = std::partition_point(raw_.begin(), raw_.end(), [&](const Raw& raw) { return raw.end <= begin; });
  while (!out.empty()) {
    const size_t n = static_cast<size_t>(std::min<uint64_t>(out.size(), at->end - begin));
    const std::span<std::byte> bytes = std::as_writable_bytes(out.first(n));
    if (raw_bytes_ == 4) {
      TRY_STATUS(at->file.read_at(bytes, (begin - at->begin) * 4));
    } else {
      // They are read into the second half, and spread out from there.
      TRY_STATUS(at->file.read_at(bytes.subspan(bytes.size() / 2), (begin - at->begin) * 2));
      for (size_t i = 0; i < n; ++i) {
        uint16_t token = 0;
        std::memcpy(&token, bytes.data() + bytes.size() / 2 + 2 * i, sizeof token);
        out[i] = token;
      }
    }
    out = out.subspan(n);
    begin += n;
    ++at;
  }
  return ok();
}

/// Fills a cache file with documents.
class StoreBuilder {
 public:
  StoreBuilder(const DataSpec& spec, const PrepareOptions& options) : spec_(spec), options_(options) {}

  /// Hashes the files' names and contents into the key; files with a NUL are found on the way.
  Status read_key(const Documents& documents, KeyHash& hash, bool binary_is_wrong) {
    std::vector<std::byte> buffer(kFileBuffer);
    hash.add(kStoreVersion);
    hash.add(spec_.kind);
    for (const TextDocument& document : documents.files) {
      const File file = TRY(File::open_read(document.path));
      KeyHash content;
      uint64_t size = 0;
      bool nul = false;
      while (const size_t n = TRY(file.read_some(buffer, size))) {
        if (options_.progress) TRY_STATUS(options_.progress(0, 0));
        const auto piece = std::span(buffer).first(n);
        content.part(piece);
        if (const void* at = binary_is_wrong && !nul ? std::memchr(piece.data(), 0, n) : nullptr) {
          const uint64_t where = size + static_cast<uint64_t>(static_cast<const std::byte*>(at) - piece.data());
          if (document.named)
            return data_error(spec_, "'" + document.path.string() + "' is not a text: byte " + std::to_string(where) + " is a NUL");
          nul = true;
        }
        size += n;
      }
      if (nul) {
        ++facts_.binary;
        continue;
      }
      hash.add(document.identity);
      hash.add(size);
      hash.add(content.digits());
      found_.push_back({document.path.string(), content.digits()});
      kept_.files.push_back(document);
      times_.push_back(written(document));
      kept_.files.back().size = size;
      facts_.bytes += size;
    }
    hash.add(facts_.binary);
    key_ = hash.digits();
    return ok();
  }

  Result<std::optional<TokenStore>> find() const {
    std::optional<CacheFile> file = TRY(CacheFile::open(key_, "tokens"));
    if (!file) return std::optional<TokenStore>();
    return std::optional(store_of(std::move(*file)));
  }

  Status begin() {
    writer_ = TRY(CacheWriter::create(key_, "tokens"));
    return ok();
  }

  Status add(std::span<const uint32_t> tokens) {
    for (const uint32_t token : tokens)
      if ((token & ~kTokenBits) != kHalf) facts_.largest = std::max<uint64_t>(facts_.largest, token & kTokenBits);
    return writer_->append(TokenStore::kTokens, tokens);
  }

  /// A document ends with `tokens` tokens since the one before it.
  Status end_document(uint64_t tokens, uint64_t identity) {
    facts_.tokens += tokens;
    ++facts_.documents;
    const DocumentEnd end = {facts_.tokens, identity};
    return writer_->append(TokenStore::kIndex, std::span(&end, 1));
  }

  Result<TokenStore> finish() {
    // The key is of what the files held when they were hashed: it must not come to stand for anything else.
    for (size_t i = 0; i < kept_.files.size(); ++i) {
      if (written(kept_.files[i]) == times_[i]) continue;
      return data_error(spec_, "'" + kept_.files[i].path.string() + "' changed while it was being read", "let it be, and begin again");
    }
    const StoreFacts& f = facts_;
    CacheFile made =
        TRY(writer_->finish({f.tokens, f.documents, f.bytes, f.largest, f.skipped, f.repaired, f.small, f.binary, f.specials}));
    writer_.reset();
    return store_of(std::move(made));
  }

  Result<TokenStore> open_raw(TokenStore store, const Documents& documents, uint64_t token_bytes) const {
    uint64_t begin = 0;
    for (const TextDocument& document : documents.files) {
      const uint64_t end = begin + document.size / token_bytes;
      if (end > begin) store.raw_.push_back({TRY(File::open_read(document.path)), begin, end});
      begin = end;
    }
    store.raw_bytes_ = token_bytes;
    return store;
  }

  Status tell(uint64_t done) const { return options_.progress ? options_.progress(done, facts_.bytes) : ok(); }
  StoreFacts& facts() { return facts_; }
  const Documents& kept() const { return kept_; }

 private:
  TokenStore store_of(CacheFile file) const {
    TokenStore store(std::move(file), key_);
    store.files_ = found_;
    return store;
  }
  static std::filesystem::file_time_type written(const TextDocument& document) {
    std::error_code error;
    return std::filesystem::last_write_time(document.path, error);
  }

  const DataSpec& spec_;
  const PrepareOptions& options_;
  Documents kept_;
  std::vector<DataFile> found_;                         // of kept_
  std::vector<std::filesystem::file_time_type> times_;  // of kept_
  std::string key_;
  StoreFacts facts_;
  std::unique_ptr<CacheWriter> writer_;
};

namespace {

/// What it is not goes by skip_bad: a file of another form is never left out in silence.
Result<LineFile> open_lines(const DataSpec& spec, const std::filesystem::path& path) {
  Result<LineFile> file = LineFile::open(path);
  if (!file && file.error().exit == Exit::Recipe) return data_error(spec, file.error().cause, file.error().hint);
  return file;
}

/// Makes tokens of text and of lines, on all threads.
class Pass {
 public:
  Pass(const DataSpec& spec, StoreBuilder& builder, const DocumentEncoder& encoder, std::string separator, bool skip_bad)
      : spec_(spec), builder_(builder), encoder_(encoder), separator_(std::move(separator)), skip_bad_(skip_bad) {}

  Status run(size_t threads) {
    // Each made by its own thread, so that they share no cache lines.
    std::vector<std::unique_ptr<DocumentEncoder::Work>> works(threads);
    const auto of = [&](size_t thread) -> Result<DocumentEncoder::Work*> {
      if (!works[thread]) works[thread] = TRY(encoder_.open());
      return works[thread].get();
    };
    const auto consume = [&](Job& job) { return take(job); };
    if (!encoder_.by_lines()) {
      DocumentEncoder::Work work(encoder_.codec());
      TextPieces pieces(builder_.kept(), separator_,
                        [&](std::string_view before, std::string_view after) { return encoder_.separate(before, after, work); });
      return in_order<Job>(
          threads,
          [&](Job& job) -> Result<bool> {
            TRY_STATUS(builder_.tell(pieces.bytes()));
            // Many short documents are one job: handing over each would cost more than its work.
            // Only the memory of the first is used again, which may be large.
            job.pieces.resize(1);
            if (!TRY(pieces.next(&job.pieces[0]))) return false;
            for (size_t bytes = job.pieces[0].text.size(); bytes < kJob; bytes += job.pieces.back().text.size() + separator_.size()) {
              TextPiece next;
              if (!TRY(pieces.next(&next))) break;
              job.pieces.push_back(std::move(next));
            }
            return true;
          },
          [&](Job& job, size_t thread) -> Status {
            DocumentEncoder::Work& own = *TRY(of(thread));
            job.clear();
            for (TextPiece& piece : job.pieces) TRY_STATUS(encode_piece(job, piece, own));
            job.specials = std::exchange(own.specials, 0);
            return ok();
          },
          consume);
    }
    uint64_t before = 0;
    for (size_t f = 0; f < builder_.kept().files.size(); ++f) {
      LineFile file = TRY(open_lines(spec_, builder_.kept().files[f].path));
      LineBlocks blocks([&](std::span<std::byte> bytes) -> Result<size_t> {
        Result<size_t> n = file.read(bytes);
        if (!n && n.error().exit == Exit::Recipe) return data_error(spec_, n.error().cause, n.error().hint);
        return n;
      });
      TRY_STATUS(in_order<Job>(
          threads,
          [&](Job& job) -> Result<bool> {
            job.file = f;
            TRY_STATUS(builder_.tell(before + file.offset()));
            return blocks.next(&job.lines);
          },
          [&](Job& job, size_t thread) -> Status { return encode_lines(job, file, *TRY(of(thread))); }, consume));
      before += file.offset();
    }
    return ok();
  }

 private:
  Status encode_piece(Job& job, TextPiece& piece, DocumentEncoder::Work& work) const {
    using Position = DocumentEncoder::Position;
    const bool repair = !encoder_.codec().bytes() && !is_utf8(piece.text);
    if (repair) piece.text = valid_utf8(piece.text, &job.repaired);
    const bool begins = piece.begins, ends = piece.ends;
    const Position position = begins && ends ? Position::Only : begins ? Position::First : ends ? Position::Last : Position::Middle;
    const Status encoded = encoder_.encode_text(piece.text, position, work, &job.tokens);
    if (!encoded) return data_error(spec_, builder_.kept().files[piece.file].path.string() + ": " + encoded.error().cause, "");
    if (!ends) return ok();
    job.ends.push_back(job.tokens.size());
    job.identities.push_back(identity_of(builder_.kept().files[piece.file], piece.number));
    return ok();
  }

  Status encode_lines(Job& job, const LineFile& file, DocumentEncoder::Work& work) const {
    job.clear();
    const TextDocument& document = builder_.kept().files[job.file];
    const auto place = [&](int64_t number) { return file.place(number); };
    const auto bad = [&](const Error& error) -> Status {
      if (error.exit != Exit::Recipe) return error;
      ++job.skipped;
      if (skip_bad_) return ok();
      return data_error(spec_, error.cause, error.hint.empty() ? "skip_bad = true leaves such lines out and counts them" : error.hint);
    };
    if (job.lines.too_long) return bad(recipe_error(place(job.lines.first_line) + ": " + too_long_line()));
    const Status read = for_each_line(job.lines, [&](std::string_view line, int64_t number) -> Status {
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) return ok();
      std::string repaired;
      if (!is_utf8(line)) line = repaired = valid_utf8(line, &job.repaired);
      const Status status = encoder_.encode(line, place(number), work, &job.tokens, &job.ends);
      if (!status) return bad(status.error());
      // Several rows of one conversation are held out together.
      job.identities.resize(job.ends.size(), identity_of(document, static_cast<uint64_t>(number)));
      return ok();
    });
    job.specials = std::exchange(work.specials, 0);
    return read;
  }

  /// The results of a part, in the order of the input.
  Status take(Job& job) {
    builder_.facts().skipped += job.skipped;
    builder_.facts().repaired += static_cast<uint64_t>(job.repaired);
    builder_.facts().specials += job.specials;
    uint64_t begin = 0;
    for (size_t d = 0; d < job.ends.size(); ++d) {
      const std::span<const uint32_t> tokens = std::span(job.tokens).subspan(begin, job.ends[d] - begin);
      begin = job.ends[d];
      const uint64_t size = open_ + tokens.size();
      open_ = 0;
      if (size < 2) ++builder_.facts().small;
      TRY_STATUS(builder_.add(tokens));
      if (size > 0) TRY_STATUS(builder_.end_document(size, job.identities[d]));
    }
    const std::span<const uint32_t> rest = std::span(job.tokens).subspan(begin);
    open_ += rest.size();
    return builder_.add(rest);
  }

  const DataSpec& spec_;
  StoreBuilder& builder_;
  const DocumentEncoder& encoder_;
  std::string separator_;
  bool skip_bad_;
  uint64_t open_ = 0;  // tokens of the document that goes on
};

}  // namespace

Result<TokenStore> prepare_documents(const DataSpec& spec, const Documents& documents, const DocumentEncoder& encoder,
                                     const std::string& separator, bool skip_bad, const PrepareOptions& options) {
  StoreBuilder builder(spec, options);
  KeyHash hash;
  hash.add(encoder.identity());
  hash.add(TextPieces::kRule);
  hash.add(separator);
  hash.add(static_cast<uint64_t>(skip_bad));
  // Before all else: a file that nobody can read is told before it is hashed. Of plain lines the key stays what it was.
  for (const TextDocument& document : documents.files)
    if (encoder.by_lines() && TRY(open_lines(spec, document.path)).form() != LineFile::Form::Lines)
      hash.add("as lines: " + document.identity);
  TRY_STATUS(builder.read_key(documents, hash, !encoder.by_lines()));
  if (std::optional<TokenStore> found = TRY(builder.find())) return std::move(*found);
  TRY_STATUS(builder.begin());
  TRY_STATUS(Pass(spec, builder, encoder, separator, skip_bad).run(options.threads));
  return builder.finish();
}

Result<TokenStore> prepare_tokens(const DataSpec& spec, const Documents& documents, uint64_t token_bytes, int64_t separator,
                                  const PrepareOptions& options) {
  StoreBuilder builder(spec, options);
  KeyHash hash;
  hash.add(token_bytes);
  hash.add(static_cast<uint64_t>(separator));
  TRY_STATUS(builder.read_key(documents, hash, false));
  if (std::optional<TokenStore> found = TRY(builder.find())) return builder.open_raw(std::move(*found), documents, token_bytes);
  TRY_STATUS(builder.begin());
  std::vector<std::byte> buffer(kFileBuffer);
  uint64_t done = 0;
  for (const TextDocument& document : builder.kept().files) {
    if (document.size % token_bytes != 0) {
      return data_error(spec, "'" + document.path.string() + "' has " + std::to_string(document.size) +
                                  " bytes, which is no whole number of tokens of " + std::to_string(token_bytes) + " bytes");
    }
    const File file = TRY(File::open_read(document.path));
    uint64_t tokens = 0, number = 0;  // of the document at hand; of documents
    const auto end = [&]() -> Status {
      if (tokens < 2) ++builder.facts().small;
      if (tokens > 0) TRY_STATUS(builder.end_document(tokens, identity_of(document, number)));
      ++number;
      tokens = 0;
      return ok();
    };
    for (uint64_t at = 0; at < document.size; at += buffer.size()) {
      const auto piece = std::span(buffer).first(static_cast<size_t>(std::min<uint64_t>(buffer.size(), document.size - at)));
      TRY_STATUS(file.read_at(piece, at));
      for (size_t i = 0; i < piece.size(); i += token_bytes) {
        uint32_t token = 0;
        std::memcpy(&token, piece.data() + i, token_bytes);
        if (token >= kUncounted) {
          return data_error(spec, "'" + document.path.string() + "' has " + std::to_string(token) + " at byte " + std::to_string(at + i) +
                                      "; ids are below 2^31");
        }
        builder.facts().largest = std::max<uint64_t>(builder.facts().largest, token);
        ++tokens;
        if (token == separator) TRY_STATUS(end());
      }
      TRY_STATUS(builder.tell(done += piece.size()));
    }
    if (tokens > 0) TRY_STATUS(end());
  }
  TokenStore index = TRY(builder.finish());
  return builder.open_raw(std::move(index), builder.kept(), token_bytes);
}

}  // namespace galley
