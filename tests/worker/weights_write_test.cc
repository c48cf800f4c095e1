// Writing weights: a whole new file, or the old one as it was.
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/weights/atomic_file.h"
#include "worker/weights/safetensors.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::set<std::string> NamesIn(const std::string& folder) {
  std::set<std::string> names;
  DIR* listing = opendir(folder.c_str());
  if (listing == nullptr) return names;
  while (const dirent* entry = readdir(listing)) {
    if (entry->d_name[0] != '.') names.insert(entry->d_name);
  }
  closedir(listing);
  return names;
}

std::vector<NamedTensor> Weights(int64_t values) {
  Tensor tensor = Tensor::Allocate(DType::kF32, {values});
  for (float& value : tensor.As<float>()) value = 1;
  return {{"w", std::move(tensor)}};
}

class WriteTest : public ::testing::Test {
 protected:
  WriteTest() {
    std::string pattern = absl::StrCat(::testing::TempDir(), "/weightsXXXXXX");
    folder_ = mkdtemp(pattern.data());
    path_ = absl::StrCat(folder_, "/model.safetensors");
  }
  ~WriteTest() override {
    for (const std::string& name : NamesIn(folder_)) {
      unlink(absl::StrCat(folder_, "/", name).c_str());
    }
    rmdir(folder_.c_str());
  }

  std::string folder_;
  std::string path_;
};

// Lets no file of this process grow beyond `bytes` while it lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes)
      : old_handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_limit_);
    const rlimit limit = {bytes, old_limit_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_limit_);
    signal(SIGXFSZ, old_handler_);
  }

 private:
  sighandler_t old_handler_;
  rlimit old_limit_ = {};
};

TEST_F(WriteTest, ReplacesTheOldFile) {
  ASSERT_TRUE(WriteSafetensors(path_, Weights(10), {}).ok());
  const std::string old = ReadAll(path_);

  ASSERT_TRUE(WriteSafetensors(path_, Weights(20), {}).ok());

  EXPECT_GT(ReadAll(path_).size(), old.size());
  EXPECT_THAT(NamesIn(folder_), ElementsAre("model.safetensors"));
}

TEST_F(WriteTest, GivesTheFileTheModeOfAnOrdinaryOne) {
  ASSERT_TRUE(WriteSafetensors(path_, Weights(10), {}).ok());
  const std::string ordinary = absl::StrCat(folder_, "/ordinary");
  std::ofstream(ordinary) << "x";
  struct stat ours = {}, theirs = {};
  ASSERT_EQ(stat(path_.c_str(), &ours), 0);
  ASSERT_EQ(stat(ordinary.c_str(), &theirs), 0);

  EXPECT_EQ(ours.st_mode, theirs.st_mode);
}

TEST_F(WriteTest, LeavesTheOldFileWhenTheNewOneGrowsTooLarge) {
  ASSERT_TRUE(WriteSafetensors(path_, Weights(10), {}).ok());
  const std::string old = ReadAll(path_);

  absl::Status status;
  {
    const FileSizeLimit limit(4096);
    status = WriteSafetensors(path_, Weights(100'000), {});
  }

  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
  EXPECT_TRUE(ReadAll(path_) == old);
  EXPECT_THAT(NamesIn(folder_), ElementsAre("model.safetensors"));
}

// What a child finds out about a disk of 64 KiB; empty: all as it should be.
std::string FindOutAboutAFullDisk(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/model.safetensors");
  if (!WriteSafetensors(path, Weights(1000), {}).ok()) return "no first file";
  const std::string old = ReadAll(path);

  const absl::Status status = WriteSafetensors(path, Weights(100'000), {});

  if (status.code() != absl::StatusCode::kResourceExhausted) {
    return status.ToString();
  }
  const std::string message(status.message());
  if (message.find(path) == std::string::npos) return message;
  if (message.find("No space left") == std::string::npos) return message;
  if (ReadAll(path) != old) return "the old file changed";
  if (NamesIn(folder).size() != 1) {
    return absl::StrJoin(NamesIn(folder), " ");
  }
  return "";
}

TEST_F(WriteTest, LeavesTheOldFileWhenTheDiskIsFull) {
  constexpr int kMayNotMount = 77;
  int pipe_ends[2] = {};
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // A mount of its own, which goes away with the process.
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=64k") != 0) {
      _exit(kMayNotMount);
    }
    const std::string wrong = FindOutAboutAFullDisk(folder_);
    const bool told = write(pipe_ends[1], wrong.data(), wrong.size()) >= 0;
    _exit(wrong.empty() && told ? 0 : 1);
  }
  close(pipe_ends[1]);
  char wrong[512] = {};
  EXPECT_GE(read(pipe_ends[0], wrong, sizeof(wrong) - 1), 0);
  close(pipe_ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kMayNotMount) {
    GTEST_SKIP() << "mounting a small disk needs root";
  }

  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << wrong;
}

TEST_F(WriteTest, SaysWhichFolderIsMissing) {
  const std::string path = absl::StrCat(folder_, "/nowhere/model");

  const absl::Status status = WriteSafetensors(path, Weights(1), {});

  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
}

TEST_F(WriteTest, DoesNotReplaceAFolder) {
  ASSERT_EQ(mkdir(path_.c_str(), 0777), 0);

  EXPECT_FALSE(WriteSafetensors(path_, Weights(1), {}).ok());

  EXPECT_THAT(NamesIn(folder_), ElementsAre("model.safetensors"));
  rmdir(path_.c_str());
}

TEST_F(WriteTest, RefusesANameTwiceBeforeItTouchesTheDisk) {
  std::vector<NamedTensor> tensors = Weights(1);
  tensors.push_back(tensors[0]);

  EXPECT_EQ(WriteSafetensors(path_, tensors, {}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(NamesIn(folder_), IsEmpty());
}

TEST_F(WriteTest, AnUncommittedFileLeavesNothingBehind) {
  {
    const auto file = AtomicFile::Create(path_);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Append("half of it").ok());
    EXPECT_EQ(NamesIn(folder_).count("model.safetensors"), 0u);
  }

  EXPECT_THAT(NamesIn(folder_), IsEmpty());
}

TEST_F(WriteTest, TwoWritersOfOnePathDoNotMix) {
  const auto first = AtomicFile::Create(path_);
  const auto second = AtomicFile::Create(path_);
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_TRUE((*first)->Append("first").ok());
  ASSERT_TRUE((*second)->Append("second").ok());

  ASSERT_TRUE((*second)->Commit().ok());
  EXPECT_EQ(ReadAll(path_), "second");
  ASSERT_TRUE((*first)->Commit().ok());

  EXPECT_EQ(ReadAll(path_), "first");
  EXPECT_THAT(NamesIn(folder_), ElementsAre("model.safetensors"));
}

}  // namespace
}  // namespace paceline
