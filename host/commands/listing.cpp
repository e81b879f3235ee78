#include "host/commands/listing.hpp"

#include <algorithm>
#include <cstdio>

#include "host/base/nearest.hpp"
#include "host/plugins/loader.hpp"
#include "host/session/study.hpp"

namespace galley {
namespace {

const char* exactness_text(Exactness e) {
  switch (e) {
    case Exactness::Bits: return "exact to the bit";
    case Exactness::Rounding: return "exact to rounding";
    case Exactness::Approximate: return "approximate";
  }
  return "";
}

void print_strategy(const Plugin& plugin, const StrategySpec& s) {
  std::printf("%s - %s\n", s.name.c_str(), s.summary.c_str());
  if (!s.source.empty()) std::printf("  source     %s\n", s.source.c_str());
  std::printf("  result     %s\n  plugin     %s %s, %s\n", exactness_text(s.exactness), plugin.manifest.id.c_str(),
              plugin.manifest.version.c_str(), plugin.manifest.folder().c_str());
  if (s.options.empty()) return;
  std::printf("\n  use \"%s\" { … }\n", s.name.c_str());
  size_t width = 0;
  for (const OptionSpec& o : s.options) width = std::max(width, o.name.size());
  for (const OptionSpec& o : s.options) {
    const std::string fallback = o.required ? "required" : o.fallback.is_nil() ? "optional" : "default " + value_text(o.fallback);
    std::printf("    %-*s  %s\n    %-*s  %s; %s\n", static_cast<int>(width), o.name.c_str(), o.description.c_str(), static_cast<int>(width),
                "", o.expects().c_str(), fallback.c_str());
  }
  std::printf("\n");
}

}  // namespace

Status print_plugins(const std::vector<std::filesystem::path>& plugin_path, const std::string& name) {
  const std::filesystem::path built_in[] = {find_installation().plugins};
  const auto plugins = Plugins::scan(plugin_search_path(built_in, plugin_path), {});
  if (name.empty()) {
    std::printf("%-16s %-9s %s\n", "strategy", "plugin", "what it does");
    for (const auto& p : plugins->all())
      for (const StrategySpec& s : p->manifest.strategies)
        std::printf("%-16s %-9s %s\n", s.name.c_str(), p->manifest.version.c_str(), s.summary.c_str());
    std::printf("\n%-16s %-9s %s\n", "plugin", "version", "folder");
    for (const auto& p : plugins->all())
      std::printf("%-16s %-9s %s\n", p->manifest.id.c_str(), p->manifest.version.c_str(), p->manifest.folder().c_str());
    std::printf("\ngalley plugins NAME shows the options of a strategy.\n");
    return ok();
  }
  std::vector<std::string> names;
  bool found = false;
  for (const auto& p : plugins->all()) {
    names.push_back(p->manifest.id);
    for (const StrategySpec& s : p->manifest.strategies) {
      names.push_back(s.name);
      if (s.name != name && p->manifest.id != name) continue;
      print_strategy(*p, s);
      found = true;
    }
    if (p->manifest.id == name && p->manifest.strategies.empty()) {
      std::printf("%s %s - %s\n  folder     %s\n", p->manifest.id.c_str(), p->manifest.version.c_str(), p->manifest.summary.c_str(),
                  p->manifest.folder().c_str());
      found = true;
    }
  }
  return found ? ok() : Status(recipe_error("no plugin or strategy '" + name + "'", did_you_mean(name, names)));
}

}  // namespace galley
