#include "host/plugins/source.hpp"

#include <algorithm>

#include "host/base/printable.hpp"
#include "host/plugins/abi.hpp"

namespace galley {
namespace {

/// What is wrong with a declared tensor, or "".
std::string tensor_problem(const galley_source_tensor& t) {
  if (t.dtype != GALLEY_I32 && t.dtype != GALLEY_F32) return "is neither I32 nor F32";
  if (t.extent != GALLEY_SOURCE_PER_POSITION && (t.extent < 1 || t.extent > INT32_MAX))
    return "has " + std::to_string(t.extent) + " numbers a row";
  if (t.flags & GALLEY_SOURCE_COUNTS && (!t.unit || !*t.unit)) return "counts, and does not say what";
  for (const FillInfo& known : kFillInfo)
    if (std::string_view(t.name) == known.input || std::string_view(t.name) == "labels") return "has the name of an input of Galley's own";
  return {};
}

}  // namespace

Result<std::unique_ptr<LoadedSource>> LoadedSource::create(Plugins& plugins, const Use& use, const std::vector<std::string>& built_in) {
  if (std::ranges::find(built_in, use.name) != built_in.end()) return std::unique_ptr<LoadedSource>();
  const StrategyRef found = TRY(plugins.source(use.name, use.place, built_in));
  std::unique_ptr<LoadedSource> out(new LoadedSource);
  out->caller_ = {found.plugin->manifest.id, "data." + use.name, use.place};
  out->options_ = TRY(Options::create(*found.spec, use, out->caller_.strategy));
  out->table_ = TRY(plugins.load_source(found, use.place));
  TRY_STATUS(out->instance_.create(out->caller_, *out->table_, *out->options_));
  return out;
}

Status LoadedSource::describe(const galley_source_call& call) {
  auto info = new_struct<galley_source_info>();
  TRY_STATUS(call_plugin(caller_, "describe", [&](galley_error* error) { return table_->describe(instance_.get(), &call, &info, error); }));
  const auto wrong = [&](const std::string& what) { return plugin_fault(caller_, "describe", plugin_error(what)); };
  if (info.flags & GALLEY_MUST_UNDERSTAND & ~GALLEY_SOURCE_INFO_KNOWN)
    return wrong("its description has flags that this Galley does not know");
  if (info.rows_of_item < 1) return wrong("an item of " + std::to_string(info.rows_of_item) + " rows");
  if (info.n_tensors > kMostOwnInputs || (info.n_tensors && !info.tensors))
    return wrong(std::to_string(info.n_tensors) + " tensors; " + std::to_string(kMostOwnInputs) + " are possible");
  Description out;
  out.summary = info.summary ? info.summary : "";
  out.rows_of_item = info.rows_of_item;
  out.vocabulary = std::max<int64_t>(info.vocabulary, 0);
  out.flags = info.flags;
  for (uint32_t i = 0; i < info.n_tensors; ++i) {
    const std::string which = "tensor " + std::to_string(i + 1);
    if (const std::string problem = struct_problem(info.tensors[i]); !problem.empty()) return wrong(which + " " + problem);
    const galley_source_tensor t = read_struct(*info.tensors[i]);
    if (!t.name || !*t.name || printable(t.name, Lines::Escape) != t.name) return wrong(which + " has no name that could be printed");
    const std::string named = "tensor '" + std::string(t.name) + "' ";
    if (const std::string problem = tensor_problem(t); !problem.empty()) return wrong(named + problem);
    const bool counts = t.flags & GALLEY_SOURCE_COUNTS;
    for (const OwnInput& other : out.tensors) {
      if (other.name == t.name) return wrong(named + "is there twice");
      if (counts && !other.unit.empty()) return wrong(named + "counts, and so does '" + other.name + "'");
    }
    out.tensors.push_back({t.name, counts ? t.unit : "", t.extent == GALLEY_SOURCE_PER_POSITION ? 0 : t.extent, t.dtype});
  }
  says_ = std::move(out);
  length_ = call.length;
  return ok();
}

Result<LoadedSource::Contents> LoadedSource::open(int64_t vocabulary, uint64_t seed) {
  if (contents_) return *contents_;
  auto found = new_struct<galley_source_contents>();
  found.vocabulary = vocabulary;
  found.seed = seed;
  found.length = length_;
  TRY_STATUS(call_plugin(caller_, "open", [&](galley_error* error) { return table_->open(instance_.get(), &found, error); }));
  constexpr int64_t most = int64_t{1} << 48;
  if ((found.items < 1) != bool(says_.flags & GALLEY_SOURCE_ENDLESS) || found.items < 0 || found.items > most ||
      found.validation_items < 0 || found.validation_items > most)
    return plugin_fault(caller_, "open",
                        plugin_error(std::to_string(found.items) + " items for training and " + std::to_string(found.validation_items) +
                                     " for validation"));
  contents_ = {static_cast<uint64_t>(found.items), static_cast<uint64_t>(found.validation_items), found.fingerprint};
  return *contents_;
}

Status LoadedSource::read(galley_source_row& row) const {
  TRY_STATUS(call_plugin(
      caller_, "read", [&](galley_error* error) { return table_->read(instance_.get(), &row, error); }, Phase::Run));
  if (row.length >= 1 && row.length <= row.room) return ok();
  return plugin_fault(caller_, "read",
                      plugin_error("item " + std::to_string(row.item) + " has a row of " + std::to_string(row.length) +
                                   " positions; there is room for " + std::to_string(row.room)));
}

}  // namespace galley
