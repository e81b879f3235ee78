#include "host/compare/fit.hpp"

#include <malloc.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <set>

#include "host/base/columns.hpp"
#include "host/base/file.hpp"
#include "host/base/ordered.hpp"
#include "host/base/pool.hpp"
#include "host/base/units.hpp"
#include "host/compare/arms.hpp"
#include "host/compare/printed.hpp"
#include "host/plan/timing.hpp"
#include "host/recipe/scan.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostVariants = 20000;
constexpr uint64_t kMostText = 1 << 20;

struct Combination {
  FitVariant variant;
  std::string strategies;  ///< their names: plugins of new ones are opened on the main thread
};

/// Fills in one one_of after the other, since what is chosen may decide what is asked for next.
class Combinations {
 public:
  Combinations(const fs::path& recipe, const StudyOptions& options) : recipe_(recipe), options_(options) {}

  Status find(const std::map<int, size_t>& choices) {
    StudyOptions options = options_;
    if (!choices.empty()) options.sets["choices"] = choices_text(choices);
    Result<Recipe> read = read_recipe(recipe_, recipe_options(options));
    if (!read) {
      if (choices.empty()) return read.error();
      return add(choices, "", read.error().cause);
    }
    for (const Offer& offer : read->offers) {
      if (offer.place.file != read->name)
        return recipe_error(offer.place.text() + ": galley fit chooses in the recipe's own file", "move the one_of to " + read->name);
      if (choices.contains(offer.place.line)) continue;
      std::map<int, size_t> next = choices;
      for (size_t i = 1; i <= offer.count; ++i) {
        next[offer.place.line] = i;
        TRY_STATUS(find(next));
      }
      return ok();
    }
    std::string strategies;
    for (const Use& use : read->uses) strategies += use.name + " ";
    return add(choices, strategies, "");
  }

  std::vector<Combination>& all() { return all_; }

 private:
  Status add(const std::map<int, size_t>& choices, const std::string& strategies, const std::string& refusal) {
    if (all_.size() == kMostVariants)
      return recipe_error(recipe_.string() + ": the recipe offers more than " + std::to_string(kMostVariants) + " combinations",
                          "offer less at a time");
    Combination& one = all_.emplace_back();
    one.variant.choices = choices;
    one.variant.refusal = refusal;
    one.strategies = strategies;
    return ok();
  }

  const fs::path& recipe_;
  const StudyOptions& options_;
  std::vector<Combination> all_;
};

void plan(const fs::path& recipe, StudyOptions options, int64_t memory, FitVariant& v) {
  if (!v.choices.empty()) options.sets["choices"] = choices_text(v.choices);
  const Result<std::unique_ptr<Study>> made = study(recipe, options);
  if (!made) {
    v.too_large = made.error().exit == Exit::DoesNotFit;
    v.refusal = made.error().cause;
    return;
  }
  const Study& s = **made;
  v.bytes = s.peak_memory();
  for (const ClassPlan& c : s.plan.classes)
    for (size_t o = 0; o < owner_names.size(); ++o) v.owners[owner_names[o]] += c.owners[o];
  v.seconds = step_seconds(s.program, s.target);
  const auto positions = static_cast<double>(s.program.rows * s.program.length * s.program.micro_batches);
  v.speed = v.seconds > 0 ? positions / v.seconds : 0;
  for (const auto& strategy : s.loaded) v.exactness = std::max(v.exactness, strategy->spec().exactness);
  v.fits = v.bytes <= memory;
}

bool as_good(const FitVariant& a, const FitVariant& b) { return a.bytes <= b.bytes && a.speed >= b.speed && a.exactness <= b.exactness; }

/// Sorted by bytes: marks what nothing else beats.
void mark_front(std::vector<FitVariant>& variants) {
  std::vector<FitVariant*> front;
  for (FitVariant& v : variants) {
    if (!v.refusal.empty()) continue;
    if (std::any_of(front.begin(), front.end(), [&](const FitVariant* f) { return as_good(*f, v); })) continue;
    v.best = true;
    front.push_back(&v);
  }
}

/// The name of the strategy that an item is, as in use "NAME" { … }.
std::string strategy_of(std::string_view item) {
  if (!item.starts_with("use")) return "";
  const size_t begin = item.find_first_of("\"'"), end = begin == std::string_view::npos ? begin : item.find(item[begin], begin + 1);
  return end == std::string_view::npos ? "" : std::string(item.substr(begin + 1, end - begin - 1));
}

bool is_nothing(std::string_view item) { return item == "false" || item == "nil"; }

/// How a one_of is called, and its items, in a table.
struct Shown {
  std::string name;
  std::vector<std::string> items;
};

