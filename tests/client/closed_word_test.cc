#include "client/closed_word.h"

#include "gtest/gtest.h"

namespace paceline {
namespace {

TEST(ClosedWord, ThatIsOnTheListIsFine) {
  EXPECT_EQ(WhyNotAmong("policy", "dp", {"dp", "equal"}), "");
}

TEST(ClosedWord, ThatIsNotNamesTheNearestAndAll) {
  EXPECT_EQ(WhyNotAmong("schedule", "1f1", {"1f1b", "gpipe"}),
            "there is no schedule '1f1'; did you mean '1f1b'?; there are: "
            "1f1b, gpipe");
  EXPECT_EQ(WhyNotAmong("policy", "transmogrify", {"dp", "equal"}),
            "there is no policy 'transmogrify'; there are: dp, equal");
}

}  // namespace
}  // namespace paceline
