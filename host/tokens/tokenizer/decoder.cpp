#include "host/tokens/tokenizer/decoder.hpp"

#include <algorithm>

#include "host/tokens/tokenizer/byte_alphabet.hpp"
#include "host/tokens/tokenizer/unicode.hpp"

namespace galley {
namespace {

using Tokens = std::vector<std::string>;

/// Returns the byte of "<0x41>", -1 for any other token.
int byte_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

Tokens byte_fallback(const Tokens& tokens) {
  Tokens out;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (is_utf8(bytes)) out.push_back(bytes);
    else out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
    bytes.clear();
  };
  for (const std::string& token : tokens) {
    const int byte = byte_token(token);
    if (byte >= 0) {
      bytes.push_back(static_cast<char>(byte));
      continue;
    }
    flush();
    out.push_back(token);
  }
  flush();
  return out;
}

std::string stripped(std::string_view token, const std::string& content, int64_t start, int64_t stop) {
  for (; start > 0 && !content.empty() && token.starts_with(content); --start) token.remove_prefix(content.size());
  for (; stop > 0 && !content.empty() && token.ends_with(content); --stop) token.remove_suffix(content.size());
  return std::string(token);
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  if (what.empty()) return text;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) text.replace(at, what.size(), by);
  return text;
}

/// What BERT's own code does to English text; " do not" is its slip, kept for the same text.
std::string cleaned(std::string text) {
  static constexpr std::pair<const char*, const char*> rules[] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                                                  {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                                                  {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [what, by] : rules) text = replaced(std::move(text), what, by);
  return text;
}

std::string joined(const Tokens& tokens, const char* between) {
  std::string out;
  for (size_t i = 0; i < tokens.size(); ++i) out.append(i ? between : "").append(tokens[i]);
  return out;
}

}  // namespace

Result<Decoder> Decoder::read(const Value* spec, const std::string& where) {
  Decoder out;
  if (spec) {
    out.none_ = false;
    TRY_STATUS(out.add(*spec, where));
  }
  return out;
}

Status Decoder::add(const Value& spec, const std::string& where) {
  const JsonObject object = TRY(JsonObject::of(spec, where));
  const std::string& type = object.type();
  if (type == "Sequence") return object.each("decoders", [&](const Value& s, const std::string& w) { return add(s, w); });
  if (type == "ByteLevel") {
    stages_.emplace_back(ByteLevel{});
  } else if (type == "Replace") {
    Replacement replacement = TRY(Replacement::read(object));
    TRY_STATUS(growth_.add(object, replacement.growth()));
    stages_.emplace_back(std::move(replacement));
  } else if (type == "ByteFallback") {
    stages_.emplace_back(ByteFallback{});
  } else if (type == "Fuse") {
    stages_.emplace_back(Fuse{});
  } else if (type == "Strip") {
    std::string content = TRY(object.text("content"));
    const int64_t start = TRY(object.integer("start", 0)), stop = TRY(object.integer("stop", 0));
    stages_.emplace_back(Strip{std::move(content), start, stop});
  } else if (type == "Metaspace") {
    stages_.emplace_back(TRY(Metaspace::read(object)));
  } else if (type == "WordPiece") {
    std::string prefix = object.field("prefix") ? TRY(object.text("prefix")) : std::string("##");
    stages_.emplace_back(WordPiece{std::move(prefix), TRY(object.flag("cleanup", true))});
  } else if (type == "BPEDecoder") {
    stages_.emplace_back(EndOfWord{object.field("suffix") ? TRY(object.text("suffix")) : std::string("</w>")});
  } else {
    return object.unsupported(
        {"BPEDecoder", "ByteFallback", "ByteLevel", "Fuse", "Metaspace", "Replace", "Sequence", "Strip", "WordPiece"});
  }
  return ok();
}

std::string Decoder::join(std::vector<std::string> tokens) const {
  for (const auto& stage : stages_) {
    if (std::holds_alternative<ByteLevel>(stage)) {
      std::string out;
      for (const std::string& token : tokens) {
        const auto bytes = bytes_of_text(token);
        out += bytes ? *bytes : token;
      }
      tokens = {valid_utf8(out, nullptr)};
    } else if (std::holds_alternative<ByteFallback>(stage)) {
      tokens = byte_fallback(tokens);
    } else if (std::holds_alternative<Fuse>(stage)) {
      tokens = {joined(tokens, "")};
    } else if (const auto* strip = std::get_if<Strip>(&stage)) {
      for (std::string& token : tokens) token = stripped(token, strip->content, strip->start, strip->stop);
    } else if (const auto* replacement = std::get_if<Replacement>(&stage)) {
      for (std::string& token : tokens)
        if (Result<std::string> by = replacement->apply(token)) token = std::move(*by);
    } else if (const auto* metaspace = std::get_if<Metaspace>(&stage)) {
      for (size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = replaced(std::move(tokens[i]), metaspace->space, i == 0 && metaspace->prepend != Prepend::Never ? "" : " ");
    } else if (const auto* words = std::get_if<WordPiece>(&stage)) {
      for (size_t i = 0; i < tokens.size(); ++i) {
        if (i > 0) tokens[i] = tokens[i].starts_with(words->continuing) ? tokens[i].substr(words->continuing.size()) : " " + tokens[i];
        if (words->cleans) tokens[i] = cleaned(std::move(tokens[i]));
      }
    } else if (const auto* ends = std::get_if<EndOfWord>(&stage)) {
      for (size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = replaced(std::move(tokens[i]), ends->suffix, i + 1 == tokens.size() ? "" : " ");
    }
  }
  return joined(tokens, none_ ? " " : "");
}

}  // namespace galley
