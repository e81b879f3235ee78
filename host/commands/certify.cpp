#include "host/commands/certify.hpp"

#include <unistd.h>

#include <cstdio>

#include "host/base/confinement.hpp"
#include "host/base/new_file.hpp"
#include "host/commands/run_commands.hpp"
#include "host/commands/stop_signals.hpp"
#include "host/session/run_directory.hpp"
#include "host/tools/compare/certify.hpp"
#include "host/tools/report/columns.hpp"
#include "host/tools/report/live_line.hpp"
#include "host/tools/report/terminal.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

/// A folder for what is compared, which is gone after the command. What a killed command left goes now.
Result<NewFolder> make_scratch() {
  std::error_code error;
  const fs::path place = fs::temp_directory_path(error) / ("galley-certify-" + std::to_string(::geteuid()));
  if (error) return run_error("there is no folder for temporary files: " + error.message(), "name one where there is room: --out DIR");
  Result<NewFolder> made = NewFolder::beside(place);
  if (!made) return run_error("cannot create a folder in " + place.parent_path().string(), "name one where there is room: --out DIR");
  fs::permissions(made->path(), fs::perms::owner_all, error);
  return made;
}

Result<Certified> certify_shown(const CommandLine& a, CertifyOptions& options) {
  PartsLine shown(STDERR_FILENO);
  options.begins = [&](int64_t done, int64_t all, const std::string& what) { shown.begins(done, all, cut_middle(what, 48)); };
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
  std::optional<NewFolder> scratch;
  if (options.keep) TRY_STATUS(check_vacant(a.get("--out")));
  else scratch.emplace(TRY(make_scratch()));
  options.directory = options.keep ? fs::path(a.get("--out")) : scratch->path();
  Confinement::lend(options.directory);
  StopSignals signals;
  signals.install();
  const Certified certified = TRY(certify_shown(a, options));

  const RedMarks red = red_marks();
  print_lines(certify_table(certified, red.begin, red.end), red);
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
  if (!certified.unsteady.empty())
    return plugin_error(certified.unsteady, "report it to the author of the kernel's plugin, with the recipe");
  if (!certified.fault.empty()) return plugin_error(certified.fault, "report it to the author of the kernel's plugin, with the recipe");
  return ok();
}

}  // namespace galley
