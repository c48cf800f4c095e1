#include "core/schedule/route.h"

#include <numeric>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<int> CountsOf(const RouteTable& route, int replicas) {
  std::vector<int> counts(replicas, 0);
  for (const int turn : route.turns()) ++counts[turn];
  return counts;
}

TEST(Route, OfOneReplicaGivesItEverything) {
  EXPECT_THAT(MakeRouteTable({0.7}).turns(), IsEmpty());
  EXPECT_EQ(MakeRouteTable({0.7}).ReplicaOf(1'000'000'007), 0);
  EXPECT_EQ(RouteTable().NextOf(0, 17), 17);
}

TEST(Route, OfEqualSharesGoesRound) {
  EXPECT_THAT(MakeRouteTable({1.0 / 3, 1.0 / 3, 1.0 / 3}).turns(),
              ElementsAre(0, 1, 2));
}

TEST(Route, OfUnevenSharesAlternatesAsEvenlyAsItCan) {
  EXPECT_THAT(MakeRouteTable({2, 1}).turns(), ElementsAre(0, 1, 0));
  EXPECT_THAT(MakeRouteTable({0.25, 0.75}).turns(), ElementsAre(1, 0, 1, 1));
}

TEST(Route, TakesTheShortestPeriodThatMeetsTheShares) {
  const RouteTable route = MakeRouteTable({0.6, 0.3, 0.1});

  EXPECT_EQ(route.period(), 10);
  EXPECT_THAT(CountsOf(route, 3), ElementsAre(6, 3, 1));
}

TEST(Route, GivesATurnToWhoHasHardlyAShare) {
  EXPECT_THAT(CountsOf(MakeRouteTable({1, 1e-9}), 2), ElementsAre(63, 1));
  EXPECT_THAT(CountsOf(MakeRouteTable({1e-9, 1e-9, 1}), 3),
              ElementsAre(1, 1, 62));
}

TEST(Route, StaysNearTheSharesAllTheTime) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> draw(0.1, 1);
  for (int round = 0; round < 200; ++round) {
    const int replicas = 2 + round % 6;
    std::vector<double> shares;
    for (int i = 0; i < replicas; ++i) shares.push_back(draw(random));
    const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);

    const RouteTable route = MakeRouteTable(shares);

    ASSERT_LE(route.period(), MostTurns(replicas));
    ASSERT_TRUE(CheckTurns(route.turns(), replicas).ok());
    const std::vector<int> counts = CountsOf(route, replicas);
    for (int i = 0; i < replicas; ++i) {
      const double got = static_cast<double>(counts[i]) / route.period();
      EXPECT_NEAR(got, shares[i] / sum, 0.5 / MostTurns(replicas) + 0.01);
    }
    std::vector<int> given(replicas, 0);
    for (int64_t m = 0; m < 2 * route.period(); ++m) {
      ++given[route.ReplicaOf(m)];
      for (int i = 0; i < replicas; ++i) {
        const double due =
            static_cast<double>(counts[i]) / route.period() * (m + 1.0);
        EXPECT_NEAR(given[i], due, replicas == 2 ? 1 : replicas);
      }
    }
  }
}

TEST(Route, NamesTheNextMicroBatchOfAReplica) {
  const RouteTable route({0, 1, 0});
  std::vector<int64_t> of_one;
  for (int64_t m = route.NextOf(1, 0); m < 10; m = route.NextOf(1, m + 1)) {
    of_one.push_back(m);
  }
  EXPECT_THAT(of_one, ElementsAre(1, 4, 7));
  EXPECT_EQ(route.NextOf(0, 1'000'000'000'000), 1'000'000'000'001);
}

TEST(Route, RefusesTurnsThatDoNotFitTheReplicas) {
  EXPECT_TRUE(CheckTurns({}, 1).ok());
  EXPECT_THAT(CheckTurns({0, 2}, 2).message(), HasSubstr("replica 2 of 2"));
  EXPECT_THAT(CheckTurns({0, -1}, 2).message(), HasSubstr("replica -1 of 2"));
  EXPECT_THAT(CheckTurns({0, 0}, 2).message(),
              HasSubstr("no turn for replica 1 of 2"));
  EXPECT_FALSE(CheckTurns({}, 0).ok());
  EXPECT_THAT(CheckTurns({}, 2).message(), HasSubstr("no turn for replica 0"));
  EXPECT_THAT(CheckTurns(std::vector<int>(65, 0), 1).message(),
              HasSubstr("65 turns for 1 replicas, at most 64"));
}

}  // namespace
}  // namespace paceline
