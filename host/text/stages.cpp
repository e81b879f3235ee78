#include "host/text/stages.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>

#include "host/text/fields.hpp"
#include "host/text/unicode.hpp"

namespace galley {
namespace {

// GPT-2's words (Radford et al. 2019).
constexpr const char* kWords = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Bytes that print as they are keep their code point; the others get the next free ones from U+0100.
struct Alphabet {
  std::unordered_map<char32_t, uint8_t> byte;
  std::array<char32_t, 256> character;

  Alphabet() {
    char32_t next = 0x100;
    for (char32_t b = 0; b < 256; ++b) {
      const bool prints = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      const char32_t c = prints ? b : next++;
      byte[c] = static_cast<uint8_t>(b);
      character[b] = c;
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet a;
  return a;
}

std::string quoted(const std::string& literal) {
  std::string out;
  for (const char c : literal) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string replaced(std::string_view text, const std::string& what, const std::string& by) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t found = what.empty() ? std::string_view::npos : text.find(what, at);
    out.append(text.substr(at, found == std::string_view::npos ? found : found - at));
    if (found == std::string_view::npos) break;
    out += by;
    at = found + what.size();
  }
  return out;
}

/// What rules of replacement may make of a text: so many times its length, in bytes. SentencePiece's make 3 of a space.
constexpr double kMostGrowth = 64;
constexpr size_t kMostPrepended = 1024;  // bytes, to each piece of a text

/// Rules one behind the other: `growth` is that of those before.
Status check_growth(const JsonObject& object, const std::string& what, const std::string& by, double* growth) {
  if (!what.empty()) *growth *= std::max(1.0, static_cast<double>(by.size()) / static_cast<double>(what.size()));
  if (*growth <= kMostGrowth) return ok();
  char times[32];
  std::snprintf(times, sizeof times, "%g", *growth);
  return object.wrong("with the rules before it, this Replace can make a text " + std::string(times) +
                      " times as long; 64 times is the most");
}

/// Calls `add` with the object itself, or with each of a Sequence's.
template <class Add>
Status each_of(const JsonObject& object, const char* list_name, Add&& add) {
  const List* list = TRY(object.list(list_name));
  for (size_t i = 0; i < list->size(); ++i) TRY_STATUS(add((*list)[i], object.where() + "." + list_name + "[" + std::to_string(i) + "]"));
  return ok();
}

}  // namespace

std::optional<std::string> bytes_of_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const CodePoint c = next_code_point(text);
    const auto it = alphabet().byte.find(c.value);
    if (it == alphabet().byte.end()) return std::nullopt;
    out.push_back(static_cast<char>(it->second));
    text.remove_prefix(c.bytes);
  }
  return out;
}

std::string text_of_bytes(std::string_view bytes) {
  std::string out;
  for (const char b : bytes) append_utf8(alphabet().character[static_cast<uint8_t>(b)], &out);
  return out;
}

std::vector<std::string> byte_characters() {
  std::array<char32_t, 256> sorted = alphabet().character;
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::string> out(sorted.size());
  for (size_t i = 0; i < sorted.size(); ++i) append_utf8(sorted[i], &out[i]);
  return out;
}

// ---- Normalizers ----------------------------------------------------------------------------------------------------------------

Result<Normalizer> Normalizer::read(const Value* spec, const std::string& where) {
  Normalizer out;
  if (spec) TRY_STATUS(out.add(*spec, where));
  return out;
}

Status Normalizer::add(const Value& spec, const std::string& where) {
  const JsonObject object = TRY(JsonObject::of(spec, where));
  if (object.type() == "Sequence") return each_of(object, "normalizers", [&](const Value& s, const std::string& w) { return add(s, w); });
  if (object.type() == "NFC") {
    stages_.emplace_back(Compose{});
  } else if (object.type() == "Prepend") {
    std::string text = TRY(object.text("prepend"));
    if (text.size() > kMostPrepended) return object.wrong("'prepend' has " + std::to_string(text.size()) + " bytes; 1024 are the most");
    stages_.emplace_back(Prepend{std::move(text)});
  } else if (object.type() == "Replace") {
    const JsonObject::Pattern what = TRY(object.pattern("pattern"));
    if (what.regex) return object.wrong("a Replace by regular expression is not supported");
    std::string by = TRY(object.text("content"));
    TRY_STATUS(check_growth(object, what.text, by, &growth_));
    stages_.emplace_back(Replace{what.text, std::move(by)});
  } else {
    return object.unsupported({"NFC", "Prepend", "Replace", "Sequence"});
  }
  return ok();
}

