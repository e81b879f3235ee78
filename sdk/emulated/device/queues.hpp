// Queues of work, and a clock, for devices that are tests.
//
// Nothing runs when it is put into a queue: work is done when the host waits for it, by the thread that waits, each queue in its own order
// and never before what it waits for. Beyond that the order is chosen to hurt: at odd synchronisations a copy runs as late as the events
// allow, so that a result used without waiting for its copy is not there; at even ones as early as they allow, so that memory which is
// reused too early is overwritten.
//
// The clock is that of a device whose queues run beside each other. A launch takes the time that its kernel took here, a copy the time that
// it is put with; a moment is over when the work before it is. With GALLEY_DISCRETE_TRACE=FILE every launch and copy is written there with
// its times, in the format that chrome://tracing and Perfetto read. With GALLEY_DISCRETE_LOST=N the device is lost after N launches: from
// then on every launch fails.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "galley/cpp/plugin.hpp"

namespace galley::discrete {

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
  void add(uint32_t lane, const std::string& name, double begin, double end) {
    if (!file_) return;
    std::fprintf(file_, "%s\n{\"ph\": \"X\", \"pid\": 0, \"tid\": %u, \"name\": \"%s\", \"ts\": %.3f, \"dur\": %.3f}", first_ ? "" : ",",
                 lane, name.c_str(), 1e6 * begin, 1e6 * (end - begin));
    first_ = false;
  }

 private:
  std::FILE* file_ = nullptr;
  bool first_ = true;
};

/// What a queue does, in one piece.
struct Work {
  std::string name;  ///< "": it is too small for the trace
  std::function<void()> body;
  double seconds = -1;  ///< −1: a launch, which takes as long as `body`
};

/// When all that a queue had been given before is done.
struct Moment {
  uint32_t queue = 0;
  bool over = false;
  double time = 0;  ///< once it is over
};
using Stamp = std::shared_ptr<Moment>;  ///< null: never recorded, nothing to wait for

class Queues {
 public:
  explicit Queues(uint32_t count = 0) {
    while (queues_.size() < count) add_queue(static_cast<uint32_t>(queues_.size()));
  }

  /// `lane`: of the trace.
  uint32_t add_queue(uint32_t lane) {
    queues_.push_back({lane, 0, {}});
    return static_cast<uint32_t>(queues_.size() - 1);
  }
  void put(uint32_t queue, Work work) { at(queue).jobs.push_back({std::move(work), nullptr, false, host_}); }
  Stamp record(uint32_t queue) {
    auto moment = std::make_shared<Moment>();
    moment->queue = queue;
    at(queue).jobs.push_back({{}, moment, true, host_});
    return moment;
  }
  void wait(uint32_t queue, const Stamp& stamp) {
    if (stamp) at(queue).jobs.push_back({{}, stamp, false, host_});
  }

  /// Runs what has to be done before the moment is over. Throws what a launch throws; all that was put is forgotten then.
  void finish(const Stamp& stamp) {
    if (!stamp) return;
    while (!stamp->over && !at(stamp->queue).jobs.empty()) step(stamp->queue);
    host_ = std::max(host_, stamp->time);
  }
  void finish(uint32_t queue) {
    drain(queue);
    host_ = std::max(host_, at(queue).clock);
  }
  /// Runs everything that can run, although nobody waits for it.
  void hurry() {
    for (uint32_t queue = 0; queue < queues_.size(); ++queue) drain(queue);
  }
  void finish_all() {
    const bool first_queue_first = ++synchronisations_ % 2 == 1;
    for (uint32_t k = 0; k < queues_.size(); ++k) finish(first_queue_first ? k : static_cast<uint32_t>(queues_.size()) - 1 - k);
  }

 private:
  struct Job {
    Work work;
    Stamp stamp;
    bool records;  ///< the stamp; otherwise waits for it
    double ready;  ///< when the host put it here
  };
  struct Queue {
    uint32_t lane;
    double clock;  ///< when its work so far is over
    std::deque<Job> jobs;
  };
  Queue& at(uint32_t queue) { return queues_.at(queue); }
  void drain(uint32_t queue) {
    while (!at(queue).jobs.empty()) step(queue);
  }

  void step(uint32_t number) {
    const Job job = at(number).jobs.front();
    // What is waited for was recorded before the wait was put here, so this cannot go round in circles.
    if (job.stamp && !job.records)
      while (!job.stamp->over && !at(job.stamp->queue).jobs.empty()) step(job.stamp->queue);
    Queue& queue = at(number);
    if (queue.jobs.empty()) return;  // forgotten
    queue.jobs.pop_front();
    queue.clock = std::max(queue.clock, job.ready);
    if (!job.stamp) return run(queue, job.work);
    if (job.records) *job.stamp = {number, true, queue.clock};
    else queue.clock = std::max(queue.clock, job.stamp->time);
  }

  void run(Queue& queue, const Work& work) {
    const bool launch = work.seconds < 0;
    const auto begin = std::chrono::steady_clock::now();
    try {
      if (launch && lost_after_ && ++launches_ > lost_after_)
        throw sdk::Failure(GALLEY_FAILED, "the device was lost (GALLEY_DISCRETE_LOST)");
      work.body();
    } catch (...) {
      for (Queue& other : queues_) other.jobs.clear();  // what came after it would compute on nothing
      throw;
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const double end = queue.clock + (launch ? took.count() : work.seconds);
    if (!work.name.empty()) trace_.add(queue.lane, work.name, queue.clock, end);
    queue.clock = end;
  }

  std::vector<Queue> queues_;
  double host_ = 0;  ///< what the host has waited for is over
  uint64_t synchronisations_ = 0;
  const uint64_t lost_after_ = [] {
    const char* launches = std::getenv("GALLEY_DISCRETE_LOST");
    return launches ? std::strtoull(launches, nullptr, 10) : 0;
  }();
  uint64_t launches_ = 0;
  Trace trace_;
};

}  // namespace galley::discrete
