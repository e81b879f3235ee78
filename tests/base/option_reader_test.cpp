#include "host/base/option_reader.hpp"

#include <gtest/gtest.h>

#include <map>

namespace galley {
namespace {

/// Options of "thing" in r.lua; those in `lines` stand elsewhere than in line 3.
class Reading {
 public:
  explicit Reading(Table values, std::map<std::string, int> lines = {}) : values_(std::move(values)), lines_(std::move(lines)) {}
  OptionReader reader() const {
    return {values_,
            {.place =
                 [this](const std::string& name) {
                   return Place{"r.lua", lines_.contains(name) ? lines_.at(name) : 3};
                 },
             .owner = "thing"}};
  }
  const OptionReader* operator->() {
    reader_.emplace(reader());
    return &*reader_;
  }

 private:
  Table values_;
  std::map<std::string, int> lines_;
  std::optional<OptionReader> reader_;
};

OptionSpec choice_of(const char* name, std::vector<std::string> choices) {
  return {.name = name, .type = OptionType::Choice, .choices = std::move(choices)};
}

TEST(OptionReader, TakesWhatIsThere) {
  Reading read({{"steps", Value(5.0)},
                {"rate", Value(int64_t{1})},
                {"on", Value(true)},
                {"name", Value("a")},
                {"files", Value("x")},
                {"mode", Value("best")},
                {"none", Value()}});
  EXPECT_EQ(read->integer("steps", 1, 5).value(), 5);
  EXPECT_EQ(read->number("rate", Range{0, 1}).value(), 1.0);
  EXPECT_EQ(read->boolean("on").value(), true);
  EXPECT_EQ(read->text("name").value(), "a");
  EXPECT_EQ(read->texts("files").value(), std::vector<std::string>{"x"});
  EXPECT_EQ(read->choice(choice_of("mode", {"good", "best"})).value(), 1u);
  for (const char* absent : {"none", "nothing"}) {
    EXPECT_FALSE(read->integer(absent).value().has_value());
    EXPECT_FALSE(read->texts(absent).value().has_value());
    EXPECT_FALSE(read->choice(choice_of(absent, {"a"})).value().has_value());
    EXPECT_EQ(read->take({.name = absent, .type = OptionType::Integer, .fallback = Value(int64_t{7})}).value(), Value(int64_t{7}));
  }
}

TEST(OptionReader, SaysWhatIsWrongInOneWay) {
  Reading read({{"a", Value(int64_t{0})},
                {"b", Value("5")},
                {"c", Value(2.5)},
                {"mode", Value("bets")},
                {"files", Value(List())},
                {"long", Value(std::string(100, 'x'))}},
               {{"c", 9}});
  const auto cause = [](const auto& result) { return result.ok() ? "" : result.error().cause; };
  EXPECT_EQ(cause(read->integer("a", 1, 10'000'000)), "r.lua:3: 'a' of thing must be a whole number in [1, 10000000], not 0");
  EXPECT_EQ(cause(read->integer("a", 1)), "r.lua:3: 'a' of thing must be a whole number in [1, inf), not 0");
  EXPECT_EQ(cause(read->number("b")), "r.lua:3: 'b' of thing must be a number, not '5'");
  EXPECT_EQ(read->number("b").error().hint,
            "it is a text; an argument of a recipe is one unless its default is a number: arg(\"name\", 5)");
  EXPECT_EQ(cause(read->integer("c")), "r.lua:9: 'c' of thing must be a whole number, not 2.5");
  EXPECT_EQ(cause(read->boolean("c")), "r.lua:9: 'c' of thing must be true or false, not 2.5");
  EXPECT_EQ(cause(read->choice(choice_of("mode", {"good", "best"}))), "r.lua:3: 'mode' of thing must be 'good' or 'best', not 'bets'");
  EXPECT_EQ(read->choice(choice_of("mode", {"good", "best"})).error().hint, "did you mean 'best'?");
  EXPECT_EQ(cause(read->texts("files")), "r.lua:3: 'files' of thing must be a string or a list of strings, not {}");
  EXPECT_EQ(cause(read->integer("long")), "r.lua:3: 'long' of thing must be a whole number, not '" + std::string(60, 'x') + "...'");
  EXPECT_EQ(cause(read->take({.name = "gone", .type = OptionType::Integer, .required = true})), "r.lua:3: 'gone' of thing is missing");
}

TEST(OptionReader, UnknownNames) {
  const auto error = [](Table values, std::map<std::string, int> lines = {}) {
    return Reading(std::move(values), std::move(lines)).reader().only({"rank", "alpha"}).error();
  };
  EXPECT_EQ(error({{"rnak", Value(true)}}).cause, "r.lua:3: unknown option 'rnak' of thing; did you mean 'rank'?");
  EXPECT_EQ(error({{"rnak", Value(true)}}).hint, "options of thing: rank, alpha");
  EXPECT_EQ(error({{"aaa", Value(true)}, {"zzz", Value(true)}}, {{"aaa", 5}}).cause, "r.lua:3: unknown option 'zzz' of thing")
      << "the first by line";
  const OptionSpec rank = {.name = "rank", .aliases = {"r"}};
  EXPECT_EQ(Reading({{"r", Value(true)}}).reader().only(std::span(&rank, 1)).error().cause,
            "r.lua:3: unknown option 'r' of thing; did you mean 'rank'?");
  EXPECT_TRUE(Reading({{"rank", Value(true)}}).reader().only({"rank"}).ok());
}

TEST(OptionReader, LongTextsAreCutBetweenCharacters) {
  EXPECT_EQ(shortened(std::string(59, 'a') + "ü"), std::string(59, 'a') + "...");
  EXPECT_EQ(shortened(std::string(58, 'a') + "ü"), std::string(58, 'a') + "ü");
}

}  // namespace
}  // namespace galley
