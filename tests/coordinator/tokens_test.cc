// Tokens with which machines and people join.
#include "coordinator/tokens.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/says.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

class TokensTest : public testing::Test {
 protected:
  Moment At(absl::Duration since) const {
    return {{since}, absl::ToInt64Milliseconds(since) + 1'000'000};
  }
  v1::JoinToken Create(const std::string& id, int64_t uses = 1,
                       const std::string& role = "worker") {
    v1::CreateTokenRequest request;
    request.set_role(role);
    request.set_uses(uses);
    return tokens_.OnCreate(request, id, "hash of " + id, At({})).value();
  }
  absl::Status Use(const std::string& id, const std::string& key,
                   absl::Duration at = absl::Seconds(1),
                   const std::string& role = "worker") {
    return tokens_.OnUse({id, "hash of " + id, role, key}, At(at));
  }

  MeshState mesh_{BrainPolicy{}, Instant{}};
  Tokens tokens_{mesh_, {}};
};

TEST_F(TokensTest, IsGoodForSoManyKeys) {
  Create("t", 2);

  EXPECT_TRUE(Use("t", "a").ok());
  EXPECT_TRUE(Use("t", "a").ok()) << "the same key asks again";
  EXPECT_TRUE(Use("t", "b").ok());

  const absl::Status third = Use("t", "c");
  EXPECT_TRUE(absl::IsPermissionDenied(third)) << third;
  EXPECT_THAT(third.message(), Says("used up", "token create"));
}

TEST_F(TokensTest, IsRefusedWhereItIsExpiredRevokedUnknownOrOfAnotherRole) {
  Create("t");
  Create("r");
  ASSERT_TRUE(tokens_.OnRevoke("r").ok());

  EXPECT_THAT(Use("t", "a", absl::Hours(1)).message(), HasSubstr("expired"));
  EXPECT_THAT(Use("t", "a", absl::Seconds(1), "client").message(),
              HasSubstr("makes a worker, not a client"));
  for (const char* id : {"r", "x"}) {
    EXPECT_TRUE(absl::IsPermissionDenied(Use(id, "a"))) << id;
  }
  EXPECT_TRUE(absl::IsPermissionDenied(
      tokens_.OnUse({"t", "guess", "worker", "a"}, At({}))));
  EXPECT_TRUE(absl::IsNotFound(tokens_.OnRevoke("r").status()));
}

TEST_F(TokensTest, EndsWithAHolderThatIsLockedOut) {
  Create("t", 2);
  Create("c", 2, "client");
  Create("other", 2);
  ASSERT_TRUE(Use("t", "key/pi-1").ok());
  ASSERT_TRUE(Use("c", "key/pi-1", absl::Seconds(1), "client").ok());
  ASSERT_TRUE(Use("other", "key/a-pi-1").ok());

  tokens_.OnRevokeHolder("worker", "pi-1");

  EXPECT_TRUE(absl::IsPermissionDenied(Use("t", "key/pi-1")));
  EXPECT_FALSE(mesh_.actions.writes.tokens.at("t").has_value());
  EXPECT_TRUE(Use("c", "key/pi-1", absl::Seconds(1), "client").ok());
  EXPECT_TRUE(Use("other", "key/a-pi-1").ok());
}

TEST_F(TokensTest, AThousandGuessesAreLimitedAndStopNobodyElse) {
  Create("t");
  int limited = 0;
  for (int i = 0; i < 1000; ++i) {
    const absl::Status guess = tokens_.OnUse(
        {"t", absl::StrCat("guess ", i), "worker", "a"}, At(absl::Seconds(1)));
    EXPECT_FALSE(guess.ok());
    limited += absl::IsResourceExhausted(guess) ? 1 : 0;
  }
  EXPECT_EQ(limited, 1000 - static_cast<int>(Tokens::kMostWrongAMinute));

  EXPECT_TRUE(Use("t", "a").ok());
  EXPECT_TRUE(absl::IsPermissionDenied(Use("x", "a", absl::Seconds(61))));
}

TEST_F(TokensTest, AreStoredAsHashesAndShownWithoutThem) {
  Create("t");
  const auto& stored = mesh_.actions.writes.tokens.at("t");
  ASSERT_TRUE(stored.has_value());
  EXPECT_EQ(stored->secret_sha256(), "hash of t");
  EXPECT_TRUE(mesh_.actions.writes.durable);

  const v1::ListTokensResponse shown = *tokens_.View({}, At({}));
  ASSERT_EQ(shown.tokens_size(), 1);
  EXPECT_EQ(shown.tokens(0).secret_sha256(), "");
  EXPECT_EQ(tokens_.View({}, At(absl::Hours(2)))->tokens_size(), 0);

  MeshState next_mesh(BrainPolicy{}, Instant{});
  Tokens next(next_mesh, {{"t", *stored}});
  EXPECT_TRUE(next.OnUse({"t", "hash of t", "worker", "a"}, At({})).ok());

  ASSERT_TRUE(tokens_.OnRevoke("t").ok());
  EXPECT_FALSE(mesh_.actions.writes.tokens.at("t").has_value());
}

TEST_F(TokensTest, RefusesWhatCannotBe) {
  const auto why = [this](const std::string& role, int64_t uses, int64_t ttl) {
    v1::CreateTokenRequest request;
    request.set_role(role);
    request.set_uses(uses);
    request.set_ttl_seconds(ttl);
    return std::string(
        tokens_.OnCreate(request, "t", "h", At({})).status().message());
  };

  EXPECT_THAT(why("coordinator", 1, 60), HasSubstr("worker and client"));
  EXPECT_THAT(why("worker", 1001, 60), HasSubstr("1 to 1000 uses, got 1001"));
  EXPECT_THAT(why("worker", -1, 60), HasSubstr("got -1"));
  EXPECT_THAT(why("worker", 1, -1), HasSubstr("lives for 1s"));
  EXPECT_THAT(why("worker", 1, 31 * 24 * 3600), HasSubstr("got 744h"));
}

}  // namespace
}  // namespace paceline
