#include "host/commands/plan.hpp"

#include <charconv>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "host/base/nearest.hpp"
#include "host/base/new_file.hpp"
#include "host/base/units.hpp"
#include "host/commands/compare.hpp"
#include "host/commands/run_commands.hpp"
#include "host/proofs/congruent.hpp"
#include "host/proofs/dump.hpp"
#include "host/proofs/shadow.hpp"
#include "host/session/several.hpp"
#include "host/session/study.hpp"
#include "host/tools/report/locked_plan.hpp"
#include "host/tools/report/page.hpp"
#include "host/tools/report/plan_report.hpp"
#include "host/tools/report/run_page.hpp"
#include "host/tools/report/tensors.hpp"
#include "host/tools/report/terminal.hpp"

namespace galley {
namespace {

/// The planner, which comes after the passes.
constexpr PassInfo plan_pass = {"plan", "every tensor at an offset"};

Status check_dump(const std::string& wanted) {
  if (wanted.empty() || wanted == "all" || wanted == plan_pass.name) return ok();
  std::vector<std::string> names = {"all"};
  std::string list;
  for (const PassInfo& pass : pass_list()) {
    if (wanted == pass.name) return ok();
    names.emplace_back(pass.name);
    list += (list.empty() ? "" : ", ") + names.back();
  }
  names.emplace_back(plan_pass.name);
  const std::string guess = did_you_mean(wanted, names);
  return recipe_error("--dump " + wanted + ": there is no such pass", guess.empty() ? "known: all, " + list + ", plan" : guess);
}

void print_dump(const std::string& wanted, const PassInfo& pass, const std::function<std::string()>& text) {
  if (wanted != "all" && wanted != pass.name) return;
  std::printf("# %s: %s\n", pass.name, pass.does);
  std::fputs(shown(text()).c_str(), stdout);
}

/// "1,200 steps", or what is known of it before the data is prepared.
std::string length_text(const Recipe& recipe) {
  if (recipe.epochs == 0) return grouped(static_cast<uint64_t>(recipe.steps)) + (recipe.steps == 1 ? " step" : " steps");
  char text[96];
  std::snprintf(text, sizeof text, "%g epoch%s; how many steps that is, galley data says when it has prepared the data", recipe.epochs,
                recipe.epochs == 1 ? "" : "s");
  return text;
}

/// What `--check` has proved.
std::string proved_text(const Study& s) {
  size_t instructions = 0, segments = 0;
  for (const Segment& segment : s.program.segments) {
    instructions += segment.code.size();
    segments += !segment.code.empty();
  }
  return "proved by executing it without data: " + grouped(instructions) + " instructions in " + std::to_string(segments) +
         " segments read only what was written before, write only what nobody else needs, and " + grouped(s.program.tensors.size()) +
         " tensors lie within their memories, apart while they are in use\n";
}

/// Plans for other processes of the run, all or some of many, and proves that they fit together. Returns what was proved.
Result<std::string> check_processes(const std::string& recipe, StudyOptions options, const Study& own) {
  const int64_t n = own.program.ranks;
  std::set<int64_t> ranks = planned_ranks(n);
  ranks.insert(own.program.rank);
  options.watch = {};
  options.warn = [](const std::string&) {};
  std::vector<std::unique_ptr<Study>> others;
  std::vector<const Program*> programs;
  std::string names;
  for (const int64_t rank : ranks) {
    options.lanes.rank = rank;
    if (rank != own.program.rank) others.push_back(TRY(study(recipe, options)));
    programs.push_back(rank == own.program.rank ? &own.program : &others.back()->program);
    names += (names.empty() ? "" : ", ") + std::to_string(rank);
  }
  const bool all = std::ssize(programs) == n;
  TRY_STATUS(congruent(programs, all));
  return (all ? "all processes" : "processes " + names) + " exchange the same in the same order" +
         (all ? ", and their parts are the whole" : "") + "\n";
}

/// A plan that does not fit, or needs more than the locked one, is an error, for scripts: it has been shown.
Status grown(const std::optional<PlanChange>& change, const std::string& file) {
  if (!change || !change->grew()) return ok();
  std::string what;
  for (const auto& [now, was] : change->classes)
    if (now.planned > was.planned)
      what += (what.empty() ? "" : ", ") + std::string("'") + now.name + "' has " + bytes_text(now.planned) + " (" +
              std::to_string(now.planned) + " bytes), " + std::to_string(now.planned - was.planned) + " bytes more";
  return run_error("the plan has grown against " + file + ": " + what, "if that is meant, lock it: galley plan RECIPE --lock " + file);
}

/// "3:2,7:1": by the line of a one_of, which of its entries is taken.
Result<std::map<int, size_t>> choices_given(const CommandLine& a) {
  std::map<int, size_t> out;
  for (const std::string& word : a.list("--choices")) {
    int line = 0;
    size_t number = 0;
    const char* const end = word.data() + word.size();
    const auto first = std::from_chars(word.data(), end, line);
    const bool colon = first.ec == std::errc() && first.ptr != end && *first.ptr == ':';
    const auto second = std::from_chars(colon ? first.ptr + 1 : end, end, number);
    if (!colon || second.ec != std::errc() || second.ptr != end || !out.emplace(line, number).second)
      return recipe_error("--choices " + a.get("--choices") + ": expected LINE:NUMBER,…, such as 3:2,7:1");
  }
  return out;
}

}  // namespace

Status command_plan(const CommandLine& a) {
  StudyOptions options = TRY(study_options(a));
  options.choices = TRY(choices_given(a));
  options.runs = false;
  options.shows_unfit = true;
  if (a.has("--tensors") && !a.has("--json")) return recipe_error("galley plan: --tensors requires --json");
  const std::string dump = a.get("--dump");
  if (dump == "help") {
    for (const PassInfo& pass : pass_list()) std::printf("%-14s %s\n", pass.name, pass.does);
    std::printf("%-14s %s\n", plan_pass.name, plan_pass.does);
    return ok();
  }
  TRY_STATUS(check_dump(dump));
  std::optional<NewFile> page;  // opened first, so that one that cannot be written is found before the work
  if (a.has("--html")) page.emplace(TRY(NewFile::named(a.get("--html"))));
  if (a.has("--lock") && a.has("--against"))
    return recipe_error("galley plan: --lock and --against are two commands", "hold the plan against the old one first, then lock it");
  if (dump.empty() && !a.has("--json") && !a.has("--check") && !a.has("--lock") && !a.has("--against") &&
      !options.sets.contains("variant") && TRY(is_comparison(a.positional[0], options)))
    return print_plans(a.positional[0], options, page ? &*page : nullptr);
  std::optional<LockedPlan> locked;
  if (a.has("--against")) locked = TRY(read_lock(a.get("--against")));
  std::optional<NewFile> lock;
  if (a.has("--lock")) lock.emplace(TRY(NewFile::named(a.get("--lock"))));
  if (!dump.empty())
    options.watch = [&](const PassInfo& pass, const Compilation& c) { print_dump(dump, pass, [&] { return dump_pass(c, pass); }); };
  const auto s = TRY(study(a.positional[0], options));
  const auto ended = [&](Status status) { return s->unfit ? Status(*s->unfit) : std::move(status); };
  if (!dump.empty()) {
    print_dump(dump, plan_pass, [&] { return dump_plan(s->program, s->plan); });
    return ended(ok());
  }
  if (a.has("--check")) {
    TRY_STATUS(check_plan(s->program, s->plan, s->target));
    // Not with --json: then stdout is the document.
    const std::string together = s->program.ranks > 1 ? TRY(check_processes(a.positional[0], options, *s)) : "";
    if (!a.has("--json")) std::fputs((proved_text(*s) + together).c_str(), stdout);
  }
  const DiskUse disk = disk_use(s->program, s->recipe);
  std::optional<PlanChange> change;
  if (locked) change = change_of(locked_plan(*s), *locked);
  if (page) {
    TRY_STATUS(page->file().write(page_html(plan_page(*s, a.positional[0], change ? change_json(*change, a.get("--against")) : Value()))));
    TRY_STATUS(page->finish());
  }
  if (lock) {
    TRY_STATUS(lock->file().write(lock_text(locked_plan(*s))));
    TRY_STATUS(lock->finish());
  }
  if (a.has("--json")) {
    Table document = plan_document(s->program, s->plan, s->target, disk, {});
    if (a.has("--tensors")) document.merge(tensors_json(s->program, s->plan, s->target));
    if (change) document["against"] = change_json(*change, a.get("--against"));
    std::fputs(plan_json(std::move(document)).c_str(), stdout);
    return ended(grown(change, a.get("--against")));
  }
  const bool host = s->target.memories[0].host_access;
  print_lines("plan of %s: %s, for %s (%s, %lld %s)\n", a.positional[0].c_str(), s->model.model_type.c_str(), s->target.device.c_str(),
              s->target.isa.c_str(), static_cast<long long>(s->target.threads), host ? "threads" : "multiprocessors");
  print_lines("  data            %s\n", s->data.summary.c_str());
  print_lines("  length          %s\n", length_text(s->recipe).c_str());
  if (options.memory_limit > 0)
    print_lines("  --memory        %s; it counts tensors and workspace, not the process or a driver's context\n",
                fit_text(s->peak_memory(), options.memory_limit).c_str());
  print_lines(plan_table(s->program, s->plan, s->target, disk, terminal_columns()));
  if (change) std::fputs(shown("\n" + change_text(*change, a.get("--against"), static_cast<size_t>(terminal_columns()))).c_str(), stdout);
  for (const char* written : {"--html", "--lock"})
    if (a.has(written)) print_lines("\nwritten: %s\n", a.get(written).c_str());
  return ended(grown(change, a.get("--against")));
}

}  // namespace galley
