// The normalizer of a tokenizer.json changes a text before it is cut into words. It is read from the file's description; a rule that is not
// supported is an error that names it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "host/base/value.hpp"
#include "host/tokens/tokenizer/fields.hpp"
#include "host/tokens/tokenizer/growth.hpp"
#include "host/tokens/tokenizer/precompiled.hpp"
#include "host/tokens/tokenizer/replace.hpp"
#include "host/tokens/tokenizer/unicode.hpp"

namespace galley {

/// Changes texts before they are split, as the file's "normalizer" says. Immutable. [thread-safe]
class Normalizer {
 public:
  /// Reads the value of "normalizer"; null means that there is none.
  static Result<Normalizer> read(const Value* spec, const std::string& where);
  bool empty() const { return stages_.empty(); }
  enum class Begin : uint8_t { Here, Before };  ///< Before: nothing is put or stripped there, the text goes on with another
  /// `text` is UTF-8. An error where a regular expression gives up. Sets `*front`, which may be null, where characters that the text began
  /// with were left out.
  Result<std::string> apply(std::string_view text, Begin begin = Begin::Here, bool* front = nullptr) const;

 private:
  struct Compose {
    NormalForm form;
  };
  struct Prepend {
    std::string text;
  };
  struct Rule {
    Replacement replacement;
    std::string where;
  };
  struct Strip {
    bool left, right;
  };
  struct Bert {
    bool cleans, spaces_chinese, strips_accents, lowers;
  };
  enum class Simple : uint8_t { Lowercase, StripAccents, Nmt };
  Status add(const Value& spec, const std::string& where);
  static std::string bert(std::string_view text, const Bert& how, bool* front);
  std::vector<std::variant<Compose, Prepend, Rule, Strip, Bert, Simple, std::shared_ptr<const Precompiled>>> stages_;
  Growth growth_;
};

}  // namespace galley