Shown shown(const SourceMap::Call& call) {
  Shown out;
  std::set<std::string> strategies;
  size_t some = 0;
  for (const std::string_view item : call.items) {
    const std::string strategy = strategy_of(item);
    if (!strategy.empty()) out.name += strategies.insert(strategy).second ? (out.name.empty() ? "" : "/") + strategy : "";
    some += !is_nothing(item);
  }
  for (const std::string_view item : call.items) {
    const size_t brace = item.find('{');
    if (is_nothing(item)) out.items.emplace_back("no");
    else if (strategies.empty()) out.items.emplace_back(item);
    else if (some == 1) out.items.emplace_back("yes");
    else if (strategies.size() == some) out.items.push_back(strategy_of(item));
    else if (brace != std::string_view::npos)
      out.items.push_back((strategies.size() > 1 ? strategy_of(item) + " " : "") + std::string(item.substr(brace)));
    else out.items.push_back(strategy_of(item));
  }
  if (!call.name.empty()) out.name = call.name;
  if (out.name.empty()) out.name = "line " + std::to_string(call.line);
  return out;
}

}  // namespace

Result<FitResult> fit(const fs::path& recipe, const StudyOptions& options, int64_t memory,
                      const std::function<void(size_t done, size_t all)>& after) {
  const std::string text = TRY(read_text(recipe, kMostText));
  const std::vector<SourceMap::Call> calls = SourceMap(text).calls("one_of");
  std::set<int> lines;
  for (const SourceMap::Call& call : calls)
    if (!lines.insert(call.line).second)
      return recipe_error(recipe.string() + ":" + std::to_string(call.line) + ": two one_of in a line", "write each in a line of its own");
  for (const SourceMap::Call& call : calls)
    for (const std::string_view item : call.items)
      if (!SourceMap(item).calls("one_of").empty())
        return recipe_error(recipe.string() + ":" + std::to_string(call.line) + ": a one_of within a one_of",
                            "write the inner one before, as a local variable");
  Combinations combinations(recipe, options);
  TRY_STATUS(combinations.find({}));
  std::vector<Combination>& all = combinations.all();
  if (all.size() == 1 && all.front().variant.choices.empty())
    return recipe_error(recipe.string() + ": the recipe offers nothing to choose from",
                        "write one_of { … } where there is a choice, such as batch = one_of { 1, 2, 4, 8 }");

  FitResult out;
  std::vector<Shown> columns;
  for (const SourceMap::Call& call : calls) {
    columns.push_back(shown(call));
    out.offers.push_back(columns.back().name);
  }
  StudyOptions plans = options;
  plans.runs = false;
  size_t done = 0;
  // Plugins are opened on this thread: the first combination with each set of strategies.
  std::set<std::string> opened;
  std::vector<size_t> rest;
  for (size_t i = 0; i < all.size(); ++i) {
    FitVariant& v = all[i].variant;
    for (size_t c = 0; c < calls.size(); ++c) {
      const auto chosen = v.choices.find(calls[c].line);
      const std::vector<std::string>& items = columns[c].items;
      v.said.push_back(chosen == v.choices.end() || chosen->second > items.size() ? "" : items[chosen->second - 1]);
    }
    if (!v.refusal.empty()) {
      ++done;
    } else if (opened.insert(all[i].strategies).second) {
      plan(recipe, plans, memory, v);
      if (after) after(++done, all.size());
    } else {
      rest.push_back(i);
    }
  }
  std::mutex mutex;
  struct Context {
    const std::function<void(size_t)>& body;
    const std::vector<size_t>& rest;
  };
  const std::function<void(size_t)> body = [&](size_t i) {
    plan(recipe, plans, memory, all[i].variant);
    const std::lock_guard lock(mutex);
    if (after) after(++done, all.size());
  };
  // Plans are made and thrown away by the hundred: memory goes back to the system behind the last one, which takes a tenth less time.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
  Context context{body, rest};
  Pool pool(static_cast<int>(usable_threads()));
  pool.run(
      static_cast<int64_t>(rest.size()),
      [](void* c, int64_t i) {
        const auto& work = *static_cast<Context*>(c);
        work.body(work.rest[static_cast<size_t>(i)]);
      },
      &context);

  for (Combination& one : all) out.variants.push_back(std::move(one.variant));
  std::stable_sort(out.variants.begin(), out.variants.end(), [](const FitVariant& a, const FitVariant& b) {
    if (a.refusal.empty() != b.refusal.empty()) return a.refusal.empty();
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.speed != b.speed ? a.speed > b.speed : a.exactness < b.exactness;
  });
  mark_front(out.variants);
  for (size_t i = 0; i < out.variants.size(); ++i) {
    const FitVariant& v = out.variants[i];
    if (!v.fits || !v.best) continue;
    if (out.chosen == SIZE_MAX || v.speed > out.variants[out.chosen].speed) out.chosen = i;
  }
  return out;
}

