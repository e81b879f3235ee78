// Which runs are one's own.
#include "host/session/mark.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>

#include "host/base/file.hpp"
#include "tests/base/folder.hpp"

namespace galley {
namespace {

class Mark : public testing::Test {
 protected:
  Mark() { ::setenv("XDG_STATE_HOME", (folder / "state").c_str(), 1); }
  ~Mark() override {
    if (before) ::setenv("XDG_STATE_HOME", before, 1);
    else ::unsetenv("XDG_STATE_HOME");
  }
  const char* before = std::getenv("XDG_STATE_HOME") ? ::strdup(std::getenv("XDG_STATE_HOME")) : nullptr;
  Folder folder;
};

TEST_F(Mark, IsKnownAgain) {
  EXPECT_FALSE(has_mark("mark = \"00\"\nx = 1\n"));
  EXPECT_FALSE(std::filesystem::exists(folder / "state"));  // asking makes no key
  const std::string text = with_mark("x = 1\n").value();
  EXPECT_TRUE(text.starts_with("mark = \"") && text.ends_with("\"\nx = 1\n")) << text;
  EXPECT_TRUE(has_mark(text));
  EXPECT_EQ(with_mark("x = 1\n").value(), text);
  EXPECT_NE(with_mark("x = 2\n").value().substr(0, 40), text.substr(0, 40));
  for (const std::string& other :
       {std::string("x = 1\n"), text + " ", "\n" + text, text.substr(0, text.find('\n')), std::string(), text + text})
    EXPECT_FALSE(has_mark(other)) << other;
  struct stat status;
  ASSERT_EQ(::stat((folder / "state/galley/key").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(status.st_size, 16);
}

TEST_F(Mark, AnotherKeyKnowsNothingOfIt) {
  const std::string text = with_mark("x = 1\n").value();
  std::filesystem::remove(folder / "state/galley/key");
  EXPECT_FALSE(has_mark(text));
  EXPECT_NE(with_mark("x = 1\n").value(), text);
  EXPECT_FALSE(has_mark(text));
}

TEST_F(Mark, AKeyThatIsNoneIsNotFollowedOrFilledUp) {
  folder.put("state/galley/elsewhere", std::string(16, 'k'));
  std::filesystem::create_symlink("elsewhere", folder / "state/galley/key");
  EXPECT_FALSE(with_mark("x = 1\n").ok());
  EXPECT_FALSE(has_mark("mark = \"00\"\n"));
  std::filesystem::remove(folder / "state/galley/key");
  folder.put("state/galley/key", "half");  // its writer was killed
  EXPECT_TRUE(has_mark(with_mark("x = 1\n").value()));
  folder.put("file", "");
  ::setenv("XDG_STATE_HOME", (folder / "file").c_str(), 1);
  const Result<std::string> none = with_mark("x = 1\n");
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().hint.find("XDG_STATE_HOME"), std::string::npos);
}

}  // namespace
}  // namespace galley
