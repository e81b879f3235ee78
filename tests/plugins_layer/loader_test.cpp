// Finding plugins, loading them, and one message for everything that can be wrong with a library. Broken libraries are good ones with
// bytes changed.
#include "host/plugins/loader.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>

#include "host/plugins/isa.hpp"
#include "host/plugins/strategy.hpp"
#include "tests/plugins_layer/support.hpp"

namespace galley::test {
namespace {

const Place place = {"recipe.lua", 9};

class Loader : public Folder {
 protected:
  std::unique_ptr<Plugins> scan(std::vector<fs::path> folders) {
    return Plugins::scan(folders, [this](const std::string& line) { warnings.push_back(without_root(line)); });
  }
  /// A copy of a plugin that was built, in root/<folder>/<id>.
  fs::path copy(const std::string& id, const std::string& folder = "a", const fs::path& from = binary() / "plugins") {
    fs::create_directories(root / folder);
    fs::copy(from / id, root / folder / id, fs::copy_options::recursive);
    return root / folder / id;
  }
  fs::path copy_test_plugin(const std::string& id) { return copy(id, "a", binary() / "tests" / "plugins"); }

  /// Replaces bytes everywhere in a file.
  static void patch(const fs::path& file, const std::string& from, const std::string& to) {
    std::string text = read(file);
    size_t found = 0;
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()), ++found)
      text.replace(at, from.size(), to);
    ASSERT_GT(found, 0u) << file << " has no '" << from << "'";
    std::ofstream(file, std::ios::binary) << text;
  }
  /// Changes a field of the entry, found by how it begins.
  static void patch_entry(const fs::path& library, size_t offset, uint32_t value) {
    const uint32_t begin[4] = {sizeof(galley_entry), 1, GALLEY_ABI_MAJOR, GALLEY_ABI_MINOR};
    std::string text = read(library);
    const size_t at = text.find(std::string(reinterpret_cast<const char*>(begin), sizeof begin));
    ASSERT_NE(at, std::string::npos);
    std::memcpy(text.data() + at + offset, &value, sizeof value);
    std::ofstream(library, std::ios::binary) << text;
  }
  static void patch_byte(const fs::path& file, size_t offset, char value) {
    std::string text = read(file);
    text[offset] = value;
    std::ofstream(file, std::ios::binary) << text;
  }

  /// What using a strategy of a plugin in root/a comes to.
  std::string use(const std::string& name, Table options = {}) {
    const auto plugins = scan({root / "a"});
    const auto made = LoadedStrategy::create(*plugins, Use{name, std::move(options), place, {}});
    if (made.ok()) return "";
    exit = made.error().exit;
    hint = without_root(made.error().hint);
    return without_root(made.error().cause);
  }
  std::string use_clip() { return use("clip", {{"norm", Value(1.0)}}); }

  std::vector<std::string> warnings;
  Exit exit = Exit::Done;
  std::string hint;
};

TEST_F(Loader, FindsPluginsInFoldersOfBothKinds) {
  copy("clip");
  copy("freeze");
  const auto plugins = scan({root / "a" / "freeze", root / "a"});
  ASSERT_EQ(plugins->all().size(), 2u);
  EXPECT_EQ(plugins->all()[0]->manifest.id, "freeze");
  EXPECT_EQ(plugins->all()[1]->manifest.id, "clip");
  EXPECT_TRUE(warnings.empty());
  EXPECT_EQ(plugins->all()[0]->library, nullptr);  // nothing is loaded yet
}

TEST_F(Loader, TheFirstOfTwoWins) {
  copy("clip", "a");
  copy("clip", "b");
  write("c/other/plugin.toml",
        "id = \"other\"\nversion = \"1\"\nabi = \"0.4\"\n[[strategy]]\nname = \"clip\"\nsummary = \"x\"\nexactness = \"bits\"\n");
  const auto plugins = scan({root / "a", root / "b", root / "c"});
  EXPECT_EQ(plugins->find("clip")->manifest.folder(), root / "a" / "clip");
  EXPECT_EQ(plugins->strategy("clip", place)->plugin->manifest.id, "clip");
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_EQ(warnings[0], "plugin 'clip' in …/b/clip is hidden by the one in …/a/clip");
  EXPECT_EQ(warnings[1], "…/c/other/plugin.toml: strategy 'clip' is hidden by that of plugin 'clip'");
}

