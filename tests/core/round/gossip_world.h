// Members of a gossip job, their network and their clocks in one thread, from a
// seed.  Parameters are one float; a hash is drawn for each that is offered.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/random.h"
#include "core/round/gossip_member.h"
#include "core/round/rule_blocks.h"
#include "tests/core/round/small_group.h"

namespace paceline {

struct GossipFaults {
  double lose = 0;  // of messages
  double repeat = 0;
  absl::Duration longest_delay = absl::Milliseconds(2);
};

class GossipWorld {
 public:
  struct Process {
    GossipMember member;
    absl::Duration compute = absl::Milliseconds(10);  // a step's update
    float value = 0;
    bool computing = false;
    bool alive = true;
    bool stopped = false;
    bool was_stopped = false;  // and counts that as waiting
    // By step.
    std::map<int64_t, EndExchange> ends = {};
    std::map<int64_t, std::pair<uint64_t, float>> offered = {};
  };

  GossipWorld(int members, int64_t steps, uint64_t seed, GossipFaults faults)
      : steps_(steps),
        random_(seed),
        faults_(faults),
        view_(SmallView(members)) {
    options_.seed = seed;
    options_.partner_wait.ceiling = absl::Seconds(1);
    for (int i = 0; i < members; ++i) {
      Add(i, /*has_state=*/true).value = static_cast<float>(i);
    }
  }

  Process& at(int number) { return processes_.at(Member(number)); }
  std::map<MemberId, Process>& processes() { return processes_; }
  const std::set<std::string>& violations() const { return violations_; }
  int64_t furthest() const { return furthest_; }
  Instant now() const { return now_; }
  uint64_t seed() const { return options_.seed; }

  void Begin() {
    for (auto& [id, process] : processes_) Tell(id, view_);
    for (auto& [id, process] : processes_) Tick(id);
  }
  // Runs until all that live are done, or `until` says so.
  void Run(const std::function<bool()>& until = nullptr) {
    while (!events_.empty() && !(until && until()) && !AllDone()) {
      if (++count_ > kMostEvents) {
        violations_.insert("it never ends");
        return;
      }
      auto event = events_.begin();
      now_ = event->first.first;
      const auto run = std::move(event->second);
      events_.erase(event);
      run();
    }
  }

  void Kill(int number) {
    at(number).alive = false;
    for (auto& [id, process] : processes_) {
      GossipActions actions;
      process.member.OnLink(Member(number), /*dead=*/true, now_, actions);
      Carry(id, actions);
    }
  }
  void SetStopped(int number, bool stopped) {
    at(number).stopped = stopped;
    at(number).was_stopped = true;
    if (!stopped) Settle(Member(number));
  }
  // A new process, that asks `donor` for its state.
  void Join(int number, int donor) {
    Process& process = Add(number, /*has_state=*/false);
    GossipActions actions;
    process.member.Join(Member(donor), now_, actions);
    Carry(Member(number), actions);
    Tick(Member(number));
  }
  // As the coordinator changes it: told to one after the other.
  void ChangeView(const std::function<void(View&)>& change) {
    ++view_.id.counter;
    change(view_);
    for (auto& [id, process] : processes_) {
      const View view = view_;
      At(Delay() * 3, [this, id = id, view] { Tell(id, view); });
    }
  }

 private:
  static constexpr int64_t kMostEvents = 2'000'000;

  Process& Add(int number, bool has_state) {
    const MemberId id = Member(number);
    return processes_
        .emplace(id, Process{GossipMember(options_, id, 0, has_state)})
        .first->second;
  }
  void At(absl::Duration later, std::function<void()> what) {
    events_[{now_ + later, ++order_}] = std::move(what);
  }
  absl::Duration Delay() { return random_.Unit() * faults_.longest_delay; }

  void Tell(const MemberId& id, const View& view) {
    GossipActions actions;
    processes_.at(id).member.OnView(view, now_, actions);
    Carry(id, actions);
  }
  void Tick(const MemberId& id) {
    Process& process = processes_.at(id);
    if (!process.alive) return;
    if (!process.stopped) {
      GossipActions actions;
      process.member.OnTick(now_, actions);
      Carry(id, actions);
    }
    At(absl::Milliseconds(10), [this, id] { Tick(id); });
  }
  bool AllDone() const {
    for (const auto& [id, process] : processes_) {
      if (process.alive && process.member.next() < steps_) return false;
    }
    return true;
  }

