// Tests the transport inside a process by the suite for all transports.
#include "tests/support/pipeline/memory_round_transport.h"

#include "tests/support/pipeline/round_transport_suite.h"

namespace paceline {
namespace {

class MemoryNet final : public RoundNet {
 public:
  explicit MemoryNet(const std::vector<RoundSink*>& sinks) {
    for (size_t i = 0; i < sinks.size(); ++i) {
      transports_.push_back(
          network_.Connect(TestMember(static_cast<int>(i)), sinks[i]));
    }
  }

  RoundTransport& transport(int member) override {
    return *transports_[member];
  }
  std::string address(int) override { return "here"; }

 private:
  MemoryRoundNetwork network_;
  std::vector<std::unique_ptr<RoundTransport>> transports_;
};

std::unique_ptr<RoundNet> MakeNet(const std::vector<RoundSink*>& sinks) {
  return std::make_unique<MemoryNet>(sinks);
}

INSTANTIATE_TEST_SUITE_P(Memory, RoundTransportSuite,
                         ::testing::Values(MakeNet));

}  // namespace
}  // namespace paceline
