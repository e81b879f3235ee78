#include "host/sources/corpus.hpp"

#include <algorithm>
#include <cstdio>

#include "host/base/random.hpp"
#include "host/sources/layout.hpp"
#include "host/sources/shape.hpp"
#include "host/tokens/data_options.hpp"
#include "host/tokens/document_encoder.hpp"
#include "host/tokens/peek.hpp"
#include "host/tokens/spec.hpp"
#include "host/tokens/text_codec.hpp"

namespace galley {
namespace {

/// The options, and the files that they name.
struct CorpusOptions {
  Documents files, validation_files;
  RowOptions rows;
  std::string separator;      // text
  int64_t separator_id = -1;  // tokens
  uint64_t token_bytes = 2;   // tokens
  bool skip_bad = false;
  double mask = 0.15;
};

/// Positions of a row that holds a document of several parts.
constexpr uint64_t kDocumentRow = uint64_t{1} << 30;

FileKind kind_of_files(const DataSpec& spec) {
  return spec.kind == "text" ? FileKind::Text : spec.kind == "tokens" ? FileKind::Tokens : FileKind::Lines;
}

Status check_files(const DataSpec& spec, const Documents& documents) {
  uint64_t bytes = 0;
  for (const TextDocument& document : documents.files) bytes += document.size;
  if (bytes > 0) return ok();
  if (spec.kind != "text") {
    std::string names;
    for (const TextDocument& document : documents.files) names += (names.empty() ? "'" : ", '") + document.path.string() + "'";
    return data_error(spec, "there is nothing in " + (names.empty() ? "its files" : names));
  }
  return data_error(spec, "there is no text: no file of two bytes or more (" + std::to_string(documents.small) + " are smaller, " +
                              std::to_string(documents.binary) + " are binary)");
}

Status read_validation(const DataSpec& spec, const Recipe& recipe, CorpusOptions* out) {
  const OptionReader options = options_of(spec);
  const Value* value = options.find("validation");
  if (value && (value->as<std::string>() || value->as<List>())) {
    const std::vector<std::string> files = *TRY(options.texts("validation"));
    out->validation_files = TRY(find_documents(spec, files, kind_of_files(spec)));
    return check_files(spec, out->validation_files);
  }
  out->rows.validation = TRY(options.number("validation", Range{0, 1, false, true})).value_or(recipe.validate.every > 0 ? 0.05 : 0.0);
  return ok();
}

/// A piece of a conversation without its beginning is nothing that the model will meet: conversations are not split unless asked to.
Result<Overlong> read_overlong(const OptionReader& options, const Declared& declared) {
  const OptionSpec& spec = declared["overlong"];
  const std::string& word = spec.choices[*TRY(options.choice(spec))];
  if (word == "turn") {
    const OptionSpec& train_on = declared["train_on"];
    if (train_on.choices[*TRY(options.choice(train_on))] == "all")
      return options.wrong("overlong", "another one beside train_on = \"all\"",
                           "\"turn\" goes by what counts in the loss, and everything does");
    return Overlong::Turn;
  }
  return word == "split" ? Overlong::Split : word == "drop" ? Overlong::Drop : Overlong::Truncate;
}

Result<CorpusOptions> read_corpus_options(const DataSpec& spec, const Recipe& recipe) {
  const Declared& declared = declared_data(spec.kind);
  TRY_STATUS(options_of(spec).only(declared.options));
  CorpusOptions out;
  const OptionReader options = options_of(spec);
  const auto files = TRY(options.texts("files"));
  if (!files) return options.missing("files", "name files, folders or patterns: files = { \"text/*.txt\" }");
  const BatchLayout layout = TRY(recipe_layout(spec, recipe));
  const Fill labels = recipe.learning.labels;
  out.rows.pack.length = static_cast<uint64_t>(layout.length);
  out.rows.pack.packing = static_cast<Packing>(*TRY(options.choice(declared["packing"])));
  out.rows.pack.overlong = TRY(read_overlong(options, declared));
  if (has_parts(labels)) {
    if (options.find("packing") && out.rows.pack.packing != Packing::None)
      return options.wrong("packing", "\"none\"", "a row holds one text where the model learns its labels or its target");
    out.rows.pack.packing = Packing::None;
    out.rows.pack.length = kDocumentRow;  // the encoder cuts what is too long
  }
  if (labels == Fill::MaskedTokens) {
    if (spec.kind == "tokens" || spec.kind == "prompts" || spec.kind == "chat")
      return data_error(spec, "the model's task '" + recipe.learning.task + "' masks texts", "write data.text or data.jsonl { … }");
    out.mask = TRY(options.number("mask", declared["mask"].range)).value_or(0.15);
  }
  out.rows.pack.by_length = TRY(options.boolean("group_by_length")).value_or(false);
  if (out.rows.pack.by_length && out.rows.pack.packing != Packing::None)
    return data_error(spec, "group_by_length groups rows of one document", "write packing = \"none\" beside it");
  out.rows.seed = recipe.split;
  out.skip_bad = TRY(options.boolean("skip_bad")).value_or(false);
  if (spec.kind == "text") out.separator = TRY(options.text("separator")).value_or("");
  if (spec.kind == "tokens") {
    out.token_bytes = *TRY(options.choice(declared["dtype"])) == 0 ? 2 : 4;
    out.separator_id = TRY(options.integer("separator", 0, INT32_MAX - 1)).value_or(-1);
  }
  TRY_STATUS(read_validation(spec, recipe, &out));
  out.files = TRY(find_documents(spec, *files, kind_of_files(spec)));
  TRY_STATUS(check_files(spec, out.files));
  return out;
}

/// The recipe names one file by its own name, and all of it is a document.
bool lone_document(const DataSpec& spec, const CorpusOptions& options) {
  const auto lone = [](const Documents& documents) { return documents.files.size() == 1 && documents.files.front().named; };
  const bool whole = (spec.kind == "text" && options.separator.empty()) || (spec.kind == "tokens" && options.separator_id < 0);
  return whole && lone(options.files) && (options.validation_files.files.empty() || lone(options.validation_files));
}

class Corpus final : public RowStream {
 public:
  Corpus(std::string kind, TokenStore store, RowFile rows, const RowOptions& options, const Recipe& recipe, std::optional<Masking> masking)
      : kind_(std::move(kind)),
        store_(std::move(store)),
        rows_(std::move(rows)),
        options_(options),
        seed_(recipe.seed),
        batch_(static_cast<uint64_t>(*recipe.batch)),
        length_(static_cast<uint64_t>(*recipe.length)),
        labels_(recipe.learning.labels),
        start_(recipe.learning.start),
        masking_(std::move(masking)) {}

