#include "host/tokens/documents.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <optional>

#include "host/base/confinement.hpp"
#include "tests/base/nobody.hpp"
#include "tests/data/support.hpp"

namespace galley {
namespace {

class DocumentsTest : public testing::Test {
 protected:
  /// The identities of what is found, or the error after the recipe's line.
  std::string find(const std::vector<std::string>& names) {
    std::vector<std::string> files;
    for (const std::string& name : names) files.push_back((folder_ / name).string());
    const Result<Documents> documents = find_documents(spec_of("text", {}), files, FileKind::Text);
    if (!documents.ok()) {
      EXPECT_EQ(documents.error().exit, Exit::Recipe);
      std::string cause = documents.error().cause;
      while (cause.find(folder_.path().string()) != std::string::npos)
        cause.replace(cause.find(folder_.path().string()), folder_.path().string().size(), "F");
      return cause;
    }
    binary_ = documents->binary;
    small_ = documents->small;
    std::string found;
    for (const TextDocument& document : documents->files) {
      EXPECT_EQ(document.size, std::filesystem::file_size(document.path));
      found += (found.empty() ? "" : " ") + document.identity;
    }
    return found;
  }
  Folder folder_;
  int64_t binary_ = -1, small_ = -1;
};

TEST_F(DocumentsTest, ADirectoryIsWalkedInOrder) {
  folder_.put("d/b.txt", "bb");
  folder_.put("d/a/z.txt", "zz");
  folder_.put("d/a.txt", "aa");
  folder_.put("d/.hidden/x.txt", "xx");
  folder_.put("d/.git/HEAD", "ref");
  folder_.put("d/build/out.txt", "oo");
  folder_.put("d/cmake-out/CMakeCache.txt", "cache");
  folder_.put("d/target/CACHEDIR.TAG", "Signature");
  folder_.put("d/target/debug.txt", "xx");
  folder_.put("d/runs/first/run.toml", "version = 1");
  folder_.put("d/runs/first/metrics.jsonl", "{}");
  folder_.put("d/__pycache__/m.pyc", "mm");
  folder_.put("d/image.png", std::string("\x89PNG\0\0", 6));
  folder_.put("d/empty.txt", "");
  folder_.put("d/one.txt", "1");
  std::filesystem::create_symlink(folder_ / "d/b.txt", folder_ / "d/link.txt");
  std::filesystem::create_directory_symlink(folder_ / "d", folder_ / "d/loop");
  ASSERT_EQ(::mkfifo((folder_ / "d/pipe").c_str(), 0600), 0);
  EXPECT_EQ(find({"d"}), "a.txt a/z.txt b.txt");
  EXPECT_EQ(binary_, 1);
  EXPECT_EQ(small_, 2);
  EXPECT_EQ(find({"d/"}), "a.txt a/z.txt b.txt");
  EXPECT_EQ(find({"d/build"}), "out.txt");  // asked for by name
}

TEST_F(DocumentsTest, FilesKeepTheirOrderAndCountOnce) {
  folder_.put("d/b.txt", "bb");
  folder_.put("d/a.txt", "aa");
  EXPECT_EQ(find({"d/b.txt", "d/a.txt"}), "b.txt a.txt");
  EXPECT_EQ(find({"d/b.txt", "d", "d/b.txt"}), "b.txt a.txt");
}

TEST_F(DocumentsTest, PatternsMatchNames) {
  for (const char* name : {"p/a1.txt", "p/a2.txt", "p/b.md", "p/q/a3.txt", "p/q/r/a4.txt", "p/.x/a5.txt", "p/build/a6.txt", "p/.a7.txt"})
    folder_.put(name, "text");
  EXPECT_EQ(find({"p/a*.txt"}), "a1.txt a2.txt");
  EXPECT_EQ(find({"p/a[2-9].txt"}), "a2.txt");
  EXPECT_EQ(find({"p/?.md"}), "b.md");
  EXPECT_EQ(find({"p/*/a*.txt"}), "build/a6.txt q/a3.txt");
  EXPECT_EQ(find({"p/**/a*.txt"}), "a1.txt a2.txt q/a3.txt q/r/a4.txt");
  EXPECT_EQ(find({"p/q/**"}), "a3.txt r/a4.txt");
  EXPECT_EQ(find({"p/*.rst"}), "recipe.lua:5: data.text: no file matches 'F/p/*.rst'");
  EXPECT_EQ(find({"none/*.txt"}), "recipe.lua:5: data.text: no file matches 'F/none/*.txt'");
  folder_.put("p/odd[1].txt", "text");
  EXPECT_EQ(find({"p/odd[1].txt"}), "odd[1].txt");  // a name that is there is that name
}

// What a folder is called is no pattern, beside one that it would match.
TEST_F(DocumentsTest, FoldersWithWildcardsInTheirNames) {
  for (const char* name : {"exp[1]/own.txt", "exp1/other.txt", "a*b/own.txt", "axb/other.txt", "q?/own.txt", "qx/other.txt"})
    folder_.put(name, "text");
  for (const char* folder : {"exp[1]", "a*b", "q?"}) {
    EXPECT_EQ(find({std::string(folder) + "/*.txt"}), "own.txt");
    EXPECT_EQ(find({std::string(folder) + "/**/*.txt"}), "own.txt");
    EXPECT_EQ(find({std::string(folder) + "/none.txt"}),
              "recipe.lua:5: data.text: cannot open 'F/" + std::string(folder) + "/none.txt': No such file or directory");
  }
  EXPECT_EQ(find({"exp[12]/*.txt"}), "exp1/other.txt");
}

// Twenty directories in each other and fifteen `**` have some 10^9 ways to share them.
TEST_F(DocumentsTest, ManyStarsAreQuick) {
  std::string deep = "p/", stars = "p/", links = "l/";
  for (int i = 0; i < 20; ++i) deep += "d/";
  for (int i = 0; i < 15; ++i) stars += "**/";
  folder_.put(deep + "x.txt", "text");
  folder_.put("p/x.txt", "text");
  EXPECT_EQ(find({stars + "x.txt"}), "x.txt " + deep.substr(2) + "x.txt");
  EXPECT_EQ(find({stars + "none.txt"}), "recipe.lua:5: data.text: no file matches 'F/" + stars + "none.txt'");
  // Four links to the directory that they lie in: each `*` could take any of them.
  folder_.put("l/x.txt", "text");
  for (const char* name : {"a", "b", "c", "d"}) std::filesystem::create_directory_symlink(".", folder_ / "l" / name);
  for (int i = 0; i < 20; ++i) links += "*/";
  EXPECT_EQ(find({links + "x.txt"}), "a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/x.txt");
}

TEST_F(DocumentsTest, StarsMixed) {
  for (const char* name : {"m/a/b/c.txt", "m/a/c.txt", "m/b/a/b/c.txt", "m/c.txt", "m/b/c.md"}) folder_.put(name, "text");
  EXPECT_EQ(find({"m/**/b/*.txt"}), "a/b/c.txt b/a/b/c.txt");
  EXPECT_EQ(find({"m/**/b/**/*.txt"}), "a/b/c.txt b/a/b/c.txt");
  EXPECT_EQ(find({"m/*/**"}), "a/c.txt a/b/c.txt b/c.md b/a/b/c.txt");
  EXPECT_EQ(find({"m/**/**"}), "c.txt a/c.txt a/b/c.txt b/c.md b/a/b/c.txt");
}

// Of a confined recipe: what a pattern, a folder or a name finds lies below the roots.
TEST_F(DocumentsTest, LinksDoNotLeadOutOfTheRoots) {
  folder_.put("away/passwd", "secret");
  folder_.put("own/sub/a.txt", "text");
  std::filesystem::create_symlink(folder_ / "own/sub/a.txt", folder_ / "own/sub/b.txt");
  const auto confined = [&](const std::string& name, const std::vector<std::string>& roots = {"own"}) {
    DataSpec spec = spec_of("text", {});
    std::vector<std::filesystem::path> folders;
    for (const std::string& root : roots) folders.push_back(folder_ / root);
    std::optional<Confinement> within;
    if (!folders.empty()) within.emplace(folders, "the recipe's folder", "--confine");
    const Result<Documents> documents = find_documents(spec, {(folder_ / name).string()}, FileKind::Text);
    if (documents.ok()) return std::to_string(documents->files.size());
    EXPECT_EQ(documents.error().exit, Exit::Recipe);
    EXPECT_NE(documents.error().hint.find("--confine"), std::string::npos);
    return documents.error().cause;
  };
  EXPECT_EQ(confined("own/*/*"), "1");
  std::filesystem::create_symlink(folder_ / "away/passwd", folder_ / "own/sub/passwd");
  std::filesystem::create_directory_symlink(folder_ / "away", folder_ / "own/far");
  const auto error = [&](const std::string& name, const std::string& to = "away/passwd") {
    return "recipe.lua:5: data.text: '" + (folder_ / name).string() + "' leads out of the recipe's folder, to " + (folder_ / to).string();
  };
  EXPECT_EQ(confined("own/sub/*"), error("own/sub/passwd"));
  EXPECT_EQ(confined("own/**/pass*"), error("own/sub/passwd"));
  EXPECT_EQ(confined("own/f*/*"), error("own/far", "away"));  // not even its names are read
  EXPECT_EQ(confined("own/sub/passwd"), error("own/sub/passwd"));
  EXPECT_EQ(confined("own"), "1");  // a directory is walked without its links
  EXPECT_EQ(confined("own/sub/*", {"own", "away"}), "2");
  EXPECT_EQ(confined("own/sub/*", {}), "2");
}

// It can be read by its descriptor, but lies nowhere.
TEST_F(DocumentsTest, AFileWithoutAPlaceIsBelowNoRoot) {
  const std::filesystem::path path = folder_.put("a.txt", "text");
  std::FILE* const file = std::fopen(path.c_str(), "r");
  ASSERT_NE(file, nullptr);
  std::filesystem::remove(path);
  const std::string number = std::to_string(::fileno(file)), name = "/proc/self/fd/" + number;
  EXPECT_EQ(find({name}), number);
  DataSpec spec = spec_of("text", {});
  const Confinement within({folder_.path()}, "the recipe's folder", "");
  const Result<Documents> documents = find_documents(spec, {name}, FileKind::Text);
  std::fclose(file);
  ASSERT_FALSE(documents.ok());
  EXPECT_EQ(documents.error().exit, Exit::Recipe);
  EXPECT_EQ(documents.error().cause, "recipe.lua:5: data.text: cannot resolve '" + name + "': No such file or directory");
}

TEST_F(DocumentsTest, WhatIsNamedMustBeAText) {
  EXPECT_EQ(find({"none.txt"}), "recipe.lua:5: data.text: cannot open 'F/none.txt': No such file or directory");
  folder_.put("x.bin", std::string("ab\0cd", 5));
  EXPECT_EQ(find({"x.bin"}), "recipe.lua:5: data.text: 'F/x.bin' is not a text: it has a NUL in its first bytes");
  EXPECT_EQ(find({"*.bin"}), "");
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(find({"pipe"}), "recipe.lua:5: data.text: 'F/pipe' is neither a file nor a directory");
}

TEST_F(DocumentsTest, WhatCannotBeReadIsNamed) {
  std::filesystem::permissions(folder_.put("d/secret.txt", "text"), std::filesystem::perms::none);
  std::filesystem::permissions(folder_.path(), std::filesystem::perms(0755));
  const Nobody nobody;
  EXPECT_EQ(find({"d"}), "recipe.lua:5: data.text: cannot open 'F/d/secret.txt': Permission denied");
}

}  // namespace
}  // namespace galley
