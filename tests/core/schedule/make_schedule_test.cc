#include <algorithm>
#include <string>

#include "core/schedule/schedule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/schedule_builder.h"

namespace paceline {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ScheduleRequest GoodRequest() {
  return {.name = "1f1b",
          .stages = 2,
          .micro_batches = 4,
          .training = true,
          .worker_of = {0, 1}};
}

void ExpectRefused(const ScheduleRequest& request, const std::string& why) {
  const auto schedule = MakeSchedule(request);

  EXPECT_EQ(schedule.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(schedule.status().message()), HasSubstr(why));
}

InstructionList OfStage(const InstructionList& list, int stage) {
  InstructionList own;
  std::copy_if(list.begin(), list.end(), std::back_inserter(own),
               [stage](const Instruction& instruction) {
                 return instruction.stage == stage;
               });
  return own;
}

// One worker a stage; pairs; one worker; all but the last stage together;
// round robin over two and three.
std::vector<std::vector<int>> SomePlacements(int stages) {
  std::vector<std::vector<int>> maps(6);
  for (int stage = 0; stage < stages; ++stage) {
    maps[0].push_back(stage);
    maps[1].push_back(stage / 2);
    maps[2].push_back(0);
    maps[3].push_back(stage == stages - 1 && stages > 1 ? 1 : 0);
    maps[4].push_back(stage % 2);
    maps[5].push_back(stage % 3);
  }
  return maps;
}

TEST(MakeSchedule, KnowsItsNames) {
  EXPECT_THAT(ScheduleNames(), ElementsAre("1f1b", "gpipe"));
}

TEST(MakeSchedule, TheCheckerAcceptsEverySchedule) {
  for (const std::string& name : ScheduleNames()) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
        for (const std::vector<int>& worker_of : SomePlacements(stages)) {
          for (const bool training : {true, false}) {
            const Schedule schedule =
                MustMake(name, stages, micro_batches, worker_of, training);

            const auto bounds = CheckSchedule(schedule);

            ASSERT_TRUE(bounds.ok()) << bounds.status() << "\n"
                                     << ToText(schedule);
          }
        }
      }
    }
  }
}

TEST(MakeSchedule, AMergeKeepsTheOrderAndBoundOfEveryStage) {
  for (const std::string& name : ScheduleNames()) {
    for (int stages = 2; stages <= 8; ++stages) {
      for (const int micro_batches : {1, 3, 8, 16}) {
        const Schedule apart =
            MustMake(name, stages, micro_batches, OneWorkerAStage(stages));
        const auto bounds_apart = CheckSchedule(apart);
        ASSERT_TRUE(bounds_apart.ok()) << bounds_apart.status();
        for (const std::vector<int>& worker_of : SomePlacements(stages)) {
          const Schedule merged =
              MustMake(name, stages, micro_batches, worker_of);
          const auto bounds = CheckSchedule(merged);

          ASSERT_TRUE(bounds.ok()) << bounds.status();
          EXPECT_EQ(bounds->kept_micro_batches,
                    bounds_apart->kept_micro_batches);
          for (int stage = 0; stage < stages; ++stage) {
            ASSERT_EQ(OfStage(merged.workers[worker_of[stage]], stage),
                      apart.workers[stage])
                << ToText(merged);
          }
        }
      }
    }
  }
}

TEST(MakeSchedule, AMergeTakesAReadyBackwardBeforeAForward) {
  const Schedule schedule = MustMake("1f1b", 2, 3, {0, 0});

  // After 0F1 both 0B0 and 1F1 could run.
  EXPECT_EQ(ToText(schedule),
            "0LOAD0 0F0 0SEND_F0 1RECV_F0 1F0 1B0 1SEND_B0 "
            "0LOAD1 0F1 0SEND_F1 0RECV_B0 0B0 1RECV_F1 1F1 1B1 1SEND_B1 "
            "0LOAD2 0F2 0SEND_F2 0RECV_B1 0B1 1RECV_F2 1F2 1B2 1SEND_B2 "
            "0RECV_B2 0B2 0STEP 1STEP\n");
}

TEST(MakeSchedule, SendsFollowAndReceivesPrecedeTheirCompute) {
  for (const std::string& name : ScheduleNames()) {
    const Schedule schedule = MustMake(name, 4, 6, {0, 0, 1, 2});
    for (const InstructionList& list : schedule.workers) {
      for (size_t i = 0; i < list.size(); ++i) {
        const auto [stage, op, micro_batch] = list[i];
        if (op == Op::kLoad || op == Op::kRecvF) {
          EXPECT_EQ(list[i + 1],
                    (Instruction{stage, Op::kForward, micro_batch}));
        } else if (op == Op::kRecvB) {
          EXPECT_EQ(list[i + 1],
                    (Instruction{stage, Op::kBackward, micro_batch}));
        } else if (op == Op::kSendF) {
          EXPECT_EQ(list[i - 1],
                    (Instruction{stage, Op::kForward, micro_batch}));
        } else if (op == Op::kSendB) {
          EXPECT_EQ(list[i - 1],
                    (Instruction{stage, Op::kBackward, micro_batch}));
        }
      }
    }
  }
}

