#include "host/recipe/variants.hpp"

#include <algorithm>
#include <cmath>

#include "host/base/json.hpp"
#include "host/base/listed.hpp"
#include "host/base/nearest.hpp"
#include "host/recipe/declared.hpp"

namespace galley {
namespace {

constexpr size_t kMostSeeds = 1000, kMostVariants = 1000;

const Table& variants_of(const Entry& comparison) { return *comparison.options.at("variants").as<Table>(); }

Error no_variant(const std::string& name, const std::vector<std::string>& variants, const Place& place) {
  const std::string near = did_you_mean(name, variants);
  return recipe_error(place.text() + ": there is no variant '" + name + "'" + (near.empty() ? "" : "; " + near),
                      "the variants: " + listed(variants, variants.size()));
}

/// budget = { tokens = N } or { seconds = N }; nothing where there is none. Then no steps may be given, neither here nor by a variant.
Result<std::optional<Budget>> budget_of(const Fields& fields) {
  const auto budget = TRY(fields.table("budget", declared_compare()["budget"].expects()));
  if (!budget) return std::optional<Budget>();
  const Declared& declared = declared_budget();
  TRY_STATUS(budget->only(declared.options));
  const char* const write = "write budget = { tokens = 1e6 }, or budget = { seconds = 60 }";
  double tokens = 0, seconds = 0;
  const bool of_tokens = TRY(budget->take(declared["tokens"])).number(&tokens);
  const bool of_seconds = TRY(budget->take(declared["seconds"])).number(&seconds);
  if (of_tokens == of_seconds) return fields.error("budget", "a budget is either tokens or seconds", write);
  if (std::floor(tokens) != tokens) return budget->wrong("tokens", declared["tokens"].expects());
  for (const char* length : {"steps", "epochs"})
    if (fields.find(length))
      return fields.error(length, "the comparison says both '" + std::string(length) + "' and 'budget'",
                          "either says how long the runs are: leave one of them out");
  return std::optional(Budget{static_cast<int64_t>(tokens), seconds});
}

}  // namespace

std::optional<Margin> margin_named(const std::string& text) {
  const bool share = text.ends_with('%');
  const auto value = parse_json(text.substr(0, text.size() - share), "margin");
  double number = 0;
  if (!value || !value->number(&number) || !(number > 0) || number > (share ? 100 : 1e6)) return std::nullopt;
  return share ? Margin{0, number / 100} : Margin{number, 0};
}

Result<CompareSpec> compare_spec(const Entry& comparison, const Fields& fields) {
  const Declared& declared = declared_compare();
  std::vector<OptionSpec> known = declared_recipe().options;
  known.insert(known.end(), declared.options.begin(), declared.options.end());
  TRY_STATUS(fields.only(known));
  CompareSpec out;
  for (const auto& [name, variant] : variants_of(comparison)) out.variants.push_back(name);
  if (out.variants.size() < 2 || out.variants.size() > kMostVariants)
    return fields.error("variants", "a comparison has at least two variants, not " + std::to_string(out.variants.size()),
                        "write " + declared.written);
  auto first = out.variants.end();
  const auto find = [&](const std::string& name) { first = std::find(out.variants.begin(), out.variants.end(), name); };
  if (const auto baseline = TRY(fields.text("baseline"))) {
    find(*baseline);
    if (first == out.variants.end()) return no_variant(*baseline, out.variants, fields.place_of("baseline"));
  } else {
    find("plain");
    if (first == out.variants.end()) find("baseline");
    if (first == out.variants.end())
      return fields.missing("baseline", "say which variant the others are held against: baseline = \"" + out.variants.front() + "\"");
  }
  std::rotate(out.variants.begin(), first, first + 1);
  const Value seeds = TRY(fields.take(declared["seeds"]));
  for (const Value& seed : *seeds.as<List>()) {
    double number = -1;
    seed.number(&number);
    if (!(number >= 0 && number <= 9e15) || std::floor(number) != number)
      return fields.wrong("seeds", "whole numbers of at least 0, each once");
    out.seeds.push_back(static_cast<int64_t>(number));
    if (std::count(out.seeds.begin(), out.seeds.end(), out.seeds.back()) > 1)
      return fields.wrong("seeds", "whole numbers of at least 0, each once");
  }
  if (out.seeds.empty() || out.seeds.size() > kMostSeeds)
    return fields.wrong("seeds", "between 1 and " + std::to_string(kMostSeeds) + " whole numbers");
  const Value turns = TRY(fields.take(declared["turns"]));
  out.turns = *turns.as<int64_t>();
  out.sequential = *TRY(fields.take(declared["sequential"])).as<bool>();
  out.resplit = *TRY(fields.take(declared["resplit"])).as<bool>();
  if (const Value* margin = fields.find("margin")) {
    const auto* text = margin->as<std::string>();
    double nats = 0;
    const auto read = text ? margin_named(*text) : margin->number(&nats) ? margin_named(to_json(*margin)) : std::nullopt;
    if (!read) return fields.wrong("margin", declared["margin"].expects());
    out.margin = *read;
  }
  out.budget = TRY(budget_of(fields));
  return out;
}

Status set_budget(Entry& variant, const CompareSpec& spec, const std::map<std::string, std::string>& sets) {
  const auto given = [&](const char* name) {
    const auto at = sets.find(name);
    return at == sets.end() ? std::string() : at->second;
  };
  const bool trial = !given("trial").empty();
  const char* const name = trial ? "trial" : "budget";
  const std::string text = given(name);
  if (!spec.budget) {
    if (text.empty()) return ok();
    return recipe_error("--set " + std::string(name) + "=" + text + ": the comparison has no budget", "it says how many steps there are");
  }
  for (const char* length : {"steps", "epochs"})
    if (variant.options.contains(length))
      return recipe_error(variant.place.text() + ": a variant says '" + length + "', which follows from the comparison's budget",
                          "leave it out, or the budget");
  if (text.empty())
    return recipe_error(variant.place.text() + ": how many steps a run has follows from the comparison's budget",
                        "galley compare finds it; here give it: --set budget=100");
  const OptionSpec& spec_of_steps = declared_recipe()["steps"];
  const auto value = parse_json(text, "--set " + std::string(name));
  if (!value || !value->as<int64_t>() || !spec_of_steps.range.contains(static_cast<double>(*value->as<int64_t>())))
    return recipe_error("--set " + std::string(name) + "=" + text + ": " + spec_of_steps.expects());
  variant.options.insert_or_assign("steps", *value);
  if (!trial) return ok();
  // What is held out stays so: the data are those of the runs.
  variant.options.erase("evaluate");
  if (variant.options.contains("validate")) variant.options.insert_or_assign("validate", Value(Table{{"every", Value(kMostSteps)}}));
  variant.options.insert_or_assign("save", Value(Table{{"final", Value(false)}}));
  return ok();
}

Result<Entry> variant_of(const Entry& comparison, const CompareSpec& spec, const std::string& variant) {
  if (variant.empty())
    return recipe_error(
        comparison.place.text() + ": this recipe compares " + listed(spec.variants, spec.variants.size()) + "; here one of them is wanted",
        "name it: --set variant=" + spec.variants.front() + "; galley compare trains all of them side by side");
  const Table& variants = variants_of(comparison);
  const auto found = variants.find(variant);
  if (found == variants.end()) return no_variant(variant, spec.variants, comparison.place);
  Entry out = comparison;
  out.kind = Entry::Kind::Recipe;
  for (const OptionSpec& own : declared_compare().options) out.options.erase(own.name);
  const Entry& own = *find_entry(found->second);
  for (const auto& [name, value] : own.options) out.options.insert_or_assign(name, value);
  const int64_t after = comparison.items.empty() ? 0 : std::max<int64_t>(0, comparison.items.rbegin()->first);
  for (const auto& [position, value] : own.items) out.items.emplace(after + position, value);
  return out;
}

}  // namespace galley
