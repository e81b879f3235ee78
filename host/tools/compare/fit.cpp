#include "host/tools/compare/fit.hpp"

#include <malloc.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <set>

#include "host/base/file.hpp"
#include "host/base/json.hpp"
#include "host/base/ordered.hpp"
#include "host/base/pool.hpp"
#include "host/base/units.hpp"
#include "host/plan/timing.hpp"
#include "host/recipe/scan.hpp"
#include "host/session/several.hpp"
#include "host/tools/compare/arms.hpp"
#include "host/tools/compare/printed.hpp"
#include "host/tools/report/columns.hpp"

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
    options.choices = choices;
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

/// Strategies that declare to leave everything as it would be without them, and what they take, change no result but for rounding.
bool changes_result(const StrategySpec& spec) {
  return spec.exactness == Exactness::Approximate || spec.against.arm != Against::Arm::Without;
}

std::string result_of(const Study& s) {
  std::string out = std::to_string(s.program.rows * s.program.micro_batches) + " " + std::to_string(s.program.length) + "\n";
  for (const auto& strategy : s.loaded) {
    if (!changes_result(strategy->spec())) continue;
    out += strategy->name();
    for (const auto& [name, value] : strategy->options().values()) {
      const auto* foreign = value.as<Foreign>();
      out += " " + name + "=" + (foreign ? foreign->written() : to_json(value));
    }
    out += "\n";
  }
  for (const Trained& trained : s.program.trained) out += trained.name + "\n";
  return out;
}

void plan(const fs::path& recipe, StudyOptions options, int64_t memory, FitVariant& v) {
  options.choices = v.choices;
  const Result<std::unique_ptr<Study>> made = study_of_most(recipe, options);
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
  v.timed = s.program.ranks == 1 || s.target.link_for(s.program.ranks);
  const auto positions = static_cast<double>(s.program.rows * s.program.length * s.program.micro_batches);
  v.speed = v.seconds > 0 ? positions / v.seconds : 0;
  for (const auto& strategy : s.loaded) {
    v.exactness = std::max(v.exactness, strategy->spec().exactness);
    v.loss += strategy->spec().loss(strategy->options().values());
  }
  v.result = result_of(s);
  v.fits = v.bytes <= memory;
}

/// The choice at each one_of, from 1; 1 also where it is not asked for.
std::vector<size_t> choices_of(const FitVariant& v, const std::vector<int>& lines) {
  std::vector<size_t> out;
  for (const int line : lines) {
    const auto chosen = v.choices.find(line);
    out.push_back(chosen == v.choices.end() ? 1 : chosen->second);
  }
  return out;
}

/// Of which one_of items lead to different results, whatever else is chosen.
std::vector<bool> decides_result(const std::vector<FitVariant>& variants, const std::vector<int>& lines) {
  std::vector<bool> out;
  for (size_t k = 0; k < lines.size(); ++k) {
    std::map<std::vector<size_t>, std::set<std::string>> results;
    for (const FitVariant& v : variants) {
      if (!v.refusal.empty()) continue;
      std::vector<size_t> others = choices_of(v, lines);
      others[k] = 0;
      results[others].insert(v.result);
    }
    out.push_back(std::any_of(results.begin(), results.end(), [](const auto& r) { return r.second.size() > 1; }));
  }
  return out;
}

/// A variant that fits.
struct Candidate {
  std::vector<size_t> wanted, choices;  ///< by one_of: those that decide what is computed, and all
  size_t at;
};

std::vector<Candidate> candidates_of(const std::vector<FitVariant>& variants, const std::vector<int>& lines) {
  const std::vector<bool> deciding = decides_result(variants, lines);
  std::vector<Candidate> out;
  for (size_t i = 0; i < variants.size(); ++i) {
    if (!variants[i].fits) continue;
    Candidate& one = out.emplace_back(Candidate{{}, choices_of(variants[i], lines), i});
    for (size_t k = 0; k < lines.size(); ++k)
      if (deciding[k]) one.wanted.push_back(one.choices[k]);
  }
  return out;
}

/// The fastest; of those that are as fast, what the recipe offers first.
size_t fastest_of(const std::vector<FitVariant>& variants, std::vector<Candidate> candidates) {
  double fastest = 0;
  for (const Candidate& c : candidates) fastest = std::max(fastest, variants[c.at].speed);
  std::erase_if(candidates, [&](const Candidate& c) { return variants[c.at].speed < (1 - kAsFast) * fastest; });
  return std::ranges::min(candidates, {}, &Candidate::choices).at;
}

/// Of each result the fastest that fits, and what takes least. Variants are sorted by bytes.
void mark_best(std::vector<FitVariant>& variants, const std::vector<Candidate>& fitting) {
  std::set<std::string> seen;
  for (FitVariant& v : variants) v.best = v.refusal.empty() && seen.insert(v.result).second;
  std::map<std::string, std::vector<Candidate>> by_result;
  for (const Candidate& c : fitting) by_result[variants[c.at].result].push_back(c);
  for (const auto& [result, same] : by_result) variants[fastest_of(variants, same)].best = true;
}

