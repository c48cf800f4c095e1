#include "core/plan/problem.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/plan/small_problem.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

PlanProblem Valid() { return ProblemOf({1, 2, 3}, {1, 2}); }

// What CheckProblem says of a valid problem after `change`.
absl::Status CheckChanged(const std::function<void(PlanProblem&)>& change) {
  PlanProblem problem = Valid();
  change(problem);
  return CheckProblem(problem);
}

void ExpectRefused(const absl::Status& status, const std::string& who,
                   const std::string& what) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(who), HasSubstr(what)));
}

TEST(CheckProblem, TakesAValidOneWithFreeLinks) {
  EXPECT_TRUE(CheckProblem(Valid()).ok()) << CheckProblem(Valid());
}

TEST(CheckProblem, RefusesAProfileWithoutLayers) {
  ExpectRefused(CheckChanged([](PlanProblem& p) { p.layers.clear(); }),
                "profile", "no layers");
}

TEST(CheckProblem, RefusesNegativeNanAndInfiniteAmountsOfLayers) {
  const std::vector<std::pair<double LayerCost::*, std::string>> amounts = {
      {&LayerCost::forward_seconds, "forward_seconds"},
      {&LayerCost::backward_seconds, "backward_seconds"},
      {&LayerCost::output_bytes, "output_bytes"},
      {&LayerCost::parameter_bytes, "parameter_bytes"},
      {&LayerCost::kept_bytes, "kept_bytes"}};
  for (const auto& [amount, name] : amounts) {
    for (const double value : {-1.0, kNan, HUGE_VAL}) {
      ExpectRefused(CheckChanged([&, a = amount](PlanProblem& p) {
                      p.layers[1].*a = value;
                    }),
                    "layer1", name);
    }
  }
}

TEST(CheckProblem, SaysThatThereAreNoDevices) {
  const absl::Status status = CheckChanged([](PlanProblem& p) {
    p.devices.clear();
    p.links.clear();
  });

  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no devices"));
}

TEST(CheckProblem, RefusesSpeedsThatAreZeroNegativeOrNoNumber) {
  for (const double value : {0.0, -1.0, kNan, HUGE_VAL}) {
    ExpectRefused(
        CheckChanged([&](PlanProblem& p) { p.devices[1].speed = value; }),
        "device1", "speed");
  }
}

TEST(CheckProblem, RefusesBadAmountsOfDevices) {
  const std::vector<std::pair<double Device::*, std::string>> amounts = {
      {&Device::memory_bytes, "memory_bytes"},
      {&Device::frame_seconds, "frame_seconds"},
      {&Device::frame_seconds_per_byte, "frame_seconds_per_byte"}};
  for (const auto& [amount, name] : amounts) {
    for (const double value : {-1.0, kNan}) {
      ExpectRefused(CheckChanged([&, a = amount](PlanProblem& p) {
                      p.devices[0].*a = value;
                    }),
                    "device0", name);
    }
  }
}

TEST(CheckProblem, RefusesMeasuredSecondsOfAnotherModel) {
  ExpectRefused(CheckChanged([](PlanProblem& p) {
                  p.devices[0].layer_seconds = {1, 2};
                }),
                "measured 2 layers", "has 3");
}

TEST(CheckProblem, RefusesNegativeMeasuredSeconds) {
  ExpectRefused(CheckChanged([](PlanProblem& p) {
                  p.devices[0].layer_seconds = {1, -2, 3};
                }),
                "device0", "layer_seconds");
}

TEST(CheckProblem, RefusesAPairWithoutALinkInBothDirections) {
  ExpectRefused(CheckChanged([](PlanProblem& p) {
                  p.links[0][1] = {};
                  p.links[1][0] = {};
                }),
                "device0 -> device1", "no bandwidth is known");
}

TEST(CheckProblem, RefusesAPairThatIsKnownInOneDirectionOnly) {
  ExpectRefused(CheckChanged([](PlanProblem& p) { p.links[1][0] = {}; }),
                "device1 -> device0", "other direction");
}

TEST(CheckProblem, RefusesNegativeAndNanLinks) {
  for (const double value : {-1.0, kNan}) {
    ExpectRefused(CheckChanged([&](PlanProblem& p) {
                    p.links[0][1].bytes_per_second = value;
                  }),
                  "device0 -> device1", "bandwidth");
    ExpectRefused(CheckChanged([&](PlanProblem& p) {
                    p.links[0][1].latency_seconds = value;
                  }),
                  "device0 -> device1", "latency_seconds");
  }
}

TEST(CheckProblem, RefusesLinksOfTheWrongSize) {
  ExpectRefused(CheckChanged([](PlanProblem& p) { p.links.pop_back(); }),
                "of 1 devices", "there are 2");
  ExpectRefused(CheckChanged([](PlanProblem& p) { p.links[1].pop_back(); }),
                "device1", "there are 2");
}

TEST(CheckProblem, TakesTwoToTheTwentiethMicroBatchesAndNotOneMore) {
  EXPECT_TRUE(CheckChanged([](PlanProblem& p) {
                p.micro_batches = int64_t{1} << 20;
              }).ok());
  ExpectRefused(CheckChanged([](PlanProblem& p) {
                  p.micro_batches = (int64_t{1} << 20) + 1;
                }),
                "1048577", "1048576");
  ExpectRefused(CheckChanged([](PlanProblem& p) { p.micro_batches = -1; }),
                "-1", "micro-batches");
}

TEST(CheckProblem, RefusesMoreStagesThanLayersOrDevices) {
  ExpectRefused(CheckChanged([](PlanProblem& p) { p.stages = 4; }), "4 stages",
                "3 layers");
  ExpectRefused(CheckChanged([](PlanProblem& p) { p.stages = 3; }), "3 stages",
                "2 devices");
  ExpectRefused(CheckChanged([](PlanProblem& p) { p.stages = -1; }), "-1",
                "stages");
}

TEST(CheckProblem, RefusesBadMemoryTerms) {
  for (const double value : {-1.0, kNan}) {
    ExpectRefused(
        CheckChanged([&](PlanProblem& p) { p.parameter_copies = value; }),
        "memory", "parameter_copies");
    ExpectRefused(
        CheckChanged([&](PlanProblem& p) { p.reserved_bytes = value; }),
        "memory", "reserved_bytes");
  }
  ExpectRefused(
      CheckChanged([](PlanProblem& p) { p.micro_batches_per_sync = -1; }),
      "micro_batches_per_sync", "-1");
}

}  // namespace
}  // namespace paceline
