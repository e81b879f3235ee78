#include "host/base/new_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/base/folder.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

/// The names in a folder that are those of files aside.
std::vector<fs::path> asides(const fs::path& folder) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(folder))
    if (place_of(entry.path().filename().string())) out.push_back(entry.path());
  return out;
}

Status write_named(const fs::path& place, std::string_view text) {
  NewFile made = TRY(NewFile::named(place));
  TRY_STATUS(made.file().write(text));
  return made.finish();
}

TEST(WriteAtomic, ReplacesAndLeavesNothingAside) {
  const Folder folder;
  folder.put("a", "old");
  ASSERT_TRUE(write_atomic(folder / "a", "new").ok());
  EXPECT_EQ(*read_text(folder / "a"), "new");
  EXPECT_TRUE(asides(folder.path()).empty());
}

TEST(WriteAtomic, LeavesTheOldFileWhenItFails) {
  const Folder folder;
  folder.put("dir/file", "x");  // a directory that is not empty cannot be replaced by a file
  const Status status = write_atomic(folder / "dir", "new");
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().cause.find((folder / "dir").string()), std::string::npos);
  EXPECT_EQ(*read_text(folder / "dir/file"), "x");
  EXPECT_TRUE(asides(folder.path()).empty());
  EXPECT_EQ(write_atomic(folder / "none/file", "new").error().cause,
            "cannot create '" + (folder / "none/file").string() + "': No such file or directory");
}

TEST(NewFile, OnlyFinishPutsItInItsPlace) {
  const Folder folder;
  folder.put("a", "old");
  {
    NewFile made = NewFile::beside(folder / "a").value();
    ASSERT_TRUE(made.file().write("new").ok());
    EXPECT_EQ(asides(folder.path()).size(), 1u);
    EXPECT_EQ(made.file().path(), folder / "a");
  }
  EXPECT_EQ(*read_text(folder / "a"), "old");
  EXPECT_TRUE(asides(folder.path()).empty());
}

// Anybody could lay a file or a link where a predictable name will be written.
TEST(NewFile, NamesAsideAreRandom) {
  const Folder folder;
  folder.put("precious", "kept");
  fs::create_symlink("precious", folder / "a.tmp");
  const NewFile one = NewFile::beside(folder / "a").value(), two = NewFile::beside(folder / "a").value();
  EXPECT_EQ(asides(folder.path()).size(), 2u);
  ASSERT_TRUE(write_atomic(folder / "a", "new").ok());
  EXPECT_EQ(*read_text(folder / "precious"), "kept");
  EXPECT_TRUE(fs::is_symlink(folder / "a.tmp"));
}

TEST(NewFile, ALongNameHasRoomAside) {
  const Folder folder;
  const std::string name(255, 'n');
  ASSERT_TRUE(write_atomic(folder / name, "text").ok());
  EXPECT_EQ(*read_text(folder / name), "text");
}

// What a killed program left goes with the next; what somebody still writes, other names, folders and links stay.
TEST(NewFile, RemovesWhatWasLeftOfThisPlaceOnly) {
  const Folder folder;
  const std::string digits = ".tmp-0123456789abcdef";
  folder.put("a" + digits, "left over");
  folder.put("b" + digits, "of another place");
  folder.put("a.tmp-0123", "of somebody else");
  fs::create_directory(folder / "a.tmp-00000000000000aa");
  fs::create_symlink("b" + digits, folder / "a.tmp-00000000000000bb");
  const NewFile writing = NewFile::beside(folder / "a").value();
  ASSERT_TRUE(write_atomic(folder / "a", "new").ok());
  EXPECT_FALSE(fs::exists(folder / ("a" + digits)));
  EXPECT_TRUE(fs::exists(folder / ("b" + digits)));
  EXPECT_TRUE(fs::exists(folder / "a.tmp-0123"));
  EXPECT_EQ(asides(folder.path()).size(), 4u);  // of b, the folder, the link, and what is being written
}