TEST_F(Loader, FoldersThatAreNotThere) {
  scan({root / "none"});
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0], "cannot read the plugin folder '…/none': No such file or directory");
}

TEST_F(Loader, TheSearchPath) {
  const fs::path built_in[] = {"/built/in"}, extra[] = {"/extra"};
  setenv("GALLEY_PLUGIN_PATH", "/one::/two:", 1);
  EXPECT_EQ(plugin_search_path(built_in, extra), (std::vector<fs::path>{"/extra", "/one", "/two", "/built/in"}));
  unsetenv("GALLEY_PLUGIN_PATH");
  EXPECT_EQ(plugin_search_path(built_in, extra), (std::vector<fs::path>{"/extra", "/built/in"}));
}

TEST_F(Loader, UnknownStrategies) {
  copy("clip");
  EXPECT_EQ(use("clop"), "recipe.lua:9: unknown strategy 'clop'; did you mean 'clip'?");
  EXPECT_EQ(exit, Exit::Recipe);
  EXPECT_EQ(hint, "`galley plugins` lists what is there");
  write("a/bad/plugin.toml", "id = \"bad\"\nabi = \"0.4\"\nvresion = \"1\"\n");
  EXPECT_EQ(use("clop"), "recipe.lua:9: unknown strategy 'clop'; did you mean 'clip'?");
  EXPECT_EQ(
      hint,
      "1 plugin(s) could not be read, the first: …/a/bad/plugin.toml:3: unknown key 'vresion' in the manifest; did you mean 'version'?");
  EXPECT_EQ(use_clip(), "");  // the broken one is not needed
  EXPECT_EQ(warnings.back(), "…/a/bad/plugin.toml:3: unknown key 'vresion' in the manifest; did you mean 'version'?");
}

TEST_F(Loader, ALibraryThatIsFine) {
  copy("clip");
  EXPECT_EQ(use_clip(), "");
  EXPECT_TRUE(warnings.empty());
}

TEST_F(Loader, ALibraryThatIsMissing) {
  fs::remove(copy("clip") / "clip.so");
  EXPECT_EQ(use_clip(), "recipe.lua:9: clip cannot be used: …/a/clip/clip.so: there is no such library");
  EXPECT_EQ(exit, Exit::Plugin);
}

TEST_F(Loader, AFileThatIsNoLibrary) {
  const fs::path library = copy("clip") / "clip.so";
  std::ofstream(library) << "not a library at all, but long enough for a header of one";
  EXPECT_EQ(use_clip(), "recipe.lua:9: clip cannot be used: …/a/clip/clip.so: is not a shared library (ELF)");
  std::ofstream(library).close();
  EXPECT_EQ(use_clip(), "recipe.lua:9: clip cannot be used: …/a/clip/clip.so: is not a shared library (ELF)");
}

TEST_F(Loader, ALibraryForAnotherMachine) {
#if defined(__x86_64__)
  const fs::path library = copy("clip") / "clip.so";
  patch_byte(library, offsetof(Elf64_Ehdr, e_machine), static_cast<char>(EM_AARCH64));
  EXPECT_EQ(use_clip(), "recipe.lua:9: clip cannot be used: …/a/clip/clip.so: is built for aarch64, this machine is x86-64");
  patch_byte(library, offsetof(Elf64_Ehdr, e_machine), static_cast<char>(EM_386));
  patch_byte(library, EI_CLASS, ELFCLASS32);
  EXPECT_EQ(use_clip(), "recipe.lua:9: clip cannot be used: …/a/clip/clip.so: is built for x86 (32 bit), this machine is x86-64");
#else
  GTEST_SKIP() << "names of x86-64 are expected";
#endif
}

