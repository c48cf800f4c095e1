#include <algorithm>
#include <string>

#include "core/schedule/asynchronous.h"
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

// Forward-only there is a schedule for any number of micro-batches.
bool MayMake(const std::string& name, int micro_batches,
             const std::vector<int>& worker_of, bool training) {
  const int all = static_cast<int>(worker_of.size());
  return IsMadeFor(name, training ? micro_batches : all * 840, worker_of);
}

TEST(MakeSchedule, KnowsItsNamesInOrder) {
  const std::vector<std::string> names = ScheduleNames();

  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  for (const std::string& name : names)
    EXPECT_EQ(ScheduleTraitsOf(name).name, name);
  EXPECT_EQ(ScheduleTraitsOf("zigzag").name, "");
}

TEST(MakeSchedule, TheCheckerAcceptsEverySchedule) {
  for (const std::string& name : ScheduleNames()) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
        for (const std::vector<int>& worker_of : SomePlacements(stages)) {
          for (const bool training : {true, false}) {
            if (!MayMake(name, micro_batches, worker_of, training)) continue;
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

TEST(MakeSchedule, RefusesWhatAScheduleIsNotMadeFor) {
  int refused = 0;
  for (const std::string& name : ScheduleNames()) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (const int micro_batches : {1, 2, 3, 4, 6, 8}) {
        for (const std::vector<int>& worker_of : SomePlacements(stages)) {
          const auto schedule = MakeSchedule({.name = name,
                                              .stages = stages,
                                              .micro_batches = micro_batches,
                                              .training = true,
                                              .worker_of = worker_of});

          ASSERT_EQ(schedule.ok(), IsMadeFor(name, micro_batches, worker_of))
              << name << " " << stages << "x" << micro_batches << ": "
              << schedule.status();
          if (schedule.ok()) continue;
          ++refused;
          EXPECT_EQ(schedule.status().code(),
                    absl::StatusCode::kInvalidArgument);
          EXPECT_THAT(std::string(schedule.status().message()),
                      ::testing::StartsWith(name));
        }
      }
    }
  }
  EXPECT_GT(refused, 50);
}

TEST(MakeSchedule, SaysWhyInterleavingIsNotPossible) {
  ScheduleRequest request{.name = "interleaved-1f1b",
                          .stages = 4,
                          .micro_batches = 3,
                          .training = true,
                          .worker_of = {0, 1, 0, 1}};

  ExpectRefused(request,
                "on 2 workers needs the micro-batches of a batch to be a "
                "multiple of 2, got 3");

  request.micro_batches = 4;
  request.worker_of = {0, 0, 1, 1};
  ExpectRefused(request, "got 4 stages on 2 workers, [0, 0, 1, 1]");
}

TEST(MakeSchedule, AShorterBatchGivesWayTo1f1b) {
  for (const std::string& name : ScheduleNames()) {
    const bool one_each = ScheduleTraitsOf(name).asynchronous;
    for (const int micro_batches : {1, 3, 4}) {
      const std::vector<int> worker_of =
          one_each ? OneWorkerAStage(4) : RoundRobin(4, 2);
      ScheduleRequest request{.name = name,
                              .stages = 4,
                              .micro_batches = micro_batches,
                              .training = true,
                              .worker_of = worker_of,
                              .shorter_batch = true};
      const auto shorter = MakeSchedule(request);
      ASSERT_TRUE(shorter.ok()) << name << ": " << shorter.status();
      EXPECT_TRUE(CheckSchedule(*shorter).ok());

      const bool gives_way = ScheduleTraitsOf(name).deals && micro_batches != 4;
      EXPECT_EQ(ToText(*shorter), ToText(MustMake(gives_way ? "1f1b" : name, 4,
                                                  micro_batches, worker_of)));
    }
  }
}

TEST(MakeSchedule, RefusesPipedreamWithSeveralStagesAWorker) {
  ScheduleRequest request = GoodRequest();
  request.name = "pipedream";
  request.worker_of = {0, 0};

  ExpectRefused(request, "a worker for each stage, got 2 stages on 1 worker");
}

TEST(MakeSchedule, AMergeKeepsTheOrderAndBoundOfEveryStage) {
  for (const std::string name : {"1f1b", "gpipe", "zero-bubble"}) {
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
    const std::vector<int> worker_of = PlacementFor(name);
    const Schedule schedule =
        MustMake(name, static_cast<int>(worker_of.size()), 4, worker_of);
    const Op backward =
        ScheduleTraitsOf(name).splits ? Op::kBackwardInput : Op::kBackward;
    for (const InstructionList& list : schedule.workers) {
      for (size_t i = 0; i < list.size(); ++i) {
        const auto [stage, op, micro_batch] = list[i];
        if (op == Op::kLoad || op == Op::kRecvF) {
          EXPECT_EQ(list[i + 1],
                    (Instruction{stage, Op::kForward, micro_batch}));
        } else if (op == Op::kRecvB) {
          EXPECT_EQ(list[i + 1], (Instruction{stage, backward, micro_batch}));
        } else if (op == Op::kSendF) {
          EXPECT_EQ(list[i - 1],
                    (Instruction{stage, Op::kForward, micro_batch}));
        } else if (op == Op::kSendB) {
          EXPECT_EQ(list[i - 1], (Instruction{stage, backward, micro_batch}));
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

  ExpectRefused(request, "'zigzag', there are 1f1b, ");
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

TEST(ScheduleBounds, ZeroBubbleKeepsAsMuchOnEveryStageAs1f1bOnTheFirst) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
      const auto bounds = CheckSchedule(MustMake(
          "zero-bubble", stages, micro_batches, OneWorkerAStage(stages)));

      ASSERT_TRUE(bounds.ok()) << bounds.status();
      EXPECT_THAT(bounds->kept_micro_batches,
                  Each(std::min(stages, micro_batches)));
      for (int stage = 0; stage < stages; ++stage) {
        EXPECT_EQ(bounds->split_micro_batches[stage],
                  std::min(stage + 1, micro_batches));
      }
    }
  }
}

TEST(ScheduleBounds, InterleavingKeepsWhatItsWarmUpSays) {
  for (int workers = 1; workers <= 4; ++workers) {
    for (int chunks = 2; chunks <= 3; ++chunks) {
      const int stages = workers * chunks;
      for (int micro_batches = workers; micro_batches <= 4 * workers;
           micro_batches += workers) {
        const auto bounds =
            CheckSchedule(MustMake("interleaved-1f1b", stages, micro_batches,
                                   RoundRobin(stages, workers)));

        ASSERT_TRUE(bounds.ok()) << bounds.status();
        for (int worker = 0; worker < workers; ++worker) {
          int kept = 0;
          for (int chunk = 0; chunk < chunks; ++chunk) {
            kept += bounds->kept_micro_batches[chunk * workers + worker];
          }
          // Each chunk's most need not be there at the same time.
          const int warm_up =
              std::min(micro_batches * chunks,
                       2 * (workers - 1 - worker) + (chunks - 1) * workers);
          EXPECT_GE(kept, std::min(warm_up + 1, micro_batches * chunks));
          EXPECT_LE(kept, micro_batches * chunks);
        }
      }
    }
  }
}

TEST(ScheduleBounds, PipedreamKeepsWarmUpAndOneVersions) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int micro_batches = 1; micro_batches <= 20; ++micro_batches) {
      const auto bounds = CheckSchedule(MustMake(
          "pipedream", stages, micro_batches, OneWorkerAStage(stages)));

      ASSERT_TRUE(bounds.ok()) << bounds.status();
      for (int stage = 0; stage < stages; ++stage) {
        // Warm-up + 1; these first ones share the version they begin with.
        const int ahead = std::min(stages - stage, micro_batches);
        EXPECT_EQ(bounds->kept_micro_batches[stage], ahead);
        EXPECT_EQ(bounds->kept_versions[stage],
                  std::clamp(micro_batches - ahead + 2, 1, ahead))
            << stages << " stages, " << micro_batches;
      }
    }
  }
}

