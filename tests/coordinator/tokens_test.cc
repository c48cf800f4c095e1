// Tokens with which machines and people join.
#include "coordinator/mesh/tokens.h"

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

TEST_F(TokensTest, GivesANameThatIsTakenToItsOwnKeyOnly) {
  Create("t", 5);
  ASSERT_TRUE(Use("t", "k1/pi-1").ok());

  const absl::Status other = Use("t", "k2/pi-1");
  EXPECT_TRUE(absl::IsPermissionDenied(other)) << other;
  EXPECT_THAT(other.message(),
              Says("pi-1 is taken", "paceline token create --for pi-1"));
  EXPECT_TRUE(absl::IsPermissionDenied(Use("t", "k2/PI-1"))) << "its case";
  EXPECT_EQ(mesh_.actions.writes.tokens.at("t")->uses_left(), 4);

  Create("again");
  EXPECT_TRUE(Use("again", "k1/pi-1").ok());
  EXPECT_TRUE(tokens_.OnKey("pi-1", "k1").ok()) << "attaches, or renews";
  EXPECT_TRUE(absl::IsPermissionDenied(tokens_.OnKey("pi-1", "k2")));
  EXPECT_TRUE(tokens_.OnKey("pi-1", "").ok()) << "without TLS";
  Create("c", 2, "client");
  EXPECT_TRUE(Use("c", "k1/kim", absl::Seconds(1), "client").ok());
  EXPECT_TRUE(Use("c", "k2/kim", absl::Seconds(1), "client").ok())
      << "a person has several machines";
}

TEST_F(TokensTest, ForANameGivesItAwayOnce) {
  Create("t");
  ASSERT_TRUE(Use("t", "k1/pi-1").ok());
  v1::CreateTokenRequest request;
  request.set_role("worker");
  request.set_for_name("pi-1");
  const auto create = [&](const std::string& id) {
    return tokens_.OnCreate(request, id, "hash of " + id, At({}));
  };
  ASSERT_EQ(create("f1")->for_name(), "pi-1");
  ASSERT_TRUE(create("f2").ok());

  EXPECT_THAT(Use("f1", "k2/pi-2").message(), HasSubstr("it is for pi-1"));
  EXPECT_TRUE(Use("f1", "k2/pi-1").ok());
  EXPECT_TRUE(Use("f1", "k2/pi-1").ok()) << "the same key asks again";
  EXPECT_TRUE(absl::IsPermissionDenied(Use("f1", "k3/pi-1")));
  EXPECT_TRUE(absl::IsPermissionDenied(Use("t", "k1/pi-1")));
  EXPECT_TRUE(Use("f2", "k3/pi-1").ok());
  EXPECT_TRUE(absl::IsPermissionDenied(Use("f1", "k2/pi-1")))
      << "what it had was given to k3";
  EXPECT_EQ(tokens_.KeyOf("pi-1"), "k3");

  request.set_uses(2);
  EXPECT_THAT(create("f3").status().message(), HasSubstr("one use"));
  request.set_uses(1);
  request.set_for_name("../x");
  EXPECT_TRUE(absl::IsInvalidArgument(create("f3").status()));
}

TEST_F(TokensTest, ANameIsStoredUntilItIsFree) {
  Create("t", 2);
  ASSERT_TRUE(Use("t", "k1/Pi").ok());
  EXPECT_EQ(mesh_.actions.writes.keys.at("pi"), "k1");

  MeshState next_mesh(BrainPolicy{}, Instant{});
  Tokens next(next_mesh, {}, {{"pi", "k1"}});
  EXPECT_TRUE(absl::IsPermissionDenied(next.OnKey("pi", "k2")));
  next.FreeName("PI");
  EXPECT_TRUE(next.OnKey("pi", "k2").ok());

  tokens_.OnRevokeHolder("client", "Pi");
  EXPECT_EQ(tokens_.KeyOf("Pi"), "k1");
  tokens_.OnRevokeHolder("worker", "Pi");
  EXPECT_EQ(mesh_.actions.writes.keys.at("pi"), "");
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
