// The queues of the device "discrete", and its clock.
//
// Nothing runs when it is enqueued: work is done when the host waits for it, by the thread that waits, each queue in its own order and
// never before what it waits for. Beyond that the order is chosen to hurt, as the lazy device does: at odd synchronisations a copy runs as
// late as the events allow, so that a result used without waiting for its copy is not there; at even ones as early as they allow, so that
// memory which is reused too early is overwritten.
//
// The clock is that of a device whose queues run beside each other. A launch takes the time that its kernel took here, a copy its bytes by
// the target's bandwidth of the class; an event is over when the work before it is. With GALLEY_DISCRETE_TRACE=FILE every launch and copy
// is written there with its times, in the format that chrome://tracing and Perfetto read. With GALLEY_DISCRETE_LOST=N the device is lost after
// N launches: from then on every launch fails.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "memory.hpp"

namespace galley::discrete {

inline constexpr uint32_t kQueues = 3;

struct Job {
  enum class Kind { Launch, Copy, Record, Wait, Mark } kind;
  const galley_kernel* kernel = nullptr;
  void* state = nullptr;
  galley_copy copy = {};
  uint64_t serial = 0;  // Record: its own number. Wait: of the record it waits for; 0: none was made yet, as with CUDA's events
  uint32_t event = 0;
  uint32_t source = 0;  // Wait: the queue of that record
  double ready = 0;     // when the host enqueued it
};

class Trace {
 public:
  Trace() {
    const char* path = std::getenv("GALLEY_DISCRETE_TRACE");
    if (path && !(file_ = std::fopen(path, "w"))) sdk::invalid(std::string("GALLEY_DISCRETE_TRACE: cannot write '") + path + "'");
    if (file_) std::fputs("[", file_);
  }
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  ~Trace() {
    if (!file_) return;
    std::fputs("\n]\n", file_);
    std::fclose(file_);
  }
  void add(uint32_t queue, const std::string& name, double begin, double end) {
    if (!file_) return;
    std::fprintf(file_, "%s\n{\"ph\": \"X\", \"pid\": 0, \"tid\": %u, \"name\": \"%s\", \"ts\": %.3f, \"dur\": %.3f}", first_ ? "" : ",",
                 queue, name.c_str(), 1e6 * begin, 1e6 * (end - begin));
    first_ = false;
  }

 private:
  std::FILE* file_ = nullptr;
  bool first_ = true;
};

class Device {
 public:
  explicit Device(const galley_target& target) {
    for (uint32_t i = 0; i < std::min(target.n_memories, kClasses); ++i) links_[i] = *target.memories[i];
  }

  Memory memory;

  void put(uint32_t queue, Job job) {
    job.ready = host_;
    queues_[queue % kQueues].push_back(job);
  }
  void record(uint32_t queue, uint32_t event) {
    last_[event] = {++serial_, queue % kQueues};
    put(queue, {.kind = Job::Kind::Record, .serial = serial_, .event = event});
  }
  void wait(uint32_t queue, uint32_t event) {
    const Last last = last_[event];
    put(queue, {.kind = Job::Kind::Wait, .serial = last.serial, .event = event, .source = last.source});
  }

  void mark(uint32_t queue, uint32_t mark) { put(queue, {.kind = Job::Kind::Mark, .event = mark}); }
  double time(uint32_t mark) { return marks_[mark] - marks_[0]; }

  /// Does no more than it has to.
  void await(uint32_t event) {
    const Memory::Access access(memory);
    const Last last = last_[event];
    finish(last.source, last.serial);
    if (last.serial) host_ = std::max(host_, times_[event]);
  }
  void synchronize() {
    const Memory::Access access(memory);
    const bool first_queue_first = ++synchronisations_ % 2 == 1;
    for (uint32_t k = 0; k < kQueues; ++k) {
      const uint32_t queue = first_queue_first ? k : kQueues - 1 - k;
      while (!queues_[queue].empty()) step(queue);
    }
    for (const double clock : clocks_) host_ = std::max(host_, clock);
  }

 private:
  struct Last {
    uint64_t serial = 0;
    uint32_t source = 0;
  };

  void finish(uint32_t queue, uint64_t serial) {
    while (serial > done_[queue] && !queues_[queue].empty()) step(queue);
  }

  void step(uint32_t queue) {
    const Job job = queues_[queue].front();
    // What is waited for was recorded before the wait was put here, so this cannot go round in circles.
    if (job.kind == Job::Kind::Wait) finish(job.source, job.serial);
    queues_[queue].pop_front();
    double& clock = clocks_[queue];
    clock = std::max(clock, job.ready);
    switch (job.kind) {
      case Job::Kind::Record:
        done_[queue] = job.serial;
        times_[job.event] = clock;
        break;
      case Job::Kind::Wait:
        if (job.serial) clock = std::max(clock, times_[job.event]);
        break;
      case Job::Kind::Mark: marks_[job.event] = clock; break;
      case Job::Kind::Copy: {
        memory.copy(job.copy);
        const double took = seconds(job.copy);
        const auto name = [](uint32_t m) { return m < kClasses ? std::string(kClassNames[m]) : std::string("process"); };
        trace_.add(queue, "copy " + name(job.copy.from_memory) + " to " + name(job.copy.to_memory), clock, clock + took);
        clock += took;
        break;
      }
      case Job::Kind::Launch: launch(queue, job); break;
    }
  }

  void launch(uint32_t queue, const Job& job) {
    if (lost_after_ && ++launches_ > lost_after_) throw sdk::Failure(GALLEY_FAILED, "the device was lost (GALLEY_DISCRETE_LOST)");
    galley_error error = GALLEY_ERROR_INIT;
    galley_status status = GALLEY_OK;
    const auto begin = std::chrono::steady_clock::now();
    const galley_status thrown =
        sdk::guard(&error, [&] { status = job.kernel->enqueue(job.state, reinterpret_cast<galley_queue*>(&queues_[queue]), &error); });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (thrown != GALLEY_OK) status = thrown;
    if (status != GALLEY_OK) {
      for (auto& jobs : queues_) jobs.clear();  // what came after it would compute on nothing
      throw sdk::Failure(status, std::string("kernel '") + job.kernel->name + "': " + error.text);
    }
    trace_.add(queue, job.kernel->name, clocks_[queue], clocks_[queue] + took.count());
    clocks_[queue] += took.count();
  }

  double seconds(const galley_copy& copy) const {
    const bool in = copy.to_memory == kDevice;
    const uint32_t other = in ? copy.from_memory : copy.to_memory;
    if (other >= kClasses) return 0;
    return static_cast<double>(copy.bytes) / (in ? links_[other].in_bandwidth : links_[other].out_bandwidth);
  }

  std::array<galley_target_memory, kClasses> links_ = {};
  std::deque<Job> queues_[kQueues];
  std::map<uint32_t, Last> last_;     // of each event, as enqueued
  std::map<uint32_t, double> times_;  // of each event, as it ran
  std::map<uint32_t, double> marks_;
  uint64_t done_[kQueues] = {};  // serial of the last record that ran, of each queue
  double clocks_[kQueues] = {};  // when the queue's work so far is over
  double host_ = 0;              // what the host has waited for is over
  uint64_t serial_ = 0;
  uint64_t synchronisations_ = 0;
  const uint64_t lost_after_ = [] {
    const char* launches = std::getenv("GALLEY_DISCRETE_LOST");
    return launches ? std::strtoull(launches, nullptr, 10) : 0;
  }();
  uint64_t launches_ = 0;
  Trace trace_;
};

}  // namespace galley::discrete
