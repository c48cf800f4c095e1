#include <string>
#include <vector>

#include "core/schedule/schedule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/schedule_builder.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::AnyOf;
using ::testing::StartsWith;

template <typename Matcher>
void ExpectRefused(const Schedule& schedule, const Matcher& message) {
  const auto bounds = CheckSchedule(schedule);

  SCOPED_TRACE(ToText(schedule));
  ExpectError(bounds.status(), absl::StatusCode::kInvalidArgument, message);
}

// Two stages, two micro-batches, one worker each: small enough to read.
constexpr char kFirst[] =
    "0LOAD0 0F0 0SEND_F0 0LOAD1 0F1 0SEND_F1 "
    "0RECV_B0 0B0 0RECV_B1 0B1 0STEP";
constexpr char kSecond[] =
    "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1STEP";

TEST(CheckSchedule, AcceptsAGoodSchedule) {
  const auto bounds = CheckSchedule(FromText(2, 2, {0, 1}, {kFirst, kSecond}));

  EXPECT_TRUE(bounds.ok()) << bounds.status();
}

TEST(CheckSchedule, DroppingOrRepeatingAnyInstructionBreaksPairing) {
  for (const std::string& name : ScheduleNames()) {
    const std::vector<int> worker_of = PlacementFor(name);
    const Schedule good =
        MustMake(name, static_cast<int>(worker_of.size()), 4, worker_of);
    for (size_t worker = 0; worker < good.workers.size(); ++worker) {
      for (size_t i = 0; i < good.workers[worker].size(); ++i) {
        const Instruction one = good.workers[worker][i];
        Schedule dropped = good;
        dropped.workers[worker].erase(dropped.workers[worker].begin() + i);
        Schedule repeated = good;
        repeated.workers[worker].push_back(one);

        ExpectRefused(dropped,
                      StartsWith("pairing: " + ToText(one) + " is missing"));
        ExpectRefused(repeated, "pairing: " + ToText(one) + " is there twice");
      }
    }
  }
}

