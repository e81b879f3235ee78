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

/// Says for a scope what is called. [main-thread], where all calls into plugins begin. A crash on a thread that the call has started is
/// reported as a crash of the call.
class Calling {
 public:
  explicit Calling(CallMark mark) : mark_(mark) {
    mark_.outer = innermost.load(std::memory_order_relaxed);
    innermost.store(&mark_, std::memory_order_release);
  }
  ~Calling() { innermost.store(mark_.outer, std::memory_order_release); }
  Calling(const Calling&) = delete;
  Calling& operator=(const Calling&) = delete;

  static inline std::atomic<const CallMark*> innermost = nullptr;

 private:
  CallMark mark_;
};

/// From now on a fault (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) within such a scope writes one line to stderr before the process dies
/// of it. This does nothing under sanitizers, which have words of their own. A plugin that ends the process within such a scope (`exit`)
/// gets a line, too, and the process ends with exit code Plugin. [main-thread]
void name_faults();

}  // namespace galley