size_t choose(const std::vector<FitVariant>& variants, std::vector<Candidate> fitting) {
  if (fitting.empty()) return SIZE_MAX;
  const auto wanted = std::ranges::min(fitting, {}, &Candidate::wanted).wanted;
  std::erase_if(fitting, [&](const Candidate& c) { return c.wanted != wanted; });
  return fastest_of(variants, std::move(fitting));
}

/// The name of the strategy that an item is, as in use "NAME" { … }.
std::string strategy_of(std::string_view item) {
  if (!item.starts_with("use")) return "";
  const size_t begin = item.find_first_of("\"'"), end = begin == std::string_view::npos ? begin : item.find(item[begin], begin + 1);
  return end == std::string_view::npos ? "" : std::string(item.substr(begin + 1, end - begin - 1));
}

bool is_nothing(std::string_view item) { return item == "false" || item == "nil"; }

/// "adapter" for the text "adapter", yes for true; others as they are written.
std::string as_said(std::string_view item) {
  const bool text = item.size() > 2 && (item.front() == '"' || item.front() == '\'') && item.find(item.front(), 1) == item.size() - 1;
  return item == "true" ? "yes" : std::string(text ? item.substr(1, item.size() - 2) : item);
}

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
    else if (strategies.empty()) out.items.push_back(as_said(item));
    else if (some == 1) out.items.emplace_back("yes");
    else if (strategies.size() != some && brace != std::string_view::npos)
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
                        "write one_of { … } where there is a choice, such as rank = one_of { 64, 16, 4 }");

  FitResult out;
  out.ranks = options.lanes.ranks;
  std::vector<Shown> columns;
  for (const SourceMap::Call& call : calls) {
    columns.push_back(shown(call));
    out.offers.push_back(columns.back().name);
  }
  StudyOptions plans = options;
  plans.runs = false;
  size_t done = 0;
  // Plugins are opened on this thread: the first combination with each set of strategies that is planned to the end. What is refused may be
  // so before its plugins are opened, such as a window that processes cannot share.
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
    } else if (!opened.contains(all[i].strategies)) {
      plan(recipe, plans, memory, v);
      if (v.refusal.empty() || v.too_large) opened.insert(all[i].strategies);
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
  // Plans are made and thrown away by the hundred: memory goes back to the system after the last one, which takes a tenth less time.
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
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.speed != b.speed ? a.speed > b.speed : a.loss < b.loss;
  });
  const std::vector<Candidate> fitting = candidates_of(out.variants, {lines.begin(), lines.end()});
  mark_best(out.variants, fitting);
  out.chosen = choose(out.variants, fitting);
  if (out.chosen != SIZE_MAX) out.variants[out.chosen].best = true;
  return out;
}

