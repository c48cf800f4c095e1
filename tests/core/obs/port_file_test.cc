#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/os/daemon_process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PortFile : public testing::Test {
 protected:
  PortFile() {
    char name[] = "/tmp/paceline-port-XXXXXX";
    folder_ = mkdtemp(name);
    path_ = folder_ + "/ports.json";
  }
  ~PortFile() override {
    unlink(path_.c_str());
    rmdir(folder_.c_str());  // fails when something else was left in it
  }

  std::string Content() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string folder_;
  std::string path_;
};

TEST_F(PortFile, HoldsAddressesAndProcess) {
  ASSERT_TRUE(WritePortFile(path_, "127.0.0.1:7", "127.0.0.1:8").ok());

  EXPECT_EQ(Content(), absl::StrCat("{\"grpc\": \"127.0.0.1:7\", \"http\": "
                                    "\"127.0.0.1:8\", \"pid\": ",
                                    getpid(), "}\n"));
}

TEST_F(PortFile, ReplacesWhatAnEarlierLifeWrote) {
  std::ofstream(path_) << std::string(500, 'x');

  ASSERT_TRUE(WritePortFile(path_, "a:1", "b:2").ok());

  EXPECT_THAT(Content(),
              AllOf(HasSubstr("a:1"), ::testing::Not(HasSubstr("xx"))));
}

TEST_F(PortFile, LeavesAFileOfSuchANameAlone) {
  const std::string part = path_ + ".part";
  std::ofstream(part) << "mine";

  EXPECT_TRUE(WritePortFile(path_, "a:1", "b:2").ok());
  EXPECT_FALSE(WritePortFile(folder_, "a:1", "b:2").ok());

  std::string kept;
  std::ifstream(part) >> kept;
  EXPECT_EQ(kept, "mine");
  unlink(part.c_str());
}

TEST_F(PortFile, IsNotWrittenWithoutAPath) {
  EXPECT_TRUE(WritePortFile("", "a:1", "b:2").ok());
}

TEST_F(PortFile, ThatCannotBeWrittenIsNamedWithTheReason) {
  const absl::Status status =
      WritePortFile(folder_ + "/no/such/folder/p", "a:1", "b:2");

  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("--port-file"), HasSubstr("/no/such/folder/p"),
                    HasSubstr("No such file")));
}

TEST_F(PortFile, ThatIsAFolderLeavesNothingBeside) {
  const absl::Status status = WritePortFile(folder_, "a:1", "b:2");

  EXPECT_FALSE(status.ok());
  namespace fs = std::filesystem;
  const fs::path above = fs::path(folder_).parent_path();
  for (const auto& entry : fs::directory_iterator(above)) {
    EXPECT_FALSE(entry.path().string().rfind(folder_ + ".", 0) == 0) << entry;
  }
}

}  // namespace
}  // namespace paceline
