// A kind of data: what it says before and after it is opened, and rows in any order, from any thread, of any length.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include "host/plugins/abi.hpp"
#include "host/plugins/source.hpp"
#include "host/tools/check/recipes.hpp"
#include "host/tools/check/rules.hpp"
#include "host/tools/compare/printed.hpp"

namespace galley {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kVocabulary = 1 << 16, kFence = 32;
constexpr int32_t kMark = 0x5a5a5a5a;

/// A row to write, with marks after its tokens and labels.
struct Row {
  explicit Row(const LoadedSource& source, int64_t room) : says(source.says()) {
    const auto size = static_cast<size_t>(room + kFence);
    tokens.assign(size, kMark);
    labels.assign(size, kMark);
    std::fill_n(tokens.begin(), room, 0);
    std::fill_n(labels.begin(), room, -100);
    for (const OwnInput& t : says.tensors) {
      const auto numbers = static_cast<size_t>((t.extent ? t.extent : room) + kFence);
      std::vector<int32_t>& own = others.emplace_back(numbers, kMark);
      std::fill_n(own.begin(), numbers - static_cast<size_t>(kFence), t.unit.empty() || t.dtype != GALLEY_I32 ? 0 : -100);
    }
    for (std::vector<int32_t>& own : others) pointers.push_back(own.data());
    view.room = room;
    view.tokens = tokens.data();
    view.labels = labels.data();
    view.tensors = pointers.data();
  }
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;

  bool fenced() const {
    const auto whole = [](const std::vector<int32_t>& of) {
      return std::all_of(of.end() - kFence, of.end(), [](int32_t x) { return x == kMark; });
    };
    return whole(tokens) && whole(labels) && std::ranges::all_of(others, whole);
  }
  bool operator==(const Row& o) const {
    return view.length == o.view.length && tokens == o.tokens && labels == o.labels && others == o.others;
  }

  const LoadedSource::Description& says;
  std::vector<int32_t> tokens, labels;
  std::vector<std::vector<int32_t>> others;
  std::vector<void*> pointers;
  galley_source_row view = new_struct<galley_source_row>();
};

/// A row by its item, its row of the item, and whether it is of the items for validation.
struct Which {
  int64_t item = 0, row = 0;
  bool validation = false;
  std::string text() const {
    return (validation ? "validation item " : "item ") + std::to_string(item) + (row ? ", row " + std::to_string(row) : "");
  }
};

class SourceCheck {
 public:
  SourceCheck(const CheckContext& context, const StrategySpec& spec, TestLog& log) : context_(context), spec_(spec), log_(log) {}

  Status run() {
    const Example example = example_of(context_.plugin);
    if (!example.data.starts_with("data." + spec_.name + " ") && !example.data.starts_with("data." + spec_.name + "{")) {
      if (std::ranges::any_of(spec_.options, &OptionSpec::required))
        return log_.unchecked("it needs options, and there is no example.lua with a line data." + spec_.name + " { … } beside plugin.toml"),
               ok();
    }
    const std::string data = example.data.empty() ? "data." + spec_.name + " {}" : example.data;
    const Around around = TRY(read_around(context_));
    const SmallRecipe recipe = {around.models.front(), data, {around.optimizer}};
    const fs::path path = TRY(write_recipe(context_, "source", recipe.text(4)));
    const Recipe read = TRY(read_recipe(path, recipe_options(context_.study)));
    use_ = {read.data.kind, read.data.options, read.data.place, {}};
    auto first = opened(use_, length_);
    // It may refuse rows that are too long for it.
    for (const int64_t longer : {64, 256, 1024})
      if (refuses(first)) first = opened(use_, length_ = longer);
    if (!first) return find("", first.error().cause, rules::kDefaults), ok();
    const LoadedSource& source = **first;
    check_asked(spec_, source.options().asked(), "tokenizer", log_);  // the host asks for that one
    check_describe(source);
    TRY_STATUS(check_fingerprint(source));
    TRY_STATUS(check_rows(source));
    return ok();
  }

 private:
  void find(const std::string& where, const std::string& sentence, const char* rule) { log_.find(where, sentence, rule); }

