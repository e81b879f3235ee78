#include "host/tokens/tokenizer/normalizer.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace galley {
namespace {

constexpr size_t kMostPrepended = 1024;  // bytes, to each piece of a text

/// Each character to what `make(c, &out)` makes of it. Sets `*front` where that is nothing for the first one.
template <class Make>
std::string by_characters(std::string_view text, bool* front, Make&& make) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = next_code_point(text.substr(at));
    make(c.value, &out);
    if (at == 0) *front |= out.empty();
    at += c.bytes;
  }
  return out;
}

std::string lowered(std::string_view text) {
  bool front = false;
  return by_characters(text, &front, append_lower);
}

/// What BERT takes for Chinese, with its own code's slip: U+2B820 … U+2B91F are not among them.
bool is_chinese(char32_t c) {
  static constexpr std::pair<char32_t, char32_t> ranges[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                                             {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
                                                             {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  return c >= 0x3400 && std::any_of(std::begin(ranges), std::end(ranges), [c](const auto& r) { return c >= r.first && c <= r.second; });
}

/// Appends what SentencePiece's "nmt" makes of a code point, without its compatibility forms.
void append_nmt(char32_t c, std::string* out) {
  if ((c >= 1 && c <= 8) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) return;
  const bool space = (c >= 0x09 && c <= 0x0D) || c == 0x1680 || (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                     c == 0xFEFF || c == 0xFFFD;
  append_utf8(space ? ' ' : c, out);
}

std::string_view stripped(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    const CodePoint c = next_code_point(text);
    if (!is_space(c.value)) break;
    text.remove_prefix(c.bytes);
  }
  while (right && !text.empty()) {
    size_t at = text.size() - 1;
    while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
    if (!is_space(next_code_point(text.substr(at)).value)) break;
    text.remove_suffix(text.size() - at);
  }
  return text;
}

}  // namespace

Result<Normalizer> Normalizer::read(const Value* spec, const std::string& where) {
  Normalizer out;
  if (spec) TRY_STATUS(out.add(*spec, where));
  return out;
}

Status Normalizer::add(const Value& spec, const std::string& where) {
  const JsonObject object = TRY(JsonObject::of(spec, where));
  const std::string& type = object.type();
  if (type == "Sequence") return object.each("normalizers", [&](const Value& s, const std::string& w) { return add(s, w); });
  static constexpr std::pair<const char*, NormalForm> forms[] = {
      {"NFC", NormalForm::C}, {"NFD", NormalForm::D}, {"NFKC", NormalForm::KC}, {"NFKD", NormalForm::KD}};
  for (const auto& [name, form] : forms) {
    if (type != name) continue;
    stages_.emplace_back(Compose{form});
    return ok();
  }
  if (type == "Prepend") {
    std::string text = TRY(object.text("prepend"));
    if (text.size() > kMostPrepended) return object.wrong("'prepend' has " + std::to_string(text.size()) + " bytes; 1024 are the most");
    stages_.emplace_back(Prepend{std::move(text)});
  } else if (type == "Replace") {
    Replacement replacement = TRY(Replacement::read(object));
    TRY_STATUS(growth_.add(object, replacement.growth()));
    stages_.emplace_back(Rule{std::move(replacement), where});
  } else if (type == "Precompiled") {
    Result<Precompiled> map = Precompiled::read(TRY(object.text("precompiled_charsmap")));
    if (!map) return object.wrong(map.error().cause);
    TRY_STATUS(growth_.add(object, map->growth()));
    stages_.emplace_back(std::make_shared<const Precompiled>(std::move(*map)));
  } else if (type == "Strip") {
    const bool left = TRY(object.flag("strip_left", true)), right = TRY(object.flag("strip_right", true));
    stages_.emplace_back(Strip{left, right});
  } else if (type == "Lowercase") {
    stages_.emplace_back(Simple::Lowercase);
  } else if (type == "StripAccents") {
    stages_.emplace_back(Simple::StripAccents);
  } else if (type == "Nmt") {
    stages_.emplace_back(Simple::Nmt);
  } else if (type == "BertNormalizer") {
    Bert bert = {};
    bert.cleans = TRY(object.flag("clean_text", true));
    bert.spaces_chinese = TRY(object.flag("handle_chinese_chars", true));
    bert.lowers = TRY(object.flag("lowercase", true));
    bert.strips_accents = TRY(object.flag("strip_accents", bert.lowers));
    stages_.emplace_back(bert);
  } else {
    return object.unsupported({"BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "Prepend", "Replace",
                               "Sequence", "Strip", "StripAccents"});
  }
  return ok();
}

std::string Normalizer::bert(std::string_view text, const Bert& how, bool* front) {
  std::string out(text);
  if (how.cleans) {
    out = by_characters(out, front, [](char32_t c, std::string* to) {
      if (c == '\t' || c == '\n' || c == '\r') return to->push_back(' ');
      if (c == 0 || c == 0xFFFD || is_bert_control(c)) return;
      append_utf8(is_space(c) ? ' ' : c, to);
    });
  }
  if (how.spaces_chinese) {
    out = by_characters(out, front, [](char32_t c, std::string* to) {
      const bool chinese = is_chinese(c);
      if (chinese) to->push_back(' ');
      append_utf8(c, to);
      if (chinese) to->push_back(' ');
    });
  }
  if (how.strips_accents) {
    out = by_characters(normalized(out, NormalForm::D), front, [](char32_t c, std::string* to) {
      if (!is_bert_accent(c)) append_utf8(c, to);
    });
  }
  return how.lowers ? lowered(out) : out;
}

Result<std::string> Normalizer::apply(std::string_view text, Begin begin, bool* front) const {
  bool unasked = false;
  if (!front) front = &unasked;
  std::string out(text);
  for (const auto& stage : stages_) {
    if (const auto* compose = std::get_if<Compose>(&stage)) {
      out = normalized(out, compose->form);
    } else if (const auto* prepend = std::get_if<Prepend>(&stage)) {
      if (!out.empty() && begin == Begin::Here) out.insert(0, prepend->text);
    } else if (const auto* rule = std::get_if<Rule>(&stage)) {
      Result<std::string> replaced = rule->replacement.apply(out, front);
      if (!replaced) return recipe_error(rule->where + ": " + replaced.error().cause);
      out = std::move(*replaced);
    } else if (const auto* map = std::get_if<std::shared_ptr<const Precompiled>>(&stage)) {
      out = (*map)->apply(out);
    } else if (const auto* strip = std::get_if<Strip>(&stage)) {
      const std::string_view rest = stripped(out, strip->left && begin == Begin::Here, strip->right);
      *front |= rest.data() != out.data();
      out = std::string(rest);
    } else if (const auto* how = std::get_if<Bert>(&stage)) {
      out = bert(out, *how, front);
    } else if (const auto* simple = std::get_if<Simple>(&stage)) {
      if (*simple == Simple::Lowercase) out = lowered(out);
      else if (*simple == Simple::Nmt) out = by_characters(out, front, append_nmt);
      else
        out = by_characters(out, front, [](char32_t c, std::string* to) {
          if (!is_combining_mark(c)) append_utf8(c, to);
        });
    }
  }
  return out;
}

}  // namespace galley
