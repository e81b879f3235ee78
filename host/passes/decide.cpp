// What backward keeps of forward, and what strategies of the recipe say to that.
#include <algorithm>
#include <array>
#include <deque>
#include <optional>

#include "host/passes/clone.hpp"
#include "host/passes/copy.hpp"
#include "host/passes/fuse.hpp"
#include "host/passes/passes.hpp"
#include "host/passes/saved.hpp"
#include "host/passes/verbs/handle.hpp"
#include "host/plan/plan.hpp"
#include "host/plan/timing.hpp"
#include "host/plugins/abi.hpp"

namespace galley {
namespace {

/// Why an item's choice is none; "": it is one.
std::string problem(const Compilation& c, size_t item, uint32_t choice) {
  const galley_saved_item& s = c.saved.items[item];
  const uint32_t where = choice_where(choice);
  const std::string device = "device '" + c.target.device + "'", of = std::string(" '") + s.name + "'";
  if (choice_how(choice) == kOffload) {
    if (where < s.n_memories && s.offload_seconds_to[where] > 0) return "";
    if (s.n_memories <= where) return device + " has no memory class " + std::to_string(where) + " to offload" + of + " to";
    return device + " cannot offload" + of + " to memory class '" + c.target.memories[where].name + "', which computes";
  }
  if (choice_how(choice) == kCompress) {
    if (where < s.n_formats && s.format_bytes[where] > 0) return "";
    if (s.n_formats <= where) return "there is no format " + std::to_string(where) + " to compress" + of + " into";
    return of.substr(1) + " cannot be compressed into format '" + c.saved.formats[where].name + "', which does not take its shape or dtype";
  }
  if (choice == GALLEY_KEEP) return "";
  if (choice == GALLEY_RECOMPUTE || choice == GALLEY_RECOMPUTE_EACH)
    return s.flags & GALLEY_SAVED_RECOMPUTABLE ? "" : of.substr(1) + " cannot be recomputed: forward has changed what it is made from";
  return "choice " + std::to_string(choice) + " for" + of + " is none of galley/saved.h";
}

/// The peaks of plans that differ in the choices alone. All that the choices do not change is looked at once; a question costs an outline
/// of micro and the planner's search.
class Peaks {
 public:
  explicit Peaks(Compilation& c) : c_(c), recomputer_(c), fuser_(c), base_(outline_of(c.program)) {
    for (size_t s = 0; s < segment_count; ++s)
      for (const Instruction& i : c.program.segments[s].code) {
        sources_[s].instructions.push_back(&i);
        sources_[s].recomputed.push_back(false);
      }
  }

  Result<int64_t> of(std::span<const uint32_t> choices, uint32_t memory) {
    if (memory >= c_.target.memories.size())
      return plugin_error("device '" + c_.target.device + "' has no memory class " + std::to_string(memory));
    Recomputed made = TRY(micro_with(choices));
    Outline outline = base_;
    for (const auto& [like, in, own] : made.tensors) {
      if (own) outline.tensors.push_back({own->bytes, in, own->life});
      else outline.tensors.push_back(Outline::Tensor(outline.tensors[static_cast<size_t>(like)]));
      outline.tensors.back().memory = in;
    }
    outline.segments[kMicro] = std::move(made.code);
    Originals& micro = sources_[kMicro];
    micro.instructions.clear();
    micro.recomputed.clear();
    for (size_t entry = 0; entry < made.origins.size(); ++entry) {
      const Recomputed::Origin& origin = made.origins[entry];
      micro.instructions.push_back(origin.code ? origin.code : added(outline.segments[kMicro].entries[entry].action));
      micro.recomputed.push_back(origin.again);
    }
    return TRY(fuser_.find(outline, sources_)).peaks[memory];
  }