std::string Normalizer::apply(std::string_view text, Begin begin) const {
  std::string out(text);
  for (const auto& stage : stages_) {
    if (std::get_if<Compose>(&stage)) out = nfc(out);
    else if (const auto* prepend = std::get_if<Prepend>(&stage)) out = out.empty() || begin == Begin::Before ? out : prepend->text + out;
    else if (const auto* replace = std::get_if<Replace>(&stage)) out = replaced(out, replace->what, replace->by);
  }
  return out;
}

// ---- Pre-tokenizers -------------------------------------------------------------------------------------------------------------

Result<PreTokenizer> PreTokenizer::read(const Value* spec, const std::string& where) {
  PreTokenizer out;
  if (spec) TRY_STATUS(out.add(*spec, where));
  return out;
}

Status PreTokenizer::add(const Value& spec, const std::string& where) {
  const JsonObject object = TRY(JsonObject::of(spec, where));
  if (object.type() == "Sequence") return each_of(object, "pretokenizers", [&](const Value& s, const std::string& w) { return add(s, w); });
  if (byte_level_) return object.wrong("it comes after ByteLevel, which has to be the last");
  const auto regex = [&](const std::string& pattern) -> Result<std::shared_ptr<const Regex>> {
    Result<Regex> made = Regex::compile(pattern);
    if (!made) return object.wrong(made.error().cause);
    return std::make_shared<const Regex>(std::move(*made));
  };
  if (object.type() == "Split") {
    const JsonObject::Pattern pattern = TRY(object.pattern("pattern"));
    const std::string behavior = TRY(object.text("behavior"));
    if (behavior != "Isolated" && behavior != "Removed")
      return object.wrong("behavior '" + behavior + "' is not supported; there is: Isolated, Removed");
    if (TRY(object.flag("invert", false))) return object.wrong("invert = true is not supported");
    auto compiled = TRY(regex(pattern.regex ? pattern.text : quoted(pattern.text)));
    stages_.push_back({Kind::Split, std::move(compiled), behavior == "Isolated", false, where});
  } else if (object.type() == "Digits") {
    stages_.push_back({Kind::Digits, nullptr, true, TRY(object.flag("individual_digits", false))});
  } else if (object.type() == "ByteLevel") {
    byte_level_ = true;
    if (TRY(object.flag("add_prefix_space", true))) stages_.push_back({Kind::Prefix, nullptr, true, false});
    if (TRY(object.flag("use_regex", true))) {
      auto compiled = TRY(regex(kWords));
      stages_.push_back({Kind::Split, std::move(compiled), true, false, where});
    }
  } else {
    return object.unsupported({"ByteLevel", "Digits", "Sequence", "Split"});
  }
  return ok();
}

PreTokenizer::Work::Work(const PreTokenizer& of) : prefixed_(of.stages_.size()) {
  for (const Stage& stage : of.stages_) matches_.push_back(stage.regex ? std::make_unique<Regex::Matches>(*stage.regex) : nullptr);
}

Status PreTokenizer::cut(std::string_view text, Work& work, const Words& word) const { return cut(0, text, work, word); }

Status PreTokenizer::cut(size_t at, std::string_view text, Work& work, const Words& word) const {
  if (text.empty()) return ok();
  if (at == stages_.size()) {
    word(text);
    return ok();
  }
  const Stage& stage = stages_[at];
  switch (stage.kind) {
    case Kind::Prefix: {
      if (text.front() == ' ') return cut(at + 1, text, work, word);
      std::string& prefixed = work.prefixed_[at];
      prefixed.assign(1, ' ').append(text);
      return cut(at + 1, prefixed, work, word);
    }
    case Kind::Split: return split(at, text, work, word);
    case Kind::Digits: {
      size_t begin = 0;
      bool digits = false;
      for (size_t i = 0; i < text.size();) {
        const CodePoint c = next_code_point(text.substr(i));
        const bool digit = is_numeric(c.value);
        if (i > begin && (digit != digits || (digit && stage.individual))) {
          TRY_STATUS(cut(at + 1, text.substr(begin, i - begin), work, word));
          begin = i;
        }
        digits = digit;
        i += c.bytes;
      }
      return cut(at + 1, text.substr(begin), work, word);
    }
  }
  return ok();
}

