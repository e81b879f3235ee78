// Studies by the plugins, families and targets of the build.
#pragma once

#include <cstdlib>
#include <filesystem>

#include "host/proofs/checks.hpp"
#include "host/session/study.hpp"
#include "host/sources/kinds.hpp"

namespace galley {

inline std::filesystem::path build_folder() {
  const char* build = std::getenv("GALLEY_BINARY");
  return std::filesystem::absolute(build ? build : ".");
}
inline StudyOptions options_of_build() {
  const std::filesystem::path base = build_folder();
  StudyOptions options;
  options.checks = checks();
  options.kinds = all_kinds;
  options.installation = {base / "plugins", {base / "models" / "families", base / "models" / "lib"}, base / "models" / "targets"};
  return options;
}

}  // namespace galley
