// deploy/install-deps.sh: which systems it serves.  Installs nothing.

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/child.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Runs the script as on a system with these lines in its os-release, and with
// the programs of `folder` before others.
Finished InstallDeps(const std::vector<std::string>& arguments,
                     const TemporaryFolder& folder,
                     const std::string& os_release) {
  WriteWholeFile(folder / "os-release", os_release);
  ChildOptions options;
  options.environment["PACELINE_OS_RELEASE"] = folder / "os-release";
  options.environment["PATH"] = folder.path() + ":" + getenv("PATH");
  std::vector<std::string> command = arguments;
  command.insert(command.begin(),
                 PACELINE_SOURCE_DIR "/deploy/install-deps.sh");
  return RunCommand(command, std::chrono::seconds(60), options);
}

TEST(InstallDeps, NamesThePackagesOfBothReleases) {
  const TemporaryFolder folder;

  const Finished older =
      InstallDeps({"--list", "--run"}, folder, "VERSION_CODENAME=bookworm\n");
  const Finished newer =
      InstallDeps({"--list", "--run"}, folder, "VERSION_CODENAME=\"trixie\"\n");

  EXPECT_EQ(older.exit_code, 0) << older.errors;
  EXPECT_EQ(newer.exit_code, 0) << newer.errors;
  EXPECT_THAT(older.output,
              AllOf(HasSubstr("libtorch1.13\n"), Not(HasSubstr("libtorch2"))));
  EXPECT_THAT(newer.output,
              AllOf(HasSubstr("libtorch2.6\n"), Not(HasSubstr("libtorch1"))));
}

TEST(InstallDeps, RefusesAReleaseWhoseNamesItDoesNotKnow) {
  const TemporaryFolder folder;

  const Finished finished =
      InstallDeps({"--run"}, folder,
                  "VERSION_CODENAME=noble\nPRETTY_NAME=\"Ubuntu 24.04\"\n");

  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.errors,
              AllOf(HasSubstr("'Ubuntu 24.04'"), HasSubstr("Debian 12 or 13")));
}

TEST(InstallDeps, RefusesASystemOf32BitsWhateverItsKernel) {
  const TemporaryFolder folder;
  WriteWholeFile(folder / "dpkg", "#!/bin/sh\necho armhf\n");
  std::filesystem::permissions(folder / "dpkg",
                               std::filesystem::perms::owner_all);

  const Finished finished =
      InstallDeps({"--run"}, folder, "VERSION_CODENAME=bookworm\n");

  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.errors,
              AllOf(HasSubstr("armhf"), HasSubstr("64-bit system")));
}

}  // namespace
}  // namespace paceline
