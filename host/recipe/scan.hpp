// Scans a recipe's text for lines: Lua tells the line of a call, but not that of an entry in its braces.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace galley {

/// A text of Lua as tokens. Refers to the text, which must outlive it. Immutable. [thread-safe]
class SourceMap {
 public:
  explicit SourceMap(std::string_view text);

  /// Returns the line of every `key = …` directly in the braces of a call `callee { … }` or `callee "…" { … }` that begins in `line`.
  /// Entries written `["key"] = …` and tables made elsewhere are not found.
  std::map<std::string, int> entries(int line, std::string_view callee) const;

  /// Returns the first argument of every call `callee("name"…)` or `callee "name"`, if it is a plain string; each once.
  std::vector<std::string> names_asked(std::string_view callee) const;

  /// A call `callee { a, b, … }`. The texts are parts of the whole one.
  struct Call {
    int line = 0;
    std::string name;                     ///< the entry whose value it is, as in `name = callee { … }`; "": it is none
    std::string_view text;                ///< from the callee's name to the closing brace
    std::vector<std::string_view> items;  ///< the texts between the commas, without blanks and comments around them
  };
  /// Returns every such call, in the order of the text.
  std::vector<Call> calls(std::string_view callee) const;

  struct Token {
    enum class Kind { End, Name, String, Symbol } kind = Kind::End;  ///< a number is a Name
    std::string_view text;                                           ///< a string's text between its quotes
    std::string_view whole = {};                                     ///< with its quotes
    int line = 0;
    bool is(std::string_view symbol) const { return kind == Kind::Symbol && text == symbol; }
  };

 private:
  std::vector<Token> tokens_;  // the last one is an End
};

}  // namespace galley
