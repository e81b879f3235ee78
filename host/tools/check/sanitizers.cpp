#include "host/tools/check/sanitizers.hpp"

#include <cctype>
#include <cstdlib>
#include <set>
#include <string_view>

#include "host/base/file.hpp"

namespace galley {
namespace {

struct Sanitizer {
  const char *name, *library, *options, *value;
};
/// Exit code 99 is no other program's here. Leaks are not looked for: the checker does not know threads that sleep until the end.
constexpr Sanitizer kSanitizers[] = {
    {"AddressSanitizer", "libasan.so.", "ASAN_OPTIONS", "exitcode=99:detect_leaks=0:detect_odr_violation=0"},
    {"UndefinedBehaviorSanitizer", "libubsan.so.", "UBSAN_OPTIONS", "exitcode=99:halt_on_error=1"},
    {"ThreadSanitizer", "libtsan.so.", "TSAN_OPTIONS", "exitcode=99:halt_on_error=1"}};
constexpr uint64_t kMostBytes = UINT64_C(1) << 30;

}  // namespace

std::vector<std::string> sanitizer_environment(const std::filesystem::path& folder) {
  std::set<std::string> runtimes;
  std::vector<std::string> out;
  std::error_code error;
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".so") continue;
    const Result<std::string> bytes = read_text(entry.path(), kMostBytes);
    for (const Sanitizer& s : kSanitizers) {
      const std::string_view soname = s.library;
      // The name of a library that is needed stands among the library's texts.
      for (size_t at = bytes ? bytes->find(soname) : std::string::npos; at != std::string::npos; at = bytes->find(soname, at + 1)) {
        size_t end = at + soname.size();
        while (end < bytes->size() && std::isdigit(static_cast<unsigned char>((*bytes)[end]))) ++end;
        if (end == at + soname.size() || (*bytes)[end] != '\0') continue;
        if (runtimes.insert(bytes->substr(at, end - at)).second && !std::getenv(s.options))
          out.push_back(std::string(s.options) + "=" + s.value);
      }
    }
  }
  if (runtimes.empty()) return {};
  std::string preload;
  for (const std::string& runtime : runtimes) preload += runtime + " ";
  const char* const mine = std::getenv("LD_PRELOAD");
  out.push_back("LD_PRELOAD=" + preload + (mine ? mine : ""));
  return out;
}

std::string sanitizers_here() {
  const char* const loaded = std::getenv("LD_PRELOAD");
  std::string out;
  for (const Sanitizer& s : kSanitizers)
    if (loaded && std::string_view(loaded).find(s.library) != std::string_view::npos)
      out += (out.empty() ? "" : ", ") + std::string(s.name);
  return out;
}

std::string sanitizer_report(const std::string& said) {
  for (const char* word : {"SUMMARY: AddressSanitizer: ", "SUMMARY: ThreadSanitizer: ", "runtime error: "}) {
    const size_t at = said.find(word);
    if (at == std::string::npos) continue;
    const size_t line = said.rfind('\n', at), begin = line == std::string::npos ? 0 : line + 1;
    return said.substr(begin, said.find('\n', at) - begin);
  }
  return "";
}

}  // namespace galley
