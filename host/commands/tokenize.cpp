#include "host/commands/tokenize.hpp"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "host/base/json.hpp"
#include "host/text/tokenizer.hpp"
#include "host/text/unicode.hpp"

namespace galley {
namespace {

constexpr size_t kWriteAt = 1 << 16;  // bytes

/// stdin by lines, whatever their length.
class Lines {
 public:
  Lines() = default;
  ~Lines() { std::free(line_); }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;
  bool next(std::string_view* out) {
    const ssize_t n = ::getline(&line_, &room_, stdin);
    if (n < 0) return false;
    *out = {line_, static_cast<size_t>(n)};
    if (out->ends_with('\n')) out->remove_suffix(1);
    ++number_;
    return true;
  }
  Error wrong(const std::string& what) const { return recipe_error("stdin:" + std::to_string(number_) + ": " + what); }
  std::string place() const { return "stdin:" + std::to_string(number_); }

 private:
  char* line_ = nullptr;
  size_t room_ = 0;
  int64_t number_ = 0;
};

Status put(std::string* out, size_t at_least) {
  if (out->size() < at_least) return ok();
  if (std::fwrite(out->data(), 1, out->size(), stdout) != out->size()) return run_error("cannot write to stdout");
  out->clear();
  return ok();
}

void append(TokenId id, std::string* out) {
  char digits[16];
  const auto end = std::to_chars(digits, digits + sizeof digits, id).ptr;
  out->append(digits, end);
}

Result<Value> field(std::string_view line, const Lines& lines, const char* name) {
  Value root = TRY(parse_json(line, lines.place()));
  Table* table = std::get_if<Table>(&root);
  const auto it = table ? table->find(name) : Table::iterator();
  if (!table || it == table->end()) return lines.wrong("there is no '" + std::string(name) + "' in an object");
  return std::move(it->second);
}

}  // namespace

Status tokenize(const std::filesystem::path& path, Direction direction, Template around) {
  const Tokenizer tokenizer = TRY(Tokenizer::read(path));
  Tokenizer::Work work(tokenizer);
  Tokenizer::Encoding how;
  if (around == Template::Yes) how.around = Tokenizer::Around::Template;
  Lines lines;
  std::vector<TokenId> ids;
  std::string out, repaired;
  int64_t broken = 0;
  for (std::string_view line; lines.next(&line);) {
    if (line.empty()) continue;
    if (!is_utf8(line)) line = repaired = valid_utf8(line, &broken);
    ids.clear();
    if (direction == Direction::Encode) {
      const Value value = TRY(field(line, lines, "text"));
      if (!value.as<std::string>()) return lines.wrong("'text' is a " + std::string(value.type_name()) + "; it has to be a string");
      tokenizer.encode(*value.as<std::string>(), how, work, &ids);
      out += "{\"ids\": [";
      for (size_t i = 0; i < ids.size(); ++i) {
        if (i) out += ", ";
        append(ids[i], &out);
      }
      out += "]}\n";
    } else {
      const Value value = TRY(field(line, lines, "ids"));
      const List* list = value.as<List>();
      if (!list) return lines.wrong("'ids' is a " + std::string(value.type_name()) + "; it has to be a list");
      for (const Value& id : *list) {
        const int64_t* number = id.as<int64_t>();
        if (!number || *number < 0 || *number >= tokenizer.vocabulary())
          return lines.wrong("an id has to be an integer in [0, " + std::to_string(tokenizer.vocabulary()) + ")" +
                             (number ? ", not " + std::to_string(*number) : ""));
        ids.push_back(static_cast<TokenId>(*number));
      }
      out += "{\"text\": " + json_quote(tokenizer.decode(ids)) + "}\n";
    }
    TRY_STATUS(put(&out, kWriteAt));
  }
  TRY_STATUS(put(&out, 1));
  if (std::fflush(stdout) != 0) return run_error("cannot write to stdout");
  if (broken) std::fprintf(stderr, "galley: %lld places were no UTF-8 and became U+FFFD\n", static_cast<long long>(broken));
  return ok();
}

}  // namespace galley
