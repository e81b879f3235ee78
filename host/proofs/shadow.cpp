#include "host/proofs/shadow.hpp"

#include <algorithm>
#include <unordered_map>

#include "host/plan/checksums.hpp"
#include "host/proofs/check.hpp"
#include "host/proofs/stamps.hpp"

namespace galley {
namespace {

constexpr int64_t kShadowSteps = 3, kMicroBatches = 3;
constexpr uint32_t kHost = UINT32_MAX;  ///< the host writes before it hands out work: all queues know

class Replay {
 public:
  Replay(const Program& program, const Plan& plan, const Target& target)
      : program_(program),
        plan_(plan),
        aside_(static_cast<uint32_t>(target.queues.size())),
        known_(aside_ + 1, std::vector<int64_t>(aside_ + 1, 0)),
        ideal_(program.tensors.size()),
        arenas_(target.memories.size()),
        readers_(program.tensors.size()),
        floats_(program.tensors.size(), false) {
    for (const Segment& segment : program.segments)
      for (const Instruction& code : segment.code)
        if (queue_of(code) != 0)
          for (const auto* operands : {&code.inputs, &code.outputs})
            for (const Operand& operand : *operands)
              if (operand.present()) floats_[static_cast<size_t>(operand.tensor)] = true;
  }

  Status run() {
    for (const TensorId t : {program_.window, program_.corpus, program_.step_image}) write_by_host(t);
    TRY_STATUS(run_segment(SegmentKind::Load));
    TRY_STATUS(run_segment(SegmentKind::Refresh));
    TRY_STATUS(run_segment(SegmentKind::Frozen));
    for (int64_t step = 0; step < kShadowSteps; ++step) {
      TRY_STATUS(run_segment(SegmentKind::Trained));
      window_begin_ = clock_ + 1;
      write_by_host(program_.window);
      write_by_host(program_.step_image);
      TRY_STATUS(run_segment(SegmentKind::Window));
      TRY_STATUS(micro_batches());
      TRY_STATUS(run_segment(SegmentKind::Update));
      for (const Trained& trained : program_.trained)
        if (trained.sum_squares.present()) TRY_STATUS(read_by_host(trained.sum_squares));
      if (step + 1 < kShadowSteps) TRY_STATUS(run_segment(SegmentKind::Eval));
      if (step + 1 < kShadowSteps) TRY_STATUS(generate());
    }
    TRY_STATUS(generate());
    TRY_STATUS(run_segment(SegmentKind::Frozen));
    return run_segment(SegmentKind::Export);
  }

 private:
  /// Some of each lane, of some lanes.
  Status micro_batches() {
    const int64_t lanes = std::min(program_.lanes / program_.groups(), kMicroBatches);
    const int64_t each = std::min(program_.in_a_lane(program_.micro_batches), kMicroBatches);
    for (int64_t lane = 0; lane < lanes; ++lane)
      for (int64_t i = 0; i < each; ++i) TRY_STATUS(run_segment(SegmentKind::Micro, {i == 0, i + 1 == each, lane == 0}));
    return ok();
  }

  Status generate() {
    texts_begin_ = clock_ + 1;
    for (const SegmentKind kind : {SegmentKind::Caches, SegmentKind::Sample, SegmentKind::Sample, SegmentKind::Next, SegmentKind::Next})
      TRY_STATUS(run_segment(kind));
    return ok();
  }

  struct Write {
    int64_t clock;
    uint32_t queue;
    TensorId tensor;
    SegmentKind segment;
    int32_t index;  ///< of the instruction; -1: the host
  };
  /// Bytes of a tensor that a queue has read since the segment began.
  struct Reader {
    int64_t begin, end, clock;
    uint32_t queue;
  };
  /// An instruction off queue 0 that queue 0 does not know to be over.
  struct Flight {
    int64_t clock;
    uint32_t queue;
    int32_t from;  ///< moment
    const Instruction* code;
    int32_t index;
  };
  struct Execution {
    SegmentKind kind;
    int64_t begin, end;  ///< of the clock
  };

