// Which files a recipe may name.
#include "host/recipe/paths.hpp"

#include "host/base/file.hpp"
#include "tests/recipe/helper.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

/// scripts/ is the recipe's folder, home/ the current directory, both with files; away/ is neither.
class Paths : public testing::Test {
 protected:
  Paths() {
    for (const char* file :
         {"scripts/r.lua", "scripts/in/x", "home/model/config.json", "home/model/deep/x", "home/text.txt", "away/secret"})
      folder.put(file, "");
    fs::create_symlink(folder.path() / "away", folder.path() / "scripts/link");
    fs::create_symlink(folder.path() / "scripts/in", folder.path() / "scripts/inner");
    fs::create_symlink(folder.path() / "away/secret", folder.path() / "home/model/link");
    fs::create_symlink(folder.path() / "home/model", folder.path() / "home/alias");
  }
  std::string resolve(const std::string& text, std::vector<std::string> given = {}, Confine confine = Confine::Yes) const {
    PathRules rules(folder.path() / "scripts", folder.path() / "home", std::move(given), confine);
    const Result<fs::path> path = rules.resolve(text);
    return folder.without(path.ok() ? path->string() : "! " + path.error().cause);
  }
  std::string anywhere(const std::string& text, std::vector<std::string> given = {}) const {
    return resolve(text, std::move(given), Confine::No);
  }
  RecipeFolder folder;
};

TEST_F(Paths, Anywhere) {
  EXPECT_EQ(anywhere("in/x"), "scripts/in/x");
  EXPECT_EQ(anywhere("../away/secret"), "away/secret");
  EXPECT_EQ(anywhere("link/secret"), "away/secret");
  EXPECT_EQ(anywhere("link/*"), "away/*");
  EXPECT_EQ(anywhere("model/link", {"model"}), "home/model/link");  // the files that belong to it are beside the name
  EXPECT_EQ(anywhere((folder.path() / "away/secret").string()), "away/secret");
  EXPECT_EQ(anywhere("/etc/passwd"), "/etc/passwd");
  EXPECT_EQ(anywhere("text.txt", {"text.txt"}), "home/text.txt");
  EXPECT_EQ(anywhere("model/../text.txt", {"model"}), "home/text.txt");
  EXPECT_EQ(anywhere(""), "! a path is empty");
  EXPECT_EQ(anywhere(std::string("in/x\0y", 6)), "! a path contains a zero byte");
}

TEST_F(Paths, BelowTheRecipesFolder) {
  EXPECT_EQ(resolve("in/x"), "scripts/in/x");
  EXPECT_EQ(resolve("./in/../in/x"), "scripts/in/x");
  EXPECT_EQ(resolve("in/"), "scripts/in");
  EXPECT_EQ(resolve("inner/x"), "scripts/in/x");
  EXPECT_EQ(resolve("new/file"), "scripts/new/file");
  EXPECT_EQ(resolve("in/*.txt"), "scripts/in/*.txt");
  EXPECT_EQ(resolve((folder.path() / "scripts/in/x").string()), "scripts/in/x");
}

TEST_F(Paths, OutsideIsRefused) {
  EXPECT_EQ(resolve("../away/secret"), "! '../away/secret' leads out of the recipe's folder, to away/secret");
  for (const char* text : {"..", "../away/secret", "in/../../away/secret", "/etc/passwd", "link/secret", "link", "new/../../away",
                           "in/*/../../../away/x", "/"}) {
    EXPECT_EQ(resolve(text).find("! '" + std::string(text) + "' leads out of the recipe's folder, to "), 0u) << resolve(text);
  }
  EXPECT_EQ(resolve((folder.path() / "scripts-2").string()).substr(0, 1), "!");
  EXPECT_EQ(resolve(""), "! a path is empty");
  EXPECT_EQ(resolve(std::string("in/x\0y", 6)), "! a path contains a zero byte");
  EXPECT_EQ(resolve(std::string(5000, 'x')).substr(0, 16), "! cannot resolve");
}

TEST_F(Paths, FromTheCommandLine) {
  EXPECT_EQ(resolve("text.txt", {"text.txt"}), "home/text.txt");
  EXPECT_EQ(resolve("model", {"model"}), "home/model");
  EXPECT_EQ(resolve("model/", {"model/"}), "home/model");
  EXPECT_EQ(resolve("alias", {"alias"}), "home/model");
  EXPECT_EQ(resolve("model/config.json", {"model"}), "home/model/config.json");
  EXPECT_EQ(resolve("model/config.json", {"model/"}), "home/model/config.json");
  EXPECT_EQ(resolve("model/deep/x", {"model", "model/deep"}), "home/model/deep/x");
  EXPECT_EQ(resolve("../away/secret", {"../away/secret"}), "away/secret");
  EXPECT_EQ(resolve("model/link", {"model/link"}), "home/model/link");
  const std::string away = (folder.path() / "away").string();
  EXPECT_EQ(resolve(away + "/secret", {away}), "away/secret");
}