  // Does as the compute thread and the transport of a process would.
  void Carry(const MemberId& id, const GossipActions& actions) {
    for (const GossipAction& action : actions) {
      std::visit([&](const auto& each) { Do(id, each); }, action);
    }
    Settle(id);
  }
  void Settle(const MemberId& id) {
    Process& process = processes_.at(id);
    if (!process.alive || process.stopped || process.computing ||
        !process.member.needs_part() || process.member.next() >= steps_) {
      return;
    }
    process.computing = true;
    const int64_t step = process.member.next();
    At(process.compute, [this, id, step] { FinishStep(id, step); });
  }
  void FinishStep(const MemberId& id, int64_t step) {
    Process& process = processes_.at(id);
    if (!process.alive) return;
    if (process.stopped) {  // goes on when it does
      return At(absl::Milliseconds(5),
                [this, id, step] { FinishStep(id, step); });
    }
    process.computing = false;
    const uint64_t hash = random_.Next() | 1;
    process.offered[step] = {hash, process.value};
    GossipActions actions;
    process.member.OnParameters(step, hash, now_, actions);
    Carry(id, actions);
  }

  void Do(const MemberId& from, const SendMessage& send) {
    int copies = random_.Unit() < faults_.lose ? 0 : 1;
    if (random_.Unit() < faults_.repeat) ++copies;
    for (int i = 0; i < copies; ++i) {
      At(Delay(), [this, from, send] { Deliver(from, send); });
    }
  }
  void Deliver(const MemberId& from, const SendMessage& send) {
    const auto to = processes_.find(send.to);
    if (to == processes_.end() || !to->second.alive) return;
    if (to->second.stopped) {  // waits in its sockets
      return At(absl::Milliseconds(5),
                [this, from, send] { Deliver(from, send); });
    }
    GossipActions actions;
    to->second.member.OnMessage(send.message, ParameterAnswer::Verdict::kTaken,
                                now_, actions);
    Carry(send.to, actions);
  }
  void Do(const MemberId& id, const EndExchange& end) {
    Process& process = processes_.at(id);
    furthest_ = std::max(furthest_, end.step + 1);
    const std::string where = "member " + std::to_string(id.worker.value) +
                              ", step " + std::to_string(end.step);
    if (!process.ends.emplace(end.step, end).second ||
        process.ends.rbegin()->first != end.step) {
      violations_.insert(where + ": a step ends twice, or after a later one");
    }
    if (!process.was_stopped && end.waited > absl::Milliseconds(1011)) {
      violations_.insert(where + ": waited beyond the deadline");
    }
    if (end.outcome != GossipOutcome::kAveraged) return;
    const auto& offered = processes_.at(end.partner).offered;
    const auto theirs = offered.find(end.step);
    if (theirs == offered.end() || theirs->second.first != end.hash) {
      violations_.insert(where + ": parameters that nobody offered");
      return;
    }
    const std::vector<float> other = {theirs->second.second};
    AverageWith(absl::MakeSpan(&process.value, 1), other);
  }
  void Do(const MemberId& id, const SendCopy& copy) {
    Process& donor = processes_.at(id);
    RoundMessage message;
    message.from = id;
    message.body = Copy{donor.member.next(), 0, 1};
    copied_[copy.to] = donor.value;
    Do(id, SendMessage{copy.to, message});
  }
  void Do(const MemberId& id, const TakeCopy&) {
    processes_.at(id).value = copied_.at(id);
  }

  const int64_t steps_;
  SplitMix64 random_;
  const GossipFaults faults_;
  GossipOptions options_;
  View view_;
  std::map<MemberId, Process> processes_;
  std::map<MemberId, float> copied_;
  std::map<std::pair<Instant, int64_t>, std::function<void()>> events_;
  std::set<std::string> violations_;
  Instant now_;
  int64_t order_ = 0;
  int64_t count_ = 0;
  int64_t furthest_ = 0;
};

}  // namespace paceline