  void set_validation(TokenStore store, RowFile rows) {
    other_store_.emplace(std::move(store));
    other_rows_.emplace(std::move(rows));
  }

  uint64_t epoch() const override {
    const uint64_t rows = rows_.count(Split::Train);
    return options_.pack.by_length ? (rows + batch_ - 1) / batch_ * batch_ : rows;
  }
  Status write(uint64_t row, const BatchRow& out) const override {
    const uint64_t index = place(row);
    if (index < rows_.count(Split::Train)) return write_row(store_, rows_, Split::Train, index, {row, false}, out);
    pad_row(out);
    return ok();
  }
  Result<uint64_t> counted(uint64_t row) const override {
    const uint64_t index = place(row);
    if (index >= rows_.count(Split::Train)) return uint64_t{0};
    return TRY(rows_.row(Split::Train, index)).counted;
  }
  uint64_t validation_rows() const override { return validation_file().count(validation_split()); }
  Status write_validation(uint64_t row, const BatchRow& out) const override {
    return write_row(other_store_ ? *other_store_ : store_, validation_file(), validation_split(), row, {row, true}, out);
  }
  uint64_t fingerprint() const override {
    const std::string keys = store_.key() + (other_store_ ? other_store_->key() : "");
    return galley_name_hash(keys.c_str());
  }
  std::vector<DataReport> reports() const override {
    return {{kind_, store_.facts(), rows_.facts(Split::Train), validation_file().facts(validation_split()), length_}};
  }
  std::vector<DataFile> files() const override {
    std::vector<DataFile> out = store_.files();
    if (other_store_) out.insert(out.end(), other_store_->files().begin(), other_store_->files().end());
    return out;
  }

 private:
  const RowFile& validation_file() const { return other_rows_ ? *other_rows_ : rows_; }
  Split validation_split() const { return other_rows_ ? Split::Train : Split::Validation; }

