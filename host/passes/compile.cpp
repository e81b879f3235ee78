#include "host/passes/compile.hpp"

#include "galley/op.h"
#include "galley/rewrite.h"
#include "host/passes/lower.hpp"

namespace galley {
namespace {

int64_t parameter_count(const Graph& graph, bool trainable_only) {
  int64_t n = 0;
  for (galley_tensor t = 1; t <= graph.tensor_count(); ++t)
    if (graph.tensor(t).parameter_kind() && (!trainable_only || graph.tensor(t).trainable())) n += graph.tensor(t).count();
  return n;
}

/// A position to sample from, as a tensor that the host writes.
Result<galley_tensor> sample_position(Graph& graph) {
  GraphTensor t;
  t.name = "sample position";
  t.dtype = GALLEY_I32;
  t.shape = {1};
  t.kind = GALLEY_KIND_INPUT;
  return graph.make(std::move(t));
}

/// What the run must know about the program beside its code.
Status describe(const Graph& graph, const Decisions& decisions, galley_tensor sums, Lowering& lowering) {
  Program& p = lowering.program;
  p.slots = graph.slots;
  p.documents = graph.documents;
  p.parameters = parameter_count(graph, false);
  p.trainable = parameter_count(graph, true);
  if (graph.logits) p.vocabulary = graph.tensor(graph.logits).shape.back();
  for (galley_tensor t = 1; t <= graph.tensor_count(); ++t) {
    const GraphTensor& x = graph.tensor(t);
    if (x.kind == GALLEY_KIND_INPUT && x.name != "sample position") p.inputs.emplace_back(x.name, lowering.stored(t));
    const bool kept = (x.parameter_kind() && x.trainable()) || x.kind == GALLEY_KIND_STATE;
    if (!kept && !x.parameter_kind()) continue;
    for (const TensorId c : lowering.components(t)) {
      if (kept) p.resume.emplace_back(p.tensors[static_cast<size_t>(c)].name, c);
      else p.frozen.push_back(c);
    }
  }
  for (size_t i = 0; i < decisions.trainable.size(); ++i) {
    const galley_tensor t = decisions.trainable[i];
    Trained trained;
    trained.name = graph.tensor(t).name;
    trained.parameter = lowering.stored(t);
    if (const galley_tensor g = graph.find("grad." + trained.name)) trained.gradient = lowering.stored(g);
    if (sums) {
      trained.sum_squares.tensor = lowering.stored(sums);
      trained.sum_squares.offset = static_cast<int64_t>(i) * 8;
      trained.sum_squares.shape = {1};
      trained.sum_squares.dtype = GALLEY_F64;
    }
    trained.flags = graph.tensor(t).flags;
    trained.count = graph.tensor(t).count();
    p.trained.push_back(std::move(trained));
  }
  double flops = 0;
  for (const Instruction& i : p.segment(SegmentKind::Micro).code) flops += i.flops;
  p.flops_per_token = flops / static_cast<double>(p.rows * p.length);
  return ok();
}

}  // namespace

Result<Program> compile(Graph& graph, std::span<const Strategy> strategies, const Provided& provided, const Target& target,
                        const CompileOptions& options) {
  const Purpose purpose = options.purpose;
  const bool backward = purpose == Purpose::Train || purpose == Purpose::Gradients;
  graph.option_slot = [&](int use, const std::string& option) -> Result<ScalarSlot> {
    const Strategy& s = strategies[static_cast<size_t>(use)];
    ScalarSlot slot;
    slot.option = s.name + "." + option;
    slot.schedule = TRY(s.schedule(option));
    return slot;
  };
  graph.sort(Section::Forward);
  TRY_STATUS(rewrite(graph, strategies, GALLEY_SEGMENT_MODEL));
  const Decisions decisions = TRY(claim_parameters(graph, strategies, provided, target, purpose));
  const int64_t micro_batches = options.micro_batches > 0                                    ? options.micro_batches
                                : purpose == Purpose::Train || purpose == Purpose::Gradients ? decisions.micro_batches
                                                                                             : 1;

  galley_tensor sums = 0;
  const galley_tensor before = graph.tensor_count() + 1;
  if (backward) TRY_STATUS(differentiate(graph, decisions.trainable));
  if (purpose == Purpose::Train) TRY_STATUS(build_update(graph, strategies, decisions.trainable, &sums));
  TRY_STATUS(claim_made(graph, strategies, provided, target, before));
  if (purpose == Purpose::Train && options.exports) TRY_STATUS(rewrite(graph, strategies, GALLEY_SEGMENT_EXPORT));

  galley_tensor position = 0, sample_logits = 0;
  if (purpose == Purpose::Sample) position = TRY(sample_position(graph));
  Sequence forward;
  if (purpose == Purpose::Evaluate || purpose == Purpose::Sample || (purpose == Purpose::Train && options.evaluates))
    forward = TRY(schedule_forward(graph, options, position, &sample_logits));

  const auto lower = [&](const Sequence& micro, Lowering& lowering) -> Status {
    TRY_STATUS(lowering.begin(micro_batches));
    TRY_STATUS(lowering.load());
    if (options.keep_logits && graph.logits) TRY_STATUS(lowering.keep(graph.logits));
    if (backward) TRY_STATUS(lowering.sequence(SegmentKind::Micro, micro));
    if (options.keep_logits && graph.logits) lowering.program.logits = TRY(lowering.locate(graph.logits)).tensor;
    if (purpose == Purpose::Train) {
      TRY_STATUS(lowering.sequence(SegmentKind::Update, schedule_plain(graph, graph.section(Section::Update))));
      if (options.evaluates) TRY_STATUS(lowering.sequence(SegmentKind::Eval, forward));
      if (options.exports) TRY_STATUS(lowering.export_tensors());
    }
    if (purpose == Purpose::Evaluate) TRY_STATUS(lowering.sequence(SegmentKind::Eval, forward));
    if (purpose == Purpose::Sample) {
      TRY_STATUS(lowering.keep(sample_logits));
      TRY_STATUS(lowering.sequence(SegmentKind::Sample, forward));
      lowering.program.sample_logits = TRY(lowering.locate(sample_logits)).tensor;
      lowering.program.sample_position = TRY(lowering.locate(position)).tensor;
    }
    lowering.program.window_tokens = micro_batches == decisions.micro_batches ? decisions.window_tokens : 0;
    return describe(graph, decisions, sums, lowering);
  };
  Sequence micro;
  if (backward) {
    micro = TRY(schedule_micro(graph, strategies, target, options, [&](const Sequence& tried, uint32_t memory) -> Result<int64_t> {
      if (memory >= target.memories.size())
        return plugin_error("device '" + target.device + "' has no memory class " + std::to_string(memory));
      Lowering lowering(graph, strategies, provided, target, options);
      TRY_STATUS(lower(tried, lowering));
      return options.peak ? options.peak(lowering.program, memory) : 0;
    }));
  }
  Lowering lowering(graph, strategies, provided, target, options);
  TRY_STATUS(lower(micro, lowering));
  return std::move(lowering.program);
}

}  // namespace galley
