#include "host/base/json.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "host/base/file.hpp"
#include "host/base/utf8.hpp"

namespace galley {
namespace {

constexpr size_t kDeepest = 200;

// Tells the handler how far the lexer has read, which nlohmann passes on only with its own errors.
class Reading {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Reading(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
  reference operator*() const { return *at_; }
  Reading& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  Reading operator++(int) {
    Reading before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const Reading& a, const Reading& b) { return a.at_ == b.at_; }
  friend bool operator!=(const Reading& a, const Reading& b) { return a.at_ != b.at_; }

 private:
  const char* at_;
  const char** furthest_;
};

// Builds a Value from the parser's events. open_ holds the containers being filled: pointers into root_, each the last element of
// the one before, which therefore does not grow (and move) before it is closed.
class Builder {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  Builder(std::string_view text, std::string_view origin, size_t most, KeyOrder order, const char* const* furthest)
      : text_(text), origin_(origin), most_(most), order_(order), furthest_(furthest) {}

  bool null() { return place(Value()); }
  bool boolean(bool value) { return place(Value(value)); }
  bool number_integer(number_integer_t value) { return place(Value(static_cast<int64_t>(value))); }
  bool number_unsigned(number_unsigned_t value) {
    if (std::in_range<int64_t>(value)) return place(Value(static_cast<int64_t>(value)));
    return place(Value(static_cast<double>(value)));
  }
  bool number_float(number_float_t value, const string_t&) { return place(Value(static_cast<double>(value))); }
  bool string(string_t& value) { return place(Value(std::move(value))); }
  bool binary(binary_t&) { return false; }
  bool start_object(size_t) { return open(Value(order_ == KeyOrder::Listed ? Table{{kKeyOrder, Value(List())}} : Table())); }
  bool start_array(size_t) { return open(Value(List())); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(string_t& name) {
    const auto [entry, fresh] = std::get<Table>(*open_.back()).try_emplace(name);
    if (!fresh) {
      // The lexer comes after the closing quote; the key begins one quote before its own text.
      const size_t after = static_cast<size_t>(*furthest_ - text_.data());
      const size_t length = name.size() + 2;
      return fail(after >= length ? after - length : after, "the key " + json_quote(name) + " is there twice");
    }
    if (order_ == KeyOrder::Listed) std::get<List>(std::get<Table>(*open_.back()).at(kKeyOrder)).emplace_back(name);
    slot_ = &entry->second;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 8: syntax error while parsing value - …; last read: '…'"
    std::string what = error.what();
    if (const size_t id = what.find("] "); id != std::string::npos) what.erase(0, id + 2);
    if (what.starts_with("parse error at ")) {
      if (const size_t cause = what.find(": "); cause != std::string::npos) what.erase(0, cause + 2);
    }
    if (const size_t read = what.find("; last read: "); read != std::string::npos) {
      const size_t expected = what.find("'; expected ", read);
      what = what.substr(0, read) + (expected == std::string::npos ? "" : what.substr(expected + 1));
    }
    return fail(position == 0 ? 0 : position - 1, what.substr(0, 300));
  }

  Value& root() { return root_; }
  const std::optional<Error>& error() const { return error_; }

 private:
  // Where the next value goes: after a key, at the end of a list, or it is the whole document.
  Value* next() {
    if (open_.empty()) return &root_;
    if (auto* list = std::get_if<List>(open_.back())) return &list->emplace_back();
    return slot_;
  }
  bool place(Value value) {
    if (!count()) return false;
    *next() = std::move(value);
    return true;
  }
  bool count() {
    if (++count_ <= most_) return true;
    return fail(static_cast<size_t>(*furthest_ - text_.data()) - 1, "more than " + std::to_string(most_) + " values");
  }
  bool open(Value container) {
    if (!count()) return false;
    if (open_.size() == kDeepest) {
      return fail(static_cast<size_t>(*furthest_ - text_.data()) - 1, "more than " + std::to_string(kDeepest) + " levels");
    }
    Value* at = next();
    *at = std::move(container);
    open_.push_back(at);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  bool fail(size_t offset, const std::string& what) {
    const std::string_view before = text_.substr(0, offset);
    const size_t line = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
    const size_t column = before.size() - (line == 1 ? 0 : before.rfind('\n') + 1) + 1;
    error_ = recipe_error(std::string(origin_) + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " + what);
    return false;
  }

  std::string_view text_, origin_;
  size_t most_, count_ = 0;
  KeyOrder order_;
  const char* const* furthest_;
  Value root_;
  std::vector<Value*> open_;
  Value* slot_ = nullptr;
  std::optional<Error> error_;
};

std::string json_number(double number) {
  if (!std::isfinite(number)) return "null";
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  std::string text(digits, end);
  // It comes back as a number, not as an integer.
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

class Printer {
 public:
  explicit Printer(int indent) : indent_(static_cast<size_t>(indent)) {}

  void print(const Value& value) {
    if (const auto* boolean = value.as<bool>()) text += *boolean ? "true" : "false";
    else if (const auto* integer = value.as<int64_t>()) text += std::to_string(*integer);
    else if (const auto* number = value.as<double>()) text += json_number(*number);
    else if (const auto* string = value.as<std::string>()) text += json_quote(*string);
    else if (const auto* foreign = value.as<Foreign>()) text += json_quote(foreign->written());
    else if (const auto* list = value.as<List>()) print_list(*list);
    else if (const auto* table = value.as<Table>()) print_table(*table);
    else text += "null";
  }

  std::string text;

 private:
  void print_list(const List& list) {
    text += '[';
    ++depth_;
    for (size_t i = 0; i < list.size(); ++i) {
      separate(i == 0);
      print(list[i]);
    }
    finish(list.empty(), ']');
  }
  void print_table(const Table& table) {
    text += '{';
    ++depth_;
    bool first = true;
    for (const auto& [key, value] : table) {
      separate(std::exchange(first, false));
      text += json_quote(key) + (indent_ > 0 ? ": " : ":");
      print(value);
    }
    finish(table.empty(), '}');
  }
  void separate(bool first) {
    if (!first) text += ',';
    new_line();
  }
  void finish(bool empty, char bracket) {
    --depth_;
    if (!empty) new_line();
    text += bracket;
  }
  void new_line() {
    if (indent_ > 0) text.append(1, '\n').append(indent_ * depth_, ' ');
  }

  size_t indent_;
  size_t depth_ = 0;
};

}  // namespace

Result<Value> parse_json(std::string_view text, std::string_view origin, size_t most, KeyOrder order) {
  const char* furthest = text.data();
  Builder builder(text, origin, most, order, &furthest);
  nlohmann::json::sax_parse(Reading(text.data(), &furthest), Reading(text.data() + text.size(), &furthest), &builder);
  if (builder.error()) return *builder.error();
  return std::move(builder.root());
}

Result<Value> read_json(const std::filesystem::path& path, uint64_t limit, size_t most) {
  return parse_json(TRY(read_text(path, limit)), path.string(), most);
}

std::string json_quote(std::string_view given) {
  static constexpr char hex[] = "0123456789abcdef";
  const bool broken = !is_utf8(given);  // a file's name, say
  const std::string mended = broken ? valid_utf8(given, nullptr) : std::string();
  const std::string_view text = broken ? mended : given;
  std::string quoted = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    // Control characters beyond ASCII, as UTF-8 has them: some terminals obey them.
    if (c == '\xC2' && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) >= 0x80 &&
        static_cast<unsigned char>(text[i + 1]) < 0xA0) {
      const char second = text[++i];
      quoted.append("\\u00") += {hex[second >> 4 & 15], hex[second & 15]};
      continue;
    }
    switch (c) {
      case '"': quoted += "\\\""; break;
      case '\\': quoted += "\\\\"; break;
      case '\b': quoted += "\\b"; break;
      case '\f': quoted += "\\f"; break;
      case '\n': quoted += "\\n"; break;
      case '\r': quoted += "\\r"; break;
      case '\t': quoted += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20 && c != '\x7f') quoted += c;
        else quoted.append("\\u00") += {hex[c >> 4], hex[c & 15]};
    }
  }
  return quoted += '"';
}

std::string to_json(const Value& value, int indent) {
  Printer printer(indent);
  printer.print(value);
  return std::move(printer.text);
}

}  // namespace galley