TEST_F(Paths, OnlyTheseFromTheCommandLine) {
  EXPECT_EQ(resolve("model/../text.txt", {"model"}), "! 'model/../text.txt' leads out of 'model', which --set gives, to home/text.txt");
  EXPECT_EQ(resolve("model/link", {"model"}), "! 'model/link' leads out of 'model', which --set gives, to away/secret");
  // Nearly any path begins with these: a value that was meant for something else would open all.
  for (const std::string given : {"/", ".", "./", "..", "../..", "//"}) {
    EXPECT_EQ(resolve("/etc/passwd", {given}), "! '/etc/passwd' leads out of the recipe's folder, to /etc/passwd") << given;
    EXPECT_EQ(resolve("./text.txt", {given}), "scripts/text.txt") << given;
    EXPECT_EQ(resolve("../away/secret", {given}), "! '../away/secret' leads out of the recipe's folder, to away/secret") << given;
    EXPECT_EQ(resolve(given, {given}).substr(0, 1), given.starts_with("./") || given == "." ? "s" : "!") << given;
  }
  EXPECT_EQ(resolve("text.txt", {""}), "scripts/text.txt");
  EXPECT_EQ(resolve("text.txt", {"text"}), "scripts/text.txt");
  EXPECT_EQ(resolve("../home/text.txt", {"text.txt"}), "! '../home/text.txt' leads out of the recipe's folder, to home/text.txt");
}

TEST_F(Paths, InRecipes) {
  const auto cause = [&](const std::string& text, const std::map<std::string, std::string>& sets = {}, Confine confine = Confine::Yes) {
    const fs::path file = folder.put("scripts/r.lua", text);
    const Result<Recipe> recipe = read_recipe(file, {{.sets = sets, .directory = folder.path() / "home", .confine = confine}});
    return recipe.ok() ? "" : folder.without(recipe.error().cause);
  };
  const std::string tail = ", data = data.random {}, steps = 1 }";
  EXPECT_EQ(cause("return recipe {\n model = model {\n path = '../away' }" + tail),
            "scripts/r.lua:3: '../away' leads out of the recipe's folder, to away");
  EXPECT_EQ(cause("return recipe { model = model { path = arg 'm' }" + tail, {{"m", "model"}}), "");
  EXPECT_EQ(cause("return recipe { model = model { path = arg 'm' .. '/../../away' }" + tail, {{"m", "model"}}),
            "scripts/r.lua:1: 'model/../../away' leads out of 'model', which --set gives, to away");
  EXPECT_EQ(cause(uses("use 'lora' { path = '/etc/passwd' }")),
            "scripts/r.lua:5: '/etc/passwd' leads out of the recipe's folder, to /etc/passwd");
  EXPECT_EQ(cause(uses("use 'lora' {\n cache_path = { 'in/x', '../x' } }")),
            "scripts/r.lua:6: '../x' leads out of the recipe's folder, to x");
  EXPECT_EQ(cause(uses("use 'lora' { deep = { { path = '/x' } } }")), "scripts/r.lua:5: '/x' leads out of the recipe's folder, to /x");
  EXPECT_EQ(cause(uses("use 'lora' { path = 5, xpath = '/x', pathy = '/x' }")), "");
  const auto data = [&](const std::string& options) {
    return cause("return recipe { model = model { path = 'in' },\n data = data." + options + ", steps = 1 }");
  };
  EXPECT_EQ(data("text { files = { 'in/x', '../y' } }"), "scripts/r.lua:2: '../y' leads out of the recipe's folder, to y");
  EXPECT_EQ(data("text { files = '../y' }"), "scripts/r.lua:2: '../y' leads out of the recipe's folder, to y");
  EXPECT_EQ(data("text { tokenizer = '../t.json' }"), "scripts/r.lua:2: '../t.json' leads out of the recipe's folder, to t.json");
  EXPECT_EQ(data("batch { path = '../b' }"), "scripts/r.lua:2: '../b' leads out of the recipe's folder, to b");
  EXPECT_EQ(data("text { files = { 'in/x' }, tokenizer = 'bytes' }"), "");

  // The default of an argument is the recipe's own word; only what is given is the person's.
  EXPECT_EQ(cause(uses("use 'lora' { path = arg('p', '../away/secret') }")),
            "scripts/r.lua:5: '../away/secret' leads out of the recipe's folder, to away/secret");
  EXPECT_EQ(cause(uses("use 'lora' { path = arg('p', 'in/x') }"), {{"p", "../away/secret"}}), "");
}