TEST_F(Loader, AnElfFileThatIsNoLibrary) {
  patch_byte(copy("clip") / "clip.so", offsetof(Elf64_Ehdr, e_type), ET_REL);
  EXPECT_EQ(use_clip(), "recipe.lua:9: clip cannot be used: …/a/clip/clip.so: is not a shared library (an ELF file of another type)");
}

TEST_F(Loader, ALibraryThatTheLinkerRefuses) {
  const fs::path library = copy("clip") / "clip.so";
  patch(library, std::string("libstdc++.so.6"), "libstdc++.so.9");
  EXPECT_EQ(
      use_clip(),
      "recipe.lua:9: clip cannot be used: …/a/clip/clip.so: cannot be loaded: libstdc++.so.9: cannot open shared object file: No such "
      "file or directory");
}

TEST_F(Loader, ALibraryWithoutAnEntry) {
  const fs::path folder = copy_test_plugin("stranger");
  patch(folder / "stranger.so", "galley_entry_v1", "galley_entry_v9");
  write("a/stranger/plugin.toml", "id = \"stranger\"\nversion = \"0.1.0\"\nabi = \"0.4\"\n");
  scan({root / "a"})->op("anything");
  EXPECT_EQ(warnings, std::vector<std::string>{"…/a/stranger/stranger.so: does not export galley_entry_v1"});
}

TEST_F(Loader, ALibraryOfALaterAbi) {
  const fs::path library = copy("clip") / "clip.so";
  patch_entry(library, offsetof(galley_entry, abi_minor), 5);
  EXPECT_EQ(use_clip(),
            "recipe.lua:9: clip cannot be used: …/a/clip/clip.so: needs ABI 0.5, this Galley has 0.4: drafts do not mix, build it "
            "again with "
            "this version's SDK");
}

TEST_F(Loader, ALibraryOfAnotherAbi) {
  patch_entry(copy("clip") / "clip.so", offsetof(galley_entry, abi_major), 2);
  EXPECT_EQ(use_clip(),
            "recipe.lua:9: clip cannot be used: …/a/clip/clip.so: needs ABI 2.4, this Galley has 0.4: drafts do not mix, build it "
            "again with "
            "this version's SDK");
}

TEST_F(Loader, AManifestOfALaterAbi) {
  patch(copy("clip") / "plugin.toml", "abi = \"0.4\"", "abi = \"1.3\"");
  EXPECT_EQ(use_clip(),
            "recipe.lua:9: clip cannot be used: …/a/clip/plugin.toml: plugin 'clip' needs ABI 1.3, this Galley has 0.4: drafts do not "
            "mix, build it again with this version's SDK");
  EXPECT_EQ(exit, Exit::Plugin);
}

TEST_F(Loader, AnEntryThatIsTooShort) {
  patch_entry(copy("clip") / "clip.so", offsetof(galley_entry, size), 24);
  EXPECT_EQ(use_clip(),
            "recipe.lua:9: clip cannot be used: …/a/clip/clip.so: its entry has 24 bytes; the least that this version reads is " +
                std::to_string(GALLEY_ENTRY_MIN_SIZE));
}

TEST_F(Loader, ALibraryOfAnotherPlugin) {
  const fs::path folder = copy("clip");
  patch(folder / "plugin.toml", "id = \"clip\"", "id = \"klip\"\n[library]\nplugin = \"clip.so\"\n#");
  // What stood after the id belongs to the table now: write the manifest anew.
  write("a/clip/plugin.toml",
        "id = \"klip\"\nversion = \"1.0.0\"\nabi = \"0.4\"\n[library]\nplugin = \"clip.so\"\n[[strategy]]\nname = \"clip\"\nsummary = "
        "\"x\"\nexactness = \"bits\"\n");
  EXPECT_EQ(use("clip"), "recipe.lua:9: clip cannot be used: …/a/clip/clip.so: is plugin 'clip', plugin.toml beside it says 'klip'");
}

TEST_F(Loader, ALibraryOfAnotherVersion) {
  patch(copy("clip") / "plugin.toml", "version = \"1.0.0\"", "version = \"1.0.1\"");
  EXPECT_EQ(use_clip(), "recipe.lua:9: clip cannot be used: …/a/clip/clip.so: is version 1.0.0 of clip, plugin.toml beside it says 1.0.1");
}