TEST(NewFile, OfAKilledProgramGoesWithTheNext) {
  const Folder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const Result<NewFile> made = NewFile::beside(folder / "a");
    ::raise(SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(asides(folder.path()).size(), 1u);
  ASSERT_TRUE(write_atomic(folder / "a", "new").ok());
  EXPECT_TRUE(asides(folder.path()).empty());
}

TEST(NewFolder, IsGoneUnlessItIsRenamed) {
  const Folder folder;
  {
    const NewFolder made = NewFolder::beside(folder / "a").value();
    ASSERT_TRUE(write_atomic(made.path() / "file", "text").ok());
    EXPECT_EQ(asides(folder.path()), std::vector{made.path()});
  }
  EXPECT_TRUE(asides(folder.path()).empty());
  const NewFolder made = NewFolder::beside(folder / "a").value();
  ASSERT_TRUE(write_atomic(made.path() / "file", "text").ok());
  ASSERT_TRUE(rename_synced(made.path(), folder / "a").ok());
  EXPECT_EQ(*read_text(folder / "a/file"), "text");
}

// As of files: what a killed program left of this place goes; what somebody still writes, and what is no folder, stays.
TEST(NewFolder, RemovesWhatWasLeftOfThisPlaceOnly) {
  const Folder folder;
  const std::string digits = ".tmp-0123456789abcdef";
  folder.put("a" + digits + "/in/it", "left over");
  folder.put("b" + digits + "/in/it", "of another place");
  folder.put("a.tmp-00000000000000aa", "a file");
  fs::create_symlink("b" + digits, folder / "a.tmp-00000000000000bb");
  const pid_t child = ::fork();
  if (child == 0) {
    const Result<NewFolder> made = NewFolder::beside(folder / "a");
    ::raise(SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(fs::exists(folder / ("a" + digits)));
  EXPECT_EQ(asides(folder.path()).size(), 4u);  // of b, the file, the link, and that of the killed program
  const NewFolder one = NewFolder::beside(folder / "a").value(), two = NewFolder::beside(folder / "a").value();
  EXPECT_TRUE(fs::exists(one.path()) && fs::exists(folder / ("b" + digits + "/in/it")));
  EXPECT_EQ(asides(folder.path()).size(), 5u);
}

TEST(NewFile, WhatAPersonNamesIsWrittenThroughALink) {
  const Folder folder;
  fs::create_directory(folder / "far");
  folder.put("far/file", "old");
  fs::create_symlink("far/file", folder / "link");
  fs::create_symlink(folder / "link", folder / "link of link");
  fs::create_symlink("far/none", folder / "dangling");
  fs::create_symlink("round", folder / "round");
  ASSERT_TRUE(write_named(folder / "link of link", "new").ok());
  EXPECT_EQ(*read_text(folder / "far/file"), "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link") && fs::is_symlink(folder / "link of link"));
  ASSERT_TRUE(write_named(folder / "dangling", "made").ok());
  EXPECT_EQ(*read_text(folder / "far/none"), "made");
  EXPECT_TRUE(fs::is_symlink(folder / "dangling"));
  const Status round = write_named(folder / "round", "");
  ASSERT_FALSE(round.ok());
  EXPECT_EQ(round.error().exit, Exit::Recipe);
  EXPECT_TRUE(asides(folder.path()).empty() && asides(folder / "far").empty());
}

TEST(NewFile, APipeStaysAPipe) {
  const Folder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::string read(16, '\0');
  std::thread reader([&] {
    const int fd = ::open((folder / "pipe").c_str(), O_RDONLY);
    const ssize_t n = ::read(fd, read.data(), read.size());
    read.resize(n > 0 ? static_cast<size_t>(n) : 0);
    ::close(fd);
  });
  const Status written = write_named(folder / "pipe", "through");
  reader.join();
  EXPECT_TRUE(written.ok());
  EXPECT_EQ(read, "through");
  struct stat status;
  ASSERT_EQ(::lstat((folder / "pipe").c_str(), &status), 0);
  EXPECT_TRUE(S_ISFIFO(status.st_mode));
}

// A node of its own, like /dev/null (1, 3).
TEST(NewFile, ADeviceStaysADevice) {
  const Folder folder;
  if (::mknod((folder / "null").c_str(), S_IFCHR | 0666, makedev(1, 3)) != 0) GTEST_SKIP() << "no right to make devices";
  const Result<NewFile> opened = NewFile::named(folder / "null");
  if (!opened) GTEST_SKIP() << "devices are not open here: " << opened.error().cause;
  ASSERT_TRUE(write_named(folder / "null", "gone").ok());
  fs::create_symlink("null", folder / "link");
  ASSERT_TRUE(write_named(folder / "link", "gone").ok());
  struct stat status;
  ASSERT_EQ(::lstat((folder / "null").c_str(), &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
}

TEST(NewFile, TheStandardOutputIsWrittenWhereItStands) {
  const Folder folder;
  const int file = ::open(folder.put("out", "").c_str(), O_WRONLY), before = ::dup(STDOUT_FILENO);
  ASSERT_GE(::dup2(file, STDOUT_FILENO), 0);
  const bool first = ::write(STDOUT_FILENO, "said, ", 6) == 6;
  const Status by_link = write_named("/dev/stdout", "written, "), by_name = write_named(folder / "out", "again");
  ::dup2(before, STDOUT_FILENO);
  ::close(before);
  ::close(file);
  EXPECT_TRUE(first && by_link.ok() && by_name.ok());
  EXPECT_EQ(*read_text(folder / "out"), "said, written, again");
}

TEST(NewFile, WhatCannotBeWrittenIsAnErrorOfTheCommand) {
  const Folder folder;
  folder.put("file", "x");
  for (const auto& [place, cause] : std::vector<std::pair<fs::path, std::string>>{{"", "'' names no file"},
                                                                                  {folder.path(), "it is a directory"},
                                                                                  {folder / "none/", "it names no file"},
                                                                                  {folder / "none/file", "No such file or directory"},
                                                                                  {folder / "file/below", "Not a directory"}}) {
    const Result<NewFile> made = NewFile::named(place);
    ASSERT_FALSE(made.ok()) << place;
    EXPECT_EQ(made.error().exit, Exit::Recipe) << place;
    EXPECT_NE(made.error().cause.find(cause), std::string::npos) << made.error().cause;
  }
  EXPECT_EQ(*read_text(folder / "file"), "x");
}

}  // namespace
}  // namespace galley
