#include "core/base/statistics.h"

#include "gtest/gtest.h"

namespace paceline {
namespace {

TEST(RecentLongest, ForgetsWhatIsMoreThan64Back) {
  RecentLongest longest;
  EXPECT_EQ(longest.Get(), absl::ZeroDuration());

  longest.Add(absl::Seconds(9));
  for (int i = 0; i < 63; ++i) longest.Add(absl::Seconds(1));
  EXPECT_EQ(longest.Get(), absl::Seconds(9));

  longest.Add(absl::Seconds(2));
  EXPECT_EQ(longest.Get(), absl::Seconds(2));
}

}  // namespace
}  // namespace paceline
