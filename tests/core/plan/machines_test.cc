#include "core/plan/machines.h"

#include <cmath>
#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace paceline {
namespace {

Machines FourByTwo() { return {{4, 2}, {1e10, 1.25e9}, 16e9}; }

std::string MessageOf(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(ParseMachines, ReadsOneLevelAndTwo) {
  EXPECT_EQ(*ParseMachines("4x2", "1e10,1.25e9", "16e9"), FourByTwo());
  EXPECT_EQ(*ParseMachines("16", "1.25e9", ""), (Machines{{16}, {1.25e9}, 0}));
}

TEST(ParseMachines, RefusesWhatIsNoNumber) {
  for (const char* const sizes : {"", "x", "4x", "4,4", "4.5", "99999999999"}) {
    EXPECT_NE(MessageOf(ParseMachines(sizes, "1,1", "").status())
                  .find("need numbers like 16 or 4x4"),
              std::string::npos)
        << sizes;
  }
  EXPECT_NE(MessageOf(ParseMachines("4x2", "fast,1", "").status())
                .find("bandwidth 'fast,1'"),
            std::string::npos);
  EXPECT_NE(MessageOf(ParseMachines("4x2", "1e9,1e9", "16GB").status())
                .find("memory '16GB'"),
            std::string::npos);
}

TEST(CheckMachines, WantsOneOrTwoLevelsWithABandwidthEach) {
  EXPECT_NE(MessageOf(CheckMachines({{}, {}, 0})).find("0 levels"),
            std::string::npos);
  EXPECT_NE(MessageOf(CheckMachines({{2, 2, 2}, {1e9, 1e9, 1e9}, 0}))
                .find("3 levels"),
            std::string::npos);
  EXPECT_NE(MessageOf(CheckMachines({{2, 2}, {1e9}, 0}))
                .find("1 bandwidths for 2 levels"),
            std::string::npos);
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
