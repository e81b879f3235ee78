// A strategy that listens: sessions one after the other and at once, what is on the disk when a state is saved, and what is left.
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>

#include "host/plugins/abi.hpp"
#include "host/proofs/usage.hpp"
#include "host/tools/check/rules.hpp"
#include "host/tools/check/tests.hpp"
#include "host/tools/compare/printed.hpp"

namespace galley {
namespace fs = std::filesystem;
namespace {

class ListenerCheck {
 public:
  ListenerCheck(const CheckContext& context, const LoadedStrategy& strategy, TestLog& log)
      : context_(context), strategy_(strategy), table_(*strategy.observer()), log_(log) {}

  Status run() {
    auto one = begin("one");
    if (!one) return ok();
    const int64_t before = bytes_below(folder("one"));
    double longest = 0;
    for (int64_t step = 1; step <= 3; ++step) {
      const auto at = std::chrono::steady_clock::now();
      tell_step(*one, step);
      longest = std::max(longest, std::chrono::duration<double>(std::chrono::steady_clock::now() - at).count());
    }
    if (longest > .3) find("step", printed("a step waits %.1f s for it", longest), rules::kListenerWaits);
    if (table_.saving) says("saving", [&](galley_error* error) { return table_.saving(*one, error); });
    const int64_t saved = bytes_below(folder("one"));
    end(*one);
    const int64_t ended = bytes_below(folder("one"));
    if (saved == before && ended > saved)
      find("saving",
           "of three steps nothing is in a file when a state is saved, and " + std::to_string(ended - saved) +
               " bytes are when the run has ended",
           rules::kFlushed);
    log_.held("a session of three steps");
    two_at_once();
    many();
    return ok();
  }

 private:
  void find(const std::string& where, const std::string& sentence, const char* rule) { log_.find(where, sentence, rule); }
  fs::path folder(const std::string& name) const { return context_.scratch / ("listened-" + name); }

  template <class Call>
  bool says(const std::string& what, const Call& call) {
    const Status status = call_plugin(strategy_.caller(), what, call, Phase::Run);
    if (!status) find(what, status.error().cause, rules::kStatus);
    return status.ok();
  }

  std::optional<void*> begin(const std::string& name) {
    std::error_code error;
    fs::create_directories(folder(name), error);
    const std::string directory = folder(name).string();
    auto event = new_struct<galley_started_event>();
    event.directory = directory.c_str();
    event.steps = 3;
    event.parameters = event.trainable = 100;
    event.planned_bytes = 1 << 20;
    void* listener = nullptr;
    if (!says("started", [&](galley_error* e) { return table_.started(strategy_.instance(), &event, &listener, e); })) return std::nullopt;
    return listener;
  }
  void tell_step(void* listener, int64_t step) {
    if (!table_.step) return;
    auto event = new_struct<galley_step_event>();
    event.step = step;
    event.loss = 4.0 / static_cast<double>(step);
    event.grad_norm = 1;
    event.lr = 1e-3;
    event.seconds = .5;
    event.tokens = event.positions = 64;
    event.micro_batches = 1;
    event.flags = GALLEY_STEP_APPLIED;
    says("step", [&](galley_error* error) { return table_.step(listener, &event, error); });
  }
  void end(void* listener) {
    auto event = new_struct<galley_ended_event>();
    event.how = GALLEY_ENDED_DONE;
    event.steps_done = 3;
    says("ended", [&](galley_error* error) { return table_.ended(listener, &event, error); });
  }

  static std::map<std::string, std::string> files_below(const fs::path& folder) {
    std::map<std::string, std::string> out;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder, error)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream in(entry.path(), std::ios::binary);
      out[fs::relative(entry.path(), folder).string()] = {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    }
    return out;
  }
  static int64_t bytes_below(const fs::path& folder) {
    int64_t out = 0;
    for (const auto& [_, text] : files_below(folder)) out += static_cast<int64_t>(text.size());
    return out;
  }

  /// Two sessions, told in turns, leave what each would have left alone.
  void two_at_once() {
    const auto first = begin("first"), second = begin("second");
    if (!first || !second) return;
    for (int64_t step = 1; step <= 3; ++step) {
      tell_step(*first, step);
      tell_step(*second, step);
    }
    end(*second);
    end(*first);
    const int64_t alone = bytes_below(folder("one")), a = bytes_below(folder("first")), b = bytes_below(folder("second"));
    if (a != b || a != alone)
      find("two sessions at once",
           printed("they leave %lld and %lld bytes, and one alone %lld", static_cast<long long>(a), static_cast<long long>(b),
                   static_cast<long long>(alone)),
           rules::kTwoListeners);
    else log_.held("two sessions at once");
  }

  void many() {
    const int64_t before = open_files();
    for (int i = 0; i < 20; ++i) {
      const auto listener = begin("many-" + std::to_string(i));
      if (!listener) return;
      tell_step(*listener, 1);
      end(*listener);
    }
    if (const int64_t more = open_files() - before; more > 0)
      find("twenty sessions", "they leave " + std::to_string(more) + " files open", rules::kFreed);
    else log_.held("twenty sessions");
  }

  const CheckContext& context_;
  const LoadedStrategy& strategy_;
  const galley_observer& table_;
  TestLog& log_;
};

}  // namespace

Status check_listener(const CheckContext& context, const LoadedStrategy& strategy, TestLog& log) {
  return ListenerCheck(context, strategy, log).run();
}

}  // namespace galley
