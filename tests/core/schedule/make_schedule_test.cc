#include <algorithm>
#include <string>

#include "core/schedule/asynchronous.h"
#include "core/schedule/schedule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/schedule_builder.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

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
          ExpectError(schedule.status(), absl::StatusCode::kInvalidArgument,
                      ::testing::StartsWith(name));
        }
      }
    }
  }
  EXPECT_GT(refused, 50);
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

TEST(MakeSchedule, AMergeKeepsTheOrderAndBoundOfEveryStage) {
  for (const std::string name : {"1f1b", "gpipe", "zero-bubble"}) {
    for (int stages = 2; stages <= 8; ++stages) {
      for (const int micro_batches : {1, 3, 8, 16}) {
        const Schedule apart =
            MustMake(name, stages, micro_batches, OneWorkerAStage(stages));
        const auto bounds_apart = Value(CheckSchedule(apart));
        for (const std::vector<int>& worker_of : SomePlacements(stages)) {
          const Schedule merged =
              MustMake(name, stages, micro_batches, worker_of);
          const auto bounds = Value(CheckSchedule(merged));

          EXPECT_EQ(bounds.kept_micro_batches, bounds_apart.kept_micro_batches);
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

// The bounds of stage `stage` of `stages`, on a worker of its own.
struct StageBounds {
  int kept = 0;      // micro-batches
  int split = 0;     // micro-batches between the halves of their backward
  int versions = 1;  // of the weights
  int frames = 0;    // over the boundary behind it, each way
};
StageBounds Bounds1f1b(int stage, int stages, int micro_batches) {
  // It sends as many activations before it needs a gradient; in the end as
  // many gradients wait for it.
  const int ahead = std::min(micro_batches, stages - stage);
  return {.kept = ahead, .frames = ahead};
}
StageBounds BoundsGPipe(int, int, int micro_batches) {
  return {.kept = micro_batches, .frames = micro_batches};
}
StageBounds BoundsZeroBubble(int stage, int stages, int micro_batches) {
  return {.kept = std::min(stages, micro_batches),
          .split = std::min(stage + 1, micro_batches),
          .frames = -1};
}
StageBounds BoundsPipedream(int stage, int stages, int micro_batches) {
  // Warm-up + 1; these first ones share the version they begin with.
  const int ahead = std::min(stages - stage, micro_batches);
  return {.kept = ahead,
          .versions = std::clamp(micro_batches - ahead + 2, 1, ahead),
          .frames = -1};
}

TEST(ScheduleBounds, AreWhatEachScheduleSays) {
  const std::pair<const char*, StageBounds (*)(int, int, int)> schedules[] = {
      {"1f1b", Bounds1f1b},
      {"gpipe", BoundsGPipe},
      {"zero-bubble", BoundsZeroBubble},
      {"pipedream", BoundsPipedream}};
  for (const auto& [name, bounds_of] : schedules) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (int micro_batches = 1; micro_batches <= 20; ++micro_batches) {
        const auto bounds = Value(CheckSchedule(
            MustMake(name, stages, micro_batches, OneWorkerAStage(stages))));
        ASSERT_EQ(bounds.activation_frames.size(), stages - 1);
        for (int stage = 0; stage < stages; ++stage) {
          const StageBounds want = bounds_of(stage, stages, micro_batches);
          EXPECT_EQ(bounds.kept_micro_batches[stage], want.kept) << name;
          EXPECT_EQ(bounds.split_micro_batches[stage], want.split) << name;
          EXPECT_EQ(bounds.kept_versions[stage], want.versions) << name;
          if (stage == stages - 1 || want.frames < 0) continue;
          EXPECT_EQ(bounds.activation_frames[stage], want.frames) << name;
          EXPECT_EQ(bounds.gradient_frames[stage], want.frames) << name;
        }
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
        const auto bounds = Value(
            CheckSchedule(MustMake("interleaved-1f1b", stages, micro_batches,
                                   RoundRobin(stages, workers))));

        for (int worker = 0; worker < workers; ++worker) {
          int kept = 0;
          for (int chunk = 0; chunk < chunks; ++chunk) {
            kept += bounds.kept_micro_batches[chunk * workers + worker];
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

TEST(ScheduleBounds, VerticalSyncKeepsAsManyVersionsOnEveryStage) {
  for (int stages = 1; stages <= 8; ++stages) {
    const auto bounds = Value(BoundsOfRun({.name = "pipedream",
                                           .stages = stages,
                                           .micro_batches = 1,
                                           .training = true,
                                           .worker_of = OneWorkerAStage(stages),
                                           .vertical_sync = true}));

    EXPECT_THAT(bounds.kept_versions, Each(stages));
  }
}

TEST(ScheduleBounds, OfARunCountAStreamOfSmallBatches) {
  const auto bounds = Value(BoundsOfRun({.name = "pipedream",
                                         .stages = 3,
                                         .micro_batches = 1,
                                         .training = true,
                                         .worker_of = {0, 1, 2}}));

  EXPECT_THAT(bounds.kept_micro_batches, ElementsAre(3, 2, 1));
  EXPECT_THAT(bounds.kept_versions, ElementsAre(3, 2, 1));
  EXPECT_THAT(bounds.activation_frames, ElementsAre(3, 2));
}

TEST(ScheduleBounds, OfARunCountShorterBatches) {
  const ScheduleRequest request{.name = "interleaved-1f1b",
                                .stages = 4,
                                .micro_batches = 8,
                                .training = true,
                                .worker_of = {0, 1, 0, 1}};
  const auto run = Value(BoundsOfRun(request));

  for (int micro_batches = 1; micro_batches <= 8; ++micro_batches) {
    ScheduleRequest shorter = request;
    shorter.micro_batches = micro_batches;
    shorter.shorter_batch = true;
    const auto one = Value(CheckSchedule(MakeSchedule(shorter).value()));
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_LE(one.kept_micro_batches[i], run.kept_micro_batches[i]);
    }
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_LE(one.activation_frames[i], run.activation_frames[i]);
      EXPECT_LE(one.gradient_frames[i], run.gradient_frames[i]);
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
  const auto bounds = Value(
      CheckSchedule(MustMake("1f1b", 3, 5, {0, 1, 2}, /*training=*/false)));

  EXPECT_THAT(bounds.kept_micro_batches, ElementsAre(0, 0, 0));
  EXPECT_THAT(bounds.activation_frames, ElementsAre(5, 5));
  EXPECT_THAT(bounds.gradient_frames, ElementsAre(0, 0));
}

}  // namespace
}  // namespace paceline