  /// Of the queue that works longest.
  Result<double> seconds(std::span<const uint32_t> choices) {
    const Recomputed made = TRY(micro_with(choices));
    std::vector<double> clocks(std::max<size_t>(c_.target.queues.size(), 1), 0.0);
    for (size_t k = 0; k < made.origins.size(); ++k) {
      const Outline::Entry& entry = made.code.entries[k];
      double& clock = clocks[entry.queue];
      if (const Instruction* code = made.origins[k].code) clock += instruction_seconds(c_.program, *code, c_.target);
      else if (entry.action == Action::Copy) clock += copy_seconds(made, made.code.of(entry));
    }
    return std::ranges::max(clocks);
  }

 private:
  /// What micro becomes with these choices.
  Result<Recomputed> micro_with(std::span<const uint32_t> choices) const {
    for (size_t i = 0; i < choices.size(); ++i)
      if (std::string wrong = problem(c_, i, choices[i]); !wrong.empty()) return plugin_error(std::move(wrong));
    return recomputer_.apply(choices);
  }

  /// Returns the seconds that a whole tensor takes from ids[0] to ids[1].
  double copy_seconds(const Recomputed& made, std::span<const TensorId> ids) const {
    const auto tensor = [&](TensorId id) {
      const size_t n = base_.tensors.size(), k = static_cast<size_t>(id);
      if (k < n) return base_.tensors[k];
      Outline::Tensor out = base_.tensors[static_cast<size_t>(made.tensors[k - n].like)];
      out.memory = made.tensors[k - n].memory;
      return out;
    };
    const Outline::Tensor from = tensor(ids[0]), to = tensor(ids[1]);
    const std::vector<MemoryClass>& memories = c_.target.memories;
    return static_cast<double>(from.bytes) / (to.memory == 0 ? memories[from.memory].in_bandwidth : memories[to.memory].out_bandwidth);
  }

  /// Stands for what is not there before the choices are made: a copy of all of a tensor, or what keeps queues in order.
  static const Instruction* added(Action action) {
    static const std::array<Instruction, 2> all = [] {
      std::array<Instruction, 2> out;
      Operand whole;
      whole.tensor = 0;
      whole.shape = {int64_t{1} << 40};
      out[0].what = Copy();
      out[0].inputs = {with_access(whole, GALLEY_READ)};
      out[0].outputs = {with_access(whole, GALLEY_WRITE)};
      out[1].what = Wait();
      return out;
    }();
    return &all[action == Action::Copy ? 0 : 1];
  }