  static galley_source_call call_of(int64_t length) {
    auto call = new_struct<galley_source_call>();
    call.rows = 4;
    call.length = length;
    call.learns = GALLEY_LEARNS_NEXT_TOKENS;
    return call;
  }
  /// Whether it refuses rows of that length, as `open` may.
  static bool refuses(const Result<std::unique_ptr<LoadedSource>>& opened) { return !opened && opened.error().exit != Exit::Plugin; }
  Result<std::unique_ptr<LoadedSource>> opened(const Use& use) { return opened(use, length_); }
  Result<std::unique_ptr<LoadedSource>> opened(const Use& use, int64_t length) {
    std::unique_ptr<LoadedSource> out = TRY(LoadedSource::create(context_.plugins, use, {}));
    TRY_STATUS(out->describe(call_of(length)));
    contents_ = TRY(out->open(kVocabulary, 1));
    return out;
  }

  void check_describe(const LoadedSource& source) {
    auto call = call_of(16);
    call.flags = kUnknownFlag;
    auto info = new_struct<galley_source_info>();
    galley_error error = GALLEY_ERROR_INIT;
    const galley_status status = source.table().describe(source.instance(), &call, &info, &error);
    if (status == GALLEY_OK) find("describe with an unknown flag", "it answers", rules::kFlags);
    else if (!error.text[0]) find("describe with an unknown flag", "it refuses without a word", rules::kText);
    const bool says = source.says().flags & GALLEY_SOURCE_VALIDATES;
    if (says && contents_.validation_items == 0) find("", "it says that it validates, and has no item for that", rules::kValidates);
    if (!says && contents_.validation_items > 0)
      find("", "it has " + std::to_string(contents_.validation_items) + " items for validation, and does not say that it validates",
           rules::kValidates);
    log_.held("describe");
  }

  /// The same data has the same fingerprint, and other data another one.
  Status check_fingerprint(const LoadedSource&) {
    const LoadedSource::Contents first = contents_;
    const auto again = opened(use_);
    if (!again) return find("a second instance", again.error().cause, rules::kRows), ok();
    if (contents_.fingerprint != first.fingerprint || contents_.items != first.items)
      return find("a second instance", "of the same data it has another fingerprint, or other items", rules::kFingerprint), ok();
    for (const OptionSpec& option : spec_.options) {
      const auto given = use_.options.find(option.name);
      const auto* path = given == use_.options.end() ? nullptr : given->second.as<std::string>();
      if (option.type != OptionType::Path || !path || option.name == "tokenizer" || !fs::is_regular_file(*path)) continue;
      std::ifstream in(*path, std::ios::binary);
      std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
      // The last line once more: other data of the same kind.
      size_t end = text.size();
      while (end > 0 && text[end - 1] == '\n') --end;
      const size_t line = text.rfind('\n', end ? end - 1 : 0);
      text += (text.ends_with('\n') ? "" : "\n") +
              text.substr(line == std::string::npos ? 0 : line + 1, end - (line == std::string::npos ? 0 : line + 1)) + "\n";
      const fs::path other = context_.scratch / ("other-" + fs::path(*path).filename().string());
      std::ofstream(other, std::ios::binary) << text;
      Use use = use_;
      use.options[option.name] = Value(other.string());
      const auto changed = opened(use);
      const uint64_t fingerprint = contents_.fingerprint;
      contents_ = first;
      if (!changed) continue;  // it takes no such file
      if (fingerprint == first.fingerprint)
        return find("option '" + option.name + "'", "with other data the fingerprint is the same", rules::kFingerprint), ok();
      log_.held("fingerprint");
    }
    return ok();
  }

  std::vector<Which> all(const LoadedSource& source) const {
    constexpr int64_t most = 64;
    std::vector<Which> out;
    const bool endless = source.says().flags & GALLEY_SOURCE_ENDLESS;
    for (const bool validation : {false, true}) {
      const auto items = static_cast<int64_t>(validation ? contents_.validation_items : contents_.items);
      for (int64_t item = 0; item < std::min(endless && !validation ? most / 4 : items, most); ++item)
        for (int64_t row = 0; row < (endless ? 4 : source.says().rows_of_item); ++row) out.push_back({item, row, validation});
    }
    return out;
  }

  /// Labels that the source makes itself for a model that predicts the next token.
  void count_labels(const Row& row) {
    const auto length = static_cast<size_t>(row.says.flags & GALLEY_SOURCE_LABELS ? row.view.length : 0);
    for (size_t i = 0; i < length; ++i) {
      if (row.labels[i] == -100) continue;
      ++own_labels_;
      same_labels_ += row.labels[i] == row.tokens[i];
      next_labels_ += i + 1 < length && row.labels[i] == row.tokens[i + 1];
    }
  }

