// The plugins that are there: found by their manifests, loaded when something of them is wanted, and what they have registered by name.
//
// A plugin that cannot be read or loaded costs one line of warning, and an error (exit code Plugin) only where the run needs it.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host/base/result.hpp"
#include "host/plugins/call.hpp"
#include "host/plugins/library.hpp"
#include "host/plugins/manifest.hpp"

namespace galley {

/// A plugin on the search path. Pointers to it live as long as its Plugins.
struct Plugin {
  Manifest manifest;
  const Library* library = nullptr;  ///< null until it is loaded
  std::optional<Error> problem;      ///< why it cannot be loaded
  /// Kernel libraries that were looked for, by device and ISA; the file is empty where none fits.
  struct Kernels {
    std::filesystem::path file;
    const Library* library = nullptr;
  };
  std::map<std::pair<std::string, std::string>, Kernels> kernels;
};

/// A strategy or a kind of data as the recipe names it, and the plugin whose manifest has it.
struct StrategyRef {
  Plugin* plugin = nullptr;
  const StrategySpec* spec = nullptr;
};

/// Something registered under a name.
template <class Table>
struct Registered {
  const Table* table = nullptr;
  const Plugin* plugin = nullptr;
  explicit operator bool() const { return table != nullptr; }
  Caller caller() const { return {plugin->manifest.id}; }
};

/// The folders of --plugin-path, of GALLEY_PLUGIN_PATH (separated by colons), and those that come with the program, in this order; the
/// first one that has a plugin wins.
std::vector<std::filesystem::path> plugin_search_path(std::span<const std::filesystem::path> built_in,
                                                      std::span<const std::filesystem::path> extra);

/// Owns the plugins that were found, and loads them when they are needed. [main-thread], all of it.
class Plugins {
 public:
  using Warn = std::function<void(const std::string& line)>;

  /// Reads the manifests in `folders`: each holds a plugin.toml, or folders that do. Loads nothing. `warn` gets a line for a folder that
  /// is not there, a manifest that is wrong and a plugin that another one hides; without it they go to the log.
  static std::unique_ptr<Plugins> scan(std::span<const std::filesystem::path> folders, Warn warn = {});

  Plugins(const Plugins&) = delete;
  Plugins& operator=(const Plugins&) = delete;

  /// In the order found.
  std::span<const std::unique_ptr<Plugin>> all() const { return plugins_; }
  const Plugin* find(std::string_view id) const;

  /// From manifests alone. An unknown name is an error at `place` with the nearest one, exit code Recipe.
  Result<StrategyRef> strategy(std::string_view name, const Place& place) const;
  /// Loads its library. Errors name the place.
  Result<const galley_strategy*> load(const StrategyRef& strategy, const Place& place);
  /// The same for a kind of data. `built_in`: the kinds that need no plugin, for the hint.
  Result<StrategyRef> source(std::string_view name, const Place& place, const std::vector<std::string>& built_in) const;
  Result<const galley_source*> load_source(const StrategyRef& source, const Place& place);
  /// Loads a plugin; once it has failed it fails again with the same error.
  Status load(Plugin& plugin);

  /// What is registered under a name, loading plugins that may have it. Null when there is none: `missing` then says why.
  Registered<galley_op> op(std::string_view name);
  Registered<galley_format> format(std::string_view name);
  Registered<galley_device> device(std::string_view kind);
  /// Every kernel of an op for a device, by name. Of a plugin's libraries for that device the one with the highest ISA that neither the
  /// target nor (on a CPU) this machine falls short of. The order does not say which one is best.
  std::vector<Registered<galley_kernel>> kernels(std::string_view op, std::string_view device, std::string_view isa);

  /// What makes a format's numbers on a device, of the libraries whose kernels `kernels` gives; null: its plugin has none for it.
  const galley_codec* codec(std::string_view format, std::string_view device, std::string_view isa);

  /// The chains ("a>b") that loaded plugins have kernels for, each once and by name.
  std::set<std::string> chains(std::string_view device, std::string_view isa);

  /// The names of the ops of all plugins that are loaded, and of those that are always loaded.
  std::vector<std::string> op_names();

  /// Every op, format and device by name, after loading whatever may provide some: for listings and tests.
  std::vector<Registered<galley_op>> ops();
  std::vector<Registered<galley_format>> formats();
  std::vector<Registered<galley_device>> devices();

  /// The error for something that nobody registered: "no plugin provides op 'x'" with the nearest name, or the plugin that should have
  /// but is broken.
  Error missing(const char* noun, std::string_view name);

 private:
  template <class Table>
  using Names = std::map<std::string, Registered<Table>, std::less<>>;

  Plugins() = default;
  void add_folder(const std::filesystem::path& folder);
  void add_plugin(const std::filesystem::path& manifest);
  void warn(const std::string& line) const;
  /// Loads plugins without strategies, data and ranks, and those whose list has `name`.
  void load_providers(std::vector<std::string> Manifest::*list, std::string_view name);
  /// The plugin's libraries that may have kernels for a device.
  std::vector<const Library*> libraries(Plugin& plugin, std::string_view device, std::string_view isa);
  /// Visits every kernel of a loaded plugin for a device.
  template <class Visit>
  void visit_kernels(std::string_view device, std::string_view isa, const Visit& visit);
  void open_kernels(Plugin& plugin, const std::string& device, const std::string& isa);
  Status register_tables(Plugin& plugin);
  /// The error for a name that a plugin means to have whose manifest is broken; nothing: none does.
  std::optional<Error> broken(std::string_view name, const Place& place) const;
  template <class Table>
  Result<const Table*> load_named(const StrategyRef& what, const Place& place, std::vector<const Table*> Library::*tables);
  std::string unmet_requirement(const Manifest& manifest) const;
  template <class Table>
  Registered<Table> lookup(const Names<Table>& names, std::vector<std::string> Manifest::*list, std::string_view name);
  template <class Table>
  std::vector<Registered<Table>> listing(const Names<Table>& names, std::vector<std::string> Manifest::*list);

  Warn warn_;
  std::vector<std::unique_ptr<Plugin>> plugins_;
  struct Unreadable {
    std::filesystem::path file;
    std::string cause;
  };
  std::vector<Unreadable> unreadable_;  ///< manifests that could not be read
  Names<galley_op> ops_;
  Names<galley_format> formats_;
  Names<galley_device> devices_;
};

}  // namespace galley
