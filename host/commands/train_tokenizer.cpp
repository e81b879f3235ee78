#include "host/commands/train_tokenizer.hpp"

#include <cstdio>
#include <memory>

#include "host/base/json.hpp"
#include "host/base/new_file.hpp"
#include "host/base/ordered.hpp"
#include "host/tokens/pieces.hpp"
#include "host/tokens/tokenizer/bpe_trainer.hpp"
#include "host/tokens/tokenizer/byte_alphabet.hpp"
#include "host/tokens/tokenizer/pre_tokenizer.hpp"
#include "host/tokens/tokenizer/unicode.hpp"
#include "host/tools/report/data_report.hpp"
#include "host/tools/report/progress.hpp"
#include "host/tools/report/terminal.hpp"

namespace galley {
namespace {

constexpr const char* kEnd = "<|endoftext|>";
constexpr size_t kLeast = 257;  // every byte, and kEnd

Table byte_level(bool add_prefix_space) {
  return {{"type", Value(std::string("ByteLevel"))},
          {"add_prefix_space", Value(add_prefix_space)},
          {"trim_offsets", Value(true)},
          {"use_regex", Value(true)}};
}

/// Counts how often each word occurs, on all threads.
Result<WordCounts> count_words(const Documents& documents, size_t threads) {
  const Value spec(byte_level(false));
  const PreTokenizer cutter = TRY(PreTokenizer::read(&spec, "pre_tokenizer"));
  struct Counter {
    explicit Counter(const PreTokenizer& steps) : work(steps) {}
    PreTokenizer::Work work;
    WordCounts words;
  };
  std::vector<std::unique_ptr<Counter>> counters;
  for (size_t t = 0; t < threads; ++t) counters.push_back(std::make_unique<Counter>(cutter));
  uint64_t total = 0;
  for (const TextDocument& document : documents.files) total += document.size;
  BytesProgress progress("counting words");
  TextPieces pieces(documents, "");
  TRY_STATUS(in_order<TextPiece>(
      threads,
      [&](TextPiece& piece) {
        progress.update(pieces.bytes(), total);
        return pieces.next(&piece);
      },
      [&](TextPiece& piece, size_t thread) {
        Counter& counter = *counters[thread];
        const std::string text = valid_utf8(piece.text, nullptr);
        return cutter.cut(text, PreTokenizer::Start::Inside, counter.work, [&](std::string_view word) {
          const auto it = counter.words.find(word);
          if (it != counter.words.end()) ++it->second;
          else counter.words.emplace(word, 1);
        });
      },
      [](TextPiece&) { return ok(); }));
  WordCounts all = std::move(counters[0]->words);
  for (size_t t = 1; t < threads; ++t)
    for (const auto& [word, count] : counters[t]->words) all[word] += count;
  return all;
}

std::string tokenizer_json(const TrainedBpe& trained) {
  Table vocabulary = {{kEnd, Value(int64_t{0})}};
  for (size_t i = 1; i < trained.tokens.size(); ++i) vocabulary.emplace(text_of_bytes(trained.tokens[i]), static_cast<int64_t>(i));
  List merges;
  for (const auto& [left, right] : trained.merges)
    merges.emplace_back(List{Value(text_of_bytes(trained.tokens[left])), Value(text_of_bytes(trained.tokens[right]))});
  const Value no(false), none;
  const Table end = {{"id", Value(int64_t{0})},
                     {"content", Value(std::string(kEnd))},
                     {"single_word", no},
                     {"lstrip", no},
                     {"rstrip", no},
                     {"normalized", no},
                     {"special", Value(true)}};
  const Table model = {{"type", Value(std::string("BPE"))},
                       {"dropout", none},
                       {"unk_token", none},
                       {"continuing_subword_prefix", none},
                       {"end_of_word_suffix", none},
                       {"fuse_unk", no},
                       {"byte_fallback", no},
                       {"ignore_merges", no},
                       {"vocab", Value(std::move(vocabulary))},
                       {"merges", Value(std::move(merges))}};
  const Table all = {{"version", Value(std::string("1.0"))},
                     {"truncation", none},
                     {"padding", none},
                     {"added_tokens", Value(List{Value(end)})},
                     {"normalizer", none},
                     {"pre_tokenizer", Value(byte_level(false))},
                     {"post_processor", Value(byte_level(true))},
                     {"decoder", Value(byte_level(true))},
                     {"model", Value(model)}};
  return to_json(Value(all)) + "\n";
}

}  // namespace

Status train_tokenizer(const std::vector<std::string>& files, size_t vocabulary, const std::filesystem::path& out, size_t threads) {
  if (vocabulary < kLeast)
    return recipe_error("--vocab " + std::to_string(vocabulary) + ": the least is " + std::to_string(kLeast) +
                        ", one token for each byte and " + kEnd);
  std::error_code error;
  if (std::filesystem::exists(out / "tokenizer.json", error))
    return recipe_error((out / "tokenizer.json").string() + " exists already", "name another directory with --out");
  DataSpec spec;
  spec.kind = "text";
  spec.place.file = "--train";
  const Documents documents = TRY(find_documents(spec, files, FileKind::Text));
  if (documents.files.empty()) return recipe_error("--train: there is no text in the files");
  const WordCounts words = TRY(count_words(documents, threads));
  const TrainedBpe trained = train_bpe(words, vocabulary, 1);

  std::filesystem::create_directories(out, error);
  if (error) return run_error("cannot create '" + out.string() + "': " + error.message());
  TRY_STATUS(
      write_atomic(out / "tokenizer_config.json", to_json(Value(Table{{"tokenizer_class", Value(std::string("PreTrainedTokenizerFast"))},
                                                                      {"bos_token", Value(std::string(kEnd))},
                                                                      {"eos_token", Value(std::string(kEnd))}}),
                                                          2) +
                                                      "\n"));
  TRY_STATUS(write_atomic(out / "tokenizer.json", tokenizer_json(trained)));
  print_lines("%s: %s tokens from %s files, %s different words\n", (out / "tokenizer.json").c_str(), grouped(trained.tokens.size()).c_str(),
              grouped(documents.files.size()).c_str(), grouped(words.size()).c_str());
  if (trained.tokens.size() < vocabulary)
    std::printf("  fewer than %s: there are no more pairs of tokens to merge\n", grouped(vocabulary).c_str());
  return ok();
}

}  // namespace galley
