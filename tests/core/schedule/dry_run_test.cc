#include "core/schedule/dry_run.h"

#include <algorithm>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/schedule_builder.h"

namespace paceline {
namespace {

// The oracle: walks through every state that some speeds could lead to.  A
// state is how far each worker is; frames in flight are counted from scratch.
class AllStates {
 public:
  explicit AllStates(const Schedule& schedule) : schedule_(schedule) {
    Visit(std::vector<size_t>(schedule.workers.size(), 0));
  }

  int MostInFlight(const Channel& channel) const {
    int most = 0;
    for (const std::vector<size_t>& state : seen_) {
      most = std::max(most, Count(state, channel));
    }
    return most;
  }

 private:
  void Visit(const std::vector<size_t>& state) {
    if (!seen_.insert(state).second) return;
    for (size_t worker = 0; worker < state.size(); ++worker) {
      if (state[worker] == schedule_.workers[worker].size()) continue;
      if (!CanRun(state, schedule_.workers[worker][state[worker]])) continue;
      std::vector<size_t> after = state;
      ++after[worker];
      Visit(after);
    }
  }

  bool IsDone(const std::vector<size_t>& state,
              const Instruction& wanted) const {
    const int worker = schedule_.worker_of[wanted.stage];
    const InstructionList& list = schedule_.workers[worker];
    const auto end = list.begin() + static_cast<std::ptrdiff_t>(state[worker]);
    return std::find(list.begin(), end, wanted) != end;
  }

  bool CanRun(const std::vector<size_t>& state, const Instruction& next) const {
    const auto [stage, op, micro_batch] = next;
    if (op == Op::kRecvF) {
      return IsDone(state, {stage - 1, Op::kSendF, micro_batch});
    }
    if (op == Op::kRecvB) {
      return IsDone(state, {stage + 1, Op::kSendB, micro_batch});
    }
    return true;
  }

  int Count(const std::vector<size_t>& state, const Channel& channel) const {
    const int low = channel.boundary;
    const int high = channel.boundary + 1;
    int frames = 0;
    for (int i = 0; i < schedule_.micro_batches; ++i) {
      const Instruction send = channel.gradient
                                   ? Instruction{high, Op::kSendB, i}
                                   : Instruction{low, Op::kSendF, i};
      const Instruction receive = channel.gradient
                                      ? Instruction{low, Op::kRecvB, i}
                                      : Instruction{high, Op::kRecvF, i};
      frames += IsDone(state, send) - IsDone(state, receive);
    }
    return frames;
  }

  const Schedule& schedule_;
  std::set<std::vector<size_t>> seen_;
};

void ExpectExact(const Schedule& schedule) {
  const AllStates oracle(schedule);
  for (int boundary = 0; boundary < schedule.stages - 1; ++boundary) {
    for (const bool gradient : {false, true}) {
      const Channel channel{gradient, boundary};
      EXPECT_EQ(MostInFlight(schedule, channel), oracle.MostInFlight(channel))
          << (gradient ? "gradients" : "activations") << " over boundary "
          << boundary << " of\n"
          << ToText(schedule);
    }
  }
}

TEST(MostInFlight, IsWhatSomeSpeedsReachAndNoneExceed) {
  for (const std::string& name : ScheduleNames()) {
    for (const int micro_batches : {1, 2, 3, 4}) {
      for (const std::vector<int>& worker_of :
           {std::vector<int>{0, 1}, {0, 0}, {0, 0, 1, 1}, {0, 1, 0, 1}}) {
        if (!IsMadeFor(name, micro_batches, worker_of)) continue;
        ExpectExact(MustMake(name, static_cast<int>(worker_of.size()),
                             micro_batches, worker_of));
      }
    }
    ExpectExact(MustMake(name, 3, 3, {0, 1, 2}));
    ExpectExact(MustMake(name, 3, 3, {0, 1, 2}, /*training=*/false));
  }
}

// A receiver that takes frames in another order than they come.
TEST(MostInFlight, CountsByReceiverOrder) {
  const Schedule schedule =
      FromText(2, 3, {0, 1},
               {"0LOAD0 0F0 0SEND_F0 0LOAD1 0F1 0SEND_F1 0LOAD2 0F2 0SEND_F2",
                "1RECV_F2 1F2 1RECV_F0 1F0 1RECV_F1 1F1"},
               /*training=*/false);

  EXPECT_EQ(MostInFlight(schedule, {/*gradient=*/false, 0}), 3);
  ExpectExact(schedule);
}

TEST(DryRun, HeldReceivesStopTheirWorkerOnly) {
  const Schedule schedule = MustMake("1f1b", 2, 3, {0, 1});
  const Channel activations{/*gradient=*/false, 0};
  DryRun run(schedule);

  run.RunAllBut(activations);

  EXPECT_FALSE(run.Finished());
  EXPECT_EQ(run.InFlight(activations), 2);
  EXPECT_TRUE(run.ReceiveOne(activations));
  EXPECT_EQ(run.InFlight(activations), 1);
  run.RunAllBut(std::nullopt);
  EXPECT_TRUE(run.Finished());
  EXPECT_EQ(run.InFlight(activations), 0);
}

}  // namespace
}  // namespace paceline
