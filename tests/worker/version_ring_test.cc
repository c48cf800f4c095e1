#include "worker/pipeline/version_ring.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Ring = VersionRing<std::string>;

TEST(VersionRing, BeginsWithOneVersionThatMayNotBeWrittenOver) {
  Ring ring("v0");

  EXPECT_EQ(ring.newest(), 0);
  EXPECT_EQ(ring.size(), 1);
  EXPECT_EQ(ring.at(0), "v0");
  EXPECT_FALSE(ring.MayOverwrite()) << "a forward to come may use it";
}

TEST(VersionRing, LetsAVersionGoWhenItsLastUserIsDone) {
  Ring ring("v0");
  ASSERT_EQ(*ring.Acquire(), 0);
  ASSERT_EQ(*ring.Acquire(), 0);
  EXPECT_THAT(*ring.Use(1), IsEmpty());
  EXPECT_FALSE(ring.MayOverwrite()) << "two forwards wait for their backward";
  EXPECT_THAT(ring.Push("v1"), IsEmpty());

  EXPECT_THAT(ring.Release(0), IsEmpty());
  EXPECT_THAT(ring.Release(0), ElementsAre("v0"));
  EXPECT_EQ(ring.size(), 1);
  EXPECT_EQ(ring.newest_payload(), "v1");
}

TEST(VersionRing, WritesOverWhatNobodyWants) {
  Ring ring("v");
  ASSERT_TRUE(ring.Acquire().ok());
  ring.Release(0);
  ASSERT_TRUE(ring.Use(1).ok());
  ASSERT_TRUE(ring.MayOverwrite());

  ring.Overwrite();

  EXPECT_EQ(ring.newest(), 1);
  EXPECT_EQ(ring.size(), 1);
  EXPECT_EQ(ring.at(1), "v");
  EXPECT_FALSE(ring.MayOverwrite());
}

TEST(VersionRing, KeepsWhatForwardsToComeMayAskFor) {
  Ring ring("v0");
  for (const char* next : {"v1", "v2", "v3"}) ring.Push(next);
  EXPECT_EQ(ring.size(), 4);

  EXPECT_THAT(*ring.Use(2), ElementsAre("v0", "v1"));
  EXPECT_EQ(*ring.Acquire(), 2);
  EXPECT_THAT(*ring.Use(4), IsEmpty()) << "2 is in use, 3 is the newest";
  EXPECT_THAT(ring.Release(2), ElementsAre("v2"));
  EXPECT_EQ(ring.size(), 1);
}

TEST(VersionRing, LetsGoOfVersionsBetweenThoseInUse) {
  Ring ring("v0");
  ASSERT_TRUE(ring.Acquire().ok());
  for (int version = 1; version <= 3; ++version) {
    ASSERT_TRUE(ring.Use(version).ok());
    ring.Push("v" + std::to_string(version));
  }

  EXPECT_EQ(ring.size(), 2) << "the first is in use, the last the newest";
}

TEST(VersionRing, RefusesVersionsThatAreNotThere) {
  Ring ring("v0");
  ring.Push("v1");
  ASSERT_TRUE(ring.Use(1).ok());

  EXPECT_EQ(ring.Use(0).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(ring.Use(3).status().message()),
              HasSubstr("version 3 of the weights: here are 1 to 1"));
  ASSERT_TRUE(ring.Use(2).ok());
  EXPECT_THAT(std::string(ring.Acquire().status().message()),
              HasSubstr("a forward at version 2 of the weights, but the newest "
                        "is 1"));
}

}  // namespace
}  // namespace paceline