namespace {

/// Columns of what is chosen from each offer: what it needs, and where there is not so much room, the widest have less.
std::vector<size_t> widths_of(const FitResult& result, size_t room) {
  std::vector<size_t> out;
  for (size_t o = 0; o < result.offers.size(); ++o) {
    size_t width = display_width(result.offers[o]);
    for (const FitVariant& v : result.variants)
      if (v.best) width = std::max(width, std::min<size_t>(display_width(v.said[o]), 36));
    out.push_back(width);
  }
  const auto taken = [&] { return std::accumulate(out.begin(), out.end(), 2 * out.size()); };
  constexpr size_t least = 4;
  for (auto widest = std::max_element(out.begin(), out.end()); widest != out.end() && taken() > room && *widest > least;
       widest = std::max_element(out.begin(), out.end()))
    --*widest;
  return out;
}

}  // namespace

std::string fit_table(const FitResult& result, int64_t memory, size_t columns) {
  constexpr size_t numbers = 38;  // columns before what is chosen
  const std::vector<size_t> widths = widths_of(result, std::max(columns, numbers + 20) - numbers);
  std::string out = printed("   %10s %11s  %-11s", "memory", "positions/s", "exactness");
  for (size_t o = 0; o < result.offers.size(); ++o) out += "  " + left_in(result.offers[o], widths[o]);
  out.erase(out.find_last_not_of(' ') + 1);
  out += "\n";
  size_t refused = 0, worse = 0, over = 0;
  std::map<std::string, size_t> reasons;
  for (size_t i = 0; i < result.variants.size(); ++i) {
    const FitVariant& v = result.variants[i];
    over += !v.fits && (v.refusal.empty() || v.too_large);
    if (!v.refusal.empty()) {
      refused += !v.too_large;
      if (!v.too_large) ++reasons[v.refusal];
      continue;
    }
    if (!v.best) {
      ++worse;
      continue;
    }
    std::string line = printed(" %c %10s %11.4g  %-11s",
                               i == result.chosen ? '>'
                               : v.fits           ? '+'
                                                  : '-',
                               bytes_text(v.bytes).c_str(), v.speed, exactness_name(v.exactness));
    for (size_t o = 0; o < v.said.size(); ++o) line += "  " + left_in(v.said[o].empty() ? "-" : v.said[o], widths[o]);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  out += printed("%zu combinations: > the fastest that fits %s, + others that fit, - does not; ", result.variants.size(),
                 bytes_text(memory).c_str());
  out += printed("%zu need more, %zu are in nothing better than one above", over, worse);
  out += refused ? printed(", %zu cannot work:\n", refused) : "\n";
  constexpr size_t most_reasons = 5;
  std::vector<std::pair<size_t, std::string>> sorted;
  for (const auto& [reason, count] : reasons) sorted.emplace_back(count, reason);
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (size_t i = 0; i < std::min(sorted.size(), most_reasons); ++i) out += printed("  %zu: ", sorted[i].first) + sorted[i].second + "\n";
  if (sorted.size() > most_reasons) out += printed("  and for %zu other reasons\n", sorted.size() - most_reasons);
  return out;
}

Result<std::string> fitted_recipe(const fs::path& recipe, const FitVariant& variant, int64_t memory) {
  const std::string text = TRY(read_text(recipe, kMostText));
  std::string out =
      printed("-- Chosen by galley fit for %s: %s planned, %.4g positions a second by the target's figures; exactness: %s.\n-- ",
              bytes_text(memory).c_str(), bytes_text(variant.bytes).c_str(), variant.speed, exactness_name(variant.exactness));
  bool first = true;
  for (const auto& [owner, bytes] : variant.owners) {
    if (bytes == 0) continue;
    out += (first ? "" : " + ") + bytes_text(bytes) + " of " + owner;
    first = false;
  }
  out += " at the peak.\n";
  size_t at = 0;
  for (const SourceMap::Call& call : SourceMap(text).calls("one_of")) {
    const auto begin = static_cast<size_t>(call.text.data() - text.data());
    if (begin < at) continue;  // inside of another one, and written with it
    const auto chosen = variant.choices.find(call.line);
    const size_t index = chosen == variant.choices.end() ? 1 : chosen->second;
    if (index > call.items.size())
      return recipe_error(recipe.string() + ":" + std::to_string(call.line) + ": one_of is not a list of values");
    out += text.substr(at, begin - at);
    out += call.items[index - 1];
    at = begin + call.text.size();
  }
  return out + text.substr(at);
}

}  // namespace galley
