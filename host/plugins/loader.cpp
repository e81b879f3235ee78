#include "host/plugins/loader.hpp"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>

#include "host/base/confinement.hpp"
#include "host/base/file.hpp"
#include "host/base/log.hpp"
#include "host/base/nearest.hpp"
#include "host/plugins/isa.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

bool lists(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// What [provides] names of one kind, against what there is.
std::string unprovided(const Manifest& manifest, const char* noun, const std::vector<std::string>& named,
                       const std::vector<std::string>& there, const std::string& where) {
  for (const std::string& name : named) {
    if (lists(there, name)) continue;
    const std::string hint = did_you_mean(name, there);
    return manifest.file.string() + ": [provides] names the " + noun + " '" + name + "', which " + where + " does not register" +
           (hint.empty() ? "" : "; " + hint);
  }
  return {};
}

std::vector<std::string> ops_of(std::initializer_list<const Library*> libraries) {
  std::vector<std::string> out;
  for (const Library* library : libraries)
    for (const galley_kernel* kernel : library->kernels) out.emplace_back(kernel->op);
  return out;
}

/// Kernels are looked for where no other library may have them.
std::string unprovided(const Manifest& manifest, const Library& library) {
  std::vector<std::string> ops, formats, devices, ranks;
  for (const galley_op* op : library.ops) ops.emplace_back(op->name);
  for (const galley_format* format : library.formats) formats.emplace_back(format->name);
  for (const galley_device* device : library.devices) devices.emplace_back(device->kind);
  for (const galley_ranks* one : library.ranks) ranks.emplace_back(one->name);
  std::string out = unprovided(manifest, "op", manifest.ops, ops, manifest.library);
  if (out.empty()) out = unprovided(manifest, "ranks", manifest.ranks, ranks, manifest.library);
  if (out.empty()) out = unprovided(manifest, "format", manifest.formats, formats, manifest.library);
  if (out.empty()) out = unprovided(manifest, "device", manifest.devices, devices, manifest.library);
  if (out.empty() && manifest.kernel_libraries.empty())
    out = unprovided(manifest, "kernel of op", manifest.kernels, ops_of({&library}), manifest.library);
  return out;
}

}  // namespace

std::vector<fs::path> plugin_search_path(std::span<const fs::path> built_in, std::span<const fs::path> extra) {
  std::vector<fs::path> out(extra.begin(), extra.end());
  if (const char* environment = std::getenv("GALLEY_PLUGIN_PATH")) {
    std::string_view rest = environment;
    while (!rest.empty()) {
      const size_t colon = std::min(rest.find(':'), rest.size());
      if (colon > 0) out.emplace_back(rest.substr(0, colon));
      rest.remove_prefix(std::min(colon + 1, rest.size()));
    }
  }
  out.insert(out.end(), built_in.begin(), built_in.end());
  return out;
}

std::unique_ptr<Plugins> Plugins::scan(std::span<const fs::path> folders, Warn warn) {
  std::unique_ptr<Plugins> out(new Plugins);
  out->warn_ = std::move(warn);
  for (const fs::path& folder : folders) out->add_folder(folder);
  return out;
}

void Plugins::warn(const std::string& line) const {
  if (warn_) warn_(line);
  else log(LogLevel::Warning, line);
}

void Plugins::add_folder(const fs::path& folder) {
  std::error_code code;
  if (fs::exists(folder / "plugin.toml", code)) return add_plugin(folder / "plugin.toml");
  std::vector<fs::path> manifests;
  fs::directory_iterator entries(folder, code);
  if (code) return warn("cannot read the plugin folder '" + folder.string() + "': " + code.message());
  for (const fs::directory_iterator end; entries != end && !code; entries.increment(code))
    if (fs::exists(entries->path() / "plugin.toml", code)) manifests.push_back(entries->path() / "plugin.toml");
  std::sort(manifests.begin(), manifests.end());  // the same order on every file system
  for (const fs::path& manifest : manifests) add_plugin(manifest);
}

void Plugins::add_plugin(const fs::path& file) {
  Confinement::lend(file);
  Result<Manifest> manifest = read_manifest(file);
  if (!manifest) {
    warn(manifest.error().cause);
    unreadable_.push_back({file, manifest.error().cause});
    return;
  }
  // The person has named their folder: they may be read, and links to where they were built.
  Confinement::lend(manifest->folder() / manifest->library);
  for (const KernelLibrary& library : manifest->kernel_libraries) Confinement::lend(manifest->folder() / library.library);
  if (const Plugin* first = find(manifest->id)) {
    if (first->manifest.file != manifest->file)
      warn("plugin '" + manifest->id + "' in " + manifest->folder().string() + " is hidden by the one in " +
           first->manifest.folder().string());
    return;
  }
  for (const StrategySpec& spec : manifest->strategies)
    for (const auto& other : plugins_)
      if (other->manifest.strategy(spec.name))
        warn(manifest->file.string() + ": strategy '" + spec.name + "' is hidden by that of plugin '" + other->manifest.id + "'");
  auto plugin = std::make_unique<Plugin>();
  plugin->manifest = *std::move(manifest);
  plugins_.push_back(std::move(plugin));
}

