// Which of a plugin's kernel libraries a machine can run, by the names of ISAs: "x86-64-v4" is above "x86-64-v3", "sm_90" above "sm_80".
// What is built for "sm_90a" runs on devices of compute capability 9.0 alone, and is taken there before "sm_90"; what is built for
// "sm_100f" runs on those of its family, 10.x.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace galley {

/// How far up `isa` lies among those that `target` can run: more for a higher one, 0 for an empty `isa` (every machine), none when it is
/// above the target or of another kind.
std::optional<int> isa_rank(std::string_view isa, std::string_view target);

/// Whether two ISAs differ at most in their numbers, and both have one: "sm_86" and "sm_90", not "sm_". One is of its own kind in any case.
bool same_kind(std::string_view a, std::string_view b);

/// What this CPU can run: "x86-64-v4", "x86-64-v3", "x86-64-v2", "x86-64-v1"; "" on other processors.
std::string cpu_isa();

}  // namespace galley
