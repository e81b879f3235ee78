#include "host/recipe/scan.hpp"

#include <algorithm>
#include <cctype>

namespace galley {
namespace {

using Token = SourceMap::Token;

/// More arguments than any recipe has.
constexpr size_t kMostNames = 1000;

/// As much of Lua's lexer as it takes to tell names, strings and brackets apart; numbers pass as names.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  Token next() {
    for (skip_blanks(); at_ < text_.size() && text_.substr(at_).starts_with("--"); skip_blanks()) {
      at_ += 2;
      if (!long_bracket(nullptr)) advance(std::min(text_.find('\n', at_), text_.size()));
    }
    Token token{Token::Kind::End, {}, {}, line_};
    if (at_ >= text_.size()) return token;
    const size_t begin = at_;
    const char c = text_[at_];
    if (is_name(c)) {
      size_t end = at_;
      while (end < text_.size() && is_name(text_[end])) ++end;
      token.kind = Token::Kind::Name;
      token.text = text_.substr(at_, end - at_);
      at_ = end;
    } else if (c == '"' || c == '\'') {
      size_t end = at_ + 1;
      while (end < text_.size() && text_[end] != c && text_[end] != '\n') end += text_[end] == '\\' ? 2 : 1;
      end = std::min(end, text_.size());
      token.kind = Token::Kind::String;
      token.text = text_.substr(at_ + 1, end - at_ - 1);
      advance(std::min(end + 1, text_.size()));
    } else if (long_bracket(&token.text)) {
      token.kind = Token::Kind::String;
    } else {
      const bool comparison = at_ + 1 < text_.size() && text_[at_ + 1] == '=' && (c == '=' || c == '<' || c == '>' || c == '~');
      token.kind = Token::Kind::Symbol;
      token.text = text_.substr(at_, comparison ? 2 : 1);
      at_ += token.text.size();
    }
    token.whole = text_.substr(begin, at_ - begin);
    return token;
  }

 private:
  static bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

  void advance(size_t end) {
    line_ += static_cast<int>(
        std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_), text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    at_ = end;
  }
  void skip_blanks() {
    size_t end = at_;
    while (end < text_.size() && std::isspace(static_cast<unsigned char>(text_[end]))) ++end;
    advance(end);
  }
  /// [[…]] or [==[…]==], when there is one here.
  bool long_bracket(std::string_view* inside) {
    if (at_ >= text_.size() || text_[at_] != '[') return false;
    size_t begin = at_ + 1;
    while (begin < text_.size() && text_[begin] == '=') ++begin;
    if (begin >= text_.size() || text_[begin] != '[') return false;
    const std::string close = "]" + std::string(begin - at_ - 1, '=') + "]";
    const size_t end = std::min(text_.find(close, begin + 1), text_.size());
    if (inside) *inside = text_.substr(begin + 1, end - begin - 1);
    advance(std::min(end + close.size(), text_.size()));
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

SourceMap::SourceMap(std::string_view text) {
  Lexer lexer(text);
  do tokens_.push_back(lexer.next());
  while (tokens_.back().kind != Token::Kind::End);
}

std::map<std::string, int> SourceMap::entries(int line, std::string_view callee) const {
  std::map<std::string, int> lines;
  auto token = std::lower_bound(tokens_.begin(), tokens_.end(), line, [](const Token& t, int wanted) { return t.line < wanted; });
  for (; token->line == line && token->kind != Token::Kind::End; ++token) {
    if (token->kind != Token::Kind::Name || token->text != callee) continue;
    auto open = token + 1;
    while (open->is("(") || open->is(")") || open->kind == Token::Kind::String) ++open;
    if (!open->is("{")) continue;
    int depth = 1;
    for (auto t = open + 1; depth > 0 && t->kind != Token::Kind::End; ++t) {
      const bool begins = t[-1].is("{") || t[-1].is(",") || t[-1].is(";");
      if (depth == 1 && begins && t->kind == Token::Kind::Name && t[1].is("=")) lines.emplace(t->text, t->line);
      if (t->is("{") || t->is("(") || t->is("[")) ++depth;
      if (t->is("}") || t->is(")") || t->is("]")) --depth;
    }
  }
  return lines;
}

std::vector<SourceMap::Call> SourceMap::calls(std::string_view callee) const {
  std::vector<Call> out;
  const auto text = [](const Token& first, const Token& last) {
    return std::string_view(first.whole.data(), static_cast<size_t>(last.whole.data() + last.whole.size() - first.whole.data()));
  };
  for (size_t i = 0; i + 1 < tokens_.size(); ++i) {
    if (tokens_[i].kind != Token::Kind::Name || tokens_[i].text != callee || !tokens_[i + 1].is("{")) continue;
    Call& call = out.emplace_back();
    call.line = tokens_[i].line;
    if (i >= 2 && tokens_[i - 1].is("=") && tokens_[i - 2].kind == Token::Kind::Name) call.name = tokens_[i - 2].text;
    size_t begin = i + 2;  // of an item
    int depth = 1;
    for (size_t t = i + 2; depth > 0 && tokens_[t].kind != Token::Kind::End; ++t) {
      const Token& token = tokens_[t];
      if (token.is("{") || token.is("(") || token.is("[")) ++depth;
      if (token.is("}") || token.is(")") || token.is("]")) --depth;
      if (depth == 0 || (depth == 1 && (token.is(",") || token.is(";")))) {
        if (begin < t) call.items.push_back(text(tokens_[begin], tokens_[t - 1]));
        begin = t + 1;
      }
      if (depth == 0) call.text = text(tokens_[i], token);
    }
    if (call.text.empty()) out.pop_back();  // it has no end
  }
  return out;
}

std::vector<std::string> SourceMap::names_asked(std::string_view callee) const {
  std::vector<std::string> names;
  for (size_t i = 0; i + 1 < tokens_.size() && names.size() < kMostNames; ++i) {
    if (tokens_[i].kind != Token::Kind::Name || tokens_[i].text != callee) continue;
    const Token& argument = tokens_[i + 1].is("(") ? tokens_[i + 2] : tokens_[i + 1];
    const std::string name(argument.text);
    if (argument.kind == Token::Kind::String && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

}  // namespace galley