TEST_F(Loader, AStrategyThatTheLibraryDoesNotHave) {
  patch(copy("clip") / "plugin.toml", "name = \"clip\"", "name = \"klip\"");
  EXPECT_EQ(use("klip", {{"norm", Value(1.0)}}),
            "recipe.lua:9: klip cannot be used: its plugin 'clip' names it in plugin.toml, but the library does not have it");
  EXPECT_EQ(exit, Exit::Plugin);
}

TEST_F(Loader, AnEntryWithoutItsTables) {
  const fs::path folder = copy_test_plugin("stranger");
  patch_entry(folder / "stranger.so", offsetof(galley_entry, n_ops), 3);
  write("a/stranger/plugin.toml", "id = \"stranger\"\nversion = \"0.1.0\"\nabi = \"0.4\"\n");
  const auto plugins = scan({root / "a"});
  EXPECT_FALSE(plugins->op("linear"));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0], "…/a/stranger/stranger.so: the entry says 3 ops and has no table of them");
  EXPECT_FALSE(plugins->op("linear"));
  EXPECT_EQ(warnings.size(), 1u);  // said once
  const Error missing = plugins->missing("op", "linear");
  EXPECT_EQ(missing.exit, Exit::Plugin);
  EXPECT_EQ(missing.cause, "no plugin provides op 'linear', because 'stranger' could not be loaded");
}

TEST_F(Loader, TablesThatMakeNoSense) {
  const auto opened = [&](const char* wrong) {
    setenv("NONSENSE_LIBRARY", wrong, 1);
    const fs::path folder = copy("nonsense", wrong, binary() / "tests" / "plugins");
    const auto plugins = scan({folder});
    const Status loaded = plugins->load(*plugins->all()[0]);
    unsetenv("NONSENSE_LIBRARY");
    EXPECT_FALSE(loaded.ok());
    return loaded.ok() ? "" : without_root(loaded.error().cause);
  };
  EXPECT_EQ(opened("alias"), "…/alias/nonsense/nonsense.so: op 1 of 1: 'nonsense': operand 'y' may take over input 7 of 1, counted from 0");
  EXPECT_EQ(opened("role"), "…/role/nonsense/nonsense.so: op 1 of 1: 'nonsense': operand 'x' has the role 77");
  EXPECT_EQ(opened("twice"),
            "…/twice/nonsense/nonsense.so: kernel 2 of 2, 'nonsense.cpu' of op 'nonsense' for device 'cpu', is registered twice");
}

TEST_F(Loader, WhatTheManifestProvidesIsThere) {
  patch(copy("clip") / "plugin.toml", "ops = [\"clip_factor\"", "ops = [\"clip_fictor\"");
  EXPECT_EQ(use_clip(),
            "recipe.lua:9: clip cannot be used: …/a/clip/plugin.toml: [provides] names the op 'clip_fictor', which clip.so does not "
            "register; did you mean 'clip_factor'?");
  EXPECT_EQ(exit, Exit::Plugin);
  const fs::path folder = copy("nonsense", "b", binary() / "tests" / "plugins");
  patch(folder / "plugin.toml", "kernels = [\"nonsense\"]", "kernels = [\"nonsens\"]");
  const auto plugins = scan({folder});
  const Status loaded = plugins->load(*plugins->all()[0]);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(without_root(loaded.error().cause),
            "…/b/nonsense/plugin.toml: [provides] names the kernel of op 'nonsens', which nonsense.so does not register; did you mean "
            "'nonsense'?");
}

TEST_F(Loader, KernelsThatTheManifestProvidesAreThere) {
  const fs::path folder = copy_test_plugin("bf16-kernels");
  patch(folder / "plugin.toml", "\"embedding\"", "\"embeding\"");
  const auto plugins = scan({root / "a"});
  plugins->kernels("embedding", "cpu", "");
  if (plugins->find("bf16-kernels")->kernels.at({"cpu", ""}).library) {
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find("/bf16-kernels/plugin.toml: [provides] names the kernel of op 'embeding', which bf16-kernels-cpu-"),
              std::string::npos)
        << warnings[0];
  }
}

