#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/transport/grpc_prober.h"

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

TEST(AdvertisedAddress, ThatIsNoneIsRefused) {
  for (const char* bad : {"pi-2", "pi-2:", "pi-2:99999", "[::1:5"}) {
    const absl::Status status =
        AdvertisedAddress(bad, "127.0.0.1:5000").status();

    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad)) << bad;
  }
}

// The link to a worker that gives a loopback address was
// measured, and was this worker's to itself.
TEST(IsOwnAddress, IsWhereTheWorkerListensOrIsKnown) {
  EXPECT_TRUE(IsOwnAddress("pi-1:7401", "0.0.0.0:7401", "pi-1:7401"));
  EXPECT_TRUE(IsOwnAddress("127.0.0.1:7401", "0.0.0.0:7401", "pi-1:7401"));
  EXPECT_TRUE(IsOwnAddress("localhost:7401", "127.0.0.1:7401", ":7401"));
  EXPECT_TRUE(IsOwnAddress("[::1]:7401", "[::]:7401", ":7401"));
}

TEST(IsOwnAddress, IsNotThatOfAnotherWorkerOfThisMachineOrElsewhere) {
  EXPECT_FALSE(IsOwnAddress("127.0.0.1:7402", "0.0.0.0:7401", "pi-1:7401"));
  EXPECT_FALSE(IsOwnAddress("127.0.0.1:7401", "10.0.0.7:7401", "pi-1:7401"));
  EXPECT_FALSE(IsOwnAddress("pi-2:7401", "0.0.0.0:7401", "pi-1:7401"));
  EXPECT_FALSE(IsOwnAddress("no address", "0.0.0.0:7401", "pi-1:7401"));
}

}  // namespace
}  // namespace paceline