TEST(MakeSchedule, ForwardOnlyHasNoBackwardAndNoStep) {
  EXPECT_EQ(ToText(MustMake("1f1b", 2, 2, {0, 1}, /*training=*/false)),
            "0LOAD0 0F0 0SEND_F0 0LOAD1 0F1 0SEND_F1\n"
            "1RECV_F0 1F0 1RECV_F1 1F1\n");
}

TEST(MakeSchedule, RefusesAnUnknownName) {
  ScheduleRequest request = GoodRequest();
  request.name = "zigzag";

  ExpectRefused(request, "'zigzag', there are 1f1b, gpipe");
}

TEST(MakeSchedule, RefusesSizesBelowOne) {
  ScheduleRequest no_stages = GoodRequest();
  no_stages.stages = 0;
  no_stages.worker_of = {};
  ScheduleRequest no_micro_batches = GoodRequest();
  no_micro_batches.micro_batches = -3;

  ExpectRefused(no_stages, "got 0 and 4");
  ExpectRefused(no_micro_batches, "got 2 and -3");
}

TEST(MakeSchedule, RefusesMoreMicroBatchesThanMemoryIsFor) {
  ScheduleRequest request = GoodRequest();
  request.micro_batches = 2'000'000'000;

  ExpectRefused(request, "2 stages x 2000000000 micro-batches");
}

TEST(MakeSchedule, RefusesWorkersForTheWrongNumberOfStages) {
  ScheduleRequest request = GoodRequest();
  request.worker_of = {0};

  ExpectRefused(request, "a worker for 1 stages, need 2");
}

TEST(MakeSchedule, RefusesAGapAmongWorkers) {
  for (const std::vector<int>& worker_of :
       {std::vector<int>{0, 2}, {1, 1}, {-1, 0}}) {
    ScheduleRequest request = GoodRequest();
    request.worker_of = worker_of;

    ExpectRefused(request, "without a gap");
  }
}

TEST(ScheduleBounds, OneForwardOneBackwardKeepsOneAStageBehind) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
      const auto bounds = CheckSchedule(
          MustMake("1f1b", stages, micro_batches, OneWorkerAStage(stages)));

      ASSERT_TRUE(bounds.ok()) << bounds.status();
      for (int stage = 0; stage < stages; ++stage) {
        EXPECT_EQ(bounds->kept_micro_batches[stage],
                  std::min(micro_batches, stages - stage));
      }
      // Stage b sends S - b activations before it needs a gradient; in the
      // end as many gradients wait for it.
      for (int boundary = 0; boundary < stages - 1; ++boundary) {
        EXPECT_EQ(bounds->activation_frames[boundary],
                  std::min(micro_batches, stages - boundary));
        EXPECT_EQ(bounds->gradient_frames[boundary],
                  std::min(micro_batches, stages - boundary));
      }
    }
  }
}

TEST(ScheduleBounds, GPipeKeepsAndSendsAll) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
      const auto bounds = CheckSchedule(
          MustMake("gpipe", stages, micro_batches, OneWorkerAStage(stages)));

      ASSERT_TRUE(bounds.ok()) << bounds.status();
      EXPECT_EQ(bounds->kept_micro_batches.size(), stages);
      EXPECT_EQ(bounds->activation_frames.size(), stages - 1);
      EXPECT_EQ(bounds->gradient_frames.size(), stages - 1);
      EXPECT_THAT(bounds->kept_micro_batches, Each(micro_batches));
      EXPECT_THAT(bounds->activation_frames, Each(micro_batches));
      EXPECT_THAT(bounds->gradient_frames, Each(micro_batches));
    }
  }
}

TEST(ScheduleBounds, ForwardOnlyKeepsNothing) {
  const auto bounds =
      CheckSchedule(MustMake("1f1b", 3, 5, {0, 1, 2}, /*training=*/false));

  ASSERT_TRUE(bounds.ok()) << bounds.status();
  EXPECT_THAT(bounds->kept_micro_batches, ElementsAre(0, 0, 0));
  EXPECT_THAT(bounds->activation_frames, ElementsAre(5, 5));
  EXPECT_THAT(bounds->gradient_frames, ElementsAre(0, 0));
}

}  // namespace
}  // namespace paceline