TEST(ScheduleBounds, VerticalSyncKeepsAsManyVersionsOnEveryStage) {
  for (int stages = 1; stages <= 8; ++stages) {
    const auto bounds = BoundsOfRun({.name = "pipedream",
                                     .stages = stages,
                                     .micro_batches = 1,
                                     .training = true,
                                     .worker_of = OneWorkerAStage(stages),
                                     .vertical_sync = true});

    ASSERT_TRUE(bounds.ok()) << bounds.status();
    EXPECT_THAT(bounds->kept_versions, Each(stages));
  }
}

TEST(ScheduleBounds, OfARunCountAStreamOfSmallBatches) {
  const auto bounds = BoundsOfRun({.name = "pipedream",
                                   .stages = 3,
                                   .micro_batches = 1,
                                   .training = true,
                                   .worker_of = {0, 1, 2}});

  ASSERT_TRUE(bounds.ok()) << bounds.status();
  EXPECT_THAT(bounds->kept_micro_batches, ElementsAre(3, 2, 1));
  EXPECT_THAT(bounds->kept_versions, ElementsAre(3, 2, 1));
  EXPECT_THAT(bounds->activation_frames, ElementsAre(3, 2));
}

TEST(ScheduleBounds, OfARunCountShorterBatches) {
  const ScheduleRequest request{.name = "interleaved-1f1b",
                                .stages = 4,
                                .micro_batches = 8,
                                .training = true,
                                .worker_of = {0, 1, 0, 1}};
  const auto run = BoundsOfRun(request);
  ASSERT_TRUE(run.ok()) << run.status();

  for (int micro_batches = 1; micro_batches <= 8; ++micro_batches) {
    ScheduleRequest shorter = request;
    shorter.micro_batches = micro_batches;
    shorter.shorter_batch = true;
    const auto one = CheckSchedule(MakeSchedule(shorter).value());
    ASSERT_TRUE(one.ok()) << one.status();
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_LE(one->kept_micro_batches[i], run->kept_micro_batches[i]);
    }
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_LE(one->activation_frames[i], run->activation_frames[i]);
      EXPECT_LE(one->gradient_frames[i], run->gradient_frames[i]);
    }
  }
}

