#include "host/commands/certify.hpp"

#include <unistd.h>

#include <cstdio>
#include <ctime>

#include "host/base/new_file.hpp"
#include "host/commands/run_commands.hpp"
#include "host/commands/stop_signals.hpp"
#include "host/compare/certify.hpp"
#include "host/session/run_directory.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

/// A folder for what is compared, which is gone behind the command.
class Scratch {
 public:
  static Result<Scratch> create() {
    std::error_code error;
    std::string path = (fs::temp_directory_path(error) / "galley-certify-XXXXXX").string();
    if (error || !::mkdtemp(path.data()))
      return run_error("cannot create a folder in " + fs::path(path).parent_path().string(), "name one where there is room: --out DIR");
    return Scratch(path);
  }
  Scratch(Scratch&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch() {
    std::error_code error;
    if (!path_.empty()) fs::remove_all(path_, error);
  }
  const fs::path& path() const { return path_; }

 private:
  explicit Scratch(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
};

/// One line on a terminal, and lines now and then elsewhere.
class ArmsShown {
 public:
  void begins(int64_t done, int64_t all, const std::string& what) {
    const double now = seconds();
    if (first_ < 0) first_ = now;
    char left[32] = "";
    if (done > 0)
      std::snprintf(left, sizeof left, "  ETA %.0f s", (now - first_) / static_cast<double>(done) * static_cast<double>(all - done));
    if (terminal_)
      std::fprintf(stderr, "\r\033[K%lld of %lld: %s%s", static_cast<long long>(done + 1), static_cast<long long>(all),
                   what.substr(0, 48).c_str(), left);
    else if (now - last_ >= 5)
      std::fprintf(stderr, "%lld of %lld: %s%s\n", static_cast<long long>(done + 1), static_cast<long long>(all), what.c_str(), left),
          last_ = now;
  }
  ~ArmsShown() {
    if (terminal_) std::fputs("\r\033[K", stderr);
  }

 private:
  static double seconds() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
  bool terminal_ = isatty(2) == 1;
  double first_ = -1, last_ = -1e9;
};

Result<Certified> certify_shown(const CommandLine& a, CertifyOptions& options) {
  ArmsShown shown;
  options.begins = [&](int64_t done, int64_t all, const std::string& what) { shown.begins(done, all, what); };
  return certify(a.positional[0], options);
}

}  // namespace

Status command_certify(const CommandLine& a) {
  CertifyOptions options;
  options.study = TRY(study_options(a));
  using References = CertifyOptions::References;
  options.references = a.has("--no-references") ? References::No : a.has("--references") ? References::Yes : References::Small;
  options.keep = a.has("--out");
  options.stop = StopSignals::asked;
  std::optional<NewFile> json;
  if (a.has("--json")) json.emplace(TRY(NewFile::named(a.get("--json"))));
  std::optional<Scratch> scratch;
  if (options.keep) TRY_STATUS(check_vacant(a.get("--out")));
  else scratch.emplace(TRY(Scratch::create()));
  options.directory = options.keep ? fs::path(a.get("--out")) : scratch->path();
  StopSignals signals;
  signals.install();
  const Certified certified = TRY(certify_shown(a, options));

  const bool terminal = isatty(STDOUT_FILENO) == 1;
  std::fputs(certify_table(certified, terminal ? "\x1b[1;31m" : "", terminal ? "\x1b[0m" : "").c_str(), stdout);
  if (json) {
    TRY_STATUS(json->file().write(certify_json(certified)));
    TRY_STATUS(json->finish());
  }
  std::string list;
  const Certificate* first = nullptr;
  for (const Certificate& c : certified.strategies) {
    if (c.verdict != Certificate::Verdict::Breach) continue;
    if (!first) first = &c;
    list += (list.empty() ? "'" : ", '") + c.strategy + "'";
  }
  if (first)
    return plugin_error(list + (list.find(',') == std::string::npos ? " does" : " do") + " not do what " +
                            (list.find(',') == std::string::npos ? "it declares" : "they declare") + ": " + first->strategy + " (" +
                            first->place + "), plugin '" + first->plugin + "': " + first->sentence,
                        "report it to the plugin's author, with the recipe");
  if (!certified.fault.empty()) return plugin_error(certified.fault, "report it to the author of the kernel's plugin, with the recipe");
  return ok();
}

}  // namespace galley
