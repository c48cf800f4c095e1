#include "core/plan/problem.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/plan/small_problem.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

PlanProblem Valid() { return ProblemOf({1, 2, 3}, {1, 2}); }

// A change that makes a valid problem wrong, and what is then said.
struct Wrong {
  std::vector<std::string> says;  // parts of it
  std::function<void(PlanProblem&)> change;
};

// Values of an amount that has to be finite and at least 0, or above.
std::vector<Wrong> WrongAmounts() {
  const std::pair<double LayerCost::*, std::string> of_layers[] = {
      {&LayerCost::forward_seconds, "forward_seconds"},
      {&LayerCost::backward_seconds, "backward_seconds"},
      {&LayerCost::output_bytes, "output_bytes"},
      {&LayerCost::parameter_bytes, "parameter_bytes"},
      {&LayerCost::kept_bytes, "kept_bytes"}};
  const std::pair<double Device::*, std::string> of_devices[] = {
      {&Device::speed, "speed"},
      {&Device::memory_bytes, "memory_bytes"},
      {&Device::frame_seconds, "frame_seconds"},
      {&Device::frame_seconds_per_byte, "frame_seconds_per_byte"}};
  const std::pair<double LinkCost::*, std::string> of_links[] = {
      {&LinkCost::bytes_per_second, "bandwidth"},
      {&LinkCost::latency_seconds, "latency_seconds"}};
  const std::pair<double PlanProblem::*, std::string> of_memory[] = {
      {&PlanProblem::parameter_copies, "parameter_copies"},
      {&PlanProblem::reserved_bytes, "reserved_bytes"}};
  std::vector<Wrong> wrong;
  for (const double value : {-1.0, kNan}) {
    for (const auto& [at, name] : of_layers) {
      wrong.push_back({{"layer1", name}, [at = at, value](PlanProblem& p) {
                         p.layers[1].*at = value;
                       }});
    }
    for (const auto& [at, name] : of_devices) {
      wrong.push_back({{"device0", name}, [at = at, value](PlanProblem& p) {
                         p.devices[0].*at = value;
                       }});
    }
    for (const auto& [at, name] : of_links) {
      wrong.push_back(
          {{"device0 -> device1", name},
           [at = at, value](PlanProblem& p) { p.links[0][1].*at = value; }});
    }
    for (const auto& [at, name] : of_memory) {
      wrong.push_back({{"memory", name},
                       [at = at, value](PlanProblem& p) { p.*at = value; }});
    }
  }
  return wrong;
}

void ExpectRefused(const std::vector<Wrong>& all) {
  for (const Wrong& wrong : all) {
    PlanProblem problem = Valid();
    wrong.change(problem);

    const absl::Status status = CheckProblem(problem);

    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    for (const std::string& part : wrong.says) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    }
  }
}

TEST(CheckProblem, TakesAValidOneWithFreeLinks) {
  EXPECT_TRUE(CheckProblem(Valid()).ok()) << CheckProblem(Valid());
}

TEST(CheckProblem, RefusesNegativeAmountsAndWhatIsNoNumber) {
  ExpectRefused(WrongAmounts());
}

TEST(CheckProblem, RefusesWhatDoesNotFitTogether) {
  ExpectRefused({
      {{"profile", "no layers"}, [](PlanProblem& p) { p.layers.clear(); }},
      {{"layer1", "forward_seconds"},
       [](PlanProblem& p) { p.layers[1].forward_seconds = HUGE_VAL; }},
      {{"device1", "speed"}, [](PlanProblem& p) { p.devices[1].speed = 0; }},
      {{"device1", "speed"},
       [](PlanProblem& p) { p.devices[1].speed = HUGE_VAL; }},
      {{"measured 2 layers", "has 3"},
       [](PlanProblem& p) {
         p.devices[0].layer_seconds = {1, 2};
       }},
      {{"device0", "layer_seconds"},
       [](PlanProblem& p) {
         p.devices[0].layer_seconds = {1, -2, 3};
       }},
      {{"device0 -> device1", "no bandwidth is known"},
       [](PlanProblem& p) { p.links[0][1] = p.links[1][0] = {}; }},
      {{"device1 -> device0", "other direction"},
       [](PlanProblem& p) { p.links[1][0] = {}; }},
      {{"of 1 devices", "there are 2"},
       [](PlanProblem& p) { p.links.pop_back(); }},
      {{"device1", "there are 2"},
       [](PlanProblem& p) { p.links[1].pop_back(); }},
      {{"1048577", "1048576"},
       [](PlanProblem& p) { p.micro_batches = (int64_t{1} << 20) + 1; }},
      {{"-1", "micro-batches"}, [](PlanProblem& p) { p.micro_batches = -1; }},
      {{"micro_batches_per_sync", "-1"},
       [](PlanProblem& p) { p.micro_batches_per_sync = -1; }},
      {{"4 stages", "3 layers"}, [](PlanProblem& p) { p.stages = 4; }},
      {{"3 stages", "2 devices"}, [](PlanProblem& p) { p.stages = 3; }},
      {{"-1", "stages"}, [](PlanProblem& p) { p.stages = -1; }},
      {{"layer 1 (layer1): borrowed_bytes is 101, more than all its "
        "parameter_bytes, 100"},
       [](PlanProblem& p) {
         p.layers[1].parameter_bytes = 100;
         p.layers[1].borrowed_bytes = 101;
       }},
      {{"borrowed_bytes"},
       [](PlanProblem& p) { p.layers[1].borrowed_bytes = kNan; }},
      {{"memory: owner_copies is 3, more than all parameter_copies, 2"},
       [](PlanProblem& p) { p.owner_copies = 3; }},
  });
  for (const TieCost& tie :
       {TieCost{0, 3, 1}, {-1, 1, 1}, {1, 1, 1}, {2, 1, 1}, {0, 1, -1}}) {
    ExpectRefused({{{}, [&](PlanProblem& p) { p.ties = {tie}; }}});
  }
}

TEST(CheckProblem, SaysThatThereAreNoDevices) {
  const absl::Status status = CheckProblem(ProblemOf({1}, {}));

  ExpectError(status, absl::StatusCode::kFailedPrecondition,
              HasSubstr("no devices"));
}

TEST(CheckProblem, TakesTwoToTheTwentiethMicroBatches) {
  PlanProblem problem = Valid();
  problem.micro_batches = int64_t{1} << 20;

  EXPECT_TRUE(CheckProblem(problem).ok());
}

}  // namespace
}  // namespace paceline
