#include "host/tokens/cache.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <ctime>
#include <set>
#include <string>

#include "tests/base/folder.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

constexpr time_t kDay = 24 * 3600;
const std::string kKey(32, 'a');

void set_age(const fs::path& path, time_t seconds) {
  const time_t time = std::time(nullptr) - seconds;
  const timespec times[2] = {{time, 0}, {time, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW), 0) << path;
}

/// A test with a folder for GALLEY_CACHE, which is put back afterwards.
class CacheTest : public testing::Test {
 protected:
  CacheTest() : before_(std::getenv("GALLEY_CACHE") ? std::getenv("GALLEY_CACHE") : "") { use(folder_.path()); }
  ~CacheTest() override { before_.empty() ? unsetenv("GALLEY_CACHE") : setenv("GALLEY_CACHE", before_.c_str(), 1); }

  static void use(const fs::path& path) { setenv("GALLEY_CACHE", path.c_str(), 1); }
  static std::set<std::string> names_in(const fs::path& path) {
    std::set<std::string> out;
    for (const fs::directory_entry& entry : fs::directory_iterator(path)) out.insert(entry.path().filename().string());
    return out;
  }
  /// Prepares a file.
  static void make(const std::string& key = kKey) {
    const auto writer = CacheWriter::create(key, "tokens").value();
    const uint32_t tokens[] = {1, 2, 3};
    ASSERT_TRUE(writer->append(0, std::span<const uint32_t>(tokens)).ok());
    ASSERT_TRUE(writer->append(2, std::span<const uint32_t>(tokens).first(1)).ok());
    ASSERT_TRUE(writer->finish({7}).ok());
  }

  Folder folder_;

 private:
  std::string before_;
};

TEST_F(CacheTest, WhatIsWrittenIsRead) {
  make();
  const std::optional<CacheFile> file = CacheFile::open(kKey, "tokens").value();
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->fact(0), 7u);
  uint32_t tokens[3] = {};
  ASSERT_TRUE(file->read(0, 0, std::span<uint32_t>(tokens)).ok());
  EXPECT_EQ(tokens[2], 3u);
  ASSERT_TRUE(file->read(2, 0, std::span<uint32_t>(tokens).first(1)).ok());
  EXPECT_EQ(tokens[0], 1u);
  EXPECT_FALSE(CacheFile::open(std::string(32, 'b'), "tokens").value().has_value());
  EXPECT_EQ(names_in(folder_.path()), (std::set<std::string>{"CACHEDIR.TAG", kKey + ".tokens"}));
}

// The folder may be deleted at any time: what is being written is there for the process that writes it.
TEST_F(CacheTest, AFolderThatIsDeletedMeanwhile) {
  for (const bool again : {false, true}) {
    const auto writer = CacheWriter::create(kKey, "tokens").value();
    const uint32_t tokens[] = {1, 2, 3};
    ASSERT_TRUE(writer->append(0, std::span<const uint32_t>(tokens)).ok());
    fs::remove_all(folder_.path());
    if (again) fs::create_directories(folder_.path());
    const Result<CacheFile> file = writer->finish({7});
    ASSERT_TRUE(file.ok()) << file.error().cause;
    uint32_t last = 0;
    ASSERT_TRUE(file->read(0, 2, std::span<uint32_t>(&last, 1)).ok());
    EXPECT_EQ(last, 3u);
    EXPECT_EQ(file->fact(0), 7u);
    EXPECT_FALSE(CacheFile::open(kKey, "tokens").value().has_value());
  }
}

// The folder of somebody who has other things in it.
TEST_F(CacheTest, AFolderOfOthersStaysAsItIs) {
  const std::string ours = std::string(32, 'c') + ".tokens";
  for (const std::string& name : {std::string("corpus.tokens"), std::string("notes.rows"), std::string("save.tmp-1-2"), ours}) {
    folder_.put(name, "mine");
    set_age(folder_ / name, 400 * kDay);
  }
  const std::set<std::string> before = names_in(folder_.path());
  for (int i = 0; i < 3; ++i) make();
  std::set<std::string> expected = before;
  expected.insert("galley");
  EXPECT_EQ(names_in(folder_.path()), expected);
  EXPECT_EQ(cache_folder().value(), folder_ / "galley");
  EXPECT_EQ(names_in(folder_ / "galley"), (std::set<std::string>{"CACHEDIR.TAG", kKey + ".tokens"}));
}

TEST_F(CacheTest, ATagOfAnotherProgramIsNoMark) {
  folder_.put("CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n# Something else\n");
  EXPECT_EQ(cache_folder().value(), folder_ / "galley");
}

TEST_F(CacheTest, WhereNoFolderCanBeOursIsAnError) {
  folder_.put("galley/main.cpp", "int main() {}");
  folder_.put("other", "");
  const Error error = cache_folder().error();
  EXPECT_EQ(error.cause, "cannot keep prepared data in '" + (folder_ / "galley").string() +
                             "': there are other things in it, and Galley removes old files from its cache");
  EXPECT_EQ(error.hint, "name another folder for prepared data: GALLEY_CACHE=DIR");
  EXPECT_EQ(names_in(folder_.path()), (std::set<std::string>{"galley", "other"}));
  use(folder_ / "other");
  EXPECT_TRUE(cache_folder().error().cause.ends_with("/other': it is no folder that can be read")) << cache_folder().error().cause;
}