TEST_F(Loader, ThingsAreFoundByName) {
  copy("clip");
  copy("adamw");
  copy_test_plugin("bf16-storage");
  const auto plugins = scan({root / "a"});
  const auto op = plugins->op("clip_factor");
  ASSERT_TRUE(op);
  EXPECT_STREQ(op.table->name, "clip_factor");
  EXPECT_EQ(op.plugin->manifest.id, "clip");
  EXPECT_EQ(plugins->find("adamw")->library, nullptr);  // nobody has asked for anything of it
  EXPECT_EQ(plugins->op_names(), (std::vector<std::string>{"clip_factor", "clip_values"}));
  EXPECT_TRUE(plugins->format("brain"));
  EXPECT_FALSE(plugins->format("bf61"));
  EXPECT_EQ(plugins->missing("format", "brian").cause, "no plugin provides format 'brian'; did you mean 'brain'?");
  EXPECT_EQ(plugins->missing("device", "cuda").cause, "no plugin provides device 'cuda'");
  EXPECT_EQ(plugins->ops().size(), 5u);
  EXPECT_TRUE(warnings.empty());
}

TEST_F(Loader, KernelsOfTheBestIsa) {
#if defined(__x86_64__)
  if (cpu_isa() != "x86-64-v3" && cpu_isa() != "x86-64-v4") GTEST_SKIP() << "this processor runs no kernel library but the base";
  const fs::path folder = copy("clip");
  const auto plugins = scan({root / "a"});
  ASSERT_TRUE(plugins->op("clip_factor"));
  const auto file = [&](const std::string& isa) {
    EXPECT_EQ(plugins->kernels("clip_factor", "cpu", isa).size(), 1u) << isa;
    return plugins->find("clip")->kernels.at({"cpu", isa}).file.filename().string();
  };
  EXPECT_EQ(file("x86-64-v3"), "clip-cpu-v3.so");
  EXPECT_EQ(file(""), "clip-cpu-v" + cpu_isa().substr(8) + ".so");
  EXPECT_EQ(file("x86-64-v9"), "clip-cpu-v" + cpu_isa().substr(8) + ".so");  // never above what this machine runs
  EXPECT_EQ(plugins->kernels("clip_factor", "cuda", "sm_90").size(), 1u);
  EXPECT_EQ(plugins->kernels("clip_factor", "cuda", "emulated").size(), 1u);
  EXPECT_EQ(plugins->find("clip")->kernels.at({"cuda", "emulated"}).file.filename().string(), "clip-cuda-emulated.so");
  EXPECT_TRUE(plugins->kernels("linear", "cpu", "x86-64-v3").empty());
  EXPECT_TRUE(warnings.empty());
  EXPECT_EQ(std::ranges::count_if(plugins->find("clip")->kernels, [](const auto& k) { return k.second.library != nullptr; }), 5);
#else
  GTEST_SKIP() << "names of x86-64 are expected";
#endif
}

TEST_F(Loader, KernelsThatCannotBeOpened) {
#if defined(__x86_64__)
  const fs::path folder = copy("clip");
  fs::remove(folder / "clip-cpu-v3.so");
  const auto plugins = scan({root / "a"});
  ASSERT_TRUE(plugins->op("clip_factor"));
  EXPECT_TRUE(plugins->kernels("clip_factor", "cpu", "x86-64-v3").empty());
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0], "…/a/clip/clip-cpu-v3.so: there is no such library");
  EXPECT_TRUE(plugins->kernels("clip_factor", "cpu", "x86-64-v3").empty());
  EXPECT_EQ(warnings.size(), 1u);
#else
  GTEST_SKIP() << "names of x86-64 are expected";
#endif
}

TEST_F(Loader, ExceptionsStopAtTheBorder) {
  copy_test_plugin("throws");
  EXPECT_EQ(use("throws", {{"where", Value("create")}}),
            "recipe.lua:9: plugin 'throws' let an exception escape in create: thrown in create");
  EXPECT_EQ(exit, Exit::Plugin);
  EXPECT_EQ(use("throws", {{"where", Value("create")}, {"what", Value("number")}}),
            "recipe.lua:9: plugin 'throws' let an exception escape in create: an exception of unknown type");
  EXPECT_EQ(use("throws", {{"where", Value("nowhere")}}), "");
}

