#include "host/base/ordered.hpp"

#include <sched.h>

#include <algorithm>
#include <exception>
#include <new>

namespace galley {

size_t usable_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<size_t>(std::max(1, CPU_COUNT(&set)));
  return std::max(1u, std::thread::hardware_concurrency());
}

Error error_of_exception() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return run_error("there is not enough memory");
  } catch (const std::exception& error) {
    return run_error(std::string("an unexpected exception: ") + error.what());
  } catch (...) {
    return run_error("an exception of unknown type");
  }
}

}  // namespace galley
