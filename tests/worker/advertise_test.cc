#include "worker/rpc/advertise.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

TEST(AdvertisedAddress, IsWhereTheWorkerListensUnlessSaid) {
  EXPECT_EQ(*AdvertisedAddress("", "127.0.0.1:5000"), "127.0.0.1:5000");
  EXPECT_EQ(*AdvertisedAddress("pi-2:7401", "127.0.0.1:5000"), "pi-2:7401");
}

TEST(AdvertisedAddress, OfEveryAddressLeavesTheHostToTheCoordinator) {
  EXPECT_EQ(*AdvertisedAddress("", "0.0.0.0:5000"), ":5000");
  EXPECT_EQ(*AdvertisedAddress("", "[::]:5000"), ":5000");
  EXPECT_EQ(*AdvertisedAddress("", ":5000"), ":5000");
}

TEST(AdvertisedAddress, HasThePortThatWasBoundForPortZero) {
  EXPECT_EQ(*AdvertisedAddress("pi-2:0", "0.0.0.0:5000"), "pi-2:5000");
  EXPECT_EQ(*AdvertisedAddress("[fe80::2]:0", "[::]:5000"), "[fe80::2]:5000");
}

TEST(AdvertisedAddress, ThatIsNoneIsRefusedWithItsFlag) {
  for (const char* bad : {"pi-2", "pi-2:", "pi-2:99999", "[::1:5"}) {
    const absl::Status status =
        AdvertisedAddress(bad, "127.0.0.1:5000").status();

    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--advertise")) << bad;
  }
}

}  // namespace
}  // namespace paceline