TEST_F(Loader, WhatAPluginRefusesIsTheRecipesFault) {
  copy("sgd");
  EXPECT_EQ(use("sgd", {{"lr", Value(0.1)}, {"nesterov", Value(true)}}), "recipe.lua:9: sgd: nesterov takes a momentum and no dampening");
  EXPECT_EQ(exit, Exit::Recipe);
}

TEST_F(Loader, OptionsAreCheckedBeforeAnythingIsLoaded) {
  fs::remove(copy("clip") / "clip.so");
  EXPECT_EQ(use("clip", {{"nrom", Value(1.0)}}), "recipe.lua:9: unknown option 'nrom' of clip; did you mean 'norm'?");
  EXPECT_EQ(exit, Exit::Recipe);
}

TEST_F(Loader, AStrategyHasItsInterfaces) {
  copy("clip");
  copy("adamw");
  copy("recompute");
  const auto plugins = scan({root / "a"});
  const auto make = [&](const char* name, Table options) {
    return LoadedStrategy::create(*plugins, Use{name, std::move(options), place, {}}).value();
  };
  const auto clip = make("clip", {{"norm", Value(1.0)}}), adamw = make("adamw", {{"lr", Value(1e-3)}}), recompute = make("recompute", {});
  EXPECT_EQ(clip->update()->stages, GALLEY_STAGE_CLIP | GALLEY_STAGE_GRADIENT);
  EXPECT_EQ(clip->claim(), nullptr);
  EXPECT_EQ(adamw->update()->stages, GALLEY_STAGE_STEP);
  EXPECT_TRUE(adamw->claim());
  EXPECT_EQ(adamw->rewrite(), nullptr);
  EXPECT_TRUE(recompute->saved());
  EXPECT_EQ(recompute->update(), nullptr);
  EXPECT_EQ(recompute->place().text(), "recipe.lua:9");
}

TEST(Isa, Order) {
  EXPECT_GT(isa_rank("x86-64-v3", "x86-64-v4"), 0);
  EXPECT_GT(isa_rank("x86-64-v4", "x86-64-v4"), isa_rank("x86-64-v3", "x86-64-v4"));
  EXPECT_EQ(isa_rank("x86-64-v4", "x86-64-v3"), std::nullopt);
  EXPECT_GT(isa_rank("sm_90", "sm_90"), isa_rank("sm_80", "sm_90"));
  EXPECT_GT(isa_rank("sm_90a", "sm_90"), isa_rank("sm_90", "sm_90"));
  EXPECT_EQ(isa_rank("sm_90a", "sm_100"), std::nullopt);
  EXPECT_EQ(isa_rank("sm_90a", "sm_89"), std::nullopt);
  EXPECT_GT(isa_rank("sm_100f", "sm_103"), isa_rank("sm_100", "sm_103"));
  EXPECT_GT(isa_rank("sm_103", "sm_103"), isa_rank("sm_100f", "sm_103"));
  EXPECT_EQ(isa_rank("sm_100f", "sm_120"), std::nullopt);
  EXPECT_EQ(isa_rank("sm_100", "sm_90"), std::nullopt);
  EXPECT_EQ(isa_rank("", "anything"), 0);
  EXPECT_EQ(isa_rank("x86-64-v3", ""), std::nullopt);
  EXPECT_EQ(isa_rank("sm_80", "x86-64-v4"), std::nullopt);
  EXPECT_TRUE(same_kind("sm_80", "sm_86"));
  EXPECT_TRUE(same_kind("sm_90a", "sm_86"));
  EXPECT_FALSE(same_kind("sm_80", "x86-64-v4"));
  EXPECT_FALSE(same_kind("sm_80", "sm_"));
  EXPECT_TRUE(same_kind("any", "any"));
}

}  // namespace
}  // namespace galley::test
