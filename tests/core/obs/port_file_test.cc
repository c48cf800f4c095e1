#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/os/daemon_process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_checks.h"
#include "tests/support/temp_folder.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PortFile : public testing::Test {
 protected:
  const TempFolder folder_;
  const std::string path_ = folder_.Path("ports.json");
};

TEST_F(PortFile, HoldsAddressesAndProcess) {
  ASSERT_TRUE(WritePortFile(path_, "127.0.0.1:7", "127.0.0.1:8").ok());

  EXPECT_EQ(ReadFile(path_),
            absl::StrCat("{\"grpc\": \"127.0.0.1:7\", \"http\": "
                         "\"127.0.0.1:8\", \"pid\": ",
                         getpid(), "}\n"));
}

TEST_F(PortFile, ReplacesWhatAnEarlierLifeWrote) {
  folder_.Write("ports.json", std::string(500, 'x'));

  ASSERT_TRUE(WritePortFile(path_, "a:1", "b:2").ok());

  EXPECT_THAT(ReadFile(path_),
              AllOf(HasSubstr("a:1"), ::testing::Not(HasSubstr("xx"))));
}

TEST_F(PortFile, LeavesAFileOfSuchANameAlone) {
  folder_.Write("ports.json.part", "mine");

  EXPECT_TRUE(WritePortFile(path_, "a:1", "b:2").ok());
  EXPECT_FALSE(WritePortFile(folder_.path(), "a:1", "b:2").ok());

  EXPECT_EQ(ReadFile(path_ + ".part"), "mine");
}

TEST_F(PortFile, IsNotWrittenWithoutAPath) {
  EXPECT_TRUE(WritePortFile("", "a:1", "b:2").ok());
}

TEST_F(PortFile, ThatCannotBeWrittenIsNamedWithTheReason) {
  ExpectError(WritePortFile(folder_.Path("no/such/folder/p"), "a:1", "b:2"),
              absl::StatusCode::kUnavailable,
              AllOf(HasSubstr("--port-file"), HasSubstr("/no/such/folder/p"),
                    HasSubstr("No such file")));
}

TEST_F(PortFile, ThatIsAFolderLeavesNothingBeside) {
  const std::string folder = folder_.Path("folder");
  std::filesystem::create_directory(folder);

  EXPECT_FALSE(WritePortFile(folder, "a:1", "b:2").ok());

  const std::filesystem::directory_iterator left(folder_.path());
  EXPECT_EQ(std::distance(left, {}), 1);
}

}  // namespace
}  // namespace paceline