// The order is decided one compute at a time, without knowing the end.
TEST(AsynchronousOrder, IsThatOfTheLists) {
  for (int stages = 1; stages <= 5; ++stages) {
    for (int stage = 0; stage < stages; ++stage) {
      AsynchronousOrder order(stage, stages);
      std::string text;
      for (int next = 0;;) {
        const auto decided = order.Decide(/*more=*/next < 9);
        if (decided == AsynchronousOrder::Next::kNothing) break;
        const bool forward = decided == AsynchronousOrder::Next::kForward;
        text += forward ? "F" : "B";
        // Without vertical sync a forward takes what is there; with it, what
        // the first stage had.
        if (forward) {
          EXPECT_EQ(order.VersionOfNext(false),
                    std::max(0, next - WarmUp(stage, stages)));
          EXPECT_EQ(order.VersionOfNext(true),
                    std::max(0, next - WarmUp(0, stages)));
          order.OnForward();
          ++next;
        } else {
          order.OnBackward();
        }
      }
      std::string listed;
      const Schedule schedule =
          MustMake("pipedream", stages, 9, OneWorkerAStage(stages));
      for (const Instruction& instruction : schedule.workers[stage]) {
        if (instruction.op == Op::kForward) listed += "F";
        if (instruction.op == Op::kBackward) listed += "B";
      }
      EXPECT_EQ(text, listed);
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
