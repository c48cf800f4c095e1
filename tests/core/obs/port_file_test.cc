#include "core/obs/port_file.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
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
  EXPECT_NE(access((path_ + ".part").c_str(), F_OK), 0);
}

TEST_F(PortFile, ReplacesWhatAnEarlierLifeWrote) {
  std::ofstream(path_) << std::string(500, 'x');

  ASSERT_TRUE(WritePortFile(path_, "a:1", "b:2").ok());

  EXPECT_THAT(Content(),
              AllOf(HasSubstr("a:1"), ::testing::Not(HasSubstr("xx"))));
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
  EXPECT_NE(access((folder_ + ".part").c_str(), F_OK), 0);
}

}  // namespace
}  // namespace paceline