  static constexpr auto kMicro = static_cast<size_t>(SegmentKind::Micro);
  Compilation& c_;
  Recomputer recomputer_;
  Fuser fuser_;
  Outline base_;
  Sources sources_;
};

struct SavedQuestion {
  Peaks* peaks;
  size_t choices;
};

template <class T>
galley_status answer(const Result<T>& got, T* out, galley_error* error) {
  if (!got) {
    fill_error(error, GALLEY_FAILED, got.error().cause, got.error().hint);
    return GALLEY_FAILED;
  }
  *out = *got;
  return GALLEY_OK;
}
galley_status answer_peak(void* context, const uint32_t* asked, uint32_t memory, int64_t* out, galley_error* error) {
  const auto* question = static_cast<const SavedQuestion*>(context);
  return answer(question->peaks->of({asked, question->choices}, memory), out, error);
}
galley_status answer_seconds(void* context, const uint32_t* asked, double* out, galley_error* error) {
  const auto* question = static_cast<const SavedQuestion*>(context);
  return answer(question->peaks->seconds({asked, question->choices}), out, error);
}

using Choices = std::vector<uint32_t>;

/// What one strategy makes of the choices so far.
Result<Choices> ask(Compilation& c, Peaks& peaks, size_t use, const std::vector<galley_saved_item>& about, Choices choices) {
  SavedQuestion question = {&peaks, choices.size()};
  std::vector<const galley_saved_item*> items;
  for (const galley_saved_item& s : about) items.push_back(&s);
  const TargetView target(c.target);
  auto view = new_struct<galley_saved_set>();
  view.target = target.get();
  view.items = items.data();
  view.n_items = items.size();
  view.blocks = c.saved.blocks;
  view.context = &question;
  view.peak = answer_peak;
  view.seconds = answer_seconds;
  std::deque<std::vector<const galley_attr*>> attrs;
  std::vector<galley_saved_format> formats;
  std::vector<const galley_saved_format*> format_pointers;
  for (const SavedFormat& format : c.saved.formats) {
    attrs.push_back(format.attrs.view());
    galley_saved_format& told = formats.emplace_back(new_struct<galley_saved_format>());
    told.name = format.name.c_str();
    told.attrs = attrs.back().data();
    told.n_attrs = static_cast<uint32_t>(attrs.back().size());
  }
  for (const galley_saved_format& format : formats) format_pointers.push_back(&format);
  view.formats = format_pointers.data();
  view.n_formats = static_cast<uint32_t>(formats.size());
  const LoadedStrategy& s = *c.strategies[use];
  TRY_STATUS(call_strategy(c, {Section::Forward, static_cast<int>(use)}, "decide", [&](galley_graph*, galley_error* error) {
    return s.saved()->decide(s.instance(), &view, choices.data(), error);
  }));
  for (size_t k = 0; k < choices.size(); ++k)
    if (const std::string wrong = problem(c, k, choices[k]); !wrong.empty())
      return recipe_error(label(c.strategies, static_cast<int>(use)) + ": " + wrong);
  return choices;
}

/// Each decides on what those before it keep.
Status in_turn(Compilation& c, Peaks& peaks, const std::vector<size_t>& deciders) {
  std::vector<size_t> decided_by(c.choices.size(), 0);
  for (const size_t use : deciders) {
    Choices choices = TRY(ask(c, peaks, use, c.saved.items, c.choices));
    for (size_t k = 0; k < choices.size(); ++k) {
      if (choices[k] == c.choices[k]) continue;
      if (c.choices[k] != GALLEY_KEEP)
        return recipe_error(label(c.strategies, static_cast<int>(use)) + " chooses '" + choice_text(c, choices[k]) + "' for '" +
                                c.saved.items[k].name + "', for which " + label(c.strategies, static_cast<int>(decided_by[k])) +
                                " has chosen '" + choice_text(c, c.choices[k]) + "'",
                            "a strategy decides on what those before it keep");
      decided_by[k] = use;
    }
    c.choices = std::move(choices);
  }
  return ok();
}

/// The strategy with a budget decides, and is told what the others would have chosen.
Status for_all(Compilation& c, Peaks& peaks, const std::vector<size_t>& deciders, size_t holder) {
  std::vector<Choices> accepted(c.choices.size());
  for (const size_t use : deciders) {
    if (use == holder) continue;
    const Choices would = TRY(ask(c, peaks, use, c.saved.items, c.choices));
    for (size_t k = 0; k < would.size(); ++k)
      if (would[k] != GALLEY_KEEP && std::find(accepted[k].begin(), accepted[k].end(), would[k]) == accepted[k].end())
        accepted[k].push_back(would[k]);
  }
  std::vector<galley_saved_item> items = c.saved.items;
  for (size_t k = 0; k < items.size(); ++k) {
    items[k].accepted = accepted[k].data();
    items[k].n_accepted = static_cast<uint32_t>(accepted[k].size());
  }
  c.choices = TRY(ask(c, peaks, holder, items, c.choices));
  return ok();
}

Result<int64_t> budget_of(Compilation& c, size_t use) {
  const LoadedStrategy& s = *c.strategies[use];
  int64_t bytes = 0;
  if (s.saved()->budget)
    TRY_STATUS(call_strategy(c, {Section::Forward, static_cast<int>(use)}, "budget",
                             [&](galley_graph*, galley_error* error) { return s.saved()->budget(s.instance(), &bytes, error); }));
  if (bytes < 0) return plugin_error(label(c.strategies, static_cast<int>(use)) + ": a budget of " + std::to_string(bytes) + " bytes");
  return bytes;
}

/// Asks a strategy into which formats it compresses.
Status collect_formats(Compilation& c, size_t use) {
  const LoadedStrategy& s = *c.strategies[use];
  if (!s.saved()->formats) return ok();
  const galley_saved_format* const* formats = nullptr;
  uint32_t n = 0;
  TRY_STATUS(call_strategy(c, {Section::Forward, static_cast<int>(use)}, "formats",
                           [&](galley_graph*, galley_error* error) { return s.saved()->formats(s.instance(), &formats, &n, error); }));
  const std::string who = label(c.strategies, static_cast<int>(use));
  for (uint32_t i = 0; i < n; ++i) {
    if (const std::string wrong = formats ? struct_problem(formats[i]) : "is null"; !wrong.empty())
      return plugin_error(who + ": a format that " + wrong);
    SavedFormat format;
    format.name = formats[i]->name ? formats[i]->name : "";
    format.use = static_cast<int>(use);
    if (Status status = format.attrs.add(formats[i]->attrs, formats[i]->n_attrs); !status.ok())
      return plugin_error(who + ": format '" + format.name + "': " + status.error().cause);
    const galley_format* table = c.plugins.format(format.name).table;
    if (!table) return recipe_error(who + ": no plugin provides the format '" + format.name + "' into which it compresses");
    if (!table->pack_op) return recipe_error(who + ": it compresses into format '" + format.name + "', which packs nothing");
    const auto same = [&](const SavedFormat& known) { return known.name == format.name && known.attrs.key() == format.attrs.key(); };
    if (std::ranges::none_of(c.saved.formats, same)) c.saved.formats.push_back(std::move(format));
  }
  return ok();
}

/// Finds what each item takes in each format.
Status pack_items(Compilation& c) {
  if (c.saved.formats.empty()) return ok();
  Compressor compressor(c);
  const Tensors tensors = c.tensors();
  for (size_t k = 0; k < c.saved.items.size(); ++k) {
    auto& packed = c.saved.packed.emplace_back();
    auto& bytes = c.saved.packed_bytes.emplace_back();
    auto& seconds = c.saved.packed_seconds.emplace_back();
    for (const SavedFormat& format : c.saved.formats) {
      packed.push_back(TRY(compressor.of(tensors[c.saved.tensors[k]], format)));
      bytes.push_back(packed.back() ? packed.back()->bytes : 0);
      seconds.push_back(packed.back() ? packed.back()->seconds : 0);
    }
    galley_saved_item& item = c.saved.items[k];
    item.format_bytes = bytes.data();
    item.format_seconds = seconds.data();
    item.n_formats = static_cast<uint32_t>(bytes.size());
    if (std::ranges::any_of(bytes, [](int64_t n) { return n > 0; })) item.flags |= GALLEY_SAVED_COMPRESSIBLE;
  }
  return ok();
}

}  // namespace

Status decide(Compilation& c) {
  if (!c.backward()) return ok();
  c.saved = TRY(find_saved(c));
  c.choices.assign(c.saved.items.size(), GALLEY_KEEP);
  std::vector<size_t> deciders;
  std::optional<size_t> holder;
  for (size_t i = 0; i < c.strategies.size(); ++i) {
    if (!c.strategies[i]->saved()) continue;
    deciders.push_back(i);
    TRY_STATUS(collect_formats(c, i));
    const int64_t budget = TRY(budget_of(c, i));
    if (!budget) continue;
    if (holder)
      return recipe_error("two strategies hold a budget for what backward keeps: " + label(c.strategies, static_cast<int>(*holder)) +
                              " and " + label(c.strategies, static_cast<int>(i)),
                          "take one of the two budgets out");
    holder = i;
    c.budget = budget;
  }
  if (deciders.empty()) return ok();
  TRY_STATUS(pack_items(c));
  Peaks peaks(c);
  return holder ? for_all(c, peaks, deciders, *holder) : in_turn(c, peaks, deciders);
}

}  // namespace galley
