// From items to instructions: where each tensor's bytes are, and what has to be done before and after a node that needs them elsewhere or
// otherwise. The folder place has the parts:
//
//     components, homes    which tensors of the program hold a tensor of the graph
//     segment_code         the instructions of one segment
//     exchanges            parts of tensors that processes give each other
//     staging              formats unpacked and packed, other memory classes copied, parts brought together
//     pieces               updates that are split
//     accumulators         gradients that lie where nothing computes
//     squares              the norm of gradients of which each process has a part
//     format_inputs        operands that kernels read in their formats
//     emitter              from an item to its instructions, by all of these
//     load, save           the segments that begin and end a run
#include <algorithm>
#include <map>

#include "galley/op.h"
#include "host/passes/copy.hpp"
#include "host/passes/passes.hpp"
#include "host/passes/place/emitter.hpp"
#include "host/passes/place/exchanges.hpp"
#include "host/passes/place/files.hpp"
#include "host/plan/checksums.hpp"

namespace galley {
namespace {

/// For Read and Write: large enough for fast I/O, small enough not to matter.
constexpr int64_t kStagingBytes = 1 << 20;

int64_t parameter_count(const Graph& graph, bool trainable_only) {
  int64_t n = 0;
  for (galley_tensor t = 1; t <= graph.tensor_count(); ++t)
    if (const GraphTensor& x = graph.tensor(t); x.parameter_kind() && !x.unused && (!trainable_only || x.trainable()))
      n += elements(x.whole());
  return n;
}

/// A format with its options.
std::string format_text(const Storage& storage) {
  std::string out = storage.format;
  for (const galley_attr* a : storage.attrs.view()) {
    out += ", " + std::string(a->name) + " = ";
    if (a->type == GALLEY_ATTR_STRING) out += static_cast<const char*>(a->data);
    else if (a->type == GALLEY_ATTR_I64 && a->count == 1) out += std::to_string(*static_cast<const int64_t*>(a->data));
    else out += "…";
  }
  return out;
}

void add_format(Program& p, const GraphTensor& t, const Homes& homes) {
  const std::string format = format_text(t.storage);
  auto at = std::ranges::find(p.in_formats, format, &InFormat::format);
  if (at == p.in_formats.end()) at = p.in_formats.insert(at, {format, 0, 0, 0});
  ++at->tensors;
  at->count += t.count();
  for (const TensorId component : homes.components(t.id)) at->bytes += p.tensors[static_cast<size_t>(component)].bytes;
}

/// Writes down what the run has to know about the program beside its code.
Status describe(Compilation& c, const Homes& homes) {
  const Graph& graph = c.graph;
  Program& p = c.program;
  p.slots = c.draft.scalars.slots;
  p.scheduled_from = c.draft.scalars.scheduled_from;
  p.scheduled_values = c.target.steps_under_way();
  p.documents = c.draft.exports.documents;
  p.parameters = parameter_count(graph, false);
  p.trainable = parameter_count(graph, true);
  if (graph.marks.logits) p.vocabulary = graph.tensor(graph.marks.logits).shape.back();
  std::map<std::string, const GraphTensor*> named;
  for (galley_tensor t = 1; t <= graph.tensor_count(); ++t) {
    const GraphTensor& x = graph.tensor(t);
    if (x.kind == GALLEY_KIND_INPUT && !x.unused && t != graph.marks.position && t != graph.marks.start) {
      const auto among = [t](const std::vector<galley_tensor>& list) { return std::ranges::find(list, t) != list.end(); };
      (among(c.prompt_inputs) ? p.cached.prompt
       : among(c.next_inputs) ? p.cached.next
                              : p.inputs)
          .push_back({x.name, homes.home(t), x.fill});
    }
    if (x.kind == GALLEY_KIND_INPUT && x.fill == Fill::Tokens && x.below > 0) p.vocabulary = x.below;
    if (x.unused) continue;
    if (x.parameter_kind() && !x.saved.file.empty() && x.use != no_use) {
      const LoadedStrategy& s = *c.strategies[static_cast<size_t>(x.use)];
      p.apart.push_back({x.name, x.saved.file, s.name() + " (" + s.place().text() + ")", x.count(), x.bytes()});
    }
    const bool kept = (x.parameter_kind() && x.changes()) || x.kind == GALLEY_KIND_STATE;
    if (!kept && !x.parameter_kind()) continue;
    if (!kept && !x.storage.format.empty()) add_format(p, x, homes);
    for (const TensorId component : homes.components(t)) {
      if (!kept) {
        p.frozen.push_back(component);
        p.frozen_numbers.push_back(component == homes.home(t) ? x.count() : 0);
        continue;
      }
      const std::string& name = p.tensors[static_cast<size_t>(component)].name;
      if (const auto [first, fresh] = named.try_emplace(name, &x); !fresh)
        return plugin_error("two tensors of the resume state are called '" + name + "': '" + first->second->name + "' and '" + x.name + "'",
                            "a component is called like its tensor, with its format's suffix after");
      p.resume.emplace_back(name, component);
    }
  }
  for (const auto& [t, why] : c.cuts.whole) p.whole.emplace_back(graph.tensor(t).name, why);
  for (size_t i = 0; i < c.decisions.trainable.size(); ++i) {
    const GraphTensor& x = graph.tensor(c.decisions.trainable[i]);
    Trained trained;
    trained.name = x.name;
    trained.parameter = homes.home(x.id);
    if (x.gradient) trained.gradient = homes.home(x.gradient);
    if (!c.squares.empty()) trained.sum_squares = homes.in_readback(c.squares[i]);
    trained.flags = x.flags;
    trained.count = x.count();
    if (x.update_use != no_use) {
      const LoadedStrategy& s = *c.strategies[static_cast<size_t>(x.update_use)];
      trained.updated_by = (x.update_text.empty() ? s.name() : x.update_text) + " (" + s.place().text() + ")";
    }
    p.trained.push_back(std::move(trained));
  }
  return ok();
}

/// The tensors of the program that are there from the start, and what the run is.
Status begin(Compilation& c, Homes& homes) {
  Program& p = c.program;
  const int64_t micro_batches = c.options.micro_batches > 0 ? c.options.micro_batches : c.backward() ? c.decisions.micro_batches : 1;
  p.rows = c.graph.rows();
  p.length = c.graph.length();
  p.target_length = c.graph.extents().target_length;
  p.micro_batches = micro_batches;
  p.lanes = c.decisions.lanes.lanes;
  p.ranks = c.decisions.lanes.ranks;
  p.rank = c.decisions.lanes.rank;
  p.together = c.decisions.lanes.together;
  p.together_axis = c.decisions.lanes.axis;
  if (const galley_axis* axis = c.decisions.divides; axis && !c.cuts.tensors.empty()) {
    p.sharers = axis->ranks;
    p.sharers_axis = axis->name;
  }
  p.window_tokens = micro_batches == c.decisions.micro_batches ? c.decisions.window_tokens : 0;
  TRY_STATUS(homes.make());
  p.scalars = homes.home(c.draft.scalars.tensor);
  const auto host = [&, memory = c.target.host_memory()](const char* name, int64_t bytes) {
    return add_tensor(p, {name, GALLEY_U8, {bytes}, 0, memory, Owner::Data, Life::Run, ""});
  };
  p.staging = host("staging", kStagingBytes);
  if (c.steps()) {
    p.step_image = host("step_image", c.draft.scalars.host_bytes);
    p.readback = host("step_readback", c.draft.scalars.bytes);
  }
  if (c.options.window_bytes) p.window = host("window_buffers", c.options.window_bytes(round_up(micro_batches, p.lanes)));
  if (c.options.corpus_bytes > 0) p.corpus = host("corpus", c.options.corpus_bytes);
  return ok();
}

/// The step scalars that the host knows come to where kernels compute.
void take_image(const Compilation& c, SegmentCode& code) {
  if (!c.steps()) return;
  Operand block = code.all_of(c.program.scalars);
  block.shape = {c.draft.scalars.host_bytes};
  code.copy(code.all_of(c.program.step_image), block);
}

/// All step scalars go where the host can read them.
void read_back(const Compilation& c, SegmentCode& code) {
  if (c.steps()) code.copy(code.all_of(c.program.scalars), code.all_of(c.program.readback));
}

/// Moves the row of random numbers on by so many micro-batches.
Status move_rows(Compilation& c, const Homes& homes, SegmentCode& code, galley_tensor random, int64_t micro_batches,
                 When when = When::Always) {
  AttrList rows;
  rows.set("rows", micro_batches * c.program.rows);
  const std::string name = std::string(segment_names[static_cast<size_t>(code.kind())]) + ".rows";
  return code.op(c.roles.next_rows, name, {homes.operand(random)}, {}, std::move(rows), when);
}

/// Ends the window part where there are lanes: the first micro-batch of this process is that of its first lane.
Status place_window_end(Compilation& c, const Homes& homes, SegmentCode& code) {
  if (!c.lane_random) return ok();
  const galley_tensor random = *c.draft.scalars.get(GALLEY_SCALAR_RANDOM);
  TRY_STATUS(move_rows(c, homes, code, random, c.program.group() + 1));
  return code.op(c.roles.copy, "window.random of the lane", {homes.operand(random)}, {homes.operand(c.lane_random)}, {});
}

/// Ends a micro-batch where there are lanes: a lane's loss is added to the window's, and the random numbers' row moves on to that of the
/// next micro-batch.
Status place_lane_end(Compilation& c, const Homes& homes, Emitter& micro) {
  SegmentCode& code = micro.code();
  TRY_STATUS(micro.add_loss());
  TRY_STATUS(code.op(c.roles.loss_begin, "micro.loss of the lane", {}, {homes.operand(c.lane_loss)}, {}, When::LaneEnds));
  if (!c.lane_random) return ok();
  const galley_tensor random = *c.draft.scalars.get(GALLEY_SCALAR_RANDOM);
  TRY_STATUS(move_rows(c, homes, code, random, c.program.lanes, When::LaneStays));
  TRY_STATUS(move_rows(c, homes, code, c.lane_random, c.program.groups(), When::LaneEnds));
  return code.op(c.roles.copy, "micro.random of the lane", {homes.operand(c.lane_random)}, {homes.operand(random)}, {}, When::LaneEnds);
}

/// Update draws the same random numbers in each process.
Status place_update_begin(Compilation& c, const Homes& homes, SegmentCode& code) {
  if (!c.lane_random) return ok();
  return move_rows(c, homes, code, *c.draft.scalars.get(GALLEY_SCALAR_RANDOM), -(c.program.group() + c.program.lanes));
}

/// The window part, and micro as if nothing were recomputed.
Status place_micro(Compilation& c, Homes& homes) {
  const Orders& orders = c.orders;
  homes.hand_on(orders.window, {&orders.forward, &orders.head, &orders.backward, &orders.update});
  Emitter window(c, homes, SegmentKind::Window);
  take_image(c, window.code());
  TRY_STATUS(window.items(orders.window));
  TRY_STATUS(place_window_end(c, homes, window.code()));

  Emitter micro(c, homes, SegmentKind::Micro);
  const galley_tensor logits = c.options.keep_logits ? c.graph.marks.logits : 0;
  if (logits) micro.keep(logits);
  for (const auto* part : {&orders.forward, &orders.head, &orders.backward}) TRY_STATUS(micro.items(*part, &c.micro.begin));
  if (c.lane_loss) TRY_STATUS(place_lane_end(c, homes, micro));
  c.micro.begin.push_back(static_cast<uint32_t>(micro.code().size()));
  c.micro.forward = orders.forward.size();
  c.micro.head = orders.head.size();
  c.micro.tensors = micro.transients();
  if (logits) {
    c.program.logits = micro.operand(logits).tensor;
    c.program.logits_shape = c.graph.tensor(logits).shape;
  }
  return ok();
}

/// What each process has whole, and has written a part of, it gets from the others.
Status place_gathers(Compilation& c, const Homes& homes, Emitter& update) {
  for (const auto& [t, cut] : c.cuts.gathered) {
    const std::vector<Operand> components = TRY(update.staging().bring(t, {}, Staging::For::Reading));
    for (size_t k = 0; k < components.size(); ++k) TRY_STATUS(gather_here(c, update.code(), cut, homes.described(t)[k], components[k]));
    TRY_STATUS(update.staging().put_back(t, {}, components));
  }
  return ok();
}

Status place_update(Compilation& c, const Homes& homes) {
  Emitter update(c, homes, SegmentKind::Update);
  if (c.trains()) {
    TRY_STATUS(place_update_begin(c, homes, update.code()));
    const std::set<galley_tensor> made = update.copy_after(c.orders.update);
    TRY_STATUS(update.items(c.orders.update));
    TRY_STATUS(place_gathers(c, homes, update));
    TRY_STATUS(place_refresh(c, homes, update.code(), made));
    for (const Reported& reported : c.draft.signals.reports)
      c.program.metrics.push_back({reported.name, homes.in_readback(reported.tensor)});
    for (const Stop& stop : c.draft.signals.stops)
      c.program.stops.push_back({homes.in_readback(stop.tensor), label(c.strategies, stop.use), stop.cause, stop.hint, stop.done});
  }
  read_back(c, update.code());
  return ok();
}

/// Generation with caches: some positions, or the source, and a position more.
Status place_generation(Compilation& c, const Homes& homes) {
  SegmentCode begin(c, SegmentKind::Caches);
  for (const galley_tensor t : c.caches_anew) {
    AttrList zero;
    zero.set("value", 0.0);
    TRY_STATUS(begin.op(c.roles.fill, "init " + c.graph.tensor(t).name, {}, {begin.all_of(homes.home(t))}, zero));
  }
  const Life life = c.options.purpose == Purpose::Sample ? Life::Run : Life::Texts;
  const auto part = [&](SegmentKind kind, const std::vector<Item>& items, galley_tensor logits, TensorId* out) -> Status {
    Emitter emitter(c, homes, kind);
    if (logits) emitter.keep(logits, life);
    take_image(c, emitter.code());
    TRY_STATUS(emitter.items(items));
    if (logits) *out = emitter.operand(logits).tensor;
    return ok();
  };
  TRY_STATUS(part(SegmentKind::Sample, c.orders.prompt, c.prompt_logits, &c.program.sample_logits));
  TRY_STATUS(part(SegmentKind::Next, c.orders.next, c.next_logits, &c.program.cached.logits));
  c.program.cached.start = homes.home(c.graph.marks.start);
  c.program.sample_position = homes.home(c.graph.marks.position);
  return ok();
}

Status place_inference(Compilation& c, const Homes& homes) {
  const bool samples = c.sample_logits != 0;
  Emitter emitter(c, homes, samples ? SegmentKind::Sample : SegmentKind::Eval);
  if (c.sample_logits) emitter.keep(c.sample_logits);
  const galley_tensor scores = !samples && c.options.keep_scores ? c.graph.marks.logits : 0;
  if (scores) emitter.keep(scores);
  take_image(c, emitter.code());
  TRY_STATUS(emitter.items(c.orders.inference));
  if (c.sample_logits) c.program.sample_logits = emitter.operand(c.sample_logits).tensor;
  if (samples && c.graph.marks.position) c.program.sample_position = emitter.operand(c.graph.marks.position).tensor;
  if (scores) c.program.scores = emitter.operand(scores).tensor;
  if (c.hits) c.program.hits = homes.in_readback(c.hits);
  if (!samples) read_back(c, emitter.code());
  return ok();
}

/// The segments that make the checksums of frozen and of trained weights.
Status place_checksums(Compilation& c) {
  Program& p = c.program;
  const auto rows = static_cast<int64_t>(p.frozen.size() + p.trained.size());
  p.checksums = add_tensor(p, {"checksums of weights", GALLEY_I32, {rows, 2}, 0, 0, Owner::Data, Life::Run, ""});
  for (const SegmentKind kind : {SegmentKind::Frozen, SegmentKind::Trained}) {
    if (kind == SegmentKind::Trained && !c.trains()) continue;
    SegmentCode code(c, kind);
    for (const WeightChecksum& s : weight_checksums(p, kind)) {
      if (!s.checksum.present()) continue;
      AttrList attrs;
      if (const ProgramTensor& weight = code.tensor(s.weight); weight.is_part()) {
        const Runs bytes = byte_runs(weight);
        attrs.set("first", bytes.first / 8);
        if (bytes.run) attrs.set("run", bytes.run / 8), attrs.set("step", bytes.step / 8);
      }
      TRY_STATUS(code.op(c.roles.checksum, "checksum of " + code.tensor(s.weight).name, {s.bytes}, {s.checksum}, std::move(attrs)));
    }
  }
  return ok();
}

}  // namespace

Status place(Compilation& c) {
  Homes homes(c);
  TRY_STATUS(begin(c, homes));
  TRY_STATUS(place_load(c, homes));
  if (c.trains() || c.options.purpose != Purpose::Gradients) {
    SegmentCode refresh(c, SegmentKind::Refresh);
    TRY_STATUS(place_refresh(c, homes, refresh));
  }
  if (c.backward()) {
    TRY_STATUS(place_micro(c, homes));
    TRY_STATUS(place_update(c, homes));
  }
  if (c.sample_logits || !c.orders.inference.empty()) TRY_STATUS(place_inference(c, homes));
  if (c.caches()) TRY_STATUS(place_generation(c, homes));
  if (c.saves()) TRY_STATUS(place_export(c, homes));
  TRY_STATUS(describe(c, homes));
  if (c.options.purpose != Purpose::Gradients) TRY_STATUS(place_checksums(c));
  return ok();
}

}  // namespace galley
