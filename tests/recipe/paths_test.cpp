// Which files a recipe may name.
#include "host/recipe/paths.hpp"
#include "tests/base/nobody.hpp"
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
    const PathRules rules(folder.path() / "scripts", folder.path() / "home", std::move(given), confine);
    const Result<fs::path> path = rules.resolve(text);
    if (!path.ok()) return folder.without("! " + path.error().cause);
    const Status links = rules.check_links(*path);
    return folder.without(links.ok() ? path->string() : "! " + links.error().cause);
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
  EXPECT_EQ(resolve("model/link", {"model/link"}), "away/secret");
  const std::string away = (folder.path() / "away").string();
  EXPECT_EQ(resolve(away + "/secret", {away}), "away/secret");
}

TEST_F(Paths, OnlyTheseFromTheCommandLine) {
  EXPECT_EQ(resolve("model/../text.txt", {"model"}), "! 'model/../text.txt' leads out of 'model', which --set gives, to home/text.txt");
  EXPECT_EQ(resolve("model/link", {"model"}), "! 'model/link' leads out of 'model', which --set gives, to away/secret");
  EXPECT_EQ(resolve("text.txt", {""}), "scripts/text.txt");
  EXPECT_EQ(resolve("text.txt", {"text"}), "scripts/text.txt");
  EXPECT_EQ(resolve("../home/text.txt", {"text.txt"}), "! '../home/text.txt' leads out of the recipe's folder, to home/text.txt");
}

TEST_F(Paths, InRecipes) {
  const auto cause = [&](const std::string& text, const std::map<std::string, std::string>& sets = {}, Confine confine = Confine::Yes) {
    const fs::path file = folder.put("scripts/r.lua", text);
    const Result<Recipe> recipe = read_recipe(file, {.sets = sets, .directory = folder.path() / "home", .confine = confine});
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
    EXPECT_TRUE(recipe->data.roots.empty());
    EXPECT_EQ(recipe->steps, 3);
    const Result<Recipe> confined = read_recipe(file, {.confine = Confine::Yes});
    ASSERT_FALSE(confined.ok());
    EXPECT_EQ(confined.error().exit, Exit::Recipe);
  }
}

TEST_F(Paths, ConfinedModules) {
  folder.put("common.lua", "return { steps = 3 }");
  const fs::path file = folder.put("scripts/r.lua", "require '../common'");
  const Result<Recipe> recipe = read_recipe(file, {.confine = Confine::Yes});
  ASSERT_FALSE(recipe.ok());
  EXPECT_EQ(folder.without(recipe.error().cause),
            "scripts/r.lua:1: require: common.lua leads out of the folders for modules, to common.lua");
}

// A model's folder, or a tokenizer's, must not lead out by links in it; what --set gives may, as the folders of Hugging Face's cache do.
TEST_F(Paths, LinksInFolders) {
  folder.put("scripts/model/config.json", "{}");
  EXPECT_EQ(resolve("model"), "scripts/model");
  fs::create_directory(folder.path() / "scripts/model/deep");
  fs::create_symlink("../../in/x", folder.path() / "scripts/model/deep/inside");
  fs::create_symlink("nowhere", folder.path() / "scripts/model/broken");
  EXPECT_EQ(resolve("model"), "scripts/model");
  fs::create_symlink(folder.path() / "away/secret", folder.path() / "scripts/model/deep/weights");
  EXPECT_EQ(resolve("model"), "! 'model/deep/weights' leads out of the recipe's folder, to away/secret");
  EXPECT_EQ(anywhere("model"), "scripts/model");
  EXPECT_EQ(resolve("../scripts/model", {"../scripts/model"}), "scripts/model");
  EXPECT_EQ(resolve("model", {"../away"}), "scripts/model");  // --set gives where the link leads
}

TEST_F(Paths, AFolderThatCannotBeListed) {
  const fs::path deep = folder.put("scripts/model/deep/x", "").parent_path();
  fs::permissions(folder.path(), fs::perms(0755));
  fs::permissions(deep, fs::perms::none);
  {
    const Nobody nobody;
    EXPECT_EQ(resolve("model"), "! cannot list 'scripts/model': Permission denied");
  }
  fs::permissions(deep, fs::perms(0755));
}

TEST_F(Paths, Roots) {
  const auto roots = [&](std::vector<std::string> given, Confine confine) {
    const PathRules rules(folder.path() / "scripts", folder.path() / "home", std::move(given), confine);
    std::string text;
    for (const fs::path& root : rules.roots()) text += folder.without(root.string()) + " ";
    return text;
  };
  EXPECT_EQ(roots({"model"}, Confine::No), "");
  EXPECT_EQ(roots({}, Confine::Yes), "scripts ");
  EXPECT_EQ(roots({"model/*.txt", "alias", ""}, Confine::Yes), "scripts home/model home/model ");
}

}  // namespace
}  // namespace galley
