#include "host/commands/check.hpp"

#include <cstdio>
#include <filesystem>

#include "host/base/new_file.hpp"
#include "host/commands/run_commands.hpp"
#include "host/session/study.hpp"
#include "host/tools/compare/plugin_check.hpp"
#include "host/tools/report/terminal.hpp"

namespace galley {

Status command_check(const CommandLine& a) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::canonical(a.positional[0], error);
  if (error || !fs::exists(folder / "plugin.toml", error))
    return recipe_error("galley check: " + a.positional[0] + " is no plugin's folder: there is no plugin.toml in it",
                        "give the folder in which plugin.toml and the library lie, after the plugin has been built");
  std::optional<NewFile> json;
  if (a.has("--json")) json.emplace(TRY(NewFile::named(a.get("--json"))));
  PluginCheckOptions options;
  options.seed = static_cast<uint64_t>(TRY(a.integer("--seed", 1, 0)));
  // First of all, so that it hides one of its name that comes with the program, and none hides it.
  std::vector<fs::path> first = {folder};
  const StudyOptions study = TRY(study_options(a));
  first.insert(first.end(), study.plugin_path.begin(), study.plugin_path.end());
  // The SDK's emulated GPU lies beside the program's plugins, where the SDK is installed.
  const fs::path home = study.installation.plugins.parent_path();
  std::vector<fs::path> built_in = {study.installation.plugins};
  if (fs::exists(home / "emulated", error)) built_in.push_back(home / "emulated");
  const auto plugins = Plugins::scan(plugin_search_path(built_in, first), [](const std::string&) {});
  Plugin* plugin = nullptr;
  for (const auto& p : plugins->all())
    if (fs::canonical(p->manifest.folder(), error) == folder) plugin = p.get();
  if (!plugin) {  // the manifest is wrong: it says how
    TRY(read_manifest(folder / "plugin.toml"));
    return plugin_error(folder.string() + ": the plugin cannot be used");
  }
  TRY_STATUS(plugins->load(*plugin));
  const std::vector<CheckDevice> devices = TRY(check_devices(*plugins, *plugin));
  const RedMarks red = red_marks();
  options.after = [&](const CheckedCase& checked) {
    print_lines(case_text(checked, red.begin, red.end));
    std::fflush(stdout);
  };
  const PluginCheck check = TRY(check_plugin(*plugins, *plugin, devices, options));
  print_lines(summary_text(check, red.begin, red.end));
  if (json) {
    TRY_STATUS(json->file().write(check_json(check)));
    TRY_STATUS(json->finish());
  }
  for (const CheckedCase& c : check.cases)
    if (!c.findings.empty()) {
      const PluginFinding& f = c.findings.front();
      return plugin_error("plugin '" + check.id + "': op '" + f.op + "', case '" + f.example + "'" +
                              (f.operand.empty() ? "" : ", " + f.operand) + ": " + f.sentence,
                          f.rule);
    }
  return ok();
}

}  // namespace galley
