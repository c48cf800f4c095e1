#include "core/simulate/resources.h"

#include <vector>

#include "gtest/gtest.h"

namespace paceline {
namespace {

// Four devices, 100 bytes a second, 1 s of latency.
class NetworkTest : public testing::Test {
 protected:
  NetworkTest() {
    problem_.devices.resize(4);
    problem_.links.assign(4, std::vector<LinkCost>(4, {100, 1}));
  }

  // When a frame that is alone is there.
  static double Alone(Network& network, int from, int to, double bytes,
                      double now) {
    return network.Receive(from, to, bytes,
                           network.Send(from, to, bytes, now).reach_seconds);
  }

  PlanProblem problem_;
};

TEST_F(NetworkTest, AFrameTakesItsBytesAndTheLatency) {
  Network network(problem_);

  EXPECT_DOUBLE_EQ(Alone(network, 0, 1, 200, 5), 5 + 2 + 1);
}

TEST_F(NetworkTest, FramesForDifferentDevicesShareTheSendersPort) {
  Network network(problem_);

  EXPECT_DOUBLE_EQ(Alone(network, 0, 1, 200, 0), 3);
  EXPECT_DOUBLE_EQ(Alone(network, 0, 2, 200, 0), 5);
}

TEST_F(NetworkTest, FramesFromDifferentDevicesShareTheReceiversPort) {
  Network network(problem_);
  const double one = network.Send(0, 2, 200, 0).reach_seconds;
  const double two = network.Send(1, 2, 200, 0).reach_seconds;

  EXPECT_DOUBLE_EQ(network.Receive(0, 2, 200, one), 3);
  EXPECT_DOUBLE_EQ(network.Receive(1, 2, 200, two), 5);
}

TEST_F(NetworkTest, SendingAndReceivingDoNotShareAPort) {
  Network network(problem_);

  EXPECT_DOUBLE_EQ(Alone(network, 0, 1, 200, 0), 3);
  EXPECT_DOUBLE_EQ(Alone(network, 1, 0, 200, 0), 3);
}

TEST_F(NetworkTest, DevicesOfAMachineMayShareItsPortToOthers) {
  problem_.devices[2].machine = problem_.devices[3].machine = 1;
  problem_.links[0][1].bytes_per_second = 1000;
  Network own(problem_), shared(problem_, /*machine_ports=*/true);

  EXPECT_DOUBLE_EQ(Alone(own, 0, 2, 200, 0), 3);
  EXPECT_DOUBLE_EQ(Alone(own, 1, 3, 200, 0), 3);
  EXPECT_DOUBLE_EQ(Alone(shared, 0, 2, 200, 0), 3);
  EXPECT_DOUBLE_EQ(Alone(shared, 1, 3, 200, 0), 5);
  EXPECT_DOUBLE_EQ(Alone(shared, 0, 1, 200, 0), 1.2) << "inside the machine";
}

TEST_F(NetworkTest, ASlowLinkHoldsUpOnlyItself) {
  problem_.links[0][1].bytes_per_second = 10;
  Network network(problem_);

  EXPECT_DOUBLE_EQ(Alone(network, 0, 1, 200, 0), 21);
  // The port was busy for 2 s.
  EXPECT_DOUBLE_EQ(Alone(network, 0, 2, 200, 0), 5);
  EXPECT_DOUBLE_EQ(Alone(network, 0, 1, 200, 0), 41);
}

TEST_F(NetworkTest, ClearForgetsWhatWasUnderWay) {
  Network network(problem_);
  Alone(network, 0, 1, 2000, 0);

  network.Clear();

  EXPECT_DOUBLE_EQ(Alone(network, 0, 1, 200, 1), 4);
}

// Work of `seconds` is asked for at `at` and done at `end`.
struct Work {
  double at;
  double seconds;
  double end;
};

TEST(Quota, GivesTwoOfFiveMilliseconds) {
  const std::vector<std::vector<Work>> cases = {
      // Below the budget of a period work runs at full speed.
      {{0.001, 0.002, 0.003}},
      // 2 ms, a pause of 3 ms, then 1 ms.
      {{0, 0.003, 0.006}},
      {{0, 0.4, 0.997}},
      // 0.5 ms are left of this period.
      {{0, 0.0015, 0.0015}, {0.003, 0.001, 0.0055}},
      // 1 ms is left of the first period; the second gives 2 ms, not more.
      {{0.004, 0.0035, 0.0105}},
      // Asked for while it is busy.
      {{0, 0.001, 0.001}, {0, 0.002, 0.006}}};
  for (const std::vector<Work>& works : cases) {
    Quota quota(0.4, 0.005, 0);
    for (const Work& work : works) {
      EXPECT_NEAR(quota.Take(work.at, work.seconds), work.end, 1e-9);
    }
  }
}

TEST(Quota, PeeksWithoutTaking) {
  Quota quota(0.4, 0.005, 0);
  quota.Take(0, 0.003);

  EXPECT_NEAR(quota.Peek(0.001, 0.0015), 0.0055, 1e-12);
  EXPECT_NEAR(quota.Take(0.001, 0.0005), 0.0065, 1e-12);
}

TEST(Quota, LimitsNothingWithoutAPeriod) {
  Quota quota;

  EXPECT_FALSE(quota.limits());
  EXPECT_DOUBLE_EQ(quota.Take(1, 0.5), 1.5);
}

}  // namespace
}  // namespace paceline
