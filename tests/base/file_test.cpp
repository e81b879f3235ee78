#include "host/base/file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <string>

#include "tests/base/folder.hpp"

namespace galley {
namespace {

std::span<std::byte> bytes_of(std::string& text) { return std::as_writable_bytes(std::span(text)); }

TEST(File, WritesAndReadsBack) {
  const Folder folder;
  Result<File> file = File::create(folder / "a");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->write("hello, world").ok());
  ASSERT_TRUE(file->write_at(std::as_bytes(std::span("HELLO", 5)), 0).ok());
  ASSERT_TRUE(file->sync().ok());
  EXPECT_EQ(*file->size(), 12u);
  std::string middle(5, ' ');
  ASSERT_TRUE(file->read_at(bytes_of(middle), 3).ok());
  EXPECT_EQ(middle, "LO, w");
  ASSERT_TRUE(file->truncate(5).ok());
  EXPECT_EQ(*read_text(folder / "a"), "HELLO");
}

TEST(File, CreateTruncatesAndAppendAppends) {
  const Folder folder;
  folder.put("a", "old and long");
  { ASSERT_TRUE(File::create(folder / "a")->write("new").ok()); }
  { ASSERT_TRUE(File::open_append(folder / "a")->write(" line").ok()); }
  { ASSERT_TRUE(File::open_append(folder / "b")->write("made").ok()); }
  EXPECT_EQ(*read_text(folder / "a"), "new line");
  EXPECT_EQ(*read_text(folder / "b"), "made");
}

TEST(File, AReadBeyondTheEndSaysWhereItEnds) {
  const Folder folder;
  const File file = File::open_read(folder.put("short", "12345")).value();
  std::string text(8, ' ');
  const Status status = file.read_at(bytes_of(text), 2);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().exit, Exit::Failed);
  EXPECT_EQ(status.error().cause,
            "cannot read '" + (folder / "short").string() + "': the file ends at byte 5, 5 bytes before the end of what was to be read");
  EXPECT_EQ(*file.read_some(bytes_of(text), 2), 3u);
  EXPECT_EQ(text.substr(0, 3), "345");
  EXPECT_EQ(*file.read_some(bytes_of(text), 100), 0u);
}

TEST(File, ErrorsHaveThePathAndTheCause) {
  const Folder folder;
  const Result<File> missing = File::open_read(folder / "none");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().exit, Exit::Failed);
  EXPECT_EQ(missing.error().cause, "cannot open '" + (folder / "none").string() + "': No such file or directory");
  EXPECT_EQ(File::open_read(folder.path()).error().cause, "cannot open '" + folder.path().string() + "': it is a directory");
  EXPECT_EQ(File::create(folder / "no/such").error().cause,
            "cannot create '" + (folder / "no/such").string() + "': No such file or directory");
}

// Opening a named pipe would wait for a writer: without the check this test hangs.
TEST(File, OnlyRegularFilesAreRead) {
  const Folder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const Result<File> pipe = File::open_read(folder / "pipe");
  ASSERT_FALSE(pipe.ok());
  EXPECT_EQ(pipe.error().exit, Exit::Failed);
  EXPECT_EQ(pipe.error().cause, "cannot open '" + (folder / "pipe").string() + "': it is a named pipe");
  EXPECT_NE(pipe.error().hint, "");
  EXPECT_EQ(read_text(folder / "pipe").error().cause, pipe.error().cause);
  EXPECT_EQ(File::open_read("/dev/null").error().cause, "cannot open '/dev/null': it is a device");
  std::filesystem::create_symlink("pipe", folder / "link");
  EXPECT_EQ(File::open_read(folder / "link").error().cause, "cannot open '" + (folder / "link").string() + "': it is a named pipe");
}

// What Galley names itself may have been put there by somebody else, to have something written elsewhere.
TEST(File, WritesThroughNoLinkAndIntoNoPipe) {
  const Folder folder;
  folder.put("mine", "kept");
  std::filesystem::create_symlink("mine", folder / "link");
  std::filesystem::create_symlink("nothing", folder / "dangling");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const char* name : {"link", "dangling"}) {
    EXPECT_EQ(File::open_append(folder / name).error().cause, "cannot write '" + (folder / name).string() + "': it is a link");
    EXPECT_EQ(File::create(folder / name).error().cause, "cannot create '" + (folder / name).string() + "': it is a link");
  }
  EXPECT_EQ(File::open_append(folder / "pipe").error().cause, "cannot write '" + (folder / "pipe").string() + "': it is a named pipe");
  EXPECT_EQ(File::create(folder / "pipe").error().cause, "cannot create '" + (folder / "pipe").string() + "': it is a named pipe");
  EXPECT_EQ(*read_text(folder / "mine"), "kept");
  EXPECT_FALSE(std::filesystem::exists(folder / "nothing"));
}

TEST(File, AFullDiskIsNamed) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  Result<File> file = File::of_descriptor(::open("/dev/full", O_RDWR), "/dev/full");
  ASSERT_TRUE(file.ok());
  for (const Status& status : {file->write("text"), file->write_at(std::as_bytes(std::span("text", 4)), 0)}) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().exit, Exit::Failed);
    EXPECT_EQ(status.error().cause, "cannot write '/dev/full': No space left on device");
    EXPECT_NE(status.error().hint, "");
  }
}

TEST(File, MovesKeepOneOwner) {
  const Folder folder;
  File a = File::create(folder / "a").value();
  File b = File::create(folder / "b").value();
  b = std::move(a);
  ASSERT_TRUE(b.write("x").ok());
  EXPECT_EQ(b.path(), folder / "a");
  EXPECT_EQ(*read_text(folder / "a"), "x");
  EXPECT_EQ(*read_text(folder / "b"), "");
}

TEST(ReadText, RefusesMoreThanTheLimit) {
  const Folder folder;
  folder.put("a", "0123456789");
  EXPECT_EQ(*read_text(folder / "a", 10), "0123456789");
  const Result<std::string> text = read_text(folder / "a", 9);
  ASSERT_FALSE(text.ok());
  EXPECT_NE(text.error().cause.find("more than the 9 bytes"), std::string::npos) << text.error().cause;
}

TEST(ReadText, ReadsFilesThatClaimToBeEmpty) {
  if (!std::filesystem::exists("/proc/self/status")) GTEST_SKIP() << "no /proc";
  const Result<std::string> text = read_text("/proc/self/status");
  ASSERT_TRUE(text.ok());
  EXPECT_NE(text->find("Pid:"), std::string::npos);
}

TEST(RenameSynced, MovesFilesAndDirectories) {
  const Folder folder;
  folder.put("from/a", "1");
  folder.put("to/b", "2");
  ASSERT_TRUE(rename_synced(folder / "from", folder / "to/from").ok());
  EXPECT_EQ(*read_text(folder / "to/from/a"), "1");
  const Status status = rename_synced(folder / "none", folder / "x");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().cause,
            "cannot rename '" + (folder / "none").string() + "' to '" + (folder / "x").string() + "': No such file or directory");
  EXPECT_FALSE(sync_directory(folder / "none").ok());
  EXPECT_FALSE(sync_directory(folder / "to/b").ok());
}

}  // namespace
}  // namespace galley
