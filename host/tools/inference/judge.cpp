#include "host/tools/inference/judge.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "host/base/option_spec.hpp"
#include "host/tokens/tokenizer/unicode.hpp"

namespace galley {
namespace {

constexpr const char* kExact = "exact";
constexpr const char* kRougeL = "rouge-l";

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> out;
  bool inside = false;
  while (!text.empty()) {
    const CodePoint c = next_code_point(text);
    text.remove_prefix(c.bytes);
    const bool word = is_word(c.value) && c.value != U'_';
    if (word && !inside) out.emplace_back();
    if (word) append_lower(c.value, &out.back());
    inside = word;
  }
  return out;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(blanks);
  return begin == text.npos ? std::string_view() : text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

}  // namespace

double rouge_l(std::string_view text, std::string_view expected) {
  const std::vector<std::string> a = words_of(text), b = words_of(expected);
  std::vector<size_t> longest(b.size() + 1, 0);  // of the words of a so far and the first j of b
  for (const std::string& word : a) {
    size_t diagonal = 0;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = longest[j];
      longest[j] = word == b[j - 1] ? diagonal + 1 : std::max(above, longest[j - 1]);
      diagonal = above;
    }
  }
  if (longest.back() == 0) return 0;
  const double common = static_cast<double>(longest.back()), p = common / static_cast<double>(a.size()),
               r = common / static_cast<double>(b.size());
  return 2 * p * r / (p + r);
}

Result<std::unique_ptr<TextJudge>> TextJudge::open(const Recipe& recipe) {
  if (recipe.evaluate.match.empty() && !recipe.evaluate.function) return std::unique_ptr<TextJudge>();
  std::unique_ptr<TextJudge> out(new TextJudge(recipe));
  TRY_STATUS(out->load());
  if (out->own_) {
    const auto tried = out->found_in("");
    if (!tried) return recipe_error(recipe.evaluate.place.text() + ": the pattern of 'match': " + tried.error().cause, tried.error().hint);
  }
  return out;
}

Status TextJudge::load() {
  const Evaluation& asked = recipe_.evaluate;
  function_.reset();
  if (asked.function) {
    script_ = TRY(RecipeScript::run(recipe_, LuaLimits()));
    function_ = script_->function(*asked.function, "the function of 'match'");
  } else if (asked.match != kExact && asked.match != kRougeL) {
    own_ = TRY(Sandbox::create(LuaLimits(), {}));
    TRY_STATUS(own_->run_text("return function(text, pattern) return (string.match(text, pattern)) end", "match", 1));
    function_.emplace(*own_, "the pattern of 'match'");
  }
  return ok();
}

bool TextJudge::compares() const { return recipe_.evaluate.match == kExact || recipe_.evaluate.match == kRougeL; }

Result<std::optional<std::string>> TextJudge::found_in(const std::string& text) {
  const Value arguments[] = {Value(text), Value(recipe_.evaluate.match)};
  const Value found = TRY(function_->call(arguments));
  if (const auto* part = found.as<std::string>()) return std::optional(*part);
  if (found.is_nil()) return std::optional<std::string>();
  return recipe_error("a capture is " + std::string(found.type_name()) + " and no text", "() is a position: write what it is to hold");
}

/// Right where what it finds is what it finds in the expected text, or, where it finds nothing there, that text itself.
Result<double> TextJudge::by_pattern(const std::string& text, const std::optional<std::string>& expected) {
  const std::optional<std::string> found = TRY(found_in(text));
  if (!found) return 0.0;
  if (!expected) return 1.0;
  const std::string right = TRY(found_in(*expected)).value_or(*expected);
  return trimmed(*found) == trimmed(right) ? 1.0 : 0.0;
}

Result<double> TextJudge::judge(const std::string& text, const std::optional<std::string>& expected, const Value& line) {
  const Evaluation& asked = recipe_.evaluate;
  if (asked.match == kExact) return trimmed(text) == trimmed(*expected) ? 1.0 : 0.0;
  if (asked.match == kRougeL) return rouge_l(text, *expected);
  if ((script_ ? script_->sandbox() : *own_).exceeded()) TRY_STATUS(load());
  if (!asked.function) return by_pattern(text, expected);
  const Value arguments[] = {Value(text), expected ? Value(*expected) : Value(), line};
  const Value said = TRY(function_->call(arguments));
  double number = 0;
  if (const auto* yes = said.as<bool>()) return *yes ? 1.0 : 0.0;
  if (said.number(&number) && std::isfinite(number)) return number;
  return recipe_error(asked.place.text() + ": the function of 'match' returned " + value_text(said) + " and no number or boolean");
}

}  // namespace galley