TEST_F(CacheTest, AFolderWithNamesOfGalleyOnlyIsTakenOver) {
  folder_.put(std::string(32, 'd') + ".rows", "from before there was a mark");
  folder_.put("CACHEDIR.TAG", "Signature: 8a47");  // another process is writing it
  EXPECT_EQ(cache_folder().value(), folder_.path());
  make();
  EXPECT_TRUE(CacheFile::open(kKey, "tokens").value().has_value());
}

TEST_F(CacheTest, OnlyFilesThatGalleyMadeAreRemoved) {
  make();
  const std::string old = std::string(32, 'e') + ".rows", used = std::string(32, 'f') + ".tokens";
  const std::set<std::string> others = {"corpus.tokens", "a.tmp-1-2",      std::string(31, 'e') + ".rows",
                                        old + "2",       old + ".tmp-x-1", std::string(32, 'E') + ".rows"};
  for (const std::string& name : others) folder_.put(name, "mine");
  folder_.put(old, "");
  folder_.put(used, "");
  const fs::path link = folder_ / (std::string(32, '1') + ".rows");
  fs::create_symlink(folder_.put("target", "mine"), link);
  for (const std::string& name : names_in(folder_.path()))
    if (name != used && name != "CACHEDIR.TAG") set_age(folder_ / name, 31 * kDay);
  clean_cache(folder_.path(), std::time(nullptr));
  std::set<std::string> expected = others;
  expected.insert({"CACHEDIR.TAG", "target", link.filename().string(), used});
  EXPECT_EQ(names_in(folder_.path()), expected);
}

TEST_F(CacheTest, WithoutTheMarkNothingIsRemoved) {
  make();
  const fs::path old = folder_ / (std::string(32, 'e') + ".rows");
  folder_.put(old.filename().string(), "");
  set_age(old, 400 * kDay);
  fs::remove(folder_ / "CACHEDIR.TAG");
  clean_cache(folder_.path(), std::time(nullptr));
  EXPECT_TRUE(fs::exists(old));
}

// A clock that is wrong for a while must not empty the cache; one that stays right in the end does.
TEST_F(CacheTest, AClockThatJumpsRemovesNothingFresh) {
  make();
  const fs::path file = folder_ / (kKey + ".tokens");
  const time_t now = std::time(nullptr);
  for (int i = 0; i < 10; ++i) clean_cache(folder_.path(), now + 4000 * kDay);
  EXPECT_TRUE(fs::exists(file));
  for (int i = 0; i < 10; ++i) clean_cache(folder_.path(), 0);
  EXPECT_TRUE(fs::exists(file));
  for (int i = 0; i < 10; ++i) clean_cache(folder_.path(), now);
  EXPECT_TRUE(fs::exists(file));
  for (int i = 0; i < 60; ++i) clean_cache(folder_.path(), now + 40 * kDay);
  EXPECT_FALSE(fs::exists(file));
}

TEST_F(CacheTest, AFileOfTheFutureGrowsOldFromNow) {
  make();
  const fs::path file = folder_ / (kKey + ".tokens");
  set_age(file, -4000 * kDay);
  const time_t now = std::time(nullptr);
  clean_cache(folder_.path(), now);
  struct stat status;
  ASSERT_EQ(::stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mtime, now);
}

// What a process writes is left alone while it lives, whatever its age, and goes as soon as it is dead.
TEST_F(CacheTest, WhatAKilledProcessLeftIsRemovedAtOnce) {
  make();
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto writer = CacheWriter::create(std::string(32, 'b'), "rows");
    const char done = writer.ok() ? 'y' : 'n';
    if (::write(pipe[1], &done, 1) == 1) ::pause();
    ::_exit(1);
  }
  char done = 0;
  ASSERT_EQ(::read(pipe[0], &done, 1), 1);
  ASSERT_EQ(done, 'y');
  const auto aside = [&] {
    std::set<std::string> out;
    for (const std::string& name : names_in(folder_.path()))
      if (name.find(".tmp-") != std::string::npos) out.insert(name);
    return out;
  };
  ASSERT_EQ(aside().size(), 1u);
  set_age(folder_ / *aside().begin(), 400 * kDay);
  make(std::string(32, 'c'));
  EXPECT_EQ(aside().size(), 1u);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(pipe[0]);
  ::close(pipe[1]);
  EXPECT_EQ(aside().size(), 1u);
  make(std::string(32, 'd'));
  EXPECT_EQ(aside().size(), 0u);
}

TEST_F(CacheTest, AWriterThatIsDroppedLeavesNothing) {
  { ASSERT_TRUE(CacheWriter::create(kKey, "rows").ok()); }
  EXPECT_EQ(names_in(folder_.path()), std::set<std::string>{"CACHEDIR.TAG"});
}

}  // namespace
}  // namespace galley
