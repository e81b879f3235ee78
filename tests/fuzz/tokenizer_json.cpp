// A tokenizer.json from anybody, and a text after its first NUL: it is refused, or it encodes and decodes.
#include <cstdlib>
#include <string>

#include "host/tokens/tokenizer/tokenizer.hpp"
#include "host/tokens/tokenizer/unicode.hpp"

using namespace galley;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t nul = std::min(input.find('\0'), size);
  const Result<Tokenizer> tokenizer = Tokenizer::parse(input.substr(0, nul), "tokenizer.json");
  if (!tokenizer) {
    if (tokenizer.error().cause.empty()) std::abort();
    return 0;
  }
  const std::string text = valid_utf8(nul < size ? input.substr(nul + 1) : input, nullptr);
  Tokenizer::Work work(*tokenizer);
  std::vector<TokenId> ids;
  const Status whole = tokenizer->encode(text, {Tokenizer::Around::Template, AddedTokens::Special::Token}, work, &ids);
  if (!whole && !whole.error().cause.starts_with("tokenizer.json: ")) std::abort();
  for (const TokenId id : ids)
    if (id < 0) std::abort();
  if (!is_utf8(valid_utf8(tokenizer->decode(ids), nullptr))) std::abort();

  // In three parts, the middle one of the template's.
  const size_t third = text.size() / 3;
  const Tokenizer::Segment parts[] = {{valid_utf8(text.substr(0, third), nullptr), false, true},
                                      {valid_utf8(text.substr(third, third), nullptr), true, false},
                                      {valid_utf8(text.substr(2 * third), nullptr), false, true}};
  ids.clear();
  std::vector<bool> counts;
  const Status encoded = tokenizer->encode(parts, work, &ids, &counts);
  if (encoded && ids.size() != counts.size()) std::abort();
  return 0;
}