  const ProgramTensor& tensor(TensorId id) const { return program_.tensors[static_cast<size_t>(id)]; }
  const Placement& placement(TensorId id) const { return plan_.placements[static_cast<size_t>(id)]; }
  int32_t begin_of(SegmentKind kind) const { return plan_.segment_begin[static_cast<size_t>(kind)]; }
  int32_t size_of(SegmentKind kind) const { return static_cast<int32_t>(program_.segment(kind).code.size()); }
  std::string here() const {
    if (index_ >= 0 && index_ < size_of(kind_)) return place_text(program_, kind_, static_cast<size_t>(index_));
    return "the host after " + std::string(segment_names[static_cast<size_t>(kind_)]);
  }
  std::string writer_text(const Write& write) const {
    if (write.index < 0) return "the host";
    return place_text(program_, write.segment, static_cast<size_t>(write.index));
  }

  /// A Copy with an event on queue 0 is work aside, which queue 0 knows only when it has waited.
  uint32_t queue_of(const Instruction& code) const {
    return code.queue == 0 && code.action() == Action::Copy && code.event != 0 ? aside_ : code.queue;
  }
  bool knows(uint32_t queue, uint32_t other, int64_t clock) const {
    return other == kHost || queue == kHost || queue == other || known_[queue][other] >= clock;
  }
  void learn(uint32_t queue, const std::vector<int64_t>& what) {
    for (size_t i = 0; i < what.size(); ++i) known_[queue][i] = std::max(known_[queue][i], what[i]);
  }

  void write_by_host(TensorId id) {
    if (id == no_tensor) return;
    stamp(id, 0, tensor(id).bytes, kHost, -1);
  }

  void stamp(TensorId id, int64_t begin, int64_t end, uint32_t queue, int32_t index) {
    writes_.push_back({clock_, queue, id, kind_, index});
    const auto number = static_cast<int64_t>(writes_.size());
    ideal_[static_cast<size_t>(id)].write(begin, end, number);
    arenas_[tensor(id).memory].write(placement(id).offset + begin, placement(id).offset + end, number);
  }

  /// What lies in a tensor counts from this clock on, the begin of a window or a segment: what kernels read of the step scalars is of
  /// their own step, although the block lives on. (A copy of the block takes all of it, whether it holds something or not.)
  struct Since {
    int64_t clock;
    const char* what;
  };
  Since since(TensorId id) const {
    const Since window = {window_begin_, " in this window"}, segment = {segment_begin_, " in this segment"}, ever = {0, ""};
    if (tensor(id).life == Life::Window) return window;
    if (tensor(id).life == Life::Segment) return segment;
    if (tensor(id).life == Life::Texts) return {texts_begin_, " since texts began"};
    const auto& code = program_.segment(kind_).code;
    if (id != program_.scalars || index_ >= size_of(kind_) || code[static_cast<size_t>(index_)].action() != Action::Launch) return ever;
    switch (kind_) {
      case SegmentKind::Window:
      case SegmentKind::Micro:
      case SegmentKind::Update: return window;
      case SegmentKind::Eval:
      case SegmentKind::Sample:
      case SegmentKind::Next: return segment;
      default: return ever;
    }
  }

  Status lives(TensorId id, int32_t first, int32_t last) const {
    const Placement& at = placement(id);
    if (at.first >= 0 && at.first <= first && last <= at.last) return ok();
    return plan_error(here() + " needs '" + tensor(id).name + "' from moment " + std::to_string(first) + " to " + std::to_string(last) +
                      ", but it lives from " + std::to_string(at.first) + " to " + std::to_string(at.last));
  }

