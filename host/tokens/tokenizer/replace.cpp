#include "host/tokens/tokenizer/replace.hpp"

#include "host/tokens/tokenizer/growth.hpp"
#include "host/tokens/tokenizer/matches.hpp"

namespace galley {

Result<Replacement> Replacement::read(const JsonObject& object) {
  Replacement out;
  const JsonObject::Pattern what = TRY(object.pattern("pattern"));
  out.what_ = what.text;
  out.by_ = TRY(object.text("content"));
  out.growth_ = growth_of_replace(what, out.by_);
  if (!what.regex) return out;
  Result<Regex> made = Regex::compile(what.text);
  if (!made) return object.wrong(made.error().cause);
  out.regex_ = std::make_shared<const Regex>(std::move(*made));
  return out;
}

Result<std::string> Replacement::apply(std::string_view text, bool* front) const {
  std::string out;
  const auto replace = [&](size_t begin, size_t end) {
    if (front && begin == 0 && end > 0) *front |= by_.empty() || end > next_code_point(text).bytes;
    out += by_;
  };
  if (regex_) {
    Regex::Matches matches(*regex_);
    TRY_STATUS(each_match(*regex_, text, matches, [&](size_t begin, size_t end, bool is_match) {
      if (is_match) replace(begin, end);
      else out.append(text.substr(begin, end - begin));
      return ok();
    }));
    return out;
  }
  for (size_t at = 0; at < text.size();) {
    const size_t found = what_.empty() ? std::string_view::npos : text.find(what_, at);
    out.append(text.substr(at, found == std::string_view::npos ? found : found - at));
    if (found == std::string_view::npos) break;
    replace(found, found + what_.size());
    at = found + what_.size();
  }
  return out;
}

}  // namespace galley
