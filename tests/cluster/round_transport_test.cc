// What every transport of rounds promises, of the one over gRPC.
#include <memory>
#include <vector>

#include "tests/cluster/round_net.h"
#include "tests/support/round_transport_suite.h"

namespace paceline {
namespace {

std::unique_ptr<RoundNet> MakeNet(const std::vector<RoundSink*>& sinks) {
  return std::make_unique<RpcRoundNet>(sinks);
}

INSTANTIATE_TEST_SUITE_P(Rpc, RoundTransportSuite, ::testing::Values(MakeNet));

}  // namespace
}  // namespace paceline
