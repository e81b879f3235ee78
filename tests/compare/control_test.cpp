#include "host/tools/compare/control.hpp"

#include <gtest/gtest.h>

#include "tests/base/folder.hpp"

namespace galley {
namespace {

TEST(Control, ComesWithTheProgram) {
  const Folder folder;
  folder.put("plugins/shaken/plugin.toml",
             "id = 'shaken'\nversion = '1'\nabi = '0.4'\n"
             "[[strategy]]\nname = 'shaken'\nsummary = 'None'\nexactness = 'rounding'\ncontrol = true\n");
  const std::filesystem::path folders[] = {folder.path() / "plugins"};
  Study study;
  study.plugins = Plugins::scan(folders);
  const auto none = control_strategy(study);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().exit, Exit::Plugin);
  EXPECT_EQ(none.error().cause, "no plugin has a strategy for the control: the recipe with other rounding errors");
  study.installation.plugins = folders[0];
  const auto found = control_strategy(study);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(*found, "shaken");
}

}  // namespace
}  // namespace galley
