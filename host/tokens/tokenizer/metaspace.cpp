#include "host/tokens/tokenizer/metaspace.hpp"

namespace galley {

Result<Metaspace> Metaspace::read(const JsonObject& object) {
  Metaspace out;
  out.space = TRY(object.character("replacement"));
  const std::string scheme = object.field("prepend_scheme") ? TRY(object.text("prepend_scheme")) : std::string("always");
  if (scheme == "never") out.prepend = Prepend::Never;
  else if (scheme == "first") out.prepend = Prepend::First;
  else if (scheme != "always") return object.wrong("prepend_scheme '" + scheme + "' is not known; there is: always, first, never");
  // The older name.
  if (!TRY(object.flag("add_prefix_space", true))) {
    if (object.field("prepend_scheme") && out.prepend != Prepend::Never)
      return object.wrong("'add_prefix_space' = false and prepend_scheme '" + scheme + "' contradict each other");
    out.prepend = Prepend::Never;
  }
  return out;
}

}  // namespace galley
