#include "host/plugins/isa.hpp"

#include <charconv>

namespace galley {
namespace {

// "x86-64-v4" is level 4 of "x86-64-v"; "sm_90a" is level 90 of "sm_", for that level alone.
struct Level {
  std::string_view kind;
  int number = 0;
  char only = 0;  // 'a': this level alone; 'f': its family, which has the same number but for the last digit
};

Level level_of(std::string_view isa) {
  char only = 0;
  if (isa.starts_with("sm_") && (isa.ends_with('a') || isa.ends_with('f'))) {
    only = isa.back();
    isa.remove_suffix(1);
  }
  size_t digits = isa.size();
  while (digits > 0 && isa[digits - 1] >= '0' && isa[digits - 1] <= '9') --digits;
  Level out{isa.substr(0, digits), 0, only};
  std::from_chars(isa.data() + digits, isa.data() + isa.size(), out.number);
  return out;
}

}  // namespace

std::optional<int> isa_rank(std::string_view isa, std::string_view target) {
  if (isa.empty()) return 0;
  const Level a = level_of(isa), b = level_of(target);
  if (a.kind != b.kind || a.number > b.number) return std::nullopt;
  if (a.only == 'a' && a.number != b.number) return std::nullopt;
  if (a.only == 'f' && a.number / 10 != b.number / 10) return std::nullopt;
  return 4 * a.number + (a.only == 'a' ? 2 : a.only == 'f' ? 1 : 0);
}

bool same_kind(std::string_view a, std::string_view b) {
  const Level x = level_of(a), y = level_of(b);
  return a == b || (x.kind == y.kind && x.number > 0 && y.number > 0);
}

std::string cpu_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  // By features, because not every compiler knows the levels; each has what it shares with its neighbours as well.
  if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("popcnt") || !__builtin_cpu_supports("ssse3")) return "x86-64-v1";
  const bool v3 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  if (!v3) return "x86-64-v2";
  const bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return v4 ? "x86-64-v4" : "x86-64-v3";
#else
  return "";
#endif
}

}  // namespace galley
