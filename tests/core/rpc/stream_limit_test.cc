#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/rpc/listener.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using Places = std::vector<std::unique_ptr<StreamLimit::Place>>;

// Takes as many places for `host` as there are, from a port each.
Places TakeAll(StreamLimit& limit, const std::string& host) {
  Places places;
  for (int port = 1;; ++port) {
    auto place = limit.Enter(absl::StrCat(host, ":", port));
    if (!place.ok()) return places;
    places.push_back(*std::move(place));
  }
}

TEST(StreamLimit, AHostHasNoMoreThanItsPlacesAndAnotherOneHasItsOwn) {
  StreamLimit limit;

  const Places places = TakeAll(limit, "ipv4:192.0.2.1");

  EXPECT_EQ(std::ssize(places), StreamLimit::kMostOfAHost);
  EXPECT_TRUE(limit.Enter("ipv4:192.0.2.2:1").ok());
  EXPECT_EQ(limit.Enter("ipv4:192.0.2.1:1").status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(StreamLimit, AllHostsTogetherAreBounded) {
  StreamLimit limit;
  std::vector<Places> places;
  int taken = 0;
  for (int host = 1; host <= 3; ++host) {
    places.push_back(
        TakeAll(limit, absl::StrCat("ipv6:%5B2001:db8::", host, "%5D")));
    taken += static_cast<int>(std::ssize(places.back()));
  }

  EXPECT_EQ(taken, StreamLimit::kMostInAll);
}

TEST(StreamLimit, ItsNumbersMayBeOthersAndOfAConnection) {
  StreamLimit limit(2, 5, StreamLimit::Of::kConnection);
  std::vector<std::unique_ptr<StreamLimit::Place>> places;
  for (int i = 0; i < 5; ++i) {
    places.push_back(
        limit.Enter(absl::StrCat("ipv4:192.0.2.1:", i % 3)).value());
    EXPECT_EQ(limit.CheckRoom().ok(), i < 4);
    // A connection has two at most, all have five.
    EXPECT_EQ(limit.Enter("ipv4:192.0.2.1:0").ok(), i < 3);
  }

  places.clear();

  EXPECT_TRUE(limit.CheckRoom().ok());
}

TEST(StreamLimit, APlaceThatIsGivenBackIsTakenAgain) {
  StreamLimit limit;
  Places places = TakeAll(limit, "ipv4:192.0.2.1");

  places.pop_back();

  EXPECT_TRUE(limit.Enter("ipv4:192.0.2.1:1").ok());
}

}  // namespace
}  // namespace paceline
