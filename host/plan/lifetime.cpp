#include "host/plan/lifetime.hpp"

#include <algorithm>
#include <unordered_map>

namespace galley {
namespace {

constexpr auto kMicro = static_cast<size_t>(SegmentKind::Micro);
constexpr auto kUpdate = static_cast<size_t>(SegmentKind::Update);
constexpr auto kCaches = static_cast<size_t>(SegmentKind::Caches), kNext = static_cast<size_t>(SegmentKind::Next);

/// Uses of the tensors as moments, segment by segment.
class Uses {
 public:
  explicit Uses(size_t tensors) : lifetimes(tensors), segments(tensors, 0) {}

  void touch(TensorId tensor, size_t segment, int32_t first, int32_t last) {
    const auto t = static_cast<size_t>(tensor);
    Lifetime& life = lifetimes[t];
    life.first = life.used() ? std::min(life.first, first) : first;
    life.last = std::max(life.last, last);
    segments[t] |= 1u << segment;
  }
  bool in(size_t tensor, size_t segment) const { return (segments[tensor] >> segment & 1u) != 0; }

  std::vector<Lifetime> lifetimes;
  std::vector<uint32_t> segments;  ///< bit s: used in segment s
};

/// What one queue knows to be over: for each queue the moment of its last finished instruction, -1 for none.
using Knowledge = std::vector<int32_t>;

void learn(Knowledge& to, const Knowledge& from) {
  for (size_t i = 0; i < to.size(); ++i) to[i] = std::max(to[i], from[i]);
}

void find_uses(const Outline::Code& segment, size_t kind, int32_t begin, Uses& uses) {
  size_t queues = 1;
  for (const Outline::Entry& code : segment.entries) queues = std::max<size_t>(queues, code.queue + 1);
  // A Copy with an event on queue 0 counts as work of one more queue that knows all that queue 0 does.
  const size_t aside = queues;
  std::vector<Knowledge> known(queues + 1, Knowledge(queues + 1, -1));
  std::unordered_map<uint32_t, Knowledge> events;
  struct Flight {
    size_t queue;
    int32_t at;
    int32_t from;
    const Outline::Entry* code;
  };
  std::vector<Flight> flights;
  auto land = [&](const Flight& flight, int32_t moment) {
    for (const TensorId t : segment.of(*flight.code)) uses.touch(t, kind, flight.from, moment);
  };

  const auto size = static_cast<int32_t>(segment.entries.size());
  for (int32_t i = 0; i < size; ++i) {
    const Outline::Entry& code = segment.entries[static_cast<size_t>(i)];
    const int32_t now = begin + i;
    const bool has_event = (code.action == Action::Copy || code.action == Action::Launch) && code.event != 0;
    const size_t queue = code.queue == 0 && has_event ? aside : code.queue;
    Knowledge& mine = known[queue];
    if (queue == aside) {
      learn(mine, known[0]);
      mine[0] = now - 1;
    }
    switch (code.action) {
      case Action::Wait:
        if (const auto event = events.find(code.event); event != events.end()) learn(mine, event->second);
        if (queue == 0) {
          std::erase_if(flights, [&](const Flight& flight) {
            if (flight.at > mine[flight.queue]) return false;
            land(flight, now);
            return true;
          });
        }
        break;
      case Action::Record: break;
      default:
        if (queue == 0)
          for (const TensorId t : segment.of(code)) uses.touch(t, kind, now, now);
        else flights.push_back({queue, now, std::max(mine[0] + 1, begin), &code});
    }
    mine[queue] = now;
    if (code.action == Action::Record || has_event) events[code.event] = mine;
  }
  for (const Flight& flight : flights) land(flight, begin + size - 1);
}

}  // namespace

Timeline timeline_of(const Outline& outline) {
  Timeline timeline;
  for (size_t i = 0; i < outline.segments.size(); ++i) {
    timeline.begin[i] = timeline.end;
    timeline.end += static_cast<int32_t>(outline.segments[i].entries.size());
  }
  return timeline;
}

std::vector<Lifetime> find_lifetimes(const Program& program) { return find_lifetimes(outline_of(program)); }

std::vector<Lifetime> find_lifetimes(const Outline& program) {
  const Timeline timeline = timeline_of(program);
  Uses uses(program.tensors.size());
  for (size_t i = 0; i < program.segments.size(); ++i) find_uses(program.segments[i], i, timeline.begin[i], uses);

  const int32_t micro_last = timeline.segment_end(kMicro) - 1;
  for (size_t t = 0; t < program.tensors.size(); ++t) {
    Lifetime& life = uses.lifetimes[t];
    switch (program.tensors[t].life) {
      case Life::Run: life = {0, std::max(timeline.end - 1, 0)}; break;
      case Life::Window:
        if (!uses.in(t, kMicro)) break;
        if (program.micro_batches > 1) life.first = timeline.begin[kMicro];
        if (!uses.in(t, kUpdate)) life.last = std::max(life.last, micro_last);
        break;
      case Life::Segment: break;
      case Life::Texts:
        if (life.used()) life = {timeline.begin[kCaches], timeline.segment_end(kNext) - 1};
        break;
    }
  }

  // The host reads these when the segment (for a window's tensors: the step) is over.
  auto read_by_host = [&](TensorId tensor) {
    const auto t = static_cast<size_t>(tensor);
    Lifetime& life = uses.lifetimes[t];
    if (!life.used() || program.tensors[t].life == Life::Run) return;
    size_t segment = 0;
    while (timeline.segment_end(segment) <= life.last) ++segment;
    if (program.tensors[t].life == Life::Window && segment == kMicro) segment = kUpdate;
    life.last = std::max(life.last, timeline.segment_end(segment) - 1);
  };
  for (const TensorId tensor : program.read_by_host) read_by_host(tensor);
  return std::move(uses.lifetimes);
}

}  // namespace galley
