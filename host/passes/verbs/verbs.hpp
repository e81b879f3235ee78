// Helpers for the tables of verbs: a verb finds its draft, checks what a plugin says, and refuses it with an error that the host keeps.
#pragma once

#include <new>
#include <string>
#include <utility>

#include "host/base/printable.hpp"
#include "host/passes/verbs/handle.hpp"
#include "host/plugins/abi.hpp"

namespace galley::verbs {

inline GraphHandle& handle_of(galley_graph* g) { return *reinterpret_cast<GraphHandle*>(g); }
inline Draft& draft_of(galley_graph* g) { return handle_of(g).draft; }
inline Graph& graph_of(galley_graph* g) { return draft_of(g).graph; }

/// Refuses a verb and keeps the error in the handle: if the plugin's call fails now, this is the reason.
inline galley_status refuse(galley_graph* g, galley_error* out, Error error) {
  fill_error(out, GALLEY_INVALID, error.cause, error.hint);
  handle_of(g).refused = std::move(error);
  return GALLEY_INVALID;
}
inline galley_status refuse(galley_graph* g, galley_error* out, std::string cause) {
  return refuse(g, out, plugin_error(std::move(cause)));
}

/// Runs a verb's body and catches the host's exceptions: none crosses the ABI.
template <class Body>
galley_status guarded(galley_graph* g, galley_error* out, Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    fill_error(out, GALLEY_NO_MEMORY, "out of memory", "");
    handle_of(g).refused = run_error("out of memory");
    return GALLEY_NO_MEMORY;
  } catch (const std::exception& exception) {
    fill_error(out, GALLEY_FAILED, exception.what(), "");
    handle_of(g).refused = run_error(exception.what());
  }
  return GALLEY_FAILED;
}

inline std::string text_or_empty(const char* text) { return text ? text : ""; }
inline std::string quoted(const std::string& text) { return "'" + text + "'"; }
/// Quotes a plugin's text that has not been checked yet.
inline std::string shown(const std::string& text) { return quoted(printable(text, Lines::Escape)); }
inline bool is_plain(const std::string& text) { return printable(text, Lines::Escape) == text; }

/// Runs a verb that the graph carries out or refuses.
template <class Act>
galley_status carry_out(galley_graph* g, galley_error* error, Act&& act) {
  return guarded(g, error, [&] {
    const Status status = act(graph_of(g));
    return status.ok() ? GALLEY_OK : refuse(g, error, status.error());
  });
}

/// Runs a verb that returns a tensor.
template <class Find>
galley_status hand_out(galley_graph* g, galley_tensor* out, galley_error* error, Find&& find) {
  return guarded(g, error, [&] {
    Result<galley_tensor> found = find();
    if (!found) return refuse(g, error, found.error());
    *out = *found;
    return GALLEY_OK;
  });
}

}  // namespace galley::verbs