  /// Returns all moments that ran from `clock` to now.
  std::pair<int32_t, int32_t> span_since(int64_t clock, int32_t now) const {
    int32_t first = now, last = now;
    for (size_t i = executions_.size(); i-- > 0;) {
      const Execution& e = executions_[i];
      const bool current = i + 1 == executions_.size();
      if (!current && size_of(e.kind) > 0) last = std::max(last, begin_of(e.kind) + size_of(e.kind) - 1);
      if (clock >= e.begin) return {std::min(first, begin_of(e.kind) + static_cast<int32_t>(clock - e.begin)), last};
      if (size_of(e.kind) > 0) first = std::min(first, begin_of(e.kind));
    }
    return {0, last};
  }

  Status read(TensorId id, int64_t begin, int64_t end, uint32_t queue, int32_t moment) {
    if (begin >= end) return ok();
    expected_.clear();
    found_.clear();
    ideal_[static_cast<size_t>(id)].read(begin, end, expected_);
    const int64_t offset = placement(id).offset;
    arenas_[tensor(id).memory].read(offset + begin, offset + end, found_);
    int64_t oldest = clock_;
    const Since since_when = since(id);
    for (const Stamped& piece : expected_) {
      const Write* write = piece.stamp ? &writes_[static_cast<size_t>(piece.stamp - 1)] : nullptr;
      if (!write || write->clock < since_when.clock)
        return plan_error(here() + " reads " + range_text(program_, id, piece.begin, piece.end) + ", which nothing has written" +
                          (write ? since_when.what : ""));
      if (!knows(queue, write->queue, write->clock))
        return plan_error(here() + " on queue " + std::to_string(queue) + " reads " + range_text(program_, id, piece.begin, piece.end) +
                          " without having waited for " + writer_text(*write) + " on queue " + std::to_string(write->queue));
      oldest = std::min(oldest, write->clock);
    }
    for (size_t e = 0, f = 0; e < expected_.size() && f < found_.size();) {
      const int64_t from = std::max(expected_[e].begin, found_[f].begin - offset), to = std::min(expected_[e].end, found_[f].end - offset);
      if (expected_[e].stamp != found_[f].stamp) {
        std::string other = "nothing";
        if (found_[f].stamp) {
          const Write& write = writes_[static_cast<size_t>(found_[f].stamp - 1)];
          other = "what " + writer_text(write) + " wrote to '" + tensor(write.tensor).name + "'";
        }
        return plan_error(here() + " reads " + range_text(program_, id, from, to) + " written by " +
                          writer_text(writes_[static_cast<size_t>(expected_[e].stamp - 1)]) + ", but finds " + other + " at [" +
                          std::to_string(offset + from) + ", " + std::to_string(offset + to) + ") of the arena");
      }
      if (expected_[e].end == to) ++e;
      if (f < found_.size() && found_[f].end - offset == to) ++f;
    }
    if (tensor(id).life == Life::Run) return ok();
    const auto [first, last] = span_since(oldest, moment);
    return lives(id, first, last);
  }

  Status write(TensorId id, int64_t begin, int64_t end, uint32_t queue) {
    if (begin >= end) return ok();
    if (floats_[static_cast<size_t>(id)]) {
      expected_.clear();
      ideal_[static_cast<size_t>(id)].read(begin, end, expected_);
      for (const Stamped& piece : expected_) {
        if (!piece.stamp) continue;
        const Write& before = writes_[static_cast<size_t>(piece.stamp - 1)];
        if (!knows(queue, before.queue, before.clock))
          return plan_error(here() + " on queue " + std::to_string(queue) + " writes " + range_text(program_, id, piece.begin, piece.end) +
                            " without having waited for " + writer_text(before) + ", which writes it too");
      }
      for (const Reader& reader : readers_[static_cast<size_t>(id)])
        if (reader.begin < end && begin < reader.end && !knows(queue, reader.queue, reader.clock))
          return plan_error(here() + " on queue " + std::to_string(queue) + " writes " +
                            range_text(program_, id, std::max(begin, reader.begin), std::min(end, reader.end)) +
                            " without having waited for " +
                            place_text(program_, kind_, static_cast<size_t>(reader.clock - segment_begin_)) + ", which reads it on queue " +
                            std::to_string(reader.queue));
    }
    stamp(id, begin, end, queue, index_);
    return ok();
  }