// Without --confine a recipe names what its author can read.
TEST_F(Paths, InRecipesOfOnesOwn) {
  folder.put("common.lua", "return { steps = 3 }");
  const std::string away = (folder.path() / "away").string();
  for (const std::string& path : {away, std::string("../away"), std::string("link")}) {
    const fs::path file =
        folder.put("scripts/r.lua", "return recipe { model = model { path = '" + path + "' }, data = data.text { files = { '" + path +
                                        "/*', '/etc/passwd' } }, steps = require('../common').steps }");
    const Result<Recipe> recipe = read_recipe(file, {});
    ASSERT_TRUE(recipe.ok()) << recipe.error().cause;
    EXPECT_EQ(recipe->model.path, away);
    EXPECT_EQ(*recipe->data.options.at("files").as<List>()->at(0).as<std::string>(), away + "/*");
    EXPECT_EQ(recipe->confinement, nullptr);
    EXPECT_EQ(recipe->steps, 3);
    const Result<Recipe> confined = read_recipe(file, {{.confine = Confine::Yes}});
    ASSERT_FALSE(confined.ok());
    EXPECT_EQ(confined.error().exit, Exit::Recipe);
  }
}

TEST_F(Paths, ConfinedModules) {
  folder.put("common.lua", "return { steps = 3 }");
  const fs::path file = folder.put("scripts/r.lua", "require '../common'");
  const Result<Recipe> recipe = read_recipe(file, {{.confine = Confine::Yes}});
  ASSERT_FALSE(recipe.ok());
  EXPECT_EQ(folder.without(recipe.error().cause),
            "scripts/r.lua:1: require: common.lua leads out of the folders for modules, to common.lua");
}

/// What may be read of the files here while a recipe with these arguments is confined.
TEST_F(Paths, WhatIsOpenedIsJudgedByWhereItLies) {
  const auto opened = [&](const std::string& name) {
    const Result<File> file = File::open_read(folder.path() / name);
    return file.ok() ? "" : folder.without(file.error().cause);
  };
  EXPECT_EQ(opened("away/secret"), "");
  {
    PathRules rules(folder.path() / "scripts", folder.path() / "home", {"model/*.txt", "text.txt"}, Confine::Yes);
    ASSERT_TRUE(rules.resolve("model/*.txt").ok());
    const auto within = rules.confinement();
    EXPECT_EQ(opened("scripts/in/x"), "");
    EXPECT_EQ(opened("scripts/inner/x"), "");
    EXPECT_EQ(opened("home/model/config.json"), "");
    EXPECT_EQ(opened("home/alias/deep/x"), "");
    EXPECT_EQ(opened("home/text.txt"),
              "'home/text.txt' leads out of the recipe's folder, to home/text.txt");  // given, and used for no path
    EXPECT_EQ(opened("home/model/link"), "'home/model/link' leads out of the recipe's folder, to away/secret");
    EXPECT_EQ(opened("scripts/link/secret"), "'scripts/link/secret' leads out of the recipe's folder, to away/secret");
    EXPECT_EQ(opened("scripts/none"), "cannot open 'scripts/none': No such file or directory");
    EXPECT_EQ(opened("scripts"), "cannot open 'scripts': it is a directory");
  }
  EXPECT_EQ(opened("away/secret"), "");
}

// A snapshot of Hugging Face's cache is a folder of links to the files beside it.
TEST_F(Paths, TheCacheOfHuggingFace) {
  folder.put("hub/models--A--B/blobs/1f", "{}");
  folder.put("hub/models--A--B/snapshots/main/real", "");
  folder.put("hub/models--A--C/blobs/2f", "{}");
  const fs::path snapshot = folder.path() / "hub/models--A--B/snapshots/main";
  fs::create_symlink("../../blobs/1f", snapshot / "m.gguf");
  fs::create_symlink("../../../models--A--C/blobs/2f", snapshot / "other");
  const std::string given = snapshot.string();
  EXPECT_EQ(resolve(given + "/m.gguf", {given}, Confine::No), "hub/models--A--B/snapshots/main/m.gguf");
  PathRules rules(folder.path() / "scripts", folder.path() / "home", {given}, Confine::Yes);
  ASSERT_TRUE(rules.resolve(given + "/m.gguf").ok());
  EXPECT_FALSE(rules.resolve(given + "/other").ok());
  const auto within = rules.confinement();
  EXPECT_TRUE(File::open_read(snapshot / "m.gguf").ok());
  EXPECT_FALSE(File::open_read(snapshot / "other").ok());
  EXPECT_FALSE(File::open_read(folder.path() / "hub/models--A--C/blobs/2f").ok());
}

TEST_F(Paths, WithinAFolderOfSomebodyElse) {
  const auto within = std::make_shared<const Confinement>(std::vector{folder.path() / "home/model"}, "the run's folder", "");
  PathRules rules(folder.path() / "scripts", folder.path() / "home", {"model", "/"}, Confine::No, within);
  EXPECT_TRUE(rules.resolve("model/config.json").ok());
  EXPECT_EQ(folder.without(rules.resolve("in/x").error().cause), "'in/x' leads out of the run's folder, to scripts/in/x");
  EXPECT_EQ(rules.resolve("/etc/passwd").error().cause, "'/etc/passwd' leads out of the run's folder, to /etc/passwd");
  EXPECT_EQ(rules.confinement(), within);
}

}  // namespace
}  // namespace galley