  // Which row comes as number `row`: an epoch shows each once, in an order that the seed and the epoch decide; by length, whole
  // micro-batches are put in order and rows in them stay together. After the last row, there is none.
  uint64_t place(uint64_t row) const {
    const uint64_t epoch = row / this->epoch(), index = row % this->epoch();
    const uint64_t unit = options_.pack.by_length ? batch_ : 1;
    const Permutation order(this->epoch() / unit, bits64(galley_philox(seed_, galley_name_hash("data.text"), epoch), 0));
    return order(index / unit) * unit + index % unit;
  }

  Status write_row(const TokenStore& store, const RowFile& rows, Split split, uint64_t index, RowNumber number, const BatchRow& out) const {
    const RowFile::Row row = TRY(rows.row(split, index));
    size_t at = 0;
    for (uint64_t p = 0; p < row.pieces; ++p) {
      Piece piece;
      TRY_STATUS(rows.read_pieces(split, row.first + p, std::span(&piece, 1)));
      if (has_parts(labels_)) return write_document(store, piece.begin, uint64_t{piece.length} + 1, labels_, start_, out);
      const auto words = [&](std::span<int32_t> to) { return std::span(reinterpret_cast<uint32_t*>(to.data() + at), piece.length); };
      const std::span<uint32_t> ids = words(out.tokens()), labels = words(out.next());
      TRY_STATUS(store.read_tokens(piece.begin, ids));
      TRY_STATUS(store.read_tokens(piece.begin + 1, labels));
      for (size_t i = 0; i < piece.length; ++i) {
        ids[i] &= ~kUncounted;
        if (labels[i] & kUncounted) out.next()[at + i] = kNoLabel;
        out.positions()[at + i] = static_cast<int32_t>(i);
        out.first_key()[at + i] = static_cast<int32_t>(at);
      }
      at += piece.length;
    }
    out.pad(at, out.length());
    complete_row(out, 0, at, masking_ ? &*masking_ : nullptr, number);
    return ok();
  }