  Status read(const LoadedSource& source, const Which& which, Row& row) const {
    row.view.item = which.item;
    row.view.row = which.row;
    row.view.validation = which.validation;
    return source.read(row.view);
  }

  Status check_rows(const LoadedSource& source) {
    const std::vector<Which> rows = all(source);
    // What is long is cut or refused, and nothing is written after it.
    int64_t lengths = 0;
    for (const int64_t room : {int64_t{8}, 4 * length_}) {
      const auto of_room = opened(use_, room);
      if (refuses(of_room)) {
        log_.unchecked("rows of " + std::to_string(room) + " positions, which it refuses: " + of_room.error().cause);
        continue;
      }
      if (!of_room) return find("length " + std::to_string(room), of_room.error().cause, rules::kRows), ok();
      for (const Which& which : rows) {
        Row row(**of_room, room);
        const Status status = read(**of_room, which, row);
        const std::string where = which.text() + ", room for " + std::to_string(room);
        if (!row.fenced()) return find(where, "it writes after the row", rules::kRoom), ok();
        if (!status) return find(where, status.error().cause, rules::kRoom), ok();
        const auto padding = row.tokens.begin() + row.view.length, end = row.tokens.begin() + room;
        if (std::any_of(padding, end, [](int32_t t) { return t != 0; }))
          return find(where, "it writes tokens after the row's length", rules::kPadding), ok();
        const int64_t below = source.says().vocabulary > 0 ? source.says().vocabulary : kVocabulary;
        const auto beyond = std::find_if(row.tokens.begin(), padding, [&](int32_t t) { return t < 0 || t >= below; });
        if (beyond != padding)
          return find(where, "token " + std::to_string(*beyond) + " is not below its vocabulary of " + std::to_string(below),
                      rules::kVocabulary),
                 ok();
        count_labels(row);
      }
      ++lengths;
    }
    log_.held(lengths == 2 ? "rows of two lengths" : "rows of one length");
    if (own_labels_ >= 2 && same_labels_ == own_labels_ && next_labels_ < own_labels_)
      find("labels",
           "each of the " + std::to_string(own_labels_) +
               " labels is the token at its own position: a model that predicts the next token "
               "has it before it",
           rules::kLabels);
    else if (own_labels_ > 0) log_.held("labels");

    const int64_t room = 4 * length_;
    const auto read_all = [&](const std::vector<Which>& order, std::vector<std::unique_ptr<Row>>& to) {
      for (size_t i = 0; i < order.size(); ++i) {
        auto row = std::make_unique<Row>(source, room);
        (void)read(source, order[i], *row);
        to.push_back(std::move(row));
      }
    };
    std::vector<std::unique_ptr<Row>> forward, backward, other;
    read_all(rows, forward);
    std::vector<Which> reversed(rows.rbegin(), rows.rend());
    read_all(reversed, backward);
    for (size_t i = 0; i < rows.size(); ++i)
      if (!(*forward[i] == *backward[rows.size() - 1 - i]))
        return find(rows[i].text(), "asked for in another order, it is another row", rules::kRows), ok();
    log_.held("rows in any order");
    // On two threads at once, again and again: a shared buffer shows in one of many reads.
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
    const auto read_again = [&](std::string* differs, bool backwards) {
      while (differs->empty() && std::chrono::steady_clock::now() < until)
        for (size_t k = 0; k < rows.size() && differs->empty(); ++k) {
          const size_t i = backwards ? rows.size() - 1 - k : k;
          Row row(source, room);
          (void)read(source, rows[i], row);
          if (!(row == *forward[i])) *differs = rows[i].text();
        }
    };
    std::string there, here;
    std::thread second([&] { read_again(&there, false); });
    read_again(&here, true);
    second.join();
    if (!there.empty() || !here.empty())
      return find(here.empty() ? there : here, "read on two threads at once, it is another row", rules::kRowThreads), ok();
    log_.held("rows on two threads");
    return ok();
  }

  const CheckContext& context_;
  const StrategySpec& spec_;
  TestLog& log_;
  Use use_;
  LoadedSource::Contents contents_;
  int64_t length_ = 16;  ///< of rows, which it takes
  int64_t own_labels_ = 0, same_labels_ = 0, next_labels_ = 0;
};

}  // namespace

Status check_source(const CheckContext& context, const StrategySpec& source, TestLog& log) {
  return SourceCheck(context, source, log).run();
}

}  // namespace galley
