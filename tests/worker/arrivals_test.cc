#include "core/base/clock.h"
#include "gtest/gtest.h"
#include "tests/support/round_group.h"
#include "worker/rounds/peer_links.h"

namespace paceline {
namespace {

constexpr absl::Duration kLease = absl::Seconds(3);

Instant At(double seconds) { return {absl::Seconds(seconds)}; }

std::vector<PeerReport> Peers(const Arrivals& arrivals, double seconds,
                              std::vector<PeerReport> peers = {}) {
  arrivals.AddTo(peers, At(seconds), kLease);
  return peers;
}

TEST(Arrivals, WhoseBytesComeIsWaitedForLessThanALease) {
  Arrivals arrivals;
  EXPECT_TRUE(Peers(arrivals, 0).empty());
  arrivals.OnBytes(MemberOf(1), At(5));

  const auto at_once = Peers(arrivals, 5);
  const auto later = Peers(arrivals, 7);

  ASSERT_EQ(at_once.size(), 1u);
  EXPECT_EQ(at_once[0].peer, MemberOf(1));
  EXPECT_GT(at_once[0].owing, absl::ZeroDuration());
  EXPECT_LT(at_once[0].owing, kLease);
  EXPECT_EQ(later.at(0).owing, absl::Seconds(2));
}

// What ended long ago is no complaint.
TEST(Arrivals, AreForgottenAfterALease) {
  Arrivals arrivals;
  arrivals.OnBytes(MemberOf(1), At(5));

  EXPECT_TRUE(Peers(arrivals, 8).empty());
  arrivals.OnBytes(MemberOf(1), At(8));
  EXPECT_EQ(Peers(arrivals, 9).size(), 1u);
}

TEST(Arrivals, TakeNothingFromWhatIsOwedBesides) {
  Arrivals arrivals;
  arrivals.OnBytes(MemberOf(1), At(5));
  PeerReport known;
  known.peer = MemberOf(1);
  known.broken = absl::Seconds(1);
  known.owing = absl::Seconds(4);

  const auto peers = Peers(arrivals, 6, {known});

  ASSERT_EQ(peers.size(), 1u);
  EXPECT_EQ(peers[0].owing, absl::Seconds(4));
  EXPECT_EQ(peers[0].broken, absl::Seconds(1));
}

}  // namespace
}  // namespace paceline