TEST(CheckSchedule, EverySwapThatItAcceptsIsHarmless) {
  // Any two instructions of a worker swapped: either a rule is named, or the
  // order was free.  Free are LOAD, RECV and SEND moved among others, and
  // forwards of micro-batches in another order; never a backward.
  const Schedule good = MustMake("1f1b", 3, 3, {0, 1, 2});
  int accepted = 0;
  int refused = 0;
  for (size_t worker = 0; worker < good.workers.size(); ++worker) {
    for (size_t i = 0; i < good.workers[worker].size(); ++i) {
      for (size_t j = i + 1; j < good.workers[worker].size(); ++j) {
        Schedule bad = good;
        std::swap(bad.workers[worker][i], bad.workers[worker][j]);
        const auto bounds = CheckSchedule(bad);
        if (bounds.ok()) {
          ++accepted;
          const InstructionList& list = bad.workers[worker];
          EXPECT_EQ(list.back().op, Op::kStep);
          int next_backward = 0;
          for (const Instruction& instruction : list) {
            if (instruction.op != Op::kBackward) continue;
            EXPECT_EQ(instruction.micro_batch, next_backward++);
          }
        } else {
          ++refused;
          EXPECT_THAT(std::string(bounds.status().message()),
                      AnyOf(StartsWith("order: "), StartsWith("accumulation: "),
                            StartsWith("deadlock: ")));
        }
      }
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, accepted);
}

// Schedules written by hand, and the rule that each breaks.
TEST(CheckSchedule, NamesTheRuleThatIsBroken) {
  const auto alone = [](const std::string& line) {
    return FromText(1, 2, {0}, {"0LOAD0 0F0 0LOAD1 0F1 " + line});
  };
  const auto one = [](const std::string& line) {
    return FromText(1, 1, {0}, {line});
  };
  const auto pair = [](const std::string& a, const std::string& b) {
    return FromText(2, 2, {0, 1}, {a, b});
  };
  const std::pair<Schedule, std::string> broken[] = {
      // Gradients are summed in ascending order, a whole one among halves too.
      {alone("0B1 0B0 0STEP"),
       "accumulation: 0B0 comes after 0B1, gradients are summed in ascending"},
      {alone("0I0 0I1 0W1 0W0 0STEP"), "accumulation: 0W0 comes after 0W1"},
      {alone("0I0 0B1 0W0 0STEP"), "accumulation: 0W0 comes after 0B1"},
      // A backward is whole or in two halves, which have their order.
      {one("0LOAD0 0F0 0B0 0I0 0STEP"), "pairing: 0B0 and 0I0 are both there"},
      {one("0LOAD0 0F0 0I0 0W0 0B0 0STEP"),
       "pairing: 0B0 and 0I0 are both there"},
      {one("0LOAD0 0F0 0I0 0STEP"), "pairing: 0W0 is missing, 0I0 is alone"},
      {one("0LOAD0 0F0 0W0 0STEP"), "pairing: 0I0 is missing, 0W0 is alone"},
      {one("0LOAD0 0F0 0W0 0I0 0STEP"), "order: 0I0 comes after 0W0"},
      {one("0LOAD0 0I0 0F0 0W0 0STEP"), "order: 0F0 comes after 0I0"},
      {FromText(2, 1, {0, 0},
                {"0LOAD0 0F0 0SEND_F0 1RECV_F0 1F0 1SEND_B0 1I0 1W0 "
                 "0RECV_B0 0B0 0STEP 1STEP"}),
       "order: 1I0 comes after 1SEND_B0"},
      // Worker 0 would wait for the verdict with stage 1's report not made.
      {FromText(2, 1, {0, 0},
                {"0LOAD0 0F0 0SEND_F0 1RECV_F0 1F0 1B0 1SEND_B0 1STEP "
                 "0RECV_B0 0B0 0STEP"}),
       "order: 0RECV_B0 comes after 1STEP"},
      // Worker 0 wants the gradient of 0 before it sends activation 1; worker 1
      // wants activation 1 before it sends the gradient of 0.
      {pair("0LOAD0 0F0 0SEND_F0 0RECV_B0 0B0 "
            "0LOAD1 0F1 0SEND_F1 0RECV_B1 0B1 0STEP",
            "1RECV_F0 1F0 1RECV_F1 1F1 "
            "1B0 1SEND_B0 1B1 1SEND_B1 1STEP"),
       "deadlock: worker 0 at 0RECV_B0 waits for 1SEND_B0 of worker 1"},
      {FromText(2, 1, {0, 0}, {"1RECV_F0 1F0 0LOAD0 0F0 0SEND_F0"},
                /*training=*/false),
       "deadlock: worker 0 at 1RECV_F0 waits for 0SEND_F0 of worker 0"},
      // Stage 0 only waits for stage 1, which is in a circle with stage 2.
      {FromText(3, 2, {0, 1, 2},
                {"0LOAD0 0F0 0SEND_F0 0LOAD1 0F1 0SEND_F1 "
                 "0RECV_B0 0B0 0RECV_B1 0B1 0STEP",
                 "1RECV_F0 1F0 1SEND_F0 1RECV_B0 1B0 1SEND_B0 "
                 "1RECV_F1 1F1 1SEND_F1 1RECV_B1 1B1 1SEND_B1 1STEP",
                 "2RECV_F0 2F0 2RECV_F1 2F1 2B0 2SEND_B0 2B1 2SEND_B1 "
                 "2STEP"}),
       "deadlock: worker 1 at 1RECV_B0 waits for 2SEND_B0 of worker 2"},
  };
  for (const auto& [schedule, says] : broken) {
    ExpectRefused(schedule, StartsWith(says));
  }
}

TEST(CheckSchedule, InputGradientsMayComeInAnyOrder) {
  const auto bounds = CheckSchedule(
      FromText(1, 2, {0}, {"0LOAD0 0F0 0LOAD1 0F1 0I1 0I0 0W0 0W1 0STEP"}));

  EXPECT_TRUE(bounds.ok()) << bounds.status();
}

TEST(CheckSchedule, AnUpdateTakesItsOwnGradientAlone) {
  const auto made = [](const std::string& line) {
    return FromText(1, 2, {0}, {line}, /*training=*/true,
                    /*asynchronous=*/true);
  };

  EXPECT_TRUE(
      CheckSchedule(made("0LOAD0 0F0 0LOAD1 0F1 0B0 0UPDATE0 0B1 0UPDATE1"))
          .ok());
  ExpectRefused(made("0LOAD0 0F0 0LOAD1 0F1 0B0 0B1 0UPDATE0 0UPDATE1"),
                StartsWith("accumulation: 0UPDATE0 comes after 0B1"));
  ExpectRefused(made("0LOAD0 0F0 0UPDATE0 0B0 0LOAD1 0F1 0B1 0UPDATE1"),
                "order: 0B0 comes after 0UPDATE0");
  ExpectRefused(made("0LOAD0 0F0 0B0 0UPDATE0 0LOAD1 0F1 0B1 0UPDATE1 0STEP"),
                StartsWith("pairing: 0STEP has no place"));
  ExpectRefused(FromText(1, 1, {0}, {"0LOAD0 0F0 0B0 0UPDATE0 0STEP"}),
                StartsWith("pairing: 0UPDATE0 has no place"));
}

TEST(CheckSchedule, VerticalSyncNeedsTheVersionOfTheFirstStage) {
  // The second stage would go forward with 1 before it has made the version
  // that the first stage had: after the update with 0.
  Schedule schedule =
      FromText(2, 2, {0, 1},
               {"0LOAD0 0F0 0SEND_F0 0RECV_B0 0B0 0UPDATE0 "
                "0LOAD1 0F1 0SEND_F1 0RECV_B1 0B1 0UPDATE1",
                "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1UPDATE0 "
                "1B1 1SEND_B1 1UPDATE1"},
               /*training=*/true, /*asynchronous=*/true);
  EXPECT_TRUE(CheckSchedule(schedule).ok());
  schedule.vertical_sync = true;

  ExpectRefused(schedule, StartsWith("version: 1F1 needs version 1"));
}

TEST(CheckSchedule, NamesWhatHasNoPlace) {
  const std::string first = kFirst;
  const std::string second = kSecond;
  const auto one = [](const std::string& line, bool training) {
    return FromText(1, 1, {0}, {line}, training);
  };
  const auto pair = [](const std::string& a, const std::string& b) {
    return FromText(2, 2, {0, 1}, {a, b});
  };
  const std::pair<Schedule, std::string> broken[] = {
      // Stages and workers.
      {FromText(2, 2, {1, 0}, {first, second}),
       "placement: 0LOAD0 is on worker 0"},
      {pair(first, second + " 2F0"), "placement: 2F0 on worker 1"},
      {FromText(2, 2, {0, 2}, {first, second}),
       "placement: stage 1 is held by worker 2"},
      // Instructions that a stage has no use for.
      {pair(first, second + " 1LOAD0"),
       "pairing: 1LOAD0 has no place in stage 1 of 2"},
      {pair(first, second + " 1SEND_F0"), "pairing: 1SEND_F0 has no place"},
      {pair(first, second + " 1RECV_B0"), "pairing: 1RECV_B0 has no place"},
      {pair(first + " 0RECV_F0", second), "pairing: 0RECV_F0 has no place"},
      {pair(first + " 0SEND_B0", second), "pairing: 0SEND_B0 has no place"},
      {one("0LOAD0 0F0 0B0", false), "pairing: 0B0 has no place"},
      {one("0LOAD0 0F0 0STEP", false), "pairing: 0STEP has no place"},
      {one("0LOAD0 0F0 0F1 0B0 0STEP", true),
       "pairing: 0F1 is of micro-batch 1"},
  };
  for (const auto& [schedule, says] : broken) {
    ExpectRefused(schedule, StartsWith(says));
  }
}

TEST(CheckSchedule, RefusesAnImpossibleShape) {
  Schedule no_stages = FromText(1, 1, {0}, {"0LOAD0 0F0 0B0 0STEP"});
  no_stages.stages = 0;
  Schedule too_many = FromText(1, 1, {0}, {"0LOAD0 0F0 0B0 0STEP"});
  too_many.micro_batches = 2'000'000'000;
  Schedule short_map = FromText(2, 2, {0, 1}, {kFirst, kSecond});
  short_map.worker_of.pop_back();

  ExpectRefused(no_stages, StartsWith("shape: 0 stages"));
  ExpectRefused(too_many, StartsWith("shape: 1 stages x 2000000000"));
  ExpectRefused(short_map, "shape: worker_of has 1 entries, need 2");
}

}  // namespace
}  // namespace paceline
