// Bad input to Simulate().
#include <cmath>
#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/simulate/chain.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using testing::HasSubstr;

struct Refusal {
  std::string name;
  std::function<void(Chain&)> spoil;
  std::string says;
};

void PrintTo(const Refusal& refusal, std::ostream* out) {
  *out << refusal.name;
}

class Refusals : public testing::TestWithParam<Refusal> {};

TEST_P(Refusals, NameWhatIsWrong) {
  Chain chain = Chain::Equal(3, 4, true);
  GetParam().spoil(chain);

  const auto result = chain.Try();

  ExpectError(result.status(), absl::StatusCode::kInvalidArgument,
              HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Simulate, Refusals,
    testing::Values(
        Refusal{"Problem",
                [](Chain& c) { c.problem.layers[1].forward_seconds = NAN; },
                "layer 1"},
        Refusal{"EndlessStream", [](Chain& c) { c.problem.micro_batches = 0; },
                "needs micro-batches, got 0"},
        Refusal{"Schedule", [](Chain& c) { c.options.schedule = "zigzag"; },
                "'zigzag', there are 1f1b"},
        Refusal{"NoSteps", [](Chain& c) { c.options.steps = 0; },
                "at least 1 step"},
        Refusal{"TooManySteps", [](Chain& c) { c.options.steps = 2000000; },
                "3 stages x 4 micro-batches x 2000000 steps"},
        Refusal{"TooManyMicroBatches",
                [](Chain& c) { c.problem.micro_batches = 1 << 20; },
                "are too many"},
        Refusal{"LayersMissing", [](Chain& c) { c.placement.pop_back(); },
                "hold 2 layers, the model has 3"},
        Refusal{"LayersTwice",
                [](Chain& c) {
                  c.placement[1].layers = {0, 2};
                },
                "expected one that starts at 1"},
        Refusal{"NoDevice", [](Chain& c) { c.placement[1].devices = {}; },
                "0 devices and 1 shares"},
        Refusal{"UnknownDevice", [](Chain& c) { c.placement[1].devices = {3}; },
                "no device 3, there are 3"},
        Refusal{"NegativeShare", [](Chain& c) { c.placement[1].shares = {-1}; },
                "a share -1"},
        Refusal{"SharesBelowOne",
                [](Chain& c) { c.placement[1].shares = {0.5}; },
                "sum to 0.5, not 1"},
        Refusal{"ReplicaOfTwoStages",
                [](Chain& c) {
                  c.placement[1] = {{1, 2}, {0, 1}, {0.5, 0.5}};
                },
                "device d0 is used twice"},
        Refusal{"OptimizerStages",
                [](Chain& c) { c.options.optimizer_seconds = {1}; },
                "of 1 stages, there are 3"},
        Refusal{"OptimizerSeconds",
                [](Chain& c) {
                  c.options.optimizer_seconds = {1, -1, 1};
                },
                "optimizer_seconds is -1"},
        Refusal{"GateSeconds", [](Chain& c) { c.options.gate_seconds = NAN; },
                "gate_seconds is nan"},
        Refusal{"LoadSeconds", [](Chain& c) { c.options.load_seconds = -2; },
                "load_seconds is -2"},
        Refusal{"SharedCpu", [](Chain& c) { c.options.shared_cpu = {true}; },
                "shared_cpu of 1 devices, there are 3"},
        Refusal{"Credit", [](Chain& c) { c.options.credit_frames = -1; },
                "credit_frames is -1"},
        Refusal{"SlowDevice",
                [](Chain& c) {
                  c.options.slow_downs = {{.device = 3, .factor = 2}};
                },
                "a slow-down of device 3: there are 3"},
        Refusal{"SlowFactor",
                [](Chain& c) {
                  c.options.slow_downs = {{.device = 0, .factor = 0.5}};
                },
                "factor 0.5, need at least 1"},
        Refusal{"SlowTime",
                [](Chain& c) {
                  c.options.slow_downs = {{.at_seconds = -1, .device = 0}};
                },
                "time of a slow-down is -1"},
        Refusal{"SlowDuration",
                [](Chain& c) { c.options.slow_downs = {{.for_seconds = NAN}}; },
                "a slow-down for nan s"},
        Refusal{"FailedDevice",
                [](Chain& c) { c.options.failures = {{.device = -1}}; },
                "a failure of device -1"},
        Refusal{
            "FailureTime",
            [](Chain& c) { c.options.failures = {{.at_seconds = HUGE_VAL}}; },
            "time of a failure is inf"},
        Refusal{"RecoveryTime",
                [](Chain& c) {
                  c.options.failures = {{.recover_after_seconds = -1}};
                },
                "failed device is back is -1"}),
    [](const auto& info) { return info.param.name; });

TEST(Refusal, WithoutDevicesIsNotABadArgument) {
  Chain chain = Chain::Equal(1, 1, true);
  chain.problem.devices.clear();

  EXPECT_EQ(chain.Try().status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace paceline
