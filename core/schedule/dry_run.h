// Runs a schedule without computing, to see whether it ends and how far ahead
// a sender can get.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/schedule/schedule.h"

namespace paceline {

// Frames of one kind over one boundary; boundary b lies between stages b and
// b + 1.
struct Channel {
  bool gradient = false;
  int boundary = 0;

  friend bool operator==(const Channel&, const Channel&) = default;
};

// Sends queue and never wait; a receive waits for its own frame; everything
// else can always run.  So nothing that runs keeps anything else from running:
// the set of instructions that can be reached does not depend on the order in
// which workers take turns.  Thread-compatible.
class DryRun {
 public:
  // `schedule` outlives the run, and keeps the checker's rules of placement
  // and pairing.
  explicit DryRun(const Schedule& schedule);

  // Runs all that can run without a receive from `held`.
  void RunAllBut(std::optional<Channel> held);

  // Runs the next receive from `channel`.  False when its worker has not come
  // to one, or its frame is not sent.
  bool ReceiveOne(const Channel& channel);

  // Frames of `channel` sent and not received.
  int InFlight(const Channel& channel) const;

  bool Finished() const;

  // Says which worker waits for which, after RunAllBut(nullopt) got stuck.  It
  // shows one circle of waiting workers: the one that the worker of lowest
  // index leads into.
  std::string DescribeDeadlock() const;

 private:
  // The instruction that `worker` comes to; null at its end.
  const Instruction* Next(size_t worker) const;
  bool CanRun(const Instruction& instruction) const;
  void Run(size_t worker);
  size_t ChannelIndex(const Channel& channel) const;
  size_t FrameIndex(const Channel& channel, int micro_batch) const;

  const Schedule& schedule_;
  std::vector<size_t> next_;    // [workers]
  std::vector<bool> sent_;      // by FrameIndex
  std::vector<int> in_flight_;  // by ChannelIndex
};

// The most frames of `channel` in flight at any moment of any run, whatever
// the speeds.  The schedule must be free of deadlocks.
int MostInFlight(const Schedule& schedule, const Channel& channel);

}  // namespace paceline
