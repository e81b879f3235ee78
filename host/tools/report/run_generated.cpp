#include "host/tools/report/run_generated.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host/base/confinement.hpp"
#include "host/base/file.hpp"
#include "host/base/json.hpp"

namespace galley {
namespace {

/// The most bytes of a text, and of a page for each of its lines: a page of 2,000 short texts may have some that are long.
constexpr size_t kMostText = size_t{64} << 10, kBytesOfLine = size_t{16} << 10;

/// The lines of an evaluation, in the file's text.
struct GeneratedLines {
  int64_t step = 0, last_index = -1;
  std::vector<std::string_view> lines;
  size_t kept = 0, bytes = 0;  ///< how many of them a page has, and of how many bytes
};

/// Why a line is none that a run has written; "": it is one.
const char* trouble_of(const Result<Value>& line) {
  if (!line) return "is no JSON";
  if (!line->field<int64_t>("step") || !line->field<int64_t>("index")) return "has no step or no index";
  if (!line->field<std::string>("prompt") || !line->field<std::string>("text")) return "has no prompt or no text";
  return "";
}

/// Takes a line into its evaluation. A run that was resumed has repeated what comes after the step from which it went on.
void take_line(const Value& line, std::string_view text, std::vector<GeneratedLines>& evaluations) {
  const int64_t step = *line.field<int64_t>("step"), index = *line.field<int64_t>("index");
  if (evaluations.empty() || evaluations.back().step != step || evaluations.back().last_index >= index) {
    while (!evaluations.empty() && evaluations.back().step >= step) evaluations.pop_back();
    evaluations.push_back({step, -1, {}, 0});
  }
  evaluations.back().last_index = index;
  evaluations.back().lines.push_back(text);
}

/// Says how many lines of each evaluation a page has, of those that come `every` evaluations and of the last.
void keep_lines(std::vector<GeneratedLines>& evaluations, size_t most) {
  const size_t lines = std::max<size_t>(most / 2, 1), bytes = most * kBytesOfLine;
  for (GeneratedLines& e : evaluations)
    for (; e.kept < std::min(e.lines.size(), lines); ++e.kept) {
      const size_t more = std::min(e.lines[e.kept].size(), 3 * kMostText);
      if (e.kept > 0 && e.bytes + more > bytes / 2) break;
      e.bytes += more;
    }
  const auto is_kept = [&](size_t i, size_t every) { return i % every == 0 || i + 1 == evaluations.size(); };
  size_t every = 1;
  for (; every < evaluations.size(); ++every) {
    size_t sum = 0, sum_of_bytes = 0;
    for (size_t i = 0; i < evaluations.size(); ++i)
      if (is_kept(i, every)) sum += evaluations[i].kept, sum_of_bytes += evaluations[i].bytes;
    if (sum <= most && sum_of_bytes <= bytes) break;
  }
  for (size_t i = 0; i < evaluations.size(); ++i)
    if (!is_kept(i, every)) evaluations[i].kept = 0;
}

/// What a page has of a line.
Value shown_line(const Value& line) {
  Table out, cut;
  for (const char* key : {"index", "tokens", "match"}) {
    double x = 0;
    if (const auto& entries = *line.as<Table>(); entries.contains(key) && entries.at(key).number(&x)) out[key] = entries.at(key);
  }
  for (const char* key : {"prompt", "expected", "text", "ended"}) {
    const auto* text = line.field<std::string>(key);
    if (!text) continue;
    size_t end = std::min(text->size(), kMostText);
    while (end < text->size() && (static_cast<unsigned char>((*text)[end]) & 0xC0) == 0x80) --end;  // at the end of a character
    out[key] = Value(text->substr(0, end));
    if (end < text->size()) cut[key] = Value(static_cast<int64_t>(text->size()));
  }
  if (!cut.empty()) out["cut"] = Value(std::move(cut));
  return Value(std::move(out));
}

}  // namespace

Result<Value> read_generated(const std::filesystem::path& run, size_t most) {
  const std::filesystem::path path = run / "generated.jsonl";
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, error))) return Value();
  TRY_STATUS(Confinement::check(path));
  Table out = {{"file", Value(path.string())}};
  const Result<std::string> text = read_text(path, kMostGeneratedFile);
  if (!text) {
    out["trouble"] = Value(text.error().cause);
    return Value(std::move(out));
  }
  std::vector<GeneratedLines> evaluations;
  int64_t number = 0, bad = 0;
  std::string first;
  for (size_t begin = 0, end; (end = text->find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string_view line = std::string_view(*text).substr(begin, end - begin);
    const Result<Value> parsed = parse_json(line, path.string());
    ++number;
    if (const std::string_view trouble = trouble_of(parsed); trouble.empty()) take_line(*parsed, line, evaluations);
    else if (++bad == 1) first = path.string() + ":" + std::to_string(number) + " is left out: the line " + std::string(trouble);
  }
  keep_lines(evaluations, most);
  List shown;
  for (const GeneratedLines& e : evaluations) {
    if (e.kept == 0) continue;
    List lines;
    for (const std::string_view line : std::span(e.lines).first(e.kept)) lines.push_back(shown_line(TRY(parse_json(line, path.string()))));
    shown.push_back(
        Value(Table{{"step", Value(e.step)}, {"count", Value(static_cast<int64_t>(e.lines.size()))}, {"lines", Value(std::move(lines))}}));
  }
  out["found"] = Value(static_cast<int64_t>(evaluations.size()));
  out["evaluations"] = Value(std::move(shown));
  if (bad) out["trouble"] = Value(first + (bad > 1 ? "; so are " + std::to_string(bad - 1) + " more lines" : ""));
  return Value(std::move(out));
}

}  // namespace galley
