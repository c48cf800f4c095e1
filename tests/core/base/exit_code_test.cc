#include "core/os/daemon_process.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

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

}  // namespace
}  // namespace paceline
