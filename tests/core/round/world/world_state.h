// The insides of tests/core/round/world/world.h.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/random.h"
#include "core/cluster/eviction.h"
#include "core/job/spec/job_spec.h"
#include "core/round/round_member.h"
#include "core/round/view.h"
#include "tests/core/round/world/world.h"
#include "tests/core/world/kernel.h"
#include "tests/core/world/network.h"

namespace paceline {

// For traces and violations.
inline std::string Word(const MemberId& id) {
  return absl::StrCat("w", id.worker.value + 1, ".", id.incarnation.value);
}
inline std::string Word(const ViewId& id) { return ViewText(id); }
inline std::string Word(const RoundMessage& m) { return MessageText(m); }

namespace round_world {

inline constexpr int kMicroBatches = 9;  // a batch
inline constexpr int kMostWorkers = 16;
inline constexpr int kMostJoined = 2;  // beyond those that begin
// Stands for bytes with NaN in them.
inline constexpr uint64_t kNotFinite = 0x4e614e;

// Time passes faster in a schedule than in the daemons, in proportion.
inline constexpr struct {
  int heartbeat_us = 20'000;
  int lease_us = 100'000;
  int tick_us = 10'000;
  int retry_us = 15'000;
  int shortest_part_us = 500;  // to compute
  int longest_part_us = 6'000;
  int straggler_us = 40'000;
  int64_t end_us = 60'000'000;
} kPace;

// A member set out to compute this for a step: the first time counts.
struct OwnPart {
  int64_t attempt = 0;
  int64_t step = 0;
  uint64_t division = 0;
  uint32_t micro_batches = 0;  // a bit each
  uint64_t state = 0;          // of which it is the gradient
  uint64_t lie = 0;            // 0: none
};

// The bytes of a part that came to a server: what an adapter would keep.
struct KeptPart {
  MemberId from;
  int64_t step = -1;
  uint64_t hash = 0;
  uint64_t arrival = 0;  // a number that grows
};

// The words that a flawed server or leveller has heard in a view.
struct Forgery {
  ViewId view;
  std::set<MemberId> answers;
  uint64_t hash = 0;  // that these hold
  std::set<MemberId> holds;
};

// The last hold of a member: what it said of its state, if it knew.
struct HeardHold {
  MemberId from;
  int64_t step = -1;
  uint64_t state_hash = 0;
};

// One shard's gathering as it looks from outside, for coverage and for faults
// that are to hit a phase.
struct Serving {
  ViewId view;
  int64_t step = -1;
  ServerState state = ServerState::kOpen;
  uint32_t spoken = 0;  // workers, a bit each
  bool held_elsewhere = false;
};

// A message on its way, with what stands for the bytes beside it.
struct Parcel {
  RoundMessage message;
  uint64_t payload = 0;  // a part's bytes; an offered state without its fault
  uint64_t taint = 0;    // an offered state's
  bool fetched = false;  // an offered state has come
};

// A member begins an attempt with this.
struct Life {
  int64_t attempt = 0;
  std::unique_ptr<RoundMember> member;
  LevellerState levelling = LevellerState::kAsking;  // where it levels
  ViewId seen_view;
  std::map<MemberId, int64_t> answered;  // there: steps, as each said last
  std::vector<Serving> serving;          // [shards]

  // Its state is `truth`, unless something unknown was done to it.
  uint64_t truth = 0;
  uint64_t taint = 0;
  std::vector<HeardHold> heard;  // [kMostWorkers], as the server

  int64_t computing_step = -1;
  std::vector<KeptPart> kept;         // [shards x kMostWorkers]
  std::optional<uint64_t> late_part;  // flaw kLatePartJoinsNextRound
  Forgery forgery;
  std::vector<std::pair<MemberId, int64_t>> owing;  // since, in us
  std::optional<ReportMismatch> mismatch;
  bool fetches = false;  // an offered state
};

struct Process : world::Process, Life {
  MemberId id;
  int told_out = 0;  // how often it was shown a view that it is not in
  bool dies_committing = false;
  int64_t cut_until_us = 0;              // from the coordinator
  int64_t heard_us = 0;                  // by the coordinator
  std::vector<OwnPart> own;              // oldest first
  std::map<int, uint64_t> cached_parts;  // flaw kKeepPartsOverAttempts

  std::vector<FaultSpec> fault_specs;
  FaultPlan plan;
  bool corrupts = false;  // the part that it has out
  bool not_finite = false;
  bool repeats = false;
  std::pair<int64_t, int64_t> last_applied = {-1, -1};
};

inline std::string Word(const Process& process) { return Word(process.id); }

class World : private world::Kernel {
 public:
  World(const WorldOptions& options, world::Coverage* coverage);

