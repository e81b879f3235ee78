// Which files a recipe may name.
#include "host/recipe/paths.hpp"
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
      folder.write(file, "");
    fs::create_symlink(folder.path() / "away", folder.path() / "scripts/link");
    fs::create_symlink(folder.path() / "scripts/in", folder.path() / "scripts/inner");
    fs::create_symlink(folder.path() / "away/secret", folder.path() / "home/model/link");
    fs::create_symlink(folder.path() / "home/model", folder.path() / "home/alias");
  }
  std::string resolve(const std::string& text, std::vector<std::string> given = {}) const {
    const PathRules rules(folder.path() / "scripts", folder.path() / "home", std::move(given));
    const Result<fs::path> path = rules.resolve(text);
    return folder.without(path.ok() ? path->string() : "! " + path.error().cause);
  }
  RecipeFolder folder;
};

TEST_F(Paths, BelowTheRecipesFolder) {
  EXPECT_EQ(resolve("in/x"), "scripts/in/x");
  EXPECT_EQ(resolve("./in/../in/x"), "scripts/in/x");
  EXPECT_EQ(resolve("in/"), "scripts/in");
  EXPECT_EQ(resolve("."), "scripts");
  EXPECT_EQ(resolve("inner/x"), "scripts/in/x");
  EXPECT_EQ(resolve("new/file"), "scripts/new/file");
  EXPECT_EQ(resolve("in/*.txt"), "scripts/in/*.txt");
  EXPECT_EQ(resolve((folder.path() / "scripts/in/x").string()), "scripts/in/x");
}

TEST_F(Paths, OutsideIsRefused) {
  for (const char* text : {"..", "../away/secret", "in/../../away/secret", "/etc/passwd", "link/secret", "link", "new/../../away",
                           "in/*/../../../away/x", "/"}) {
    EXPECT_EQ(resolve(text), "! '" + std::string(text) + "' leads out of the recipe's folder") << text;
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
  EXPECT_EQ(resolve("model/../text.txt", {"model"}), "! 'model/../text.txt' leads out of 'model', which --set gives");
  EXPECT_EQ(resolve("model/link", {"model"}), "! 'model/link' leads out of 'model', which --set gives");
  EXPECT_EQ(resolve("text.txt", {""}), "scripts/text.txt");
  EXPECT_EQ(resolve("text.txt", {"text"}), "scripts/text.txt");
  EXPECT_EQ(resolve("../home/text.txt", {"text.txt"}), "! '../home/text.txt' leads out of the recipe's folder");
}

TEST_F(Paths, InRecipes) {
  const auto cause = [&](const std::string& text, const std::map<std::string, std::string>& sets = {}) {
    const fs::path file = folder.write("scripts/r.lua", text);
    const Result<Recipe> recipe = read_recipe(file, {.sets = sets, .directory = folder.path() / "home"});
    return recipe.ok() ? "" : folder.without(recipe.error().cause);
  };
  const std::string tail = ", data = data.random {}, steps = 1 }";
  EXPECT_EQ(cause("return recipe {\n model = model {\n path = '../away' }" + tail),
            "scripts/r.lua:3: '../away' leads out of the recipe's folder");
  EXPECT_EQ(cause("return recipe { model = model { path = arg 'm' }" + tail, {{"m", "model"}}), "");
  EXPECT_EQ(cause("return recipe { model = model { path = arg 'm' .. '/../../away' }" + tail, {{"m", "model"}}),
            "scripts/r.lua:1: 'model/../../away' leads out of 'model', which --set gives");
  EXPECT_EQ(cause(uses("use 'lora' { path = '/etc/passwd' }")), "scripts/r.lua:5: '/etc/passwd' leads out of the recipe's folder");
  EXPECT_EQ(cause(uses("use 'lora' {\n cache_path = { 'in/x', '../x' } }")), "scripts/r.lua:6: '../x' leads out of the recipe's folder");
  EXPECT_EQ(cause(uses("use 'lora' { deep = { { path = '/x' } } }")), "scripts/r.lua:5: '/x' leads out of the recipe's folder");
  EXPECT_EQ(cause(uses("use 'lora' { path = 5, xpath = '/x', pathy = '/x' }")), "");
  const auto data = [&](const std::string& options) {
    return cause("return recipe { model = model { path = 'in' },\n data = data." + options + ", steps = 1 }");
  };
  EXPECT_EQ(data("text { files = { 'in/x', '../y' } }"), "scripts/r.lua:2: '../y' leads out of the recipe's folder");
  EXPECT_EQ(data("text { files = '../y' }"), "scripts/r.lua:2: '../y' leads out of the recipe's folder");
  EXPECT_EQ(data("text { tokenizer = '../t.json' }"), "scripts/r.lua:2: '../t.json' leads out of the recipe's folder");
  EXPECT_EQ(data("batch { path = '../b' }"), "scripts/r.lua:2: '../b' leads out of the recipe's folder");
  EXPECT_EQ(data("text { files = { 'in/x' }, tokenizer = 'bytes' }"), "");

  // The default of an argument is the recipe's own word; only what is given is the person's.
  EXPECT_EQ(cause(uses("use 'lora' { path = arg('p', '../away/secret') }")),
            "scripts/r.lua:5: '../away/secret' leads out of the recipe's folder");
  EXPECT_EQ(cause(uses("use 'lora' { path = arg('p', 'in/x') }"), {{"p", "../away/secret"}}), "");
}

}  // namespace
}  // namespace galley