  std::string kind_;
  TokenStore store_;
  RowFile rows_;
  RowOptions options_;
  uint64_t seed_;  ///< of the order of rows
  uint64_t batch_, length_;
  Fill labels_;
  int32_t start_;
  std::optional<Masking> masking_;
  std::optional<TokenStore> other_store_;  // validation files of its own
  std::optional<RowFile> other_rows_;
};

Status check_ids(const DataSpec& spec, const TokenStore& store, const TextCodec* codec, int64_t vocabulary) {
  const auto largest = static_cast<int64_t>(store.facts().largest);
  if (largest < vocabulary) return ok();
  const std::string name =
      codec && !codec->bytes() && largest < codec->vocabulary() ? " ('" + codec->name(static_cast<TokenId>(largest)) + "')" : "";
  return data_error(spec,
                    "its tokens have ids up to " + std::to_string(largest) + name + ", but the model's embedding has " +
                        std::to_string(vocabulary) + " rows",
                    "the tokenizer is not the model's, or tokens were added to it and not to the model");
}

/// How the tokens of a text are masked.
Result<Masking> masking_of(const DataSpec& spec, const Recipe& recipe, const TextCodec& codec, double share, int64_t vocabulary) {
  Masking out = {codec.special().mask, share, vocabulary, {}, recipe.seed, recipe.split};
  for (const TokenId id : codec.special().all) {
    out.special.resize(std::max(out.special.size(), static_cast<size_t>(id) + 1));
    out.special[static_cast<size_t>(id)] = true;
  }
  if (out.mask < 0)
    return data_error(spec, "the model learns masked tokens, but its tokenizer has no mask",
                      "name one in tokenizer_config.json beside tokenizer.json: \"mask_token\": \"[MASK]\"");
  return out;
}

/// Something has to train.
Status check_rows(const DataSpec& spec, const TokenStore& store, const RowFile& rows, const RowOptions& options) {
  if (rows.count(Split::Train) > 0) return ok();
  const RowFacts& facts = rows.facts(Split::Train);
  if (facts.documents == 0) {
    return data_error(spec, "there is no document of two tokens or more to train on" +
                                (store.facts().skipped ? "; bad lines left out: " + std::to_string(store.facts().skipped) : std::string()));
  }
  if (facts.packed.dropped == facts.documents)
    return data_error(spec,
                      "nothing would train: all " + std::to_string(facts.documents) + " documents are longer than a row of " +
                          std::to_string(options.pack.length) + ", and overlong = \"drop\" leaves them out",
                      "a larger 'length': the longest has " + std::to_string(facts.longest) + " tokens");
  const bool cut = facts.packed.cut > 0;
  return data_error(
      spec,
      "nothing would train: no token that counts in the loss lies in the first " + std::to_string(options.pack.length) +
          " positions of any of the " + std::to_string(facts.documents) + " documents",
      cut ? "a larger 'length' (the longest document has " + std::to_string(facts.longest) + " tokens), or overlong = \"split\""
          : "look at the data with galley data RECIPE");
}

}  // namespace

Result<CorpusInfo> describe_corpus(const DataSpec& spec, const Recipe& recipe) {
  const CorpusOptions options = TRY(read_corpus_options(spec, recipe));
  CorpusInfo info;
  if (spec.kind != "tokens") {
    const TextCodec codec = TRY(TextCodec::open(spec, recipe));
    const DocumentEncoder encoder = TRY(DocumentEncoder::create(spec, recipe, codec));
    TRY_STATUS(check_first_line(spec, options.files, encoder, options.skip_bad));
    if (codec.bytes()) info.vocabulary = 256;
  }
  info.one_document = options.rows.pack.packing == Packing::None || lone_document(spec, options);
  uint64_t bytes = 0;
  for (const TextDocument& document : options.files.files) bytes += document.size;
  const size_t count = options.files.files.size();
  const bool documents = spec.kind == "text" && options.separator.empty();
  const bool lone = documents && count == 1;
  // Of a lone document of fewer than four bytes nothing can be held out; what other files hold is known when they are read.
  const bool fraction = options.rows.validation > 0 && !(lone && bytes < 4);
  info.validation = fraction || !options.validation_files.files.empty();
  info.summary =
      std::to_string(count) + (documents ? " document" : " file") + (count == 1 ? ", " : "s, ") + std::to_string(bytes) + " bytes";
  if (fraction) {
    char percent[32];
    std::snprintf(percent, sizeof percent, "%g", options.rows.validation * 100);
    info.summary += std::string("; ") + percent +
                    (lone        ? "% of it, its end, held out"
                     : documents ? "% of them held out"
                                 : "% of the documents held out");
  }
  if (!options.validation_files.files.empty())
    info.summary += "; validation: " + std::to_string(options.validation_files.files.size()) +
                    (options.validation_files.files.size() == 1 ? " file" : " files");
  if (options.files.binary > 0) info.summary += "; binary files left out: " + std::to_string(options.files.binary);
  return info;
}

Result<std::unique_ptr<RowStream>> open_corpus(const DataSpec& spec, const Recipe& recipe, int64_t vocabulary,
                                               const PrepareOptions& options) {
  CorpusOptions corpus = TRY(read_corpus_options(spec, recipe));
  std::optional<TextCodec> codec;
  std::optional<DocumentEncoder> encoder;
  if (spec.kind != "tokens") {
    codec.emplace(TRY(TextCodec::open(spec, recipe)));
    encoder.emplace(TRY(DocumentEncoder::create(spec, recipe, *codec)));
    corpus.rows.everything_counts = encoder->everything_counts();
  }
  const auto prepare = [&](const Documents& documents) {
    return encoder ? prepare_documents(spec, documents, *encoder, corpus.separator, corpus.skip_bad, options)
                   : prepare_tokens(spec, documents, corpus.token_bytes, corpus.separator_id, options);
  };
  TokenStore store = TRY(prepare(corpus.files));
  TRY_STATUS(check_ids(spec, store, codec ? &*codec : nullptr, vocabulary));
  RowFile rows = TRY(pack_documents(store, corpus.rows));
  TRY_STATUS(check_rows(spec, store, rows, corpus.rows));
  std::optional<Masking> masking;
  if (recipe.learning.labels == Fill::MaskedTokens) masking = TRY(masking_of(spec, recipe, *codec, corpus.mask, vocabulary));
  auto out = std::make_unique<Corpus>(spec.kind, std::move(store), std::move(rows), corpus.rows, recipe, std::move(masking));
  if (!corpus.validation_files.files.empty()) {
    TokenStore other = TRY(prepare(corpus.validation_files));
    TRY_STATUS(check_ids(spec, other, codec ? &*codec : nullptr, vocabulary));
    RowOptions whole = corpus.rows;
    whole.validation = 0;
    RowFile other_rows = TRY(pack_documents(other, whole));
    out->set_validation(std::move(other), std::move(other_rows));
  }
  return std::unique_ptr<RowStream>(std::move(out));
}

}  // namespace galley
