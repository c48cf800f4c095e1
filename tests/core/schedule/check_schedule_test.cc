#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "core/schedule/schedule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/golden.h"
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

// "2 x 4 on 0 1" and a line of instructions for each worker: what is said of
// such a schedule of two stages and four micro-batches; with the words forward,
// asynchronous or vertical-sync at the end of such a one.  "make NAME ...":
// what is said where it is to be made.
std::string Said(const std::string& question) {
  const std::vector<std::string> lines = absl::StrSplit(question, '\n');
  std::vector<std::string> words = absl::StrSplit(lines[0], ' ');
  ScheduleRequest request;
  if (words[0] == "make") {
    request.name = words[1];
    words.erase(words.begin(), words.begin() + 2);
  }
  request.stages = std::stoi(words[0]);
  request.micro_batches = std::stoi(words[2]);
  std::set<std::string> flags;
  for (size_t i = 4; i < words.size(); ++i) {
    int worker = 0;
    if (absl::SimpleAtoi(words[i], &worker)) {
      request.worker_of.push_back(worker);
    } else {
      flags.insert(words[i]);
    }
  }
  request.training = !flags.contains("forward");
  if (!request.name.empty()) return MakeSchedule(request).status().ToString();
  Schedule schedule =
      FromText(request.stages, request.micro_batches, request.worker_of,
               {lines.begin() + 1, lines.end()}, request.training,
               flags.contains("asynchronous"));
  schedule.vertical_sync = flags.contains("vertical-sync");
  return CheckSchedule(schedule).status().ToString();
}

TEST(CheckSchedule, NamesTheRuleThatIsBroken) {
  ExpectAnswers("core/schedules", Said);
}

}  // namespace
}  // namespace paceline
