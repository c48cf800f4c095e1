#include "core/simulate/network.h"

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

}  // namespace
}  // namespace paceline
