// Bad input to Simulate().
#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/simulate/chain.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using testing::HasSubstr;

TEST(Simulate, NamesWhatIsWrong) {
  const struct {
    std::function<void(Chain&)> spoil;
    std::string says;
  } kRefusals[] = {
      {[](Chain& c) { c.problem.layers[1].forward_seconds = NAN; }, "layer 1"},
      {[](Chain& c) { c.problem.micro_batches = 0; },
       "needs micro-batches, got 0"},
      {[](Chain& c) { c.options.schedule = "zigzag"; },
       "'zigzag', there are 1f1b"},
      {[](Chain& c) { c.options.steps = 0; }, "at least 1 step"},
      {[](Chain& c) { c.options.steps = 2000000; },
       "3 stages x 4 micro-batches x 2000000 steps"},
      {[](Chain& c) { c.problem.micro_batches = 1 << 20; }, "are too many"},
      {[](Chain& c) { c.placement.pop_back(); },
       "hold 2 layers, the model has 3"},
      {[](Chain& c) {
         c.placement[1].layers = {0, 2};
       },
       "expected one that starts at 1"},
      {[](Chain& c) { c.placement[1].devices = {}; }, "0 devices and 1 shares"},
      {[](Chain& c) { c.placement[1].devices = {3}; },
       "no device 3, there are 3"},
      {[](Chain& c) { c.placement[1].shares = {-1}; }, "a share -1"},
      {[](Chain& c) { c.placement[1].shares = {0.5}; }, "sum to 0.5, not 1"},
      {[](Chain& c) {
         c.placement[1] = {{1, 2}, {0, 1}, {0.5, 0.5}};
       },
       "device d0 is used twice"},
      {[](Chain& c) { c.options.optimizer_seconds = {1}; },
       "of 1 stages, there are 3"},
      {[](Chain& c) {
         c.options.optimizer_seconds = {1, -1, 1};
       },
       "optimizer_seconds is -1"},
      {[](Chain& c) { c.options.gate_seconds = NAN; }, "gate_seconds is nan"},
      {[](Chain& c) { c.options.load_seconds = -2; }, "load_seconds is -2"},
      {[](Chain& c) { c.options.credit_frames = -1; }, "credit_frames is -1"},
      {[](Chain& c) { c.options.slow_downs = {{.device = 3, .factor = 2}}; },
       "a slow-down of device 3: there are 3"},
      {[](Chain& c) { c.options.slow_downs = {{.device = 0, .factor = 0.5}}; },
       "factor 0.5, need at least 1"},
      {[](Chain& c) {
         c.options.slow_downs = {{.at_seconds = -1, .device = 0}};
       },
       "time of a slow-down is -1"},
      {[](Chain& c) { c.options.slow_downs = {{.for_seconds = NAN}}; },
       "a slow-down for nan s"},
      {[](Chain& c) { c.options.failures = {{.device = -1}}; },
       "a failure of device -1"},
      {[](Chain& c) { c.options.failures = {{.at_seconds = HUGE_VAL}}; },
       "time of a failure is inf"},
      {[](Chain& c) { c.options.failures = {{.recover_after_seconds = -1}}; },
       "failed device is back is -1"}};
  for (const auto& [spoil, says] : kRefusals) {
    Chain chain = Chain::Equal(3, 4, true);
    spoil(chain);

    ExpectError(chain.Try().status(), absl::StatusCode::kInvalidArgument,
                HasSubstr(says));
  }
}

TEST(Simulate, WithoutDevicesIsNotABadArgument) {
  Chain chain = Chain::Equal(1, 1, true);
  chain.problem.devices.clear();

  EXPECT_EQ(chain.Try().status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace paceline
