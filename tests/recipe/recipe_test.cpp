// Recipes that are right, and the message of every one that is not.
#include "host/recipe/declared.hpp"
#include "tests/recipe/helper.hpp"

namespace galley {
namespace {

std::string cause(const std::string& text, const RecipeOptions& options = {}) { return RecipeFolder().cause(text, options); }
std::string hint(const std::string& text, const RecipeOptions& options = {}) {
  std::string hint;
  RecipeFolder().cause(text, options, &hint);
  return hint;
}

TEST(Recipe, Whole) {
  const RecipeFolder folder;
  folder.put("m/config.json", "{}");
  folder.put("t.txt", "text");
  const Recipe recipe = folder.recipe(R"(
return recipe {
  model  = model { path = "m", init = "random" },
  data   = data.text { files = { "t.txt" }, tokenizer = "model", validation = 0.05 },
  batch  = 1, length = 512, steps = 200, seed = 9, head_rows = 128, deterministic = false, tune = true,
  validate = { every = 50 }, save = { every = 100, keep = 3, final = false },
  use "quantize-nf4" { double = true },
  use "lora"         { rank = 16, alpha = 32.0, targets = "all-linear" },
  use "plain",
  use "adamw"        {
    lr = cosine { peak = 2e-4, warmup = 10 }, betas = { 0.9, 0.95 },
    weight_decay = 0.1 },
}
)");
  EXPECT_EQ(recipe.path, folder.path() / "r.lua");
  EXPECT_EQ(recipe.text.substr(0, 15), "\nreturn recipe ");
  EXPECT_EQ(recipe.model.path, folder.path() / "m");
  EXPECT_TRUE(recipe.model.random);
  EXPECT_EQ(folder.without(recipe.model.place.text()), "r.lua:3");
  EXPECT_EQ(recipe.data.kind, "text");
  EXPECT_EQ(folder.without(recipe.data.place.text()), "r.lua:4");
  EXPECT_EQ(*recipe.data.options.at("files").as<List>()->at(0).as<std::string>(), (folder.path() / "t.txt").string());
  EXPECT_EQ(*recipe.data.options.at("tokenizer").as<std::string>(), "model");
  EXPECT_EQ(*recipe.data.options.at("validation").as<double>(), 0.05);
  EXPECT_EQ(recipe.batch, 1);
  EXPECT_EQ(recipe.length, 512);
  EXPECT_EQ(recipe.steps, 200);
  EXPECT_EQ(recipe.seed, 9u);
  EXPECT_EQ(recipe.head_rows, 128);
  EXPECT_FALSE(recipe.deterministic);
  EXPECT_TRUE(recipe.tune);
  EXPECT_EQ(recipe.validate.every, 50);
  EXPECT_EQ(recipe.save.every, 100);
  EXPECT_EQ(recipe.save.keep, 3);
  EXPECT_FALSE(recipe.save.final);

  ASSERT_EQ(recipe.uses.size(), 4u);
  EXPECT_EQ(recipe.uses[0].name, "quantize-nf4");
  EXPECT_EQ(*recipe.uses[0].options.at("double").as<bool>(), true);
  EXPECT_EQ(folder.without(recipe.uses[1].place.text()), "r.lua:8");
  EXPECT_EQ(*recipe.uses[1].options.at("rank").as<int64_t>(), 16);
  EXPECT_EQ(*recipe.uses[1].options.at("alpha").as<double>(), 32.0);
  EXPECT_TRUE(recipe.uses[2].options.empty());
  EXPECT_EQ(recipe.uses[3].options.at("betas").as<List>()->size(), 2u);
  EXPECT_EQ(folder.without(recipe.uses[3].place.text()), "r.lua:10");
  EXPECT_EQ(folder.without(recipe.uses[3].place_of("weight_decay").text()), "r.lua:12");
  EXPECT_EQ(folder.without(recipe.uses[3].place_of("eps").text()), "r.lua:10");
  const auto* lr = recipe.uses[3].options.at("lr").as<Schedule>();
  EXPECT_EQ(lr->text, "cosine{peak=" + std::string("2e-04") + ", warmup=10}");
  EXPECT_EQ(lr->table.size(), 200u);
}

TEST(Recipe, Defaults) {
  const Recipe recipe = RecipeFolder().recipe(uses(""));
  EXPECT_FALSE(recipe.batch.has_value());
  EXPECT_FALSE(recipe.length.has_value());
  EXPECT_EQ(recipe.seed, 1u);
  EXPECT_EQ(recipe.validate.every, 0);
  EXPECT_EQ(recipe.save.every, 0);
  EXPECT_EQ(recipe.save.keep, 2);
  EXPECT_TRUE(recipe.save.final);
  EXPECT_EQ(recipe.model.family, "gpt2");
  EXPECT_TRUE(recipe.model.random);
  EXPECT_TRUE(recipe.model.path.empty());
  EXPECT_EQ(*recipe.model.config.at("n_layer").as<int64_t>(), 1);
  EXPECT_EQ(RecipeFolder().recipe(with("steps = 1e3,")).steps, 1000);
  EXPECT_TRUE(RecipeFolder().recipe(with("steps = 1, save = {},")).save.final);
}

TEST(Recipe, ConditionalStrategies) {
  const std::string text = uses("false and use 'a' {}, use 'b' {}, nil, use 'c' {}, 1 > 2 and use 'd' or nil, use 'e' {}");
  const Recipe recipe = RecipeFolder().recipe(text);
  ASSERT_EQ(recipe.uses.size(), 3u);
  EXPECT_EQ(recipe.uses[0].name + recipe.uses[1].name + recipe.uses[2].name, "bce");
}

TEST(Recipe, StrategiesOfTheCommandLineAreItsLast) {
  const RecipeFolder folder;
  const Recipe recipe = folder.recipe(uses("use 'a' {}"), {{.sets = {{"x", "4"}}, .given_uses = {"c { x = arg('x', 3) }", "d", "e{}"}}});
  ASSERT_EQ(recipe.uses.size(), 4u);
  EXPECT_EQ(recipe.uses[0].name + recipe.uses[1].name + recipe.uses[2].name + recipe.uses[3].name, "acde");
  EXPECT_EQ(*recipe.uses[1].options.at("x").as<int64_t>(), 4);
  EXPECT_EQ(recipe.uses[1].place_of("x").text(), "--use c");
  const auto of = [&](const std::string& use) { return cause(uses(""), {{.given_uses = {use}}}); };
  for (const std::string wrong : {"", "'c'", "c d", "{}", "c { x = 1 } and constant(1)"})
    EXPECT_EQ(of(wrong), "--use '" + wrong + "': expected NAME, or NAME { option = value, … }");
  EXPECT_EQ(of("c { x = y }"), "--use c:1: 'y' is not defined");
  EXPECT_EQ(of("c { x = model { path = 'm' } }"), "--use c: 'x' of c is a model and no value of an option");
  EXPECT_EQ(of("c { x = arg('x') }"), "--use c:1: argument 'x' is not given");
  EXPECT_EQ(cause(uses(""), {{.given_uses = std::vector<std::string>(257, "c")}}), "r.lua:1: the recipe has more than 256 strategies");
}

TEST(Recipe, EntriesOfAOneOf) {
  const RecipeFolder folder;
  const std::string text = with("steps = one_of { 1, 2, 3 },");
  EXPECT_EQ(folder.recipe(text).steps, 1);
  const Recipe third = folder.recipe(text, {{.choices = {{4, 3}}}});
  EXPECT_EQ(third.steps, 3);
  ASSERT_EQ(third.offers.size(), 1u);
  EXPECT_EQ(third.offers[0].chosen, 3u);
  EXPECT_EQ(cause(text, {{.choices = {{4, 9}}}}), "r.lua:4: one_of offers 3, and the choice is number 9");
}

TEST(Recipe, TextInPlaceOfTheFile) {
  const RecipeFolder folder;
  RecipeOptions options;
  options.text = with("steps = 3,");
  const Result<Recipe> recipe = read_recipe(folder.path() / "gone.lua", options);
  ASSERT_TRUE(recipe.ok()) << recipe.error().cause;
  EXPECT_EQ(recipe->steps, 3);
  EXPECT_EQ(recipe->path, folder.path() / "gone.lua");
  EXPECT_EQ(recipe->text, options.text);
}

TEST(Recipe, Modules) {
  const RecipeFolder folder;
  folder.put("parts.lua", "return { steps = 7, train = function(lr)\n  return use 'adamw' { lr = lr }\nend }");
  folder.put("lib/more.lua", "return 5");
  folder.put("galley/shared.lua", "return 3");
  RecipeOptions options;
  options.library = folder.path() / "galley";
  const Recipe recipe = folder.recipe("local parts = require 'parts'\nlocal more = require('more') + require('shared')\n" +
                                          with("steps = parts.steps, batch = more,", "parts.train(0.5)"),
                                      options);
  EXPECT_EQ(recipe.steps, 7);
  EXPECT_EQ(recipe.batch, 8);
  EXPECT_EQ(folder.without(recipe.uses.at(0).place.text()), "parts.lua:2");
  ASSERT_EQ(recipe.modules.size(), 3u);
  EXPECT_EQ(recipe.modules.at((folder.path() / "lib/more.lua").string()), "return 5");
}

TEST(Errors, OfTheFile) {
  const RecipeFolder folder;
  const Result<Recipe> absent = read_recipe(folder.path() / "no.lua", {});
  EXPECT_EQ(folder.without(absent.error().cause), "no.lua: there is no such file");
  EXPECT_EQ(absent.error().exit, Exit::Recipe);
  EXPECT_NE(read_recipe(folder.path(), {}).error().cause.find("this is not a file"), std::string::npos);
  EXPECT_EQ(cause("return {"), "r.lua:1: unexpected symbol near <eof>");
  EXPECT_EQ(cause(""), "r.lua: the file does not return a recipe");
  EXPECT_EQ(cause("return { steps = 1 }"), "r.lua: the file does not return a recipe");
  EXPECT_EQ(cause("return use 'adamw' {}"), "r.lua: the file does not return a recipe");
  EXPECT_EQ(cause("\nerror('my own')"), "r.lua:2: my own");
  EXPECT_EQ(cause("\nerror('my own', 0)"), "r.lua: my own");
  EXPECT_EQ(cause("\nlocal x = modle"), "r.lua:2: 'modle' is not defined; did you mean 'model'?");
  EXPECT_EQ(cause("return reciep {}"), "r.lua:1: 'reciep' is not defined; did you mean 'recipe'?");
  EXPECT_EQ(cause("while true do end", limited(0.05)), "r.lua:1: stopped after 0.05 s of processor time");
  EXPECT_NE(
      cause("local t = {} while true do t = { t } end", limited(1, 4u << 20)).find("r.lua:1: Lua asked for more than 4 MiB of memory"),
      std::string::npos);
}

TEST(Recipe, EpochsInsteadOfSteps) {
  const RecipeFolder folder;
  const std::string text = with("epochs = 2.5,", "use 'sgd' { lr = function(step, steps) return step / steps end, momentum = 0.5 }");
  const Recipe planned = folder.recipe(text);
  EXPECT_EQ(planned.epochs, 2.5);
  EXPECT_EQ(planned.steps, 0);
  EXPECT_EQ(planned.epochs_place.line, 4);
  RecipeOptions known;
  known.steps = 4;
  const Recipe run = folder.recipe(text, known);
  EXPECT_EQ(run.steps, 4);
  EXPECT_EQ(run.uses.at(0).options.at("lr").as<Schedule>()->table, (std::vector<double>{0.25, 0.5, 0.75, 1}));
  EXPECT_EQ(folder.recipe(with("steps = 7,"), known).steps, 7) << "what the recipe says";
  std::string hint;
  EXPECT_EQ(folder.cause(with("steps = 7,\n epochs = 1,"), {}, &hint), "r.lua:5: the recipe says both 'steps' and 'epochs'");
  EXPECT_EQ(cause(with("epochs = 0,")), "r.lua:4: 'epochs' of the recipe must be a number in (0, inf), not 0");
  EXPECT_EQ(cause(with("max_steps = 5,")), "r.lua:4: unknown option 'max_steps' of the recipe; did you mean 'steps'?");
  // What is wrong with a schedule is found before the number of steps is known, and what depends on the number is not told of.
  EXPECT_EQ(cause(with("epochs = 1,", "use 'sgd' { lr = function(s) return s > 5 and 'x' or 1 end }")),
            "r.lua:5: the schedule of 'lr' returned a string at step 6; it must be a finite number");
  EXPECT_TRUE(folder.recipe(with("epochs = 1,", "use 'sgd' { lr = cosine { peak = 1, warmup = 5000 } }")).warnings.empty());
}

TEST(Recipe, EarlyStoppingAndTheBestState) {
  const Recipe recipe =
      RecipeFolder().recipe(with("steps = 9, validate = { every = 2, patience = 3, min_delta = 0.5 }, save = { best = true },"));
  EXPECT_EQ(recipe.validate.patience, 3);
  EXPECT_EQ(recipe.validate.min_delta, 0.5);
  EXPECT_TRUE(recipe.save.best);
  EXPECT_EQ(cause(with("steps = 1, validate = { patience = 3 },")), "r.lua:4: 'validate.patience' counts validations, and there are none");
  EXPECT_EQ(cause(with("steps = 1, validate = { every = 1, min_delta = 3 },")),
            "r.lua:4: 'validate.min_delta' is for 'validate.patience', which is not there");
  EXPECT_EQ(cause(with("steps = 1, save = { best = true },")),
            "r.lua:4: 'save.best' is the state of the lowest validation loss, and the recipe does not validate");
}

/// Each declaration is read: what it declares is taken, and what it does not is refused.
TEST(Recipe, WhatIsDeclaredIsWhatIsRead) {
  for (const Declared& schedule : declared_schedules()) {
    EXPECT_EQ(schedule.written.rfind("lr = " + schedule.name, 0), 0u) << schedule.name;
    EXPECT_EQ(cause(with("steps = 10,", "use 'x' { " + schedule.written + " }")), "") << schedule.name;
    for (const OptionSpec& option : schedule.options) {
      EXPECT_FALSE(option.description.empty()) << schedule.name << "." << option.name;
      const std::string more = option.name == "peak" ? "" : ", peak = 1e-3";
      const std::string value = option.type == OptionType::Choice ? "'" + option.choices.back() + "'" : "1";
      if (option.name == "min" || option.name == "floor") continue;
      EXPECT_EQ(cause(with("steps = 10,", "use 'x' { lr = " + schedule.name + " { " + option.name + " = " + value + more + " } }")), "")
          << schedule.name << "." << option.name;
    }
  }
  for (const Declared* group : {&declared_recipe(), &declared_model(), &declared_validate(), &declared_evaluate(), &declared_save(),
                                &declared_compare(), &declared_budget()})
    for (const OptionSpec& option : group->options) EXPECT_FALSE(option.description.empty()) << group->name << "." << option.name;
}

TEST(Errors, OfNamedEntries) {
  EXPECT_EQ(cause(with("steps = 1,\n  stepps = 5,")), "r.lua:5: unknown option 'stepps' of the recipe; did you mean 'steps'?");
  EXPECT_EQ(hint(with("steps = 1, optimiser = 5,")),
            "options of the recipe: model, data, batch, length, target_length, steps, epochs, seed, deterministic, tune, validate, evaluate, save, "
            "head_rows, lanes, ranks, kernels");
  EXPECT_EQ(cause(with("steps = 1, learning_rate = 5,")), "r.lua:4: unknown option 'learning_rate' of the recipe");
  EXPECT_EQ(cause(with("steps = 1, save = { evry = 1 },")), "r.lua:4: unknown option 'save.evry' of the recipe; did you mean 'every'?");
  EXPECT_EQ(cause(with("steps = 1, validate = { every = 1, keep = 1 },")), "r.lua:4: unknown option 'validate.keep' of the recipe");
  EXPECT_EQ(cause(with("")), "r.lua:1: 'steps' of the recipe is missing");
  EXPECT_EQ(cause("return recipe {}"), "r.lua:1: 'model' of the recipe is missing");
  EXPECT_EQ(cause("return recipe { model = model { path = '.' } }"), "r.lua:1: 'data' of the recipe is missing");
  EXPECT_EQ(cause("return recipe"), "r.lua: the file does not return a recipe");
  EXPECT_EQ(cause("return recipe 'x'"), "r.lua:1: recipe takes a table in braces");
  EXPECT_EQ(cause("return recipe()"), "r.lua:1: recipe takes a table in braces");
  EXPECT_EQ(cause("return recipe { [true] = 1 }"), "r.lua:1: an entry of the recipe has a boolean as its name");
  EXPECT_EQ(cause("return recipe {\n model = 'gpt2' }"), "r.lua:2: 'model' of the recipe must be model { path = … }, not 'gpt2'");
  EXPECT_EQ(cause("return recipe { model = data.random {} }"), "r.lua:1: 'model' of the recipe must be model { path = … }, not data");
  EXPECT_EQ(cause("return recipe {\n model = model { path = '.' },\n data = { files = {} } }"),
            "r.lua:3: 'data' of the recipe must be data.text { files = { … } }, not a table");
}

TEST(Errors, OfTypesAndRanges) {
  EXPECT_EQ(cause(with("batch = 1,\n  steps = 'ten',")),
            "r.lua:5: 'steps' of the recipe must be a whole number in [1, 10000000], not 'ten'");
  EXPECT_EQ(cause(with("steps = 0,")), "r.lua:4: 'steps' of the recipe must be a whole number in [1, 10000000], not 0");
  EXPECT_EQ(cause(with("steps = -3,")), "r.lua:4: 'steps' of the recipe must be a whole number in [1, 10000000], not -3");
  EXPECT_EQ(cause(with("steps = 2.5,")), "r.lua:4: 'steps' of the recipe must be a whole number in [1, 10000000], not 2.5");
  EXPECT_EQ(cause(with("steps = true,")), "r.lua:4: 'steps' of the recipe must be a whole number in [1, 10000000], not true");
  EXPECT_EQ(cause(with("steps = 1e9,")), "r.lua:4: 'steps' of the recipe must be a whole number in [1, 10000000], not 1000000000");
  EXPECT_EQ(cause(with("steps = 1e300,")), "r.lua:4: 'steps' of the recipe must be a whole number in [1, 10000000], not 1e+300");
  EXPECT_EQ(cause(with("steps = 0 / 0,")), "r.lua:1: 'steps' is not a finite number");
  EXPECT_EQ(cause(with("steps = 1 / 0,")), "r.lua:1: 'steps' is not a finite number");
  EXPECT_EQ(cause(with("steps = {},")), "r.lua:4: 'steps' of the recipe must be a whole number in [1, 10000000], not {}");
  EXPECT_EQ(cause(with("steps = { x = 1 },")), "r.lua:4: 'steps' of the recipe must be a whole number in [1, 10000000], not a table");
  EXPECT_EQ(cause(with("steps = use 'x',")), "r.lua:4: 'steps' of the recipe must be a whole number in [1, 10000000], not a strategy");
  EXPECT_EQ(cause(with("steps = function() end,")),
            "r.lua:4: 'steps' of the recipe must be a whole number in [1, 10000000], not a function");
  EXPECT_EQ(cause(with("steps = constant(1),")), "r.lua:4: 'steps' of the recipe must be a whole number in [1, 10000000], not a schedule");
  EXPECT_EQ(cause(with("steps = 1, batch = 0,")), "r.lua:4: 'batch' of the recipe must be a whole number in [1, 2147483647], not 0");
  EXPECT_EQ(cause(with("steps = 1, batch = 3000000000,")),
            "r.lua:4: 'batch' of the recipe must be a whole number in [1, 2147483647], not 3000000000");
  EXPECT_EQ(cause(with("steps = 1, length = 0,")), "r.lua:4: 'length' of the recipe must be a whole number in [1, 2147483647], not 0");
  EXPECT_EQ(cause(with("steps = 1, seed = -1,")), "r.lua:4: 'seed' of the recipe must be a whole number in [0, inf), not -1");
  EXPECT_EQ(cause(with("steps = 1, head_rows = 'all',")),
            "r.lua:4: 'head_rows' of the recipe must be a whole number in [0, 2147483647], not 'all'");
  EXPECT_EQ(cause(with("steps = 1, validate = 50,")), "r.lua:4: 'validate' of the recipe must be a table such as { every = 50 }, not 50");
  EXPECT_EQ(cause(with("steps = 1, validate = { every = -1 },")),
            "r.lua:4: 'validate.every' of the recipe must be a whole number in [0, inf), not -1");
  EXPECT_EQ(cause(with("steps = 1, save = { 1, 2 },")),
            "r.lua:4: 'save' of the recipe must be a table such as { every = 100, keep = 2 }, not { 1, 2 }");
  EXPECT_EQ(cause(with("steps = 1, save = { keep = 0 },")), "r.lua:4: 'save.keep' of the recipe must be a whole number in [1, inf), not 0");
  EXPECT_EQ(cause(with("steps = 1, save = { final = 'no' },")), "r.lua:4: 'save.final' of the recipe must be true or false, not 'no'");
  EXPECT_EQ(cause(with("steps = 1, save = { final = 0 },")), "r.lua:4: 'save.final' of the recipe must be true or false, not 0");
  EXPECT_EQ(cause(with("steps = 1, kernels = 'a',")),
            "r.lua:4: 'kernels' of the recipe must be a list of plugins such as { \"fast-norm\" }, not 'a'");
  EXPECT_EQ(cause(with("steps = 1, kernels = { 'a', 5 },")),
            "r.lua:4: 'kernels' of the recipe must be a list of plugins such as { \"fast-norm\" }, not { 'a', 5 }");
  EXPECT_EQ(hint(with("steps = '10',")), "it is a text; an argument of a recipe is one unless its default is a number: arg(\"name\", 10)");
  EXPECT_EQ(cause(with("steps = ('x'):rep(100),")),
            "r.lua:4: 'steps' of the recipe must be a whole number in [1, 10000000], not '" + std::string(60, 'x') + "...'");
}

TEST(Errors, OfModels) {
  const auto model = [](const std::string& options) {
    return cause("return recipe {\n model = model {\n" + options + "},\n data = data.random {}, steps = 1 }");
  };
  EXPECT_EQ(model(""), "r.lua:2: 'path' of model is missing");
  EXPECT_EQ(model("pth = 'x'"), "r.lua:3: unknown option 'pth' of model; did you mean 'path'?");
  EXPECT_EQ(model("path = 5"), "r.lua:3: 'path' of model must be a string, not 5");
  EXPECT_EQ(model("path = '.',\n init = 'zero'"), "r.lua:4: 'init' of model must be 'file' or 'random', not 'zero'");
  EXPECT_EQ(model("path = '.', config = {}"),
            "r.lua:3: a model has either a path, with the configuration that lies there, or a family and a config");
  EXPECT_EQ(model("config = { x = 1 }"), "r.lua:2: 'family' of model is missing");
  EXPECT_EQ(model("family = 'gpt2'"), "r.lua:2: 'config' of model is missing");
  EXPECT_EQ(model("family = 'gpt2', config = 7"), "r.lua:3: 'config' of model must be a table such as { n_layer = 2 }, not 7");
  EXPECT_EQ(model("family = 'gpt2', config = { 7 }"), "r.lua:3: 'config' of model must be a table such as { n_layer = 2 }, not { 7 }");
  EXPECT_EQ(model("family = 'gpt2', config = {}, init = 'file'"),
            "r.lua:3: there is no file to take weights from: the model is a family and a config");
  EXPECT_EQ(model("family = 'gpt2', config = { rope = { x = function() end } }"),
            "r.lua:3: 'config.rope.x' is a function and no plain data");
  EXPECT_EQ(model("family = 'gpt2', config = { n = constant(1) }"), "r.lua:3: 'config.n' is a schedule and no plain data");
  EXPECT_EQ(cause("model 'x'"), "r.lua:1: model takes a table in braces, got string");
  EXPECT_EQ(cause("model { 'x' }"), "r.lua:1: model takes named options, got a list");
  EXPECT_EQ(cause("model({}, {})"), "r.lua:1: model takes one table, got more");
  EXPECT_EQ(cause("model { 'x', path = 'y' }"), "r.lua:1: the table mixes a list with named entries such as 'path'");
}

TEST(Errors, OfData) {
  // A kind of another name may be a plugin's, which is known later (tests/python/sources.py).
  EXPECT_EQ(cause("return data.parquet {}"), "r.lua: the file does not return a recipe");
  EXPECT_EQ(cause("\nreturn data['a b'] {}"), "r.lua:2: there is no data.a b");
  EXPECT_EQ(hint("return data[1] {}"), "the name of a kind of data has letters, digits and '_' only: data.text");
  EXPECT_EQ(cause("return recipe { model = model { path = '.' }, steps = 1,\n data = data.mix { 3 } }"),
            "r.lua:2: entry 1 of data.mix must be data, not 3");
  EXPECT_EQ(cause("return recipe { model = model { path = '.' }, steps = 1,\n data = data.mix { data.mix { data.text {} } } }"),
            "r.lua:2: entry 1 of data.mix must be data, not another data.mix");
  EXPECT_EQ(cause("return recipe { model = model { path = '.' }, steps = 1,\n data = data.text { template = constant(1) } }"),
            "r.lua:2: 'template' is a schedule and no plain data");
  EXPECT_EQ(cause("return data.text 'x'"), "r.lua:1: data.text takes a table in braces, got string");
  EXPECT_EQ(cause("return recipe { model = model { path = '.' },\n data = data.text {\n files = { function() end } }, steps = 1 }"),
            "r.lua:3: 'files[1]' is a function and no plain data");
}

TEST(Errors, OfStrategies) {
  EXPECT_EQ(cause(uses("'adamw'")), "r.lua:1: entry 1 of the recipe must be a strategy, not 'adamw'");
  EXPECT_EQ(hint(uses("'adamw'")), "write use \"adamw\" { … }");
  EXPECT_EQ(cause(uses("use 'a' {}, { lr = 1 }")), "r.lua:1: entry 2 of the recipe must be a strategy, not a table");
  EXPECT_EQ(cause(uses("true")), "r.lua:1: entry 1 of the recipe must be a strategy, not true");
  EXPECT_EQ(cause(uses("data.random {}")), "r.lua:1: entry 1 of the recipe must be a strategy, not data");
  EXPECT_EQ(cause(uses("use { lr = 1 }")), "r.lua:5: use takes the name of a strategy");
  EXPECT_EQ(cause(uses("use ''")), "r.lua:5: use takes the name of a strategy");
  EXPECT_EQ(cause(uses("use('adamw', { lr = 1 })")), "r.lua:5: use takes the name of a strategy");
  EXPECT_EQ(cause(uses("use 'adamw' 'x'")), "r.lua:5: use \"adamw\" takes a table in braces, got string");
  EXPECT_EQ(cause(uses("use 'adamw' { 1e-3 }")), "r.lua:5: use \"adamw\" takes named options, got a list");
  EXPECT_EQ(cause(uses("use 'adamw' { lr = 1 } { lr = 2 }")), "r.lua:5: use \"adamw\" has its options already");
  EXPECT_EQ(cause(uses("use 'adamw' { lr = 0 / 0 }")), "r.lua:5: 'lr' is not a finite number");
  EXPECT_EQ(cause(uses("use 'adamw' {\n betas = { 1, x = 2 } }")), "r.lua:5: 'betas' mixes a list with named entries such as 'x'");
  EXPECT_EQ(cause(uses("use 'adamw' {\n groups = { { inner = use 'x' } } }")),
            "r.lua:6: 'groups[1].inner' of adamw is a strategy and no value of an option");
  EXPECT_EQ(cause(uses("table.unpack((function() local t = {} for i = 1, 300 do t[i] = use 'x' end return t end)())")),
            "r.lua:1: the recipe has more than 256 strategies");
  EXPECT_EQ(cause("local x = (use 'x').lr"), "r.lua:1: attempt to index a use value");
}

TEST(Errors, CannotBeEscapedByLargeDescriptions) {
  EXPECT_NE(cause("while true do use 'x' { y = ('x'):rep(1e5) } end").find("too much text for a description"), std::string::npos);
  EXPECT_NE(
      cause("local t = {} for i = 1, 100 do t[i] = i end while true do use 'x' { t = t } end").find("too many values for a description"),
      std::string::npos);
  EXPECT_NE(cause(uses("use 'x' { path = (function() local t = {} for i = 1, 150 do t[i] = ('./'):rep(1900) end return t end)() }"))
                .find("the recipe names too many files"),
            std::string::npos);
  EXPECT_NE(cause("local i = 0 while true do i = i + 1 arg('a' .. i, 1) end").find("a recipe has at most 1000 arguments"),
            std::string::npos);
}

}  // namespace
}  // namespace galley