const Plugin* Plugins::find(std::string_view id) const {
  const auto found = std::find_if(plugins_.begin(), plugins_.end(), [&](const auto& p) { return p->manifest.id == id; });
  return found == plugins_.end() ? nullptr : found->get();
}

std::optional<Error> Plugins::broken(std::string_view name, const Place& place) const {
  for (const Unreadable& manifest : unreadable_) {
    const Result<std::string> text = read_text(manifest.file, 1u << 20);
    if (manifest.file.parent_path().filename() == name || (text && text->find("\"" + std::string(name) + "\"") != std::string::npos))
      return plugin_error(place.text() + ": " + std::string(name) + " cannot be used: " + manifest.cause);
  }
  return {};
}

Result<StrategyRef> Plugins::strategy(std::string_view name, const Place& place) const {
  std::vector<std::string> names;
  for (const auto& plugin : plugins_) {
    if (const StrategySpec* spec = plugin->manifest.strategy(name)) return StrategyRef{plugin.get(), spec};
    for (const StrategySpec& spec : plugin->manifest.strategies) names.push_back(spec.name);
  }
  if (std::optional<Error> error = broken(name, place)) return *std::move(error);
  const std::string nearest_name = did_you_mean(name, names);
  std::string hint = "`galley plugins` lists what is there";
  if (!unreadable_.empty())
    hint = std::to_string(unreadable_.size()) + " plugin(s) could not be read, the first: " + unreadable_.front().cause;
  return recipe_error(place.text() + ": unknown strategy '" + std::string(name) + "'" + (nearest_name.empty() ? "" : "; " + nearest_name),
                      hint);
}

template <class Table>
Result<const Table*> Plugins::load_named(const StrategyRef& what, const Place& place, std::vector<const Table*> Library::*tables) {
  if (Status status = load(*what.plugin); !status.ok()) {
    Error error = status.error();
    error.cause = place.text() + ": " + what.spec->name + " cannot be used: " + error.cause;
    return error;
  }
  for (const Table* table : what.plugin->library->*tables)
    if (what.spec->name == table->name) return table;
  return plugin_error(place.text() + ": " + what.spec->name + " cannot be used: its plugin '" + what.plugin->manifest.id +
                      "' names it in plugin.toml, but the library does not have it");
}

Result<const galley_strategy*> Plugins::load(const StrategyRef& strategy, const Place& place) {
  return load_named(strategy, place, &Library::strategies);
}
Result<const galley_source*> Plugins::load_source(const StrategyRef& source, const Place& place) {
  return load_named(source, place, &Library::sources);
}

Result<StrategyRef> Plugins::source(std::string_view name, const Place& place, const std::vector<std::string>& built_in) const {
  std::set<std::string> names(built_in.begin(), built_in.end());
  for (const auto& plugin : plugins_)
    for (const StrategySpec& spec : plugin->manifest.sources) {
      if (spec.name == name) return StrategyRef{plugin.get(), &spec};
      names.insert(spec.name);
    }
  if (std::optional<Error> error = broken(name, place)) return *std::move(error);
  std::string list;
  for (const std::string& known : names) list += (list.empty() ? "" : ", ") + ("data." + known);
  const std::string near = did_you_mean(name, std::vector(names.begin(), names.end()));
  return recipe_error(place.text() + ": there is no data." + std::string(name) + (near.empty() ? "" : "; " + near), "there are " + list);
}

/// "'example >= 2', and there is version 1.0.0", or "".
std::string Plugins::unmet_requirement(const Manifest& manifest) const {
  for (const Requirement& requirement : manifest.requirements) {
    const Plugin* other = find(requirement.id);
    if (!other) return "'" + requirement.text + "', and there is no such plugin";
    if (!requirement.met_by(other->manifest.version)) return "'" + requirement.text + "', and there is version " + other->manifest.version;
  }
  return {};
}