  /// Between segments, so that everything has been waited for.
  Status read_by_host(const Operand& operand) {
    index_ = size_of(kind_);
    return read(operand.tensor, operand.offset, operand.offset + operand.bytes(), kHost, begin_of(kind_) + std::max(size_of(kind_) - 1, 0));
  }
  Status read_by_host(TensorId id) {
    Operand all;
    all.tensor = id;
    all.shape = {tensor(id).bytes};
    all.dtype = GALLEY_U8;
    return read_by_host(all);
  }

  Status touch(const Operand& operand, uint32_t access, uint32_t queue, int32_t from, int32_t now) {
    if (!operand.present()) return ok();
    TRY_STATUS(lives(operand.tensor, from, now));
    const int64_t begin = operand.offset, end = begin + operand.bytes();
    if ((access & GALLEY_READ) && !operand.inner) {
      TRY_STATUS(read(operand.tensor, begin, end, queue, now));
      if (floats_[static_cast<size_t>(operand.tensor)])
        readers_[static_cast<size_t>(operand.tensor)].push_back({begin, end, clock_, queue});
    }
    return ok();
  }

  Status execute(const Instruction& code, bool later) {
    const uint32_t queue = queue_of(code);
    const int32_t now = begin_of(kind_) + index_;
    if (queue == aside_) {
      learn(queue, known_[0]);
      known_[queue][0] = clock_ - 1;
    }
    // What runs elsewhere may begin as soon as its queue is free to.
    int32_t from = now;
    if (queue != 0 && queue != aside_) {
      if (known_[queue][0] < segment_begin_)
        return plan_error(here() + " runs on queue " + std::to_string(queue) + ", which has not waited for queue 0 in this segment");
      from = begin_of(kind_) + static_cast<int32_t>(known_[queue][0] + 1 - segment_begin_);
    }
    auto access = [&](const Operand& operand) { return later ? operand.later : operand.access; };
    for (const auto* operands : {&code.inputs, &code.outputs})
      for (const Operand& operand : *operands) TRY_STATUS(touch(operand, access(operand), queue, from, now));
    for (const auto* operands : {&code.inputs, &code.outputs})
      for (const Operand& operand : *operands)
        if (operand.present() && (access(operand) & GALLEY_WRITE))
          TRY_STATUS(write(operand.tensor, operand.offset, operand.offset + operand.bytes(), queue));
    if (const TensorId workspace = code.workspace(); workspace != no_tensor) {
      TRY_STATUS(lives(workspace, from, now));
      TRY_STATUS(write(workspace, 0, tensor(workspace).bytes, queue));
    }
    if (queue != 0) flights_.push_back({clock_, queue, from, &code, index_});
    return ok();
  }

  /// Queue 0 has waited: what it now knows to be over lived until here.
  Status land() {
    const int32_t now = begin_of(kind_) + index_;
    for (auto flight = flights_.begin(); flight != flights_.end();) {
      if (known_[0][flight->queue] < flight->clock) {
        ++flight;
        continue;
      }
      for (const auto* operands : {&flight->code->inputs, &flight->code->outputs})
        for (const Operand& operand : *operands)
          if (operand.present()) TRY_STATUS(lives(operand.tensor, flight->from, now));
      if (const TensorId workspace = flight->code->workspace(); workspace != no_tensor) TRY_STATUS(lives(workspace, flight->from, now));
      flight = flights_.erase(flight);
    }
    return ok();
  }

