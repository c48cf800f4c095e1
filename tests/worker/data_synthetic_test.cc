#include <cstring>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/synthetic_values.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;

std::vector<float> Mixed(MixValues mix, size_t count) {
  SplitMix64 pattern(1), noise(2);
  std::vector<float> values(count);
  mix(pattern, noise, absl::MakeSpan(values));
  // What follows must go on where this ended.
  values.push_back(static_cast<float>(pattern.Next() >> 40));
  values.push_back(static_cast<float>(noise.Next() >> 40));
  return values;
}

TEST(SyntheticValues, AreTheSameBytesWithAllInstructions) {
  // Up to several runs, and every rest of a draw.
  for (const size_t count : {1u, 2u, 3u, 4u, 5u, 1023u, 1024u, 3001u}) {
    const std::vector<float> plain = Mixed(WaysToMixValues().front(), count);
    for (const MixValues mix : WaysToMixValues()) {
      const std::vector<float> values = Mixed(mix, count);
      EXPECT_EQ(std::memcmp(values.data(), plain.data(),
                            plain.size() * sizeof(float)),
                0)
          << count;
    }
  }
}

// Runs of the same seed shall learn from the same samples on every machine and
// after every change here.  The numbers: two of 16 bits added by hand.
TEST(SyntheticValues, StayWhatTheyAre) {
  std::vector<float> values = Mixed(WaysToMixValues().front(), 5);
  values.resize(5);
  for (float& value : values) value *= 65536;
  EXPECT_THAT(values,
              ElementsAre(69712.f, -53605.f, 37302.f, -83604.f, -2288.f));
}

}  // namespace
}  // namespace paceline
