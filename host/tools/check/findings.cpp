#include "host/tools/check/findings.hpp"

#include <algorithm>

#include "host/base/json.hpp"

namespace galley {
namespace {

void once(std::vector<std::string>& list, const std::string& text) {
  if (std::ranges::find(list, text) == list.end()) list.push_back(text);
}

}  // namespace

void TestLog::held(const std::string& what) {
  once(result_.held, what);
  write("held", json_quote(what));
}

std::string TestLog::without_folder(std::string text) const {
  for (size_t at = text.find(folder_); at != std::string::npos; at = text.find(folder_, at)) text.erase(at, folder_.size());
  return text;
}

void TestLog::find(Finding finding) {
  finding.sentence = without_folder(std::move(finding.sentence));
  Table said = {{"where", Value(finding.where)}, {"sentence", Value(finding.sentence)}, {"rule", Value(finding.rule)}};
  if (std::isfinite(finding.size)) said["size"] = Value(finding.size);
  write("finding", to_json(Value(std::move(said))));
  result_.findings.push_back(std::move(finding));
}

void TestLog::unchecked(const std::string& why) {
  const std::string what = without_folder(why);
  once(result_.unchecked, what);
  write("unchecked", json_quote(what));
}

void TestLog::test(const std::string& name) {
  result_.tests.push_back(name);
  write("test", json_quote(name));
}

void TestLog::doing(const std::string& where, const char* rule) {
  if (lines_) write("doing", to_json(Value(Table{{"where", Value(where)}, {"rule", Value(std::string(rule))}})));
}

void TestLog::done() {
  result_.done = true;
  write("done", "true");
}

void TestLog::write(const char* key, const std::string& json) {
  // What cannot be written is missing there, which is seen.
  if (lines_) (void)lines_->write("{\"" + std::string(key) + "\": " + json + "}\n");
}

Result<TestResult> read_lines(const std::filesystem::path& file, const std::string& test) {
  TestResult out;
  out.name = test;
  const std::string text = TRY(read_text(file, UINT64_C(1) << 28));
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    if (end == std::string::npos) break;  // half a line
    const Result<Value> line = parse_json(std::string_view(text).substr(at, end - at), file.string());
    at = end + 1;
    if (!line) break;
    if (const auto* held = line->field<std::string>("held")) once(out.held, *held);
    if (const auto* unchecked = line->field<std::string>("unchecked")) once(out.unchecked, *unchecked);
    if (const auto* name = line->field<std::string>("test")) out.tests.push_back(*name);
    if (line->field<bool>("done")) out.done = true;
    if (const auto* doing = line->field<Table>("doing")) {
      const Value at_it{Table(*doing)};
      out.doing = {at_it.text_field("where"), "", at_it.text_field("rule")};
    }
    if (const auto* found = line->field<Table>("finding")) {
      const Value finding{Table(*found)};
      double size = INFINITY;
      if (const auto at_size = found->find("size"); at_size != found->end()) at_size->second.number(&size);
      out.findings.push_back({finding.text_field("where"), finding.text_field("sentence"), finding.text_field("rule"), size});
    }
  }
  return out;
}

}  // namespace galley
