#include "core/os/daemon_process.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_checks.h"
#include "tests/support/temp_folder.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ConfigFileTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::vector<ConfigEntry>> Read(const std::string& text) {
    folder_.Write("config", text);
    return ReadConfigFile(path_);
  }
  // Returns the error of a file whose second line is `line`, without the path.
  std::string Fault(const std::string& line) {
    const absl::Status status = Read("# first\n" + line + "\n").status();
    if (!absl::IsInvalidArgument(status)) return status.ToString();
    return std::string(status.message().substr(path_.size()));
  }

  const TempFolder folder_;
  const std::string path_ = folder_.Path("config");
};

TEST_F(ConfigFileTest, ValuesAreQuotedOrBareAndCommentsAreLeftOut) {
  const auto entries = Read(
      "# all of it\n\n"
      "a = \"x # y\"  # comment\n"
      "b='z \"'\r\n"
      "  c-d =7.5# comment\n"
      "empty = \"\"");

  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 4u);
  EXPECT_EQ((*entries)[0].key, "a");
  EXPECT_EQ((*entries)[0].value, "x # y");
  EXPECT_EQ((*entries)[0].where, path_ + ":3: a");
  EXPECT_EQ((*entries)[1].value, "z \"");
  EXPECT_EQ((*entries)[2].key, "c-d");
  EXPECT_EQ((*entries)[2].value, "7.5");
  EXPECT_EQ((*entries)[3].value, "");
}

TEST_F(ConfigFileTest, AKeyIsSetAndOtherLinesStay) {
  ASSERT_TRUE(Read("# first\n# a = \"default\"\nb = 2\n").ok());

  ASSERT_TRUE(SetConfigValue(path_, "a", "x").ok());
  ASSERT_EQ(chmod(path_.c_str(), 0640), 0);
  ASSERT_TRUE(SetConfigValue(path_, "b", "3").ok());
  struct stat file = {};
  ASSERT_EQ(stat(path_.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0640u);

  EXPECT_EQ(ReadFile(path_),
            "# first\n# a = \"default\"\nb = \"3\"\na = \"x\"\n");
}

TEST_F(ConfigFileTest, AFaultNamesLineAndKey) {
  EXPECT_EQ(Fault("listen"), ":2: listen: need KEY = VALUE");
  EXPECT_EQ(Fault("[server]"), ":2: [server]: need KEY = VALUE");
  EXPECT_EQ(Fault("a\033[31m"), ":2: a\\x1b[31m: need KEY = VALUE");
  for (const char* const line :
       {"listen =", "listen = # none", "listen = \"open", "listen = a b",
        "listen = \"a\" b", "listen = a\"b\""}) {
    EXPECT_EQ(Fault(line),
              ":2: listen: need one value after '=', as in listen = \"text\"")
        << line;
  }
  EXPECT_EQ(Fault("listen = a\nlisten = b"),
            ":3: listen: is set already, by " + path_ + ":2: listen");
}

TEST_F(ConfigFileTest, AFileThatIsNotThereIsOtherThanOneThatCannotBeRead) {
  EXPECT_TRUE(absl::IsNotFound(ReadConfigFile(path_ + ".no").status()));
  const absl::Status folder = ReadConfigFile("/").status();
  EXPECT_TRUE(absl::IsInvalidArgument(folder)) << folder;
}

TEST(DaemonExitCode, TellsWhatACallerCanDoSomethingAbout) {
  EXPECT_EQ(DaemonExitCode(absl::OkStatus()), 0);
  EXPECT_EQ(DaemonExitCode(absl::InvalidArgumentError("")), 78);
  EXPECT_EQ(DaemonExitCode(absl::PermissionDeniedError("")), 78);
  EXPECT_EQ(DaemonExitCode(absl::UnauthenticatedError("")), 78);
  EXPECT_EQ(DaemonExitCode(absl::AbortedError("")), 78);
  EXPECT_EQ(DaemonExitCode(absl::UnavailableError("")), 1);
  // A clock may be set, and a coordinator may order what it can again.
  EXPECT_EQ(DaemonExitCode(absl::FailedPreconditionError("")), 1);
  EXPECT_EQ(DaemonExitCode(absl::NotFoundError("")), 1);
}

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
