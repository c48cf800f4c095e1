#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <set>
#include <string>
#include <thread>

#include "core/os/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/says.h"
#include "tests/support/temp_folder.h"

namespace paceline {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// data/ may be read; state/ and what is beside them may not.
class ReadAccessTest : public testing::Test {
 protected:
  ReadAccessTest() {
    folder_.Write("data/a.txt", "a");
    folder_.Write("data/sub/b.txt", "b");
    folder_.Write("data/.hidden/c.txt", "c");
    folder_.Write("data/sub/.d.txt", "d");
    folder_.Write("data/state/key.pem", "key");
    folder_.Write("data2/e.txt", "e");
    folder_.Write("secret.txt", "s");
    Limit({.folders = {Data()}, .never = {Data() + "/state"}});
  }
  ~ReadAccessTest() override { LimitReads(std::nullopt); }

  void Limit(ReadAccess access) { LimitReads(std::move(access)); }
  std::string Data() const { return folder_.Path("data"); }
  std::string Why(const std::string& name) const {
    return std::string(CheckReadable(folder_.Path(name)).message());
  }
  bool Reads(const std::string& name) const {
    return CheckReadable(folder_.Path(name)).ok();
  }

  const TempFolder folder_;
};

TEST_F(ReadAccessTest, OpensOnlyWhatLiesBelowItsFolders) {
  for (const char* name : {"data", "data/a.txt", "data/sub", "data/sub/b.txt",
                           "data2/../data/a.txt", "data//./a.txt"}) {
    EXPECT_TRUE(Reads(name)) << name << Why(name);
  }
  for (const char* name : {"secret.txt", "data/../secret.txt", "data2/e.txt",
                           "data2", "", "data/sub/../../secret.txt"}) {
    EXPECT_TRUE(absl::IsPermissionDenied(CheckReadable(folder_.Path(name))))
        << name;
  }
  EXPECT_THAT(Why("secret.txt"), Says(folder_.Path("secret.txt"),
                                      "not below " + Data(), "--data-dir"));
  EXPECT_TRUE(absl::IsPermissionDenied(CheckReadable("/etc/passwd")));
  EXPECT_TRUE(absl::IsPermissionDenied(CheckReadable("")));
  EXPECT_EQ((*ByteFile::Open(Data() + "/a.txt"))->size(), 1);
  EXPECT_FALSE(ByteFile::Open(folder_.Path("secret.txt")).ok());
  EXPECT_FALSE(ListFolder(folder_.path()).ok());
}

TEST_F(ReadAccessTest, JudgesWhereLinksLead) {
  fs::create_symlink(folder_.Path("secret.txt"), Data() + "/link");
  fs::create_symlink("..", Data() + "/up");
  fs::create_symlink("sub/b.txt", Data() + "/inside");
  fs::create_symlink(".hidden", Data() + "/open");
  fs::create_symlink(Data(), folder_.Path("to-data"));
  fs::create_symlink("/proc/self/environ", Data() + "/environment");

  for (const char* name : {"data/link", "data/up/secret.txt", "data/up",
                           "data/open/c.txt", "data/environment"}) {
    EXPECT_FALSE(Reads(name)) << name;
  }
  EXPECT_TRUE(Reads("data/inside"));
  EXPECT_TRUE(Reads("to-data/a.txt"));
  // The folder itself is given by a link.
  Limit({.folders = {folder_.Path("to-data/")}});
  EXPECT_TRUE(Reads("data/a.txt"));
  EXPECT_TRUE(Reads("to-data/a.txt"));
  EXPECT_FALSE(Reads("secret.txt"));
}

TEST_F(ReadAccessTest, LeavesHiddenFilesAndTheStateClosed) {
  EXPECT_THAT(Why("data/.hidden/c.txt"), HasSubstr("hidden"));
  EXPECT_THAT(Why("data/sub/.d.txt"), HasSubstr("hidden"));
  EXPECT_THAT(Why("data/state/key.pem"), HasSubstr("own state"));
  EXPECT_THAT(Why("data/state"), HasSubstr("own state"));

  // A folder that is named itself may lie in a hidden one.
  Limit({.folders = {Data() + "/.hidden"}});
  EXPECT_TRUE(Reads("data/.hidden/c.txt"));
  Limit({.folders = {"/"}, .hidden = true, .never = {Data() + "/state"}});
  EXPECT_TRUE(Reads("data/sub/.d.txt"));
  EXPECT_TRUE(Reads("secret.txt"));
  EXPECT_THAT(Why("data/state/key.pem"), HasSubstr("own state"));
  Limit({.folders = {"/"}});
  EXPECT_TRUE(Reads("secret.txt"));
  EXPECT_FALSE(Reads("data/sub/.d.txt"));
}

TEST_F(ReadAccessTest, SaysTheSameOfWhatIsNotThere) {
  const auto without_name = [this](std::string why, const std::string& name) {
    return why.replace(why.find(name), name.size(), "");
  };
  EXPECT_EQ(without_name(Why("secret.txt"), "secret.txt"),
            without_name(Why("missing"), "missing"));
  EXPECT_EQ(without_name(Why("secret.txt"), "secret.txt"),
            without_name(Why("secret.txt/x"), "secret.txt/x"))
      << "whether it is a folder";
  EXPECT_TRUE(absl::IsNotFound(CheckReadable(Data() + "/missing")));
}

TEST_F(ReadAccessTest, WaitsForNoPipeAndOpensNoDevice) {
  ASSERT_EQ(mkfifo((Data() + "/pipe").c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(CheckReadable(Data() + "/pipe")));
  EXPECT_TRUE(
      absl::IsInvalidArgument(OpenToRead(Data(), FileKind::kFile).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      OpenToRead(Data() + "/a.txt", FileKind::kFolder).status()));

  for (const bool limited : {true, false}) {
    if (limited) {
      Limit({.folders = {"/"}});
    } else {
      LimitReads(std::nullopt);
    }
    for (const std::string& path : {Data() + "/pipe", std::string("/dev/zero"),
                                    std::string("/dev/tty")}) {
      EXPECT_FALSE(CheckReadable(path).ok()) << path;
    }
  }
}

TEST_F(ReadAccessTest, ListsWhatIsInAFolder) {
  fs::create_symlink("nowhere", Data() + "/dangling");
  fs::create_symlink("sub", Data() + "/to-sub");
  const auto entries = ListFolder(Data());
  ASSERT_TRUE(entries.ok()) << entries.status();
  std::set<std::string> found;
  for (const FolderEntry& entry : *entries) {
    found.insert(entry.name + (entry.is_folder ? "/" : "") +
                 (entry.is_file ? "!" : ""));
  }
  EXPECT_EQ(found, (std::set<std::string>{".hidden/", "a.txt!", "dangling",
                                          "state/", "sub/", "to-sub/"}));
  EXPECT_EQ(ListFolder(Data(), 2)->size(), 2u);
}

// Somebody exchanges a link while it is being opened, again and again.
TEST_F(ReadAccessTest, IsNotFooledByALinkThatChanges) {
  fs::create_symlink(folder_.Path("secret.txt"), folder_.Path("bad"));
  fs::create_symlink(Data() + "/a.txt", folder_.Path("good"));
  const std::string link = Data() + "/link";
  std::atomic<bool> stop = false;
  std::thread other([&] {
    for (bool good = false; !stop; good = !good) {
      fs::remove(folder_.Path("next"));
      fs::create_symlink(good ? Data() + "/a.txt" : folder_.Path("secret.txt"),
                         folder_.Path("next"));
      rename(folder_.Path("next").c_str(), link.c_str());
    }
  });
  int read = 0, refused = 0;
  for (int i = 0; i < 200'000 && (i < 2000 || read == 0 || refused == 0); ++i) {
    const auto file = ByteFile::Open(link);
    if (!file.ok()) {
      ++refused;
      continue;
    }
    uint8_t byte = 0;
    ASSERT_TRUE((*file)->ReadAt(0, absl::MakeSpan(&byte, 1)).ok());
    ASSERT_EQ(byte, 'a');
    ++read;
  }
  stop = true;
  other.join();
  EXPECT_GT(read, 0);
  EXPECT_GT(refused, 0);
}

TEST_F(ReadAccessTest, AStampTellsThatAFileHasChangedComeOrGone) {
  const size_t first = StampOf(Data());
  EXPECT_EQ(StampOf(Data()), first);
  EXPECT_EQ(StampOf("/etc/passwd"), StampOf(folder_.Path("secret.txt")));

  folder_.Write("data/sub/b.txt", "longer");
  const size_t longer = StampOf(Data());
  EXPECT_NE(longer, first);
  folder_.Write("data/sub/new.txt", "");
  EXPECT_NE(StampOf(Data()), longer);

  const std::string gone = Data() + "/gone";
  const size_t absent = StampOf(gone);
  folder_.Write("data/gone", "");
  EXPECT_NE(StampOf(gone), absent);
}

}  // namespace
}  // namespace paceline