Status Plugins::load(Plugin& plugin) {
  if (plugin.library) return ok();
  if (plugin.problem) return *plugin.problem;
  const Manifest& manifest = plugin.manifest;
  const std::string abi = abi_problem(manifest.abi_major, manifest.abi_minor);
  Result<const Library*> library = plugin_error(manifest.file.string() + ": plugin '" + manifest.id + "' " + abi);
  if (const std::string unmet = unmet_requirement(manifest); !unmet.empty())
    library = plugin_error(manifest.file.string() + ": plugin '" + manifest.id + "' requires " + unmet,
                           "install it, or name its folder by --plugin-path");
  else if (abi.empty()) library = open_library(manifest.folder() / manifest.library, manifest);
  if (library)
    if (const std::string wrong = unprovided(manifest, **library); !wrong.empty()) library = plugin_error(wrong);
  if (!library) {
    plugin.problem = library.error();
    return *plugin.problem;
  }
  plugin.library = *library;
  if (const Status registered = register_tables(plugin); !registered.ok()) {
    plugin.library = nullptr;
    plugin.problem = registered.error();
    return registered;
  }
  return ok();
}

/// None of them, where another plugin has one of the names: nodes of one would be computed by kernels of the other.
Status Plugins::register_tables(Plugin& plugin) {
  Status out = ok();
  const auto each = [&](const auto& visit) {
    for (const galley_op* op : plugin.library->ops) visit(ops_, "op", op->name, op);
    for (const galley_format* format : plugin.library->formats) visit(formats_, "format", format->name, format);
    for (const galley_device* device : plugin.library->devices) visit(devices_, "device", device->kind, device);
  };
  each([&](const auto& names, const char* noun, const char* name, const auto*) {
    if (const auto other = names.find(name); out.ok() && other != names.end())
      out = plugin_error(plugin.manifest.file.string() + ": " + noun + " '" + name + "' of plugin '" + plugin.manifest.id +
                             "' is one of plugin '" + other->second.plugin->manifest.id + "' too",
                         "whoever has made the newer one gives it a name of its own, which begins with the plugin's: '" +
                             plugin.manifest.id + "." + name + "'");
  });
  if (!out.ok()) return out;
  each([&](auto& names, const char*, const char* name, auto* table) {
    names.try_emplace(name, Registered<std::remove_cvref_t<decltype(*table)>>{table, &plugin});
  });
  return ok();
}

void Plugins::load_providers(std::vector<std::string> Manifest::*list, std::string_view name) {
  for (const auto& plugin : plugins_) {
    if (plugin->library || plugin->problem) continue;
    const Manifest& manifest = plugin->manifest;
    const bool for_some = !manifest.strategies.empty() || !manifest.sources.empty() || !manifest.ranks.empty();
    if (for_some && !lists(manifest.*list, name)) continue;
    if (const Status status = load(*plugin); !status.ok()) warn(status.error().cause);
  }
}

template <class Table>
Registered<Table> Plugins::lookup(const Names<Table>& names, std::vector<std::string> Manifest::*list, std::string_view name) {
  load_providers(list, name);
  const auto found = names.find(name);
  return found == names.end() ? Registered<Table>() : found->second;
}

template <class Table>
std::vector<Registered<Table>> Plugins::listing(const Names<Table>& names, std::vector<std::string> Manifest::*list) {
  load_providers(list, "");
  for (const auto& plugin : plugins_)
    for (const std::string& name : std::vector<std::string>((plugin->manifest).*list)) load_providers(list, name);
  std::vector<Registered<Table>> out;
  for (const auto& [name, registered] : names) out.push_back(registered);
  return out;
}

Registered<galley_op> Plugins::op(std::string_view name) { return lookup(ops_, &Manifest::ops, name); }
Registered<galley_format> Plugins::format(std::string_view name) { return lookup(formats_, &Manifest::formats, name); }
Registered<galley_device> Plugins::device(std::string_view kind) { return lookup(devices_, &Manifest::devices, kind); }
std::vector<std::string> Plugins::op_names() {
  load_providers(&Manifest::ops, "");
  std::vector<std::string> out;
  for (const auto& [name, registered] : ops_) out.push_back(name);
  return out;
}

std::vector<Registered<galley_op>> Plugins::ops() { return listing(ops_, &Manifest::ops); }
std::vector<Registered<galley_format>> Plugins::formats() { return listing(formats_, &Manifest::formats); }
std::vector<Registered<galley_device>> Plugins::devices() { return listing(devices_, &Manifest::devices); }