Status PreTokenizer::split(size_t at, std::string_view text, Work& work, const Words& word) const {
  const Stage& stage = stages_[at];
  size_t done = 0, from = 0;
  bool matched = false;  // and ended at `done`
  while (from <= text.size()) {
    Regex::Span span;
    const Result<bool> found = stage.regex->find(text, from, *work.matches_[at], &span);
    if (!found) return recipe_error(stage.where + ": " + found.error().cause);
    if (!*found) break;
    // An empty match cuts between two characters. Right behind another match it is none.
    if (matched && span.begin == span.end && span.end == done) {
      if (from == text.size()) break;
      from += next_code_point(text.substr(from)).bytes;
      continue;
    }
    TRY_STATUS(cut(at + 1, text.substr(done, span.begin - done), work, word));
    if (stage.keeps) TRY_STATUS(cut(at + 1, text.substr(span.begin, span.end - span.begin), work, word));
    done = from = span.end;
    matched = true;
  }
  return cut(at + 1, text.substr(done), work, word);
}

// ---- Decoders -------------------------------------------------------------------------------------------------------------------

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
  if (object.type() == "Sequence") return each_of(object, "decoders", [&](const Value& s, const std::string& w) { return add(s, w); });
  if (object.type() == "ByteLevel") {
    stages_.push_back({Kind::ByteLevel, "", "", 0, 0});
  } else if (object.type() == "Replace") {
    const JsonObject::Pattern what = TRY(object.pattern("pattern"));
    if (what.regex) return object.wrong("a Replace by regular expression is not supported");
    std::string by = TRY(object.text("content"));
    TRY_STATUS(check_growth(object, what.text, by, &growth_));
    stages_.push_back({Kind::Replace, what.text, std::move(by), 0, 0});
  } else if (object.type() == "ByteFallback") {
    stages_.push_back({Kind::ByteFallback, "", "", 0, 0});
  } else if (object.type() == "Fuse") {
    stages_.push_back({Kind::Fuse, "", "", 0, 0});
  } else if (object.type() == "Strip") {
    const std::string content = TRY(object.text("content"));
    const int64_t start = TRY(object.integer("start", 0)), stop = TRY(object.integer("stop", 0));
    stages_.push_back({Kind::Strip, content, "", start, stop});
  } else {
    return object.unsupported({"ByteFallback", "ByteLevel", "Fuse", "Replace", "Sequence", "Strip"});
  }
  return ok();
}

namespace {

/// The byte of "<0x41>", -1 for any other token.
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

std::vector<std::string> byte_fallback(const std::vector<std::string>& tokens) {
  std::vector<std::string> out;
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

}  // namespace

std::string Decoder::join(std::vector<std::string> tokens) const {
  const auto fused = [&](const char* between) {
    std::string out;
    for (size_t i = 0; i < tokens.size(); ++i) out += (i ? between : "") + tokens[i];
    return out;
  };
  for (const Stage& stage : stages_) {
    switch (stage.kind) {
      case Kind::ByteLevel: {
        std::string out;
        for (const std::string& token : tokens) {
          const auto bytes = bytes_of_text(token);
          out += bytes ? *bytes : token;
        }
        tokens = {valid_utf8(out, nullptr)};
        break;
      }
      case Kind::Replace:
        for (std::string& token : tokens) token = replaced(token, stage.what, stage.by);
        break;
      case Kind::ByteFallback: tokens = byte_fallback(tokens); break;
      case Kind::Fuse: tokens = {fused("")}; break;
      case Kind::Strip:
        for (std::string& token : tokens) token = stripped(token, stage.what, stage.start, stage.stop);
        break;
    }
  }
  return fused(none_ ? " " : "");
}

}  // namespace galley