  WorldResult Run();

 private:
  // A member before an event, to see what the event led to.
  struct Before {
    RoundMember::Phase phase;
    int64_t next;
    bool held;
    LevellerState levelling;
    bool levels;
  };

  // Holds of the world as a whole, by its seed: draws nothing, so that what the
  // others draw stays what it was.
  bool IsOneIn(uint64_t worlds, uint64_t salt) const {
    return MixSeed({options_.seed, salt}) % worlds == 0;
  }

  // --- world.cc: events and what members want done ---
  void Begin();
  // Calls the core, sees what came of it, and does what it says.
  // message: what it is about; may be null.
  template <typename Call>
  void Give(Process& process, const RoundMessage* message, const Call& call) {
    const Before before = LookAt(process);
    RoundActions actions = std::move(scratch_);
    actions.clear();
    call(actions);
    if (options_.flaw != RoundFlaw::kNone) AddForged(process, message, actions);
    Watch(process, before, message, actions);
    Carry(process, actions);
    scratch_ = std::move(actions);
  }
  template <typename... Parameters, typename... Arguments>
  void Call(Process& process, void (RoundMember::*function)(Parameters...),
            const Arguments&... arguments) {
    Give(process, nullptr, [&](RoundActions& actions) {
      (*process.member.*function)(arguments..., Now(), actions);
    });
  }
  void Carry(Process& process, RoundActions& actions);
  void Do(Process& process, SendMessage& send);
  void Do(Process& process, struct Aggregate& aggregate);
  void Do(Process& process, Apply& apply);
  void Do(Process& process, const Suspect& suspect);
  void Do(Process& process, const ReportMismatch& report);
  void Do(Process& process, const TakeState& take);
  void Do(Process& process, const OfferState& offer);
  void Deliver(Process& process, Parcel& parcel);
  void FetchState(Process& process, const Parcel& parcel);
  void OnViewArrives(Process& process, const View& view);
  void Transmit(Process& from, const MemberId& to, RoundMessage message,
                uint64_t payload, uint64_t taint);
  void Tick(Process& process);
  void EveryHeartbeat();

  // --- world_parts.cc ---
  void StartComputing(Process& process);
  void OnComputed(Process& process, int64_t attempt, int64_t step);
  void OfferParts(Process& process, const OwnPart& own);
  void Sum(Process& process, const struct Aggregate& request);
  void KeepPart(Process& process, RoundMessage& message, uint64_t payload);
  KeptPart& KeptOf(Process& process, int shard, WorkerId worker) {
    return process
        .kept[static_cast<size_t>(shard * kMostWorkers + worker.value)];
  }
  uint32_t MicroBatches(const View& view, int64_t step, const Process& process);

  // --- world_coordinator.cc ---
  Process& AddProcess(WorkerId worker);
  void BeginAttempt(const std::vector<Process*>& processes, int64_t step,
                    uint64_t state);
  void MakeKeeper(std::optional<View> stored, int64_t term);
  void BeginLife(Process& process, int64_t step, uint64_t state);
  // Calls the keeper, and does what it says.
  template <typename... Parameters, typename... Arguments>
  void CallKeeper(void (ViewKeeper::*function)(Parameters...),
                  const Arguments&... arguments) {
    ViewActions actions;
    (*keeper_.*function)(arguments..., actions);
    CarryViews(actions);
  }
  void CarryViews(ViewActions& actions);
  void SendViewTo(const MemberId& to, const View& view);
  void WriteNextView();
  void OnViewStored();
  void OnCoordinatorBack();
  void Heartbeat(Process& process);
  void OnHeartbeat(Process& process);
  void OnJoiner(Process& process);
  void TakeReport(Process& process);
  void TakeMismatch(const MemberReport& report);
  void EvictSilent();
  void OnLease();
  void Lose(const MemberId& member, const char* why);
  void Restart(Process& process, const char* why);
  void Restore(bool older);
  // In some worlds nobody is taken out for what it owes: what leaves members
  // stuck for good shows only there.
  bool TakesOut() const { return options_.seed % 8 != 0; }
  // In some worlds a kill is of a strip of machines, and little else happens.
  bool SharesStrip() const { return IsOneIn(3, /*salt=*/3); }
  bool HasCutForGood() const;
  void HealCutsOf(WorkerId worker);
  bool is_led() const {
    return coordinator_.alive() && keeper_->view().has_value() &&
           !keeper_->lost();
  }

