#include "host/tools/report/locked_plan.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <tuple>

#include "host/base/json.hpp"
#include "host/base/units.hpp"
#include "host/tools/report/columns.hpp"
#include "host/tools/report/tensors.hpp"

namespace galley {
namespace {

constexpr size_t kShownChanges = 12;  // of the tensors that changed, on a terminal

/// "+ 1.50 MiB"
std::string more_text(int64_t bytes) { return (bytes < 0 ? "- " : "+ ") + bytes_text(std::abs(bytes)); }

LockedClass class_named(const LockedPlan& plan, const std::string& name) {
  const auto at = std::find_if(plan.classes.begin(), plan.classes.end(), [&](const LockedClass& c) { return c.name == name; });
  return at == plan.classes.end() ? LockedClass{name, 0, {}} : *at;
}

}  // namespace

LockedPlan locked_plan(const Study& s) {
  LockedPlan out;
  out.galley = GALLEY_VERSION;
  out.machine = s.target.device + " (" + s.target.isa + ")";
  for (size_t i = 0; i < s.plan.classes.size(); ++i) {
    LockedClass& c = out.classes.emplace_back();
    c.name = s.target.memories[i].name;
    c.planned = s.plan.classes[i].planned;
    for (size_t o = 0; o < owner_names.size(); ++o) c.owners[o] = s.plan.classes[i].owners[o];
  }
  for (size_t t = 0; t < s.program.tensors.size(); ++t) {
    if (!has_place(s.program, s.plan, t)) continue;
    const ProgramTensor& x = s.program.tensors[t];
    const Placement& p = s.plan.placements[t];
    const Moment at = s.plan.classes[x.memory].peak_at;
    const int32_t peak = s.plan.segment_begin[static_cast<size_t>(at.segment)] + at.index;
    LockedTensor& locked = out.tensors.emplace_back();
    locked.memory = s.target.memories[x.memory].name;
    locked.within = x.life == Life::Segment ? segment_names[segment_at(s.program, s.plan, p.first)] : life_name(x.life);
    locked.name = x.name;
    locked.owner = owner_names[static_cast<size_t>(x.owner)];
    locked.bytes = x.bytes;
    locked.peak = p.first <= peak && peak <= p.last;
    locked.column = out.tensors.size() - 1;
  }
  return out;
}

std::string lock_text(const LockedPlan& plan) {
  Table classes;
  for (const LockedClass& c : plan.classes) {
    Table owners;
    for (size_t o = 0; o < owner_names.size(); ++o) owners[owner_names[o]] = Value(c.owners[o]);
    classes[c.name] = Value(Table{{"planned", Value(c.planned)}, {"owners", Value(std::move(owners))}});
  }
  std::string out = "{\n\"galley\": " + json_quote(plan.galley) + ",\n\"machine\": " + json_quote(plan.machine) +
                    ",\n\"classes\": " + to_json(Value(std::move(classes))) + ",\n\"tensors\": [";
  for (size_t t = 0; t < plan.tensors.size(); ++t) {
    const LockedTensor& x = plan.tensors[t];
    out += (t ? ",\n" : "\n") + to_json(Value(Table{{"memory", Value(x.memory)},
                                                    {"within", Value(x.within)},
                                                    {"name", Value(x.name)},
                                                    {"owner", Value(x.owner)},
                                                    {"bytes", Value(x.bytes)},
                                                    {"peak", Value(x.peak)}}));
  }
  return out + "\n]\n}\n";
}

Result<LockedPlan> read_lock(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error))
    return recipe_error(file.string() + ": there is no such file", "galley plan RECIPE --lock " + file.string() + " makes it");
  const Value value = TRY(read_json(file, uint64_t{1} << 30, kManyJsonValues));
  const Error wrong = recipe_error(file.string() + ": this is not a plan that galley plan --lock has written",
                                   "galley plan RECIPE --lock " + file.string() + " writes one");
  const auto* classes = value.field<Table>("classes");
  const auto* tensors = value.field<List>("tensors");
  if (!classes || !tensors) return wrong;
  LockedPlan out;
  out.galley = value.text_field("galley");
  out.machine = value.text_field("machine");
  for (const auto& [name, c] : *classes) {
    const auto* planned = c.field<int64_t>("planned");
    const auto* owners = c.field<Table>("owners");
    if (!planned || !owners) return wrong;
    LockedClass& read = out.classes.emplace_back();
    read.name = name;
    read.planned = *planned;
    for (size_t o = 0; o < owner_names.size(); ++o)
      if (const auto at = owners->find(owner_names[o]); at != owners->end() && at->second.as<int64_t>())
        read.owners[o] = *at->second.as<int64_t>();
  }
  for (const Value& t : *tensors) {
    const auto* bytes = t.field<int64_t>("bytes");
    const auto* peak = t.field<bool>("peak");
    if (!bytes || !peak || !t.field<std::string>("name")) return wrong;
    out.tensors.push_back(
        {t.text_field("memory"), t.text_field("within"), t.text_field("name"), t.text_field("owner"), *bytes, *peak, out.tensors.size()});
  }
  return out;
}

std::string TensorChange::kind() const {
  if (is_new) return "new";
  if (column == kGone) return "gone";
  if (peak != peak_was) return peak ? "joins the peak" : "leaves the peak";
  if (bytes != was) return bytes > was ? "grew" : "shrank";
  return "now " + owner;
}

