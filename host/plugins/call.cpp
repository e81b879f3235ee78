#include "host/plugins/call.hpp"

#include <cstring>

namespace galley {
namespace {

template <size_t N>
std::string one_line(const char (&from)[N]) {
  std::string text(from, strnlen(from, N));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

// Returns "recipe.lua:14: ", or nothing.
std::string where(const Caller& caller) { return caller.place.file.empty() ? "" : caller.place.text() + ": "; }

Error fault(const Caller& caller, std::string_view what, std::string_view how, std::string_view text, std::string hint = {}) {
  const bool own = !caller.strategy.empty() && caller.strategy != caller.plugin;
  return plugin_error(where(caller) + "plugin '" + caller.plugin + "' " + std::string(how) + " in " + std::string(what) +
                          (own ? " of " + caller.strategy : "") + ": " + std::string(text),
                      std::move(hint));
}

}  // namespace

Error plugin_failure(const Caller& caller, std::string_view what, galley_status status, const galley_error& error, Phase phase) {
  std::string text = one_line(error.text), hint = one_line(error.hint);
  if (text.empty()) text = "status " + std::to_string(status) + " without a reason";
  if (status == GALLEY_LOST && phase == Phase::Run) return run_error(text, hint);  // nobody's fault here
  const bool refused = status == GALLEY_INVALID || status == GALLEY_UNSUPPORTED;
  if (!refused || phase == Phase::Run) return fault(caller, what, "failed", text, hint);
  if (!caller.strategy.empty()) return recipe_error(where(caller) + caller.strategy + ": " + text, hint);
  return recipe_error(where(caller) + std::string(what) + " (plugin '" + caller.plugin + "'): " + text, hint);
}

Error plugin_fault(const Caller& caller, std::string_view what, const Error& found) {
  return fault(caller, what, "failed", found.cause, found.hint);
}

Error plugin_exception(const Caller& caller, std::string_view what, std::string_view text) {
  return fault(caller, what, "let an exception escape", text);
}

}  // namespace galley