  // --- world_faults.cc ---
  void OnFault();
  void Calm();
  bool Inject();
  // False: nothing came of it.
  bool StrikeProcess(Fault fault, Process& process);
  bool StrikeCoordinator(Fault fault);
  bool StrikePart(Fault fault, Process& process);
  bool StrikeNetwork(Fault fault);
  bool CutLink(const Process& process);
  void Kill(Process& process, bool comes_back);
  void CutPower();
  Process* PickAlive();  // null: none lives
  RoundPhase PhaseOf(Process& process);
  const world::CutLink* FindCut(const Process& from, WorkerId to) const {
    return network_.FindCut(from.id.worker.value, to.value);
  }

  // --- world_flaws.cc ---
  std::unique_ptr<RoundMember> MakeMember(const Process& process, int64_t step,
                                          uint64_t state);
  void Hear(Process& process, RoundMessage message, RoundActions& actions);
  RoundMessage MessageOf(const Process& process, Body body) const;
  void Forge(Process& process, const std::vector<MemberId>& members,
             const Body& body, RoundActions& actions);
  void AddForged(Process& process, const RoundMessage* message,
                 RoundActions& actions);
  std::vector<Contributor> Summed(Process& process,
                                  const struct Aggregate& request);

  // --- world_watch.cc: coverage ---
  Before LookAt(const Process& process) const;
  void Watch(Process& process, const Before& before,
             const RoundMessage* message, const RoundActions& actions);
  void WatchMessage(Process& process, const RoundMessage& message);
  void WatchMember(Process& process, const Before& before,
                   const RoundMessage* message, const RoundActions& actions);
  void WatchServer(Process& process, const Before& before,
                   const RoundActions& actions);
  void WatchClosing(Process& process, const struct Aggregate& sum);
  void WatchOffer(Process& process, const PartOffer& offer,
                  const MemberId& from);
  void WatchLeveller(Process& process, const Before& before,
                     const RoundMessage* message, const RoundActions& actions);
  void WatchAnswer(Process& process, const Before& before, const MemberId& from,
                   const Answer& answer);
  void WatchView(const Process& process, const View& view);
  Serving& ServingOf(Process& process, int shard);

  // --- world_checks.cc: invariants ---
  void CheckApply(Process& process, const RoundResult& result, bool is_first);
  void CheckShard(const Process& process, const RoundResult& result,
                  const ShardResult& shard);
  void CheckStates(const Process& server, int64_t step);
  void CheckOwnWay(const Process& process, const Before& before,
                   const RoundMessage* message, const RoundActions& actions);
  uint64_t Oracle(const RoundResult& result, const ShardResult& shard,
                  int64_t attempt);
  const OwnPart* FindOwn(const MemberId& member, int64_t attempt, int64_t step);
  std::string WhyNotDone() const;
  WorldResult Result() const;

  // --- Small things ---
  // Incarnations are counted: no search.  Null: there is none yet.
  Process* Find(const MemberId& id) {
    const uint64_t index = id.incarnation.value - 1;
    return index < processes_.size() ? &processes_[index] : nullptr;
  }
  uint64_t StateOf(const Process& process) const {
    return process.taint == 0 ? process.truth
                              : MixSeed({process.truth, process.taint});
  }
  RoundOptions OptionsNow() const {
    RoundOptions options = round_;
    options.attempt = attempt_;
    return options;
  }

  const WorldOptions options_;
  world::Network network_{*this, {}};
  world::Store store_{.fair_us = 4'000, .slowest_us = 80'000};
  uint64_t parts_kept_ = 0;
  RoundActions scratch_;

  RoundOptions round_;
  std::deque<Process> processes_;
  int workers_ = 0;
  int members_ = 0;

  // The coordinator, and what it has on disk.
  world::Process coordinator_;
  int64_t term_ = 1;
  std::unique_ptr<ViewKeeper> keeper_;
  std::map<MemberId, MemberReport> reports_;  // of those with news
  std::deque<View> to_store_;                 // in order; the first is written
  std::optional<View> disk_;
  int64_t attempt_ = 1;
  bool corrupted_ = false;

  // The results that anybody applied: (attempt, step) -> hash, and state after.
  std::map<std::pair<int64_t, int64_t>, uint64_t> applied_;
  std::map<std::pair<int64_t, int64_t>, uint64_t> states_;
  std::map<std::pair<uint64_t, uint64_t>, uint32_t> divided_;  // MicroBatches()
  int64_t rounds_ = 0;
  int64_t voids_ = 0;
  int64_t seen_views_ = 0;
  int64_t calm_rounds_from_ = -1;
  bool done_ = false;
};

// Stands for the gradient of these micro-batches in a step, of a state.
uint64_t PartHash(const OwnPart& part, int shard);
int64_t SamplesOf(uint32_t micro_batches, int64_t step);

}  // namespace round_world
}  // namespace paceline
