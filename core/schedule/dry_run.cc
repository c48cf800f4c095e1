#include "core/schedule/dry_run.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace paceline {
namespace {

std::optional<Channel> SendsTo(const Instruction& instruction) {
  if (instruction.op == Op::kSendF) return Channel{false, instruction.stage};
  if (instruction.op == Op::kSendB) return Channel{true, instruction.stage - 1};
  return std::nullopt;
}

std::optional<Channel> ReceivesFrom(const Instruction& instruction) {
  if (instruction.op == Op::kRecvF) {
    return Channel{false, instruction.stage - 1};
  }
  if (instruction.op == Op::kRecvB) return Channel{true, instruction.stage};
  return std::nullopt;
}

}  // namespace

DryRun::DryRun(const Schedule& schedule)
    : schedule_(schedule), next_(schedule.workers.size(), 0) {
  const size_t channels = 2 * static_cast<size_t>(schedule.stages - 1);
  sent_.assign(channels * schedule.micro_batches, false);
  in_flight_.assign(channels, 0);
}

void DryRun::RunAllBut(std::optional<Channel> held) {
  bool progress = true;
  while (progress) {
    progress = false;
    for (size_t worker = 0; worker < next_.size(); ++worker) {
      for (const Instruction* next = Next(worker);
           next != nullptr && CanRun(*next) &&
           (!held.has_value() || ReceivesFrom(*next) != held);
           next = Next(worker)) {
        Run(worker);
        progress = true;
      }
    }
  }
}

bool DryRun::ReceiveOne(const Channel& channel) {
  const int stage = channel.gradient ? channel.boundary : channel.boundary + 1;
  const size_t worker = schedule_.worker_of[stage];
  const Instruction* next = Next(worker);
  if (next == nullptr || ReceivesFrom(*next) != channel || !CanRun(*next)) {
    return false;
  }
  Run(worker);
  return true;
}

int DryRun::InFlight(const Channel& channel) const {
  return in_flight_[ChannelIndex(channel)];
}

bool DryRun::Finished() const {
  for (size_t worker = 0; worker < next_.size(); ++worker) {
    if (Next(worker) != nullptr) return false;
  }
  return true;
}

std::string DryRun::DescribeDeadlock() const {
  size_t worker = 0;
  while (Next(worker) == nullptr) ++worker;
  const auto waits_for = [this](size_t waiting) {
    return static_cast<size_t>(
        schedule_.worker_of[PartnerOf(*Next(waiting))->stage]);
  };
  // Whom a stuck worker waits for is stuck too, so that as many steps as there
  // are workers surely end inside the circle.
  for (size_t i = 0; i < next_.size(); ++i) worker = waits_for(worker);

  std::string text;
  const size_t first = worker;
  do {
    const Instruction& waiting = *Next(worker);
    absl::StrAppend(&text, text.empty() ? "" : ", ", "worker ", worker, " at ",
                    ToText(waiting), " waits for ", ToText(*PartnerOf(waiting)),
                    " of worker ", waits_for(worker));
    worker = waits_for(worker);
  } while (worker != first);
  return text;
}

const Instruction* DryRun::Next(size_t worker) const {
  const InstructionList& list = schedule_.workers[worker];
  return next_[worker] < list.size() ? &list[next_[worker]] : nullptr;
}

bool DryRun::CanRun(const Instruction& instruction) const {
  const std::optional<Channel> from = ReceivesFrom(instruction);
  return !from.has_value() || sent_[FrameIndex(*from, instruction.micro_batch)];
}

void DryRun::Run(size_t worker) {
  const Instruction& instruction = *Next(worker);
  if (const std::optional<Channel> to = SendsTo(instruction)) {
    sent_[FrameIndex(*to, instruction.micro_batch)] = true;
    ++in_flight_[ChannelIndex(*to)];
  }
  if (const std::optional<Channel> from = ReceivesFrom(instruction)) {
    --in_flight_[ChannelIndex(*from)];
  }
  ++next_[worker];
}

size_t DryRun::ChannelIndex(const Channel& channel) const {
  return 2 * static_cast<size_t>(channel.boundary) + (channel.gradient ? 1 : 0);
}

size_t DryRun::FrameIndex(const Channel& channel, int micro_batch) const {
  return ChannelIndex(channel) * schedule_.micro_batches + micro_batch;
}

// Why this is the maximum.  At any moment of any run, the receiver has done
// some number j of its receives from the channel, in the order of its list.
// What has run by then is closed under "comes before", and holds neither
// receive j + 1 nor anything that depends on it.  RunAllBut(channel), called
// after j receives, runs exactly all that does not depend on receive j + 1.  So
// it has sent at least as much, after as many receives: no moment with j
// receives has more in flight than this one.  It is a moment of a real run,
// one with a receiver that sleeps before receive j + 1; so the largest over
// all j is reached, and is not exceeded.
int MostInFlight(const Schedule& schedule, const Channel& channel) {
  DryRun run(schedule);
  int most = 0;
  do {
    run.RunAllBut(channel);
    most = std::max(most, run.InFlight(channel));
  } while (run.ReceiveOne(channel));
  return most;
}

}  // namespace paceline
