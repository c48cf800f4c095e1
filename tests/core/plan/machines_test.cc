#include "core/plan/machines.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

Machines FourByTwo() { return {{4, 2}, {1e10, 1.25e9}, 16e9}; }

void ExpectInvalid(const absl::Status& status, const std::string& said) {
  ExpectError(status, absl::StatusCode::kInvalidArgument,
              testing::HasSubstr(said));
}

TEST(ParseMachines, ReadsOneLevelAndTwo) {
  EXPECT_EQ(*ParseMachines("4x2", "1e10,1.25e9", "16e9"), FourByTwo());
  EXPECT_EQ(*ParseMachines("16", "1.25e9", ""), (Machines{{16}, {1.25e9}, 0}));
}

TEST(ParseMachines, RefusesWhatIsNoNumber) {
  for (const char* const sizes : {"", "x", "4x", "4,4", "4.5", "99999999999"}) {
    ExpectInvalid(ParseMachines(sizes, "1,1", "").status(),
                  "need numbers like 16 or 4x4");
  }
  ExpectInvalid(ParseMachines("4x2", "fast,1", "").status(),
                "bandwidth 'fast,1'");
  ExpectInvalid(ParseMachines("4x2", "1e9,1e9", "16GB").status(),
                "memory '16GB'");
}

TEST(CheckMachines, WantsOneOrTwoLevelsWithABandwidthEach) {
  ExpectInvalid(CheckMachines({{}, {}, 0}), "0 levels");
  ExpectInvalid(CheckMachines({{2, 2, 2}, {1e9, 1e9, 1e9}, 0}), "3 levels");
  ExpectInvalid(CheckMachines({{2, 2}, {1e9}, 0}), "1 bandwidths for 2 levels");
}

TEST(CheckMachines, RefusesImpossibleNumbers) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const int size : {0, -1, kMostMachineDevices + 1}) {
    EXPECT_FALSE(CheckMachines({{size}, {1e9}, 0}).ok()) << size;
  }
  EXPECT_FALSE(CheckMachines({{1 << 30, 1 << 30}, {1e9, 1e9}, 0}).ok());
  for (const double bandwidth : {0.0, -1.0, 0.5, kNan, -HUGE_VAL}) {
    EXPECT_FALSE(CheckMachines({{2}, {bandwidth}, 0}).ok()) << bandwidth;
  }
  for (const double memory : {-1.0, kNan, HUGE_VAL}) {
    EXPECT_FALSE(CheckMachines({{2}, {1e9}, memory}).ok()) << memory;
  }
  EXPECT_TRUE(CheckMachines({{2}, {HUGE_VAL}, 0}).ok());
  EXPECT_TRUE(CheckMachines({{kMostMachineDevices}, {1}, 0}).ok());
}

TEST(PutMachines, LinksDevicesInsideAndBetweenMachines) {
  PlanProblem problem;
  problem.layers = {{"a", 1, 1, 1, 1, 1}};

  PutMachines(FourByTwo(), problem);

  ASSERT_EQ(problem.devices.size(), 8u);
  EXPECT_EQ(problem.devices[5].name, "1.1");
  EXPECT_EQ(problem.devices[5].machine, 1);
  EXPECT_EQ(problem.devices[5].memory_bytes, 16e9);
  EXPECT_EQ(problem.links[4][7].bytes_per_second, 1e10);
  EXPECT_EQ(problem.links[3][4].bytes_per_second, 1.25e9);
  EXPECT_TRUE(CheckProblem(problem).ok()) << CheckProblem(problem);
}

TEST(PutMachines, OfOneLevelAreMachinesOfTheirOwn) {
  PlanProblem problem;

  PutMachines({{3}, {1e9}, 0}, problem);

  EXPECT_EQ(problem.devices[2].name, "2");
  EXPECT_EQ(problem.devices[2].machine, 2);
  EXPECT_EQ(problem.links[0][2].bytes_per_second, 1e9);
}

}  // namespace
}  // namespace paceline
