// Members of a gossip job, their network and their clocks in one thread, from a
// seed.  Parameters are one float; a hash is drawn for each that is offered.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/round/gossip_member.h"
#include "core/round/rules/rule_blocks.h"
#include "tests/core/round/small_group.h"
#include "tests/core/world/network.h"

namespace paceline {

struct GossipFaults {
  double lose = 0;  // of messages
  double repeat = 0;
  absl::Duration longest_delay = absl::Milliseconds(2);
};

class GossipWorld : private world::Kernel {
 public:
  struct Process : world::Process {
    Process(const GossipOptions& options, const MemberId& id)
        : member(options, id, 0, /*has_state=*/true) {}

    GossipMember member;
    absl::Duration compute = absl::Milliseconds(10);  // a step's update
    float value = 0;
    bool computing = false;
    bool was_stopped = false;  // and counts that as waiting
    // By step.
    std::map<int64_t, EndExchange> ends = {};
    std::map<int64_t, std::pair<uint64_t, float>> offered = {};
  };

  GossipWorld(int members, int64_t steps, uint64_t seed, GossipFaults faults)
      : Kernel(seed, /*trace=*/false, /*coverage=*/nullptr),
        steps_(steps),
        network_(*this, {faults.lose, faults.lose, faults.repeat, 0,
                         faults.longest_delay / absl::Microseconds(1)}),
        view_(SmallView(members)) {
    options_.seed = seed;
    options_.partner_wait.ceiling = absl::Seconds(1);
    for (int i = 0; i < members; ++i) {
      const MemberId id = Member(i);
      Process& process = processes_.try_emplace(id, options_, id).first->second;
      process.value = static_cast<float>(i);
      Start(process, 1);
    }
  }

  using Kernel::Now;
  using Kernel::violation;
  Process& at(int number) { return processes_.at(Member(number)); }
  std::map<MemberId, Process>& processes() { return processes_; }
  int64_t furthest() const { return furthest_; }
  uint64_t seed() const { return options_.seed; }

  void Begin() {
    for (auto& [id, process] : processes_) {
      Call(id, &GossipMember::OnView, view_);
    }
    for (auto& [id, process] : processes_) Tick(id);
  }
  // Runs until all that live are done, or `until` says so.
  void Run(const std::function<bool()>& until = nullptr) {
    RunUntil([&] {
      if (events() > kMostEvents) Fail("it never ends");
      return (until && until()) || AllDone();
    });
  }

  void Stop(int number) {
    Freeze(at(number));
    at(number).was_stopped = true;
  }
  void GoOn(int number) { Thaw(at(number)); }

 private:
  static constexpr int64_t kMostEvents = 2'000'000;

  template <typename... Parameters, typename... Arguments>
  void Call(const MemberId& id, void (GossipMember::*function)(Parameters...),
            const Arguments&... arguments) {
    GossipActions actions;
    (processes_.at(id).member.*function)(arguments..., Now(), actions);
    Carry(id, actions);
  }
  void Tick(const MemberId& id) {
    Call(id, &GossipMember::OnTick);
    AfterOn(processes_.at(id), 10'000, [this, id] { Tick(id); });
  }
  bool AllDone() const {
    for (const auto& [id, process] : processes_) {
      if (process.alive() && process.member.next() < steps_) return false;
    }
    return true;
  }

  // Does as the compute thread and the transport of a process would.
  void Carry(const MemberId& id, const GossipActions& actions) {
    for (const GossipAction& action : actions) {
      std::visit([&](const auto& each) { Do(id, each); }, action);
    }
    Process& process = processes_.at(id);
    if (!process.responds() || process.computing ||
        !process.member.needs_part() || process.member.next() >= steps_) {
      return;
    }
    process.computing = true;
    AfterOn(process, process.compute / absl::Microseconds(1),
            [this, id, step = process.member.next()] { FinishStep(id, step); });
  }
  void FinishStep(const MemberId& id, int64_t step) {
    Process& process = processes_.at(id);
    process.computing = false;
    const uint64_t hash = random().Next() | 1;
    process.offered[step] = {hash, process.value};
    Call(id, &GossipMember::OnParameters, step, hash);
  }

  void Do(const MemberId& /*from*/, const SendMessage& send) {
    const auto to = processes_.find(send.to);
    if (to == processes_.end()) return;
    network_.Send(to->second, /*is_request=*/true, [this, send] {
      Call(send.to, &GossipMember::OnMessage, send.message,
           ParameterAnswer::Verdict::kTaken);
    });
  }
  void Do(const MemberId& id, const EndExchange& end) {
    Process& process = processes_.at(id);
    furthest_ = std::max(furthest_, end.step + 1);
    const std::string where =
        absl::StrCat("member ", id.worker.value, ", step ", end.step, ": ");
    if (!process.ends.emplace(end.step, end).second ||
        process.ends.rbegin()->first != end.step) {
      Fail(where, "a step ends twice, or after a later one");
    }
    if (!process.was_stopped && end.waited > absl::Milliseconds(1011)) {
      Fail(where, "waited beyond the deadline");
    }
    if (end.outcome != GossipOutcome::kAveraged) return;
    const auto& offered = processes_.at(end.partner).offered;
    const auto theirs = offered.find(end.step);
    if (theirs == offered.end() || theirs->second.first != end.hash) {
      return Fail(where, "parameters that nobody offered");
    }
    const std::vector<float> other = {theirs->second.second};
    AverageWith(absl::MakeSpan(&process.value, 1), other);
  }
  // Nobody joins.
  void Do(const MemberId&, const OfferState&) {}
  void Do(const MemberId&, const TakeState&) {}

  const int64_t steps_;
  world::Network network_;
  GossipOptions options_;
  View view_;
  std::map<MemberId, Process> processes_;
  int64_t furthest_ = 0;
};

}  // namespace paceline
