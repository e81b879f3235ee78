#include "host/tokens/tokenizer/pre_tokenizer.hpp"

#include <algorithm>
#include <utility>

#include "host/tokens/tokenizer/matches.hpp"
#include "host/tokens/tokenizer/unicode.hpp"

namespace galley {
namespace {

// GPT-2's words (Radford et al. 2019).
constexpr const char* kWords = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string quoted(const std::string& literal) {
  std::string out;
  for (const char c : literal) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

// ---- Reading --------------------------------------------------------------------------------------------------------------------

Result<PreTokenizer> PreTokenizer::read(const Value* spec, const std::string& where) {
  PreTokenizer out;
  if (spec) TRY_STATUS(out.add(*spec, where));
  return out;
}

Result<PreTokenizer::Behavior> PreTokenizer::behavior_of(const JsonObject& object, const char* otherwise) {
  static constexpr std::pair<const char*, Behavior> known[] = {{"Removed", Behavior::Removed},
                                                               {"Isolated", Behavior::Isolated},
                                                               {"MergedWithPrevious", Behavior::MergedWithPrevious},
                                                               {"MergedWithNext", Behavior::MergedWithNext},
                                                               {"Contiguous", Behavior::Contiguous}};
  const std::string name = object.field("behavior") || !otherwise ? TRY(object.text("behavior")) : std::string(otherwise);
  for (const auto& [called, behavior] : known)
    if (name == called) return behavior;
  return object.wrong("behavior '" + name + "' is not known; there is: Contiguous, Isolated, MergedWithNext, MergedWithPrevious, Removed");
}

Status PreTokenizer::add_regex(const JsonObject& object, const std::string& pattern, Stage stage) {
  Result<Regex> made = Regex::compile(pattern);
  if (!made) return object.wrong(made.error().cause);
  stage.kind = Kind::Split;
  stage.regex = std::make_shared<const Regex>(std::move(*made));
  stage.where = object.where();
  stages_.push_back(std::move(stage));
  return ok();
}

Status PreTokenizer::add(const Value& spec, const std::string& where) {
  const JsonObject object = TRY(JsonObject::of(spec, where));
  const std::string& type = object.type();
  if (type == "Sequence") return object.each("pretokenizers", [&](const Value& s, const std::string& w) { return add(s, w); });
  if (byte_level_) return object.wrong("it comes after ByteLevel, which has to be the last");
  const auto put = [&](Kind kind, Behavior behavior) {
    Stage stage;
    stage.kind = kind;
    stage.behavior = behavior;
    stages_.push_back(std::move(stage));
    return ok();
  };
  if (type == "Split") {
    const JsonObject::Pattern pattern = TRY(object.pattern("pattern"));
    Stage stage;
    stage.behavior = TRY(behavior_of(object, nullptr));
    stage.inverted = TRY(object.flag("invert", false));
    return add_regex(object, pattern.regex ? pattern.text : quoted(pattern.text), std::move(stage));
  }
  if (type == "Digits") return put(Kind::Digits, TRY(object.flag("individual_digits", false)) ? Behavior::Isolated : Behavior::Contiguous);
  if (type == "WhitespaceSplit") return put(Kind::Spaces, Behavior::Removed);
  if (type == "Whitespace") return put(Kind::Words, Behavior::Removed);
  if (type == "Punctuation") return put(Kind::Punctuation, TRY(behavior_of(object, "Isolated")));
  if (type == "BertPreTokenizer") {
    TRY_STATUS(put(Kind::Spaces, Behavior::Removed));
    return put(Kind::Punctuation, Behavior::Isolated);
  }
  if (type == "CharDelimiterSplit") {
    TRY_STATUS(put(Kind::Delimiter, Behavior::Removed));
    stages_.back().text = TRY(object.character("delimiter"));
    return ok();
  }
  if (type == "Metaspace") {
    Stage stage;
    stage.kind = Kind::Metaspace;
    Metaspace metaspace = TRY(Metaspace::read(object));
    stage.text = std::move(metaspace.space);
    stage.prepend = metaspace.prepend;
    stage.splits = TRY(object.flag("split", true));
    stages_.push_back(std::move(stage));
    return ok();
  }
  if (type == "ByteLevel") {
    byte_level_ = true;
    if (TRY(object.flag("add_prefix_space", true))) TRY_STATUS(put(Kind::Prefix, Behavior::Isolated));
    return TRY(object.flag("use_regex", true)) ? add_regex(object, kWords, {}) : ok();
  }
  return object.unsupported({"BertPreTokenizer", "ByteLevel", "CharDelimiterSplit", "Digits", "Metaspace", "Punctuation", "Sequence",
                             "Split", "Whitespace", "WhitespaceSplit"});
}

// ---- Cutting --------------------------------------------------------------------------------------------------------------------

PreTokenizer::Work::Work(const PreTokenizer& of) : written_(of.stages_.size()) {
  for (const Stage& stage : of.stages_) matches_.push_back(stage.regex ? std::make_unique<Regex::Matches>(*stage.regex) : nullptr);
}

/// Both texts are walked along together, as far as they have not been before.
size_t PreTokenizer::Work::Written::source(size_t place) {
  if (place < at) at = from = 0;
  if (at < put) at = std::min(put, place);
  while (at < place && from < of.size()) {
    at += of[from] == ' ' ? space : 1;
    ++from;
  }
  return from;
}

const char* PreTokenizer::Work::source(const char* at) {
  for (size_t i = written_.size(); i-- > 0;) {
    Written& written = written_[i];
    const std::less_equal<> before;
    if (before(written.text.data(), at) && before(at, written.text.data() + written.text.size()) && !written.text.empty())
      at = written.of.data() + written.source(static_cast<size_t>(at - written.text.data()));
  }
  return at;
}

/// Puts the parts of a text together as a behavior asks for, and hands them on.
class PreTokenizer::Splitter {
 public:
  Splitter(const PreTokenizer& of, size_t stage, std::string_view text, Start start, Work& work, const Words& word)
      : of_(of), stage_(stage), behavior_(of.stages_[stage].behavior), text_(text), start_(start), work_(work), word_(word) {}

  Status part(size_t begin, size_t end, bool is_match) {
    bool joins = false;  // what came before
    switch (behavior_) {
      case Behavior::Removed:
        if (is_match) return ok();
        return hand_on(begin, end);
      case Behavior::Isolated: return hand_on(begin, end);
      case Behavior::Contiguous: joins = is_match == was_match_; break;
      case Behavior::MergedWithPrevious: joins = is_match && !was_match_; break;
      case Behavior::MergedWithNext: joins = !is_match && was_match_; break;
    }
    was_match_ = is_match;
    if (joins && any_) {
      end_ = end;
      return ok();
    }
    TRY_STATUS(finish());
    begin_ = begin;
    end_ = end;
    any_ = true;
    return ok();
  }
  Status finish() { return any_ ? hand_on(begin_, end_) : ok(); }

 private:
  Status hand_on(size_t begin, size_t end) {
    if (begin == end) return ok();
    return of_.cut(stage_ + 1, text_.substr(begin, end - begin), begin == 0 ? start_ : Start::Inside, work_, word_);
  }

  const PreTokenizer& of_;
  const size_t stage_;
  const Behavior behavior_;
  const std::string_view text_;
  const Start start_;
  Work& work_;
  const Words& word_;
  size_t begin_ = 0, end_ = 0;  // not handed on yet
  bool any_ = false, was_match_ = false;
};

Status PreTokenizer::cut(std::string_view text, Start start, Work& work, const Words& word) const {
  return cut(0, text, start, work, word);
}

Status PreTokenizer::cut(size_t at, std::string_view text, Start start, Work& work, const Words& word) const {
  if (text.empty()) return ok();
  if (at == stages_.size()) {
    word(text);
    return ok();
  }
  const Stage& stage = stages_[at];
  if (stage.kind == Kind::Metaspace) return metaspace(at, text, start, work, word);
  if (stage.kind != Kind::Prefix) return split(at, text, start, work, word);
  if (text.front() == ' ' || start == Start::Cut) return cut(at + 1, text, start, work, word);
  Work::Written& written = work.written_[at];
  written.text.assign(1, ' ').append(text);
  written.of = text;
  written.put = written.space = 1;
  written.at = written.from = 0;
  return cut(at + 1, written.text, start, work, word);
}

Status PreTokenizer::metaspace(size_t at, std::string_view text, Start start, Work& work, const Words& word) const {
  const Stage& stage = stages_[at];
  Work::Written& written = work.written_[at];
  const bool begins = text.front() == ' ' || text.starts_with(stage.text);
  const bool puts =
      !begins && (stage.prepend == Prepend::Always ? start != Start::Cut : stage.prepend == Prepend::First && start == Start::Text);
  written.text = puts ? stage.text : "";
  for (const char c : text) {
    if (c == ' ') written.text += stage.text;
    else written.text += c;
  }
  written.of = text;
  written.put = puts ? stage.text.size() : 0;
  written.space = stage.text.size();
  written.at = written.from = 0;
  const std::string_view made = written.text;
  if (!stage.splits) return cut(at + 1, made, start, work, word);
  // Each one with what follows it up to the next; of several in a row all but the last are alone.
  for (size_t begin = 0; begin < made.size();) {
    const size_t end =
        std::min(made.find(stage.text, begin == 0 && !made.starts_with(stage.text) ? 0 : begin + stage.text.size()), made.size());
    TRY_STATUS(cut(at + 1, made.substr(begin, end - begin), begin == 0 ? start : Start::Inside, work, word));
    begin = end;
  }
  return ok();
}

Status PreTokenizer::split(size_t at, std::string_view text, Start start, Work& work, const Words& word) const {
  const Stage& stage = stages_[at];
  Splitter splitter(*this, at, text, start, work, word);
  const auto part = [&](size_t begin, size_t end, bool is_match) { return splitter.part(begin, end, is_match != stage.inverted); };
  switch (stage.kind) {
    case Kind::Split: {
      // Errors of later stages have their own place.
      bool later = false;
      const Status status = each_match(*stage.regex, text, *work.matches_[at], [&](size_t begin, size_t end, bool is_match) {
        const Status handed = part(begin, end, is_match);
        later |= !handed;
        return handed;
      });
      if (!status) return later ? status : recipe_error(stage.where + ": " + status.error().cause);
      break;
    }
    case Kind::Spaces: TRY_STATUS(each_character(text, is_space, part)); break;
    case Kind::Punctuation: TRY_STATUS(each_character(text, is_bert_punctuation, part)); break;
    case Kind::Digits: TRY_STATUS(each_character(text, is_numeric, part)); break;
    case Kind::Delimiter: {
      const char32_t delimiter = next_code_point(stage.text).value;
      TRY_STATUS(each_character(
          text, [&](char32_t c) { return c == delimiter; }, part));
      break;
    }
    default: {  // words, and what is neither word nor space
      const auto class_of = [](char32_t c) { return is_space(c) ? 0 : is_word(c) ? 1 : 2; };
      size_t begin = 0;
      int of = 0;
      for (size_t i = 0; i <= text.size();) {
        const CodePoint c = i < text.size() ? next_code_point(text.substr(i)) : CodePoint{' ', 1, true};
        const int now = class_of(c.value);
        if (now != of) {
          if (of != 0) TRY_STATUS(splitter.part(begin, i, false));
          begin = i;
          of = now;
        }
        i += c.bytes;
      }
    }
  }
  return splitter.finish();
}

}  // namespace galley