bool PlanChange::grew() const {
  return std::any_of(classes.begin(), classes.end(), [](const OfClass& c) { return c.now.planned > c.was.planned; });
}

PlanChange change_of(const LockedPlan& now, const LockedPlan& was) {
  PlanChange out;
  out.machine = now.machine;
  out.machine_was = was.machine;
  out.galley_was = was.galley;
  for (const LockedClass& c : now.classes) out.classes.push_back({c, class_named(was, c.name)});
  for (const LockedClass& c : was.classes)
    if (std::none_of(now.classes.begin(), now.classes.end(), [&](const LockedClass& n) { return n.name == c.name; }))
      out.classes.push_back({LockedClass{c.name, 0, {}}, c});

  using Key = std::tuple<std::string, std::string, std::string, int>;
  const auto keyed = [](const std::vector<LockedTensor>& tensors) {
    std::map<Key, const LockedTensor*> keys;
    std::map<std::tuple<std::string, std::string, std::string>, int> seen;
    for (const LockedTensor& t : tensors) keys.emplace(Key{t.memory, t.within, t.name, seen[{t.memory, t.within, t.name}]++}, &t);
    return keys;
  };
  const auto before = keyed(was.tensors), after = keyed(now.tensors);
  for (const auto& [key, t] : after) {
    const auto found = before.find(key);
    const LockedTensor* old = found == before.end() ? nullptr : found->second;
    if (old && old->bytes == t->bytes && old->owner == t->owner && old->peak == t->peak) continue;
    out.tensors.push_back({t->name, t->memory, t->owner, old ? old->owner : "", t->bytes, old ? old->bytes : 0, old == nullptr, t->peak,
                           old && old->peak, t->column});
  }
  for (const auto& [key, t] : before)
    if (!after.contains(key))
      out.tensors.push_back({t->name, t->memory, t->owner, t->owner, 0, t->bytes, false, false, t->peak, TensorChange::kGone});
  std::stable_sort(out.tensors.begin(), out.tensors.end(), [](const TensorChange& a, const TensorChange& b) {
    return std::make_tuple(-std::abs(a.at_peak()), -std::abs(a.bytes - a.was), a.column) <
           std::make_tuple(-std::abs(b.at_peak()), -std::abs(b.bytes - b.was), b.column);
  });
  return out;
}

Value change_json(const PlanChange& change, const std::string& file) {
  List classes, tensors;
  for (const auto& [now, was] : change.classes) {
    Table owners;
    for (size_t o = 0; o < owner_names.size(); ++o)
      owners[owner_names[o]] = Value(Table{{"bytes", Value(now.owners[o])}, {"was", Value(was.owners[o])}});
    classes.push_back(Value(Table{
        {"name", Value(now.name)}, {"planned", Value(now.planned)}, {"was", Value(was.planned)}, {"owners", Value(std::move(owners))}}));
  }
  for (const TensorChange& t : change.tensors)
    tensors.push_back(Value(Table{{"name", Value(t.name)},
                                  {"memory", Value(t.memory)},
                                  {"owner", Value(t.owner)},
                                  {"owner_was", t.is_new ? Value() : Value(t.owner_was)},
                                  {"bytes", Value(t.bytes)},
                                  {"was", t.is_new ? Value() : Value(t.was)},
                                  {"at_peak", Value(t.at_peak())},
                                  {"kind", Value(t.kind())},
                                  {"column", t.column == TensorChange::kGone ? Value() : Value(static_cast<int64_t>(t.column))}}));
  return Value(Table{{"file", Value(file)},
                     {"machine", Value(change.machine)},
                     {"machine_was", Value(change.machine_was)},
                     {"galley_was", Value(change.galley_was)},
                     {"classes", Value(std::move(classes))},
                     {"tensors", Value(std::move(tensors))}});
}

std::string change_text(const PlanChange& change, const std::string& file, size_t columns) {
  std::string out = wrapped("  against " + file, columns, 4) + "\n";
  if (change.machine != change.machine_was)
    out += wrapped("    that is a plan for " + change.machine_was + ", this one is for " + change.machine, columns, 4) + "\n";
  char text[160];
  const auto row = [&](const std::string& name, int64_t bytes, int64_t was) {
    std::snprintf(text, sizeof text, "    %s %12s, was %12s  %13s\n", left_in(name, 16).c_str(), bytes_text(bytes).c_str(),
                  bytes_text(was).c_str(), bytes == was ? "" : more_text(bytes - was).c_str());
    out += text;
  };
  for (const auto& [now, was] : change.classes) {
    if (!now.planned && !was.planned) continue;
    row("'" + now.name + "'", now.planned, was.planned);
    for (size_t o = 0; o < owner_names.size(); ++o)
      if (now.owners[o] != was.owners[o]) row(std::string("  ") + owner_names[o], now.owners[o], was.owners[o]);
  }
  if (change.tensors.empty()) return out + "    no tensor has changed\n";
  out += "    of " + std::to_string(change.tensors.size()) + " tensors that changed, those that add or free most at the peak\n";
  for (size_t k = 0; k < std::min(kShownChanges, change.tensors.size()); ++k) {
    const TensorChange& t = change.tensors[k];
    std::snprintf(text, sizeof text, "    %13s  %-11s  %-15s  ", more_text(t.at_peak()).c_str(), t.owner.c_str(), t.kind().c_str());
    out += text + cut_middle(t.name, std::max<size_t>(columns, 64) - 49) + "\n";
  }
  return out;
}

}  // namespace galley