  Status run_segment(SegmentKind kind, const MicroPlace& place = {}) {
    const auto& code = program_.segment(kind).code;
    if (code.empty()) return ok();
    kind_ = kind;
    index_ = -1;
    segment_begin_ = clock_ + 1;
    executions_.push_back({kind, segment_begin_, segment_begin_ + size_of(kind) - 1});
    for (auto& readers : readers_) readers.clear();
    events_.clear();
    for (const TensorId id : program_.written_by_host(kind))
      if (kind != SegmentKind::Window) write_by_host(id);  // whose image has been written
    if (kind == SegmentKind::Load || kind == SegmentKind::Export) write_by_host(program_.staging);

    for (index_ = 0; index_ < size_of(kind); ++index_) {
      ++clock_;
      const Instruction& instruction = code[static_cast<size_t>(index_)];
      const uint32_t queue = queue_of(instruction);
      if (instruction.action() == Action::Wait) {
        const auto event = events_.find(instruction.event);
        if (event == events_.end())
          return plan_error(here() + " waits for event " + std::to_string(instruction.event) +
                            ", which nothing in this segment has recorded before");
        learn(queue, event->second);
        known_[queue][queue] = clock_;
        if (queue == 0) TRY_STATUS(land());
        continue;
      }
      if (instruction.action() != Action::Record && place.runs(instruction.when))
        TRY_STATUS(execute(instruction, place.later(instruction.when)));
      known_[queue][queue] = clock_;
      if (instruction.action() == Action::Record || instruction.records()) events_[instruction.event] = known_[queue];
    }
    if (!flights_.empty()) {
      index_ = flights_.front().index;
      return plan_error(here() + " on queue " + std::to_string(flights_.front().code->queue) +
                        " is still under way when the segment ends: queue 0 has not waited for it");
    }
    if (kind == SegmentKind::Frozen || kind == SegmentKind::Trained)
      for (const WeightChecksum& s : weight_checksums(program_, kind))
        if (s.checksum.present()) TRY_STATUS(read_by_host(s.checksum));
    if (kind == SegmentKind::Micro && program_.logits != no_tensor) TRY_STATUS(read_by_host(program_.logits));
    if (kind == SegmentKind::Eval && program_.scores != no_tensor) TRY_STATUS(read_by_host(program_.scores));
    if (kind == SegmentKind::Sample && program_.sample_logits != no_tensor) TRY_STATUS(read_by_host(program_.sample_logits));
    if (kind == SegmentKind::Next && program_.cached.logits != no_tensor) TRY_STATUS(read_by_host(program_.cached.logits));
    return ok();
  }

  const Program& program_;
  const Plan& plan_;
  const uint32_t aside_;                     ///< the number of the queue of copies aside
  std::vector<std::vector<int64_t>> known_;  ///< known_[q][p]: queue q knows all of queue p up to this clock to be over
  std::unordered_map<uint32_t, std::vector<int64_t>> events_;
  std::vector<Stamps> ideal_;                 ///< one a tensor
  std::vector<Stamps> arenas_;                ///< one a memory class
  std::vector<Write> writes_;                 ///< stamp i is writes_[i - 1]
  std::vector<std::vector<Reader>> readers_;  ///< of the tensors that float
  std::vector<bool> floats_;                  ///< something off queue 0 uses this tensor
  std::vector<Flight> flights_;
  std::vector<Execution> executions_;
  std::vector<Stamped> expected_, found_;
  int64_t clock_ = 0;  ///< one tick an instruction
  int64_t window_begin_ = 1, segment_begin_ = 1, texts_begin_ = 1;
  SegmentKind kind_ = SegmentKind::Load;
  int32_t index_ = -1;
};

}  // namespace

Status check_plan(const Program& program, const Plan& plan, const Target& target) {
  TRY_STATUS(check_program(program, target));
  TRY_STATUS(check_layout(program, plan, target));
  return run_shadow(program, plan, target);
}

Status run_shadow(const Program& program, const Plan& plan, const Target& target) { return Replay(program, plan, target).run(); }

}  // namespace galley
