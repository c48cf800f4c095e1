// A daemon with a wrong configuration names the mistake, and systemd does not
// start it again.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/child.h"
#include "tests/support/mesh.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

struct Mistake {
  std::string line;     // the second of the file
  std::string message;  // after the file's name
};

class ConfigurationTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::string daemon() const { return "paceline-" + GetParam(); }
  std::string file() const { return folder_ / "daemon.toml"; }

  Finished RunWith(const std::vector<std::string>& flags) {
    std::vector<std::string> words = {Program(daemon()), "--config", file(),
                                      "--state", folder_ / "state"};
    words.insert(words.end(), flags.begin(), flags.end());
    return RunCommand(words);
  }

  const TemporaryFolder folder_;
};

TEST_P(ConfigurationTest, AMistakeInTheFileIsNamedAndNotTriedAgain) {
  for (const Mistake& mistake : {
           Mistake{"lisen = \"h:1\"", ":2: lisen: there is no such key"},
           Mistake{"http = ", ":2: http: need one value"},
           Mistake{"insecure = maybe", ":2: insecure: Could not convert"},
           Mistake{"log-level = loud", ":2: log-level: loud not in"},
           Mistake{"listen = 7400", ":2: listen: '7400' is not HOST:PORT"},
           Mistake{"http = h", ":2: http: 'h' is not HOST:PORT"},
           Mistake{"http = 0.0.0.0:0", ":2: http: 0.0.0.0:0 is off loopback"},
           Mistake{"listen = 0.0.0.0:0", ":2: listen: refusing to listen"},
       }) {
    WriteWholeFile(file(), "# comment\n" + mistake.line + "\n");

    const Finished finished =
        RunWith(mistake.line.rfind("http", 0) == 0
                    ? std::vector<std::string>{"--listen", "127.0.0.1:0"}
                    : std::vector<std::string>{"--http", "127.0.0.1:0"});

    EXPECT_EQ(finished.exit_code, 78) << mistake.line;
    EXPECT_THAT(finished.errors,
                HasSubstr(daemon() + ": " + file() + mistake.message));
  }
}

TEST_P(ConfigurationTest, AMistakeInAFlagIsNotTriedAgainEither) {
  WriteWholeFile(file(), "");

  const Finished unknown = RunWith({"--lisen", "h:1"});
  const Finished address = RunWith({"--listen", "7400"});

  EXPECT_EQ(unknown.exit_code, 78) << unknown.errors;
  EXPECT_EQ(address.exit_code, 78) << address.errors;
  EXPECT_THAT(address.errors, HasSubstr("--listen: '7400' is not HOST:PORT"));
}

TEST_P(ConfigurationTest, APortInUseIsTriedAgain) {
  const std::string address = "127.0.0.1:" + FreePort();
  WriteWholeFile(file(), "");
  Child holder({Program("paceline-coordinator"), "--listen", address, "--http",
                "127.0.0.1:0", "--state", folder_ / "holder", "--port-file",
                folder_ / "ports"});
  ASSERT_TRUE(Eventually([&] {
    return !ReadWholeFile(folder_ / "ports").empty();
  })) << holder.errors();

  const Finished finished =
      RunWith({"--listen", address, "--http", "127.0.0.1:0"});

  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.errors, HasSubstr("is in use"));
}

TEST_P(ConfigurationTest, TheUnitDoesNotStartItAgain) {
  EXPECT_THAT(ReadWholeFile(PACELINE_SOURCE_DIR "/deploy/systemd/" + daemon() +
                            ".service"),
              HasSubstr("\nRestartPreventExitStatus=78\n"));
}

INSTANTIATE_TEST_SUITE_P(Daemons, ConfigurationTest,
                         ::testing::Values("coordinator", "worker"));

}  // namespace
}  // namespace paceline
