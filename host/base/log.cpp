#include "host/base/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "host/base/printable.hpp"

namespace galley {
namespace {

std::string_view wish() {
  const char* said = std::getenv("GALLEY_LOG");
  return said ? said : "";
}

/// Never destroyed: a plugin's thread may still speak when the process ends.
spdlog::logger& logger() {
  static auto* const only = [] {
    auto* made = new spdlog::logger("galley", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("galley: %v");
    made->set_level(wish() == "debug" ? spdlog::level::debug : spdlog::level::info);
    return made;
  }();
  return *only;
}

}  // namespace

void log(LogLevel level, std::string_view text) {
  switch (level) {
    case LogLevel::Debug:
      if (logger().should_log(spdlog::level::debug)) logger().log(spdlog::level::debug, "debug: " + printable(text, Lines::Escape));
      return;
    case LogLevel::Note: return logger().log(spdlog::level::info, "note: " + printable(text, Lines::Escape));
    case LogLevel::Warning: return logger().log(spdlog::level::warn, "warning: " + printable(text, Lines::Escape));
    case LogLevel::Error: return logger().log(spdlog::level::err, text);
  }
}

Status open_log() {
  logger();
  if (wish().empty() || wish() == "debug") return ok();
  return recipe_error("GALLEY_LOG is '" + std::string(wish()) + "'", "'debug' shows the lines of debugging; unset, it hides them");
}

}  // namespace galley