namespace {

/// Columns of what is chosen from each offer: what it needs, and where there is not so much room, the widest have less.
std::vector<size_t> widths_of(const FitResult& result, size_t room, Rows rows) {
  std::vector<size_t> out;
  for (size_t o = 0; o < result.offers.size(); ++o) {
    size_t width = display_width(result.offers[o]);
    for (const FitVariant& v : result.variants)
      if (v.best || rows == Rows::All) width = std::max(width, std::min<size_t>(display_width(v.said[o]), 36));
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

std::string fit_table(const FitResult& result, int64_t memory, size_t columns, Rows rows) {
  constexpr size_t numbers = 46;  // columns before what is chosen
  const std::vector<size_t> widths = widths_of(result, std::max(columns, numbers + 20) - numbers, rows);
  std::string out = printed("   %10s %11s  %-11s  %6s", "memory", "positions/s", "exactness", "loss");
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
    if (!v.best && rows == Rows::Best) {
      ++worse;
      continue;
    }
    std::string line = printed(" %c %10s %11s  %-11s  %6s",
                               i == result.chosen ? '>'
                               : v.fits           ? '+'
                                                  : '-',
                               bytes_text(v.bytes).c_str(), count_text(v.speed).c_str(), exactness_name(v.exactness),
                               v.loss > 0 ? printed("+%.3f", v.loss).c_str() : "");
    for (size_t o = 0; o < v.said.size(); ++o) line += "  " + left_in(v.said[o].empty() ? "-" : v.said[o], widths[o]);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  const bool several = result.ranks > 1;
  out += printed("%zu combinations%s: > chosen, + others that fit %s%s, - does not; %zu need more", result.variants.size(),
                 several ? printed(" for %lld processes", static_cast<long long>(result.ranks)).c_str() : "", bytes_text(memory).c_str(),
                 several ? " each" : "", over);
  if (worse > 0) out += printed(", %zu more compute the same as one above (--all)", worse);
  out += refused ? printed(", %zu cannot work:\n", refused) : "\n";
  constexpr size_t most_reasons = 5;
  std::vector<std::pair<size_t, std::string>> sorted;
  sorted.reserve(reasons.size());
  for (const auto& [reason, count] : reasons) sorted.emplace_back(count, reason);
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (size_t i = 0; i < std::min(sorted.size(), most_reasons); ++i) out += printed("  %zu: ", sorted[i].first) + sorted[i].second + "\n";
  if (sorted.size() > most_reasons) out += printed("  and for %zu other reasons\n", sorted.size() - most_reasons);
  if (std::ranges::any_of(result.variants, [](const FitVariant& v) { return v.refusal.empty() && !v.timed; }))
    out += printed(
        "positions/s leave out what exchanges take: no link of the target joins %lld processes;\n"
        "  give one in a file for --target (docs/ranks.md)\n",
        static_cast<long long>(result.ranks));
  return out;
}

namespace {

/// After the comment with which a text begins, and the blank lines after it.
size_t end_of_head(const std::string& text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t first = text.find_first_not_of(" \t", at), end = std::min(text.find('\n', at), text.size() - 1);
    if (first == std::string::npos || (text[first] != '\n' && text.compare(first, 2, "--") != 0) || text.compare(first, 4, "--[[") == 0)
      break;
    at = end + 1;
  }
  return at;
}

/// Where [begin, end) of a text is an entry of a table in a line of its own, which may go: the range with its comma and its comment.
std::optional<std::pair<size_t, size_t>> own_entry(const std::string& text, size_t begin, size_t end) {
  const size_t before = text.find_last_not_of(" \t\r\n", begin - 1);
  const size_t line = text.find_last_of('\n', begin);
  const size_t comma = text.find_first_not_of(" \t\r\n", end);
  if (begin == 0 || before == std::string::npos || line == std::string::npos || before > line || comma == std::string::npos) return {};
  if (std::string_view("{,;").find(text[before]) == std::string::npos || (text[comma] != ',' && text[comma] != ';')) return {};
  const size_t next = text.find_first_not_of(" \t", comma + 1);
  const bool ends = next == std::string::npos || text[next] == '\n' || text.compare(next, 2, "--") == 0;
  if (!ends) return {};
  return std::pair(line, std::min(text.find('\n', comma), text.size()));
}

}  // namespace

Result<std::string> fitted_recipe(const fs::path& recipe, const FitVariant& variant, int64_t memory, int64_t ranks) {
  const std::string text = TRY(read_text(recipe, kMostText));
  const bool several = ranks > 1;
  std::string out = "-- Chosen by galley fit from " + recipe.filename().string() + ", whose head says what its arguments are, for " +
                    (several ? std::to_string(ranks) + " processes with " : "") + bytes_text(memory) + (several ? " each" : "") + ".\n-- " +
                    bytes_text(variant.bytes) + (several ? " planned for the one that needs the most, " : " planned, ") +
                    count_text(variant.speed) + " positions/s by the target's figures" +
                    (variant.timed ? "" : ", without what exchanges take") + "; exactness: " + exactness_name(variant.exactness) + ".\n-- ";
  bool first = true;
  for (const auto& [owner, bytes] : variant.owners) {
    if (bytes == 0) continue;
    out += (first ? "" : " + ") + bytes_text(bytes) + " of " + owner;
    first = false;
  }
  out += " at the peak.\n";
  size_t at = end_of_head(text);
  const std::vector<SourceMap::Call> calls = SourceMap(text).calls("one_of");
  for (const auto& [line, choice] : variant.choices)
    if (std::none_of(calls.begin(), calls.end(), [line = line](const SourceMap::Call& call) { return call.line == line; }))
      return recipe_error(
          recipe.string() + ":" + std::to_string(line) + ": the values of one_of stand elsewhere, so that the choice cannot be written",
          "write them where they are chosen: one_of { 4, 1 }");
  for (const SourceMap::Call& call : calls) {
    const auto begin = static_cast<size_t>(call.text.data() - text.data());
    if (begin < at) continue;  // inside of another one, and written with it
    const auto chosen = variant.choices.find(call.line);
    const size_t index = chosen == variant.choices.end() ? 1 : chosen->second;
    if (index > call.items.size())
      return recipe_error(recipe.string() + ":" + std::to_string(call.line) + ": one_of is not a list of values");
    const std::string_view item = call.items[index - 1];
    if (const auto line = is_nothing(item) ? own_entry(text, begin, begin + call.text.size()) : std::nullopt) {
      out += text.substr(at, line->first - at);
      at = line->second;
      continue;
    }
    out += text.substr(at, begin - at);
    out += item;
    at = begin + call.text.size();
  }
  return out + text.substr(at);
}

}  // namespace galley
