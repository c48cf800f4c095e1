// `paceline token`, `login` and `tls check`, over a coordinator of the test's.
#include <string>

#include "client/commands/trust/trust.h"
#include "client/files/settings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_trust_client.h"
#include "tests/client/fakes.h"
#include "tests/support/says.h"

namespace paceline {
namespace {

using testing::HasSubstr;

constexpr char kCoordinator[] = "first:7400";

class TrustCommands : public testing::Test {
 protected:
  FakeTrustClient client_;
  CommandBed bed_;
  TemporaryFolder folder_;
};

TEST_F(TrustCommands, ATokenStandsAloneOnStandardOutput) {
  EXPECT_EQ(CreateTokenCommand(client_, bed_.console, kCoordinator,
                               {"client", 3, absl::Minutes(5)}),
            kExitOk);

  EXPECT_EQ(bed_.out.str(), "id.secret.print\n");
  EXPECT_THAT(bed_.err.str(), Says("paceline login first:7400 TOKEN", "5m"));
  EXPECT_EQ(client_.asked.role(), "client");
  EXPECT_EQ(client_.asked.uses(), 3);
  EXPECT_EQ(client_.asked.ttl_seconds(), 300);
}

TEST_F(TrustCommands, LoginRemembersTheCoordinatorUnlessThereIsOne) {
  const std::string settings = folder_.Path("paceline.yaml");

  EXPECT_EQ(
      LoginCommand(client_, bed_.console, kCoordinator, "t", "kim", settings),
      kExitOk);
  EXPECT_EQ(ReadSettingsFile(settings)->value().coordinator, kCoordinator);
  EXPECT_THAT(bed_.out.str() + bed_.err.str(),
              Says("logged in at first:7400 as kim", "it is away"));

  EXPECT_EQ(
      LoginCommand(client_, bed_.console, "other:1", "t", "kim", settings),
      kExitOk);
  EXPECT_EQ(ReadSettingsFile(settings)->value().coordinator, kCoordinator);
  EXPECT_THAT(bed_.out.str() + bed_.err.str(),
              HasSubstr("--coordinator other:1"));
}

TEST_F(TrustCommands, LoginMakesTheFolderAndQuotesTheAddress) {
  const std::string settings = folder_.Path("new/paceline.yaml");

  EXPECT_EQ(
      LoginCommand(client_, bed_.console, "[::1]:7400", "t", "kim", settings),
      kExitOk);
  EXPECT_EQ(ReadSettingsFile(settings)->value().coordinator, "[::1]:7400");

  // The login stands though it cannot be remembered.
  EXPECT_EQ(LoginCommand(client_, bed_.console, kCoordinator, "t", "kim",
                         settings + "/no/folder"),
            kExitOk);
}

TEST_F(TrustCommands, RevokeAsksBackAboutAWorkerThatNobodyKnows) {
  EXPECT_EQ(RevokeCommand(client_, bed_.console, "worker", "pi-1"), kExitOk);
  EXPECT_EQ(RevokeCommand(client_, bed_.console, "client", "kim"), kExitOk);
  EXPECT_EQ(bed_.err.str(), "");

  EXPECT_EQ(RevokeCommand(client_, bed_.console, "worker", "pi-9"), kExitOk);
  EXPECT_THAT(bed_.err.str(), Says("no worker pi-9", "node list"));
}

TEST_F(TrustCommands, ATokenLivesForASecondAtLeast) {
  EXPECT_EQ(CreateTokenCommand(client_, bed_.console, kCoordinator,
                               {"client", 1, absl::Milliseconds(500)}),
            kExitUsage);
  EXPECT_THAT(bed_.err.str(), HasSubstr("--ttl"));
}

TEST_F(TrustCommands, AnErrorIsSaidAndEndsWithItsCode) {
  client_.error = absl::UnauthenticatedError("no certificate");

  EXPECT_EQ(CheckTlsCommand(client_, bed_.console, kCoordinator),
            kExitNotPermitted);
  EXPECT_EQ(ListTokensCommand(client_, bed_.console), kExitNotPermitted);
  EXPECT_EQ(RevokeTokenCommand(client_, bed_.console, "id"), kExitNotPermitted);
  EXPECT_THAT(bed_.err.str(), HasSubstr("paceline: no certificate"));
}

}  // namespace
}  // namespace paceline
