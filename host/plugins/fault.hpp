// The last words of a process that dies inside a plugin: which plugin, in which function, for which node and kernel.
#pragma once

#include <atomic>
#include <string_view>

namespace galley {

/// What of a plugin runs now. The texts live as long as the mark.
struct CallMark {
  std::string_view plugin;
  std::string_view what;           ///< "enqueue", "claim"
  std::string_view strategy = {};  ///< with the recipe's line: "NAME (recipe.lua:9)"; or empty
  std::string_view node = {};
  std::string_view kernel = {};
  const CallMark* outer = nullptr;  ///< the call around this one
};

/// Says for a scope what is called on this thread. A crash on a thread that the call has started is reported as a crash of the call that
/// began last, on whichever thread.
class Calling {
 public:
  explicit Calling(CallMark mark) : mark_(mark) {
    mark_.outer = here_;
    set(&mark_);
  }
  ~Calling() { set(mark_.outer); }
  Calling(const Calling&) = delete;
  Calling& operator=(const Calling&) = delete;

  /// What runs on this thread, or began last on another one; null: nothing.
  static const CallMark* innermost() { return here_ ? here_ : last_.load(std::memory_order_acquire); }
  /// What runs on this thread; null: nothing.
  static const CallMark* here() { return here_; }

 private:
  static void set(const CallMark* mark) {
    here_ = mark;
    last_.store(mark, std::memory_order_release);
  }
  static inline thread_local const CallMark* here_ = nullptr;
  static inline std::atomic<const CallMark*> last_ = nullptr;
  CallMark mark_;
};

/// From now on a fault (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) writes one line to stderr before the process dies of it: which plugin was
/// called, or whose code it was that a thread was left running in. This does nothing under sanitizers, which have words of their own. A
/// plugin that ends the process (`exit`, `quick_exit`) before command_ends() gets a line, too, and the process ends with exit code Plugin.
/// [main-thread]
void name_faults();

/// Says that memory [begin, end) is a plugin's code. `plugin` lives as long as the process. [main-thread]
void note_library(const void* begin, const void* end, const char* plugin);

/// The command has done its work or said why it could not: from now on the process ends with this exit code, whoever ends it.
void command_ends(int code);

/// What `_exit` does in the program. Whoever calls it before command_ends() is a plugin: the rest of the host leaves by way of main().
[[noreturn]] void leave(int code);

}  // namespace galley
