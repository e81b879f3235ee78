#include "host/tokens/peek.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "host/base/json.hpp"
#include "host/tokens/line_file.hpp"
#include "host/tokens/lines.hpp"
#include "host/tokens/spec.hpp"
#include "host/tokens/tokenizer/unicode.hpp"

namespace galley {
namespace {

/// More different texts than this are no labels.
constexpr size_t kMostNames = 10'000;

/// Calls `line(std::string_view, int64_t number, const LineFile&) -> Result<bool>` for each line that is not blank, until it says false.
template <class Line>
Status each_line(const DataSpec& spec, const std::filesystem::path& path, const Line& line) {
  const auto told = [&](const Error& error) { return error.exit == Exit::Recipe ? data_error(spec, error.cause, error.hint) : error; };
  Result<LineFile> file = LineFile::open(path);
  if (!file) return told(file.error());
  LineBlocks blocks([&](std::span<std::byte> bytes) { return file->read(bytes); });
  LineBlock block;
  bool more = true;
  while (more) {
    const Result<bool> next = blocks.next(&block);
    if (!next) return told(next.error());
    if (!*next) return ok();
    TRY_STATUS(for_each_line(block, [&](std::string_view text, int64_t number) -> Status {
      if (more && text.find_first_not_of(" \t\r") != std::string_view::npos) more = TRY(line(text, number, *file));
      return ok();
    }));
  }
  return ok();
}

void add(const Value& value, std::set<std::string>* names, int64_t* largest) {
  if (const auto* list = value.as<List>())
    for (const Value& one : *list) add(one, names, largest);
  int64_t number = -1;
  if (const auto* text = value.as<std::string>()) {
    const auto end = std::from_chars(text->data(), text->data() + text->size(), number);
    if (end.ec != std::errc() || end.ptr != text->data() + text->size()) {
      names->insert(*text);
      return;
    }
  } else if (const auto* whole = value.as<int64_t>()) {
    number = *whole;
  }
  *largest = std::max(*largest, number);
}

Result<LabelsFound> labels_of(const DataSpec& spec) {
  const OptionReader options = options_of(spec);
  const std::string field = TRY(options.text("label")).value_or("label");
  std::vector<std::string> files = TRY(options.texts("files")).value_or(std::vector<std::string>());
  if (const Value* validation = options.find("validation"); validation && !validation->as<double>() && !validation->as<int64_t>())
    for (const std::string& more : TRY(options.texts("validation")).value_or(std::vector<std::string>())) files.push_back(more);
  const Documents documents = TRY(find_documents(spec, files, FileKind::Lines));
  static std::map<std::string, LabelsFound> known;
  std::string key = field;
  for (const TextDocument& document : documents.files) {
    std::error_code error;
    key += "\n" + document.path.string() + " " + std::to_string(document.size) + " " +
           std::to_string(std::filesystem::last_write_time(document.path, error).time_since_epoch().count());
  }
  if (const auto at = known.find(key); at != known.end()) return at->second;
  std::set<std::string> names;
  LabelsFound out;
  for (const TextDocument& document : documents.files)
    TRY_STATUS(each_line(spec, document.path, [&](std::string_view line, int64_t, const LineFile&) -> Result<bool> {
      const Result<Value> value = parse_json(is_utf8(line) ? std::string(line) : valid_utf8(line, nullptr), "");
      const auto* record = value ? value->as<Table>() : nullptr;
      const auto at = record ? record->find(field) : Table::const_iterator();
      if (record && at != record->end()) add(at->second, &names, &out.largest);
      return names.size() <= kMostNames;
    }));
  if (names.size() > kMostNames)
    return data_error(spec,
                      "the field '" + field + "' has more than " + std::to_string(kMostNames) + " different texts: those are no labels",
                      "say which field the label is: data." + spec.kind + " { …, label = \"NAME\" }");
  out.names.assign(names.begin(), names.end());
  return known[key] = std::move(out);
}

}  // namespace

Status check_first_line(const DataSpec& spec, const Documents& documents, const DocumentEncoder& encoder, bool skip_bad) {
  if (documents.files.empty() || !encoder.by_lines()) return ok();
  std::unique_ptr<DocumentEncoder::Work> work = TRY(encoder.open());
  const std::filesystem::path& path = documents.files.front().path;
  return each_line(spec, path, [&](std::string_view line, int64_t number, const LineFile& file) -> Result<bool> {
    std::vector<uint32_t> tokens;
    std::vector<uint64_t> ends;
    const Status read =
        skip_bad ? ok() : encoder.encode(is_utf8(line) ? line : valid_utf8(line, nullptr), file.place(number), *work, &tokens, &ends);
    if (!read && read.error().exit == Exit::Recipe)
      return data_error(spec, read.error().cause,
                        read.error().hint.empty() ? "skip_bad = true leaves such lines out and counts them" : read.error().hint);
    TRY_STATUS(Status(read));
    return false;
  });
}

Result<LabelsFound> labels_in(const DataSpec& spec) {
  if (spec.kind == "jsonl") return labels_of(spec);
  LabelsFound out;
  for (const DataSpec& part : spec.parts) {
    const LabelsFound of = TRY(labels_in(part));
    out.names.insert(out.names.end(), of.names.begin(), of.names.end());
    out.largest = std::max(out.largest, of.largest);
  }
  std::sort(out.names.begin(), out.names.end());
  out.names.erase(std::unique(out.names.begin(), out.names.end()), out.names.end());
  return out;
}

}  // namespace galley