void Plugins::open_kernels(Plugin& plugin, const std::string& device, const std::string& isa) {
  const auto [at, first_time] = plugin.kernels.try_emplace({device, isa});
  if (!first_time) return;
  const std::string cpu = cpu_isa(), target = isa.empty() && device == "cpu" ? cpu : isa;
  // A manifest may name libraries that are built for other processors only; "for every machine" is below each ISA of the device.
  std::multimap<int, const KernelLibrary*, std::greater<>> there, missing;
  std::string too_high;
  for (const KernelLibrary& library : plugin.manifest.kernel_libraries) {
    if (library.device != device) continue;
    const auto rank = isa_rank(library.isa, target);
    if (!rank || (device == "cpu" && !isa_rank(library.isa, cpu))) {
      too_high += (too_high.empty() ? "" : ", ") + library.isa;
      continue;
    }
    std::error_code ignored;
    (fs::exists(plugin.manifest.folder() / library.library, ignored) ? there : missing).emplace(*rank, &library);
  }
  if (there.empty() && missing.empty() && !too_high.empty())
    warn("plugin '" + plugin.manifest.id + "' has " + device + " kernels only for " + too_high + ", not for " +
         (target.empty() ? "this machine" : target));
  // One that cannot be opened, as what it needs is not on this machine, leaves the work to the next.
  for (const auto& [rank, chosen] : there.empty() ? missing : there) {
    at->second.file = plugin.manifest.folder() / chosen->library;
    const Result<const Library*> library = open_library(at->second.file, plugin.manifest);
    if (library) {
      at->second.library = *library;
      const auto& all = plugin.manifest.kernel_libraries;
      if (std::all_of(all.begin(), all.end(), [&](const KernelLibrary& other) { return other.device == device; }))
        if (const std::string wrong =
                unprovided(plugin.manifest, "kernel of op", plugin.manifest.kernels, ops_of({plugin.library, *library}), chosen->library);
            !wrong.empty())
          warn(wrong);
      return;
    }
    warn(library.error().cause);
  }
}

std::vector<const Library*> Plugins::libraries(Plugin& plugin, std::string_view device, std::string_view isa) {
  if (!plugin.library) return {};
  open_kernels(plugin, std::string(device), std::string(isa));
  const Library* const kernels = plugin.kernels[{std::string(device), std::string(isa)}].library;
  return kernels ? std::vector{plugin.library, kernels} : std::vector{plugin.library};
}

template <class Visit>
void Plugins::visit_kernels(std::string_view device, std::string_view isa, const Visit& visit) {
  for (const auto& plugin : plugins_)
    for (const Library* library : libraries(*plugin, device, isa))
      for (const galley_kernel* kernel : library->kernels)
        if (device == kernel->device) visit(kernel, plugin.get());
}

const galley_codec* Plugins::codec(std::string_view name, std::string_view device, std::string_view isa) {
  const Plugin* const owner = format(name).plugin;
  const auto plugin = std::ranges::find_if(plugins_, [&](const auto& p) { return p.get() == owner; });
  if (plugin == plugins_.end()) return nullptr;
  for (const Library* library : libraries(**plugin, device, isa))
    for (const galley_codec* codec : library->codecs)
      if (name == codec->format && device == codec->device) return codec;
  return nullptr;
}

std::set<std::string> Plugins::chains(std::string_view device, std::string_view isa) {
  std::set<std::string> out;
  visit_kernels(device, isa, [&](const galley_kernel* kernel, const Plugin*) {
    if (std::string_view(kernel->op).find('>') != std::string_view::npos) out.insert(kernel->op);
  });
  return out;
}

std::vector<Registered<galley_kernel>> Plugins::kernels(std::string_view op, std::string_view device, std::string_view isa) {
  load_providers(&Manifest::kernels, op);
  std::vector<Registered<galley_kernel>> out;
  visit_kernels(device, isa, [&](const galley_kernel* kernel, const Plugin* plugin) {
    if (op == kernel->op) out.push_back({kernel, plugin});
  });
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return std::string_view(a.table->name) < b.table->name; });
  return out;
}

Error Plugins::missing(const char* noun, std::string_view name) {
  const std::string_view kind = noun;
  const auto list = kind == "format" ? &Manifest::formats : kind == "device" ? &Manifest::devices : &Manifest::ops;
  const std::string cause = "no plugin provides " + std::string(noun) + " '" + std::string(name) + "'";
  for (const auto& plugin : plugins_)
    if (plugin->problem && (plugin->manifest.strategies.empty() || lists(plugin->manifest.*list, name)))
      return plugin_error(cause + ", because '" + plugin->manifest.id + "' could not be loaded", plugin->problem->cause);
  std::vector<std::string> names;
  if (kind == "format")
    for (const auto& [n, r] : formats_) names.push_back(n);
  else if (kind == "device")
    for (const auto& [n, r] : devices_) names.push_back(n);
  else
    for (const auto& [n, r] : ops_) names.push_back(n);
  const std::string hint = did_you_mean(name, names);
  return plugin_error(cause + (hint.empty() ? "" : "; " + hint), unreadable_.empty() ? "" : unreadable_.front().cause);
}

}  // namespace galley
