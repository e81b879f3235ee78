// Lines of JSON from anybody: each is a document of each kind, or an error with its place.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "host/tokens/lines.hpp"
#include "host/tokens/document_encoder.hpp"
#include "host/tokens/tokenizer/unicode.hpp"

using namespace galley;

namespace {

/// An encoder of each kind, for bytes.
struct Kinds {
  Recipe recipe;
  std::unique_ptr<TextCodec> codec;
  std::vector<DocumentEncoder> encoders;
  std::vector<std::unique_ptr<DocumentEncoder::Work>> works;

  Kinds() {
    recipe.library = GALLEY_LIBRARY;
    for (const char* kind : {"jsonl", "prompts", "chat", "chat"}) {
      DataSpec spec;
      spec.kind = kind;
      spec.options["tokenizer"] = Value(std::string("bytes"));
      if (spec.kind == "chat") spec.options["template"] = Value(std::string(encoders.size() == 2 ? "chatml" : "llama2"));
      if (!codec) codec = std::make_unique<TextCodec>(TextCodec::open(spec, recipe).value());
      encoders.push_back(DocumentEncoder::create(spec, recipe, *codec).value());
      works.push_back(encoders.back().open().value());
    }
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Kinds kinds;
  size_t at = 0;
  // In pieces of many sizes, as files and pipes give them.
  LineBlocks blocks([&](std::span<std::byte> bytes) -> Result<size_t> {
    const size_t n = std::min({bytes.size(), size - at, size_t{1} + at % 97});
    if (n > 0) std::memcpy(bytes.data(), data + at, n);
    at += n;
    return n;
  });
  LineBlock block;
  int64_t lines = 0;
  std::vector<uint32_t> tokens;
  while (blocks.next(&block).value()) {
    const Status status = for_each_line(block, [&](std::string_view line, int64_t number) -> Status {
      if (number != ++lines) std::abort();
      const std::string text = valid_utf8(line, nullptr);
      for (size_t k = 0; k < kinds.encoders.size(); ++k) {
        const size_t before = tokens.size();
        const Status encoded = kinds.encoders[k].encode(text, "x.jsonl:" + std::to_string(number), *kinds.works[k], &tokens);
        if (!encoded && (tokens.size() != before || !encoded.error().cause.starts_with("x.jsonl:" + std::to_string(number) + ":")))
          std::abort();
        for (const uint32_t token : tokens)
          if ((token & ~kUncounted) > 255) std::abort();
        tokens.clear();
      }
      return ok();
    });
    if (!status) std::abort();
  }
  if (lines < std::count(data, data + size, '\n')) std::abort();
  return 0;
}
