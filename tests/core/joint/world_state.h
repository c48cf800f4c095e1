// The insides of tests/core/joint/world.h.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/jobs/job_group.h"
#include "core/round/gossip_member.h"
#include "core/round/round_member.h"
#include "tests/core/joint/world.h"
#include "tests/core/recover/world_state.h"

namespace paceline::joint_world {

using recover_world::Link;
using recover_world::Worker;

// Stands for parameters and optimizer.
struct State {
  uint64_t value = 0;    // its hash
  int64_t step = 0;      // it has so many steps in it
  bool tainted = false;  // the memory of a member went wrong
};

// The compute thread's next task.
struct Turn {
  enum class Kind : uint8_t { kApply, kRestore, kMeet };

  Kind kind = Kind::kApply;
  int64_t step = 0;
  uint64_t hash = 0;     // of the result; of the partner's state; 0: none
  State state;           // kRestore
  int64_t compared = 0;  // kApply: RoundResult::compared_through
};

// A run of a group has this on its worker.
struct Member {
  bool is_open() const { return rounds != nullptr || gossip != nullptr; }

  int64_t job = 0;
  bool begins = false;                  // with the base
  std::optional<GroupOrder> order;      // the newest
  std::unique_ptr<RoundMember> rounds;  // one of the two
  std::unique_ptr<GossipMember> gossip;
  MemberId donor;

  // The compute thread's.
  State state;
  bool has_state = false;
  int64_t state_step = 0;
  bool untold = false;  // the hash of its state
  std::deque<Turn> turns;
  bool busy = false;
  int64_t turn = 0;
  int64_t progress = 0;
  int64_t part_step = -1;  // handed in
  std::optional<std::pair<int64_t, State>> unconfirmed;
  int64_t deposited_from = 0;
  std::set<MemberId> asking;  // for a copy

  // The driver's.
  std::map<int64_t, uint64_t> hashes;  // of results, by the step after them
  State incoming;                      // of an offer that is being taken
  int64_t group_next = 0;
  int states_taken = 0;
  std::map<MemberId, int64_t> owing;  // since, in us
  std::optional<ReportMismatch> mismatch;
};

// Stored beside the attempt's row.
struct Kept {
  int64_t attempt = 0;
  View view;
  std::map<WorkerId, Incarnation> excluded;
  std::map<WorkerId, Incarnation> distrusted;
};

class World final : public recover_world::World {
 public:
  World(const WorldOptions& options, world::Coverage* coverage);

  WorldResult Run();

 private:
  using Base = recover_world::World;

  // A report with what only a group's coordinator reads.
  struct Said {
    MemberId id;
    int64_t job = 0;
    std::optional<MemberReport> member;
    int64_t progress = 0;
  };
  struct Origin {
    uint64_t state = 0;
    int64_t step = 0;
    bool tainted = false;
  };
  struct Outgoing {
    int64_t after = 0;  // this write
    MemberId to;
    JobOrder order;
    std::optional<GroupOrder> group;
  };

  // --- world_members.cc: a worker's process ---
  Member& MemberOf(const Worker& worker) { return members_[worker.index]; }
  void EndProcess(Worker& worker) override;
  void Say(Worker& worker, JobReport report) override;
  std::optional<MemberReport> ReportOfMember(Worker& worker);
  void OnGroupOrder(Worker& worker, const JobOrder& order,
                    const std::optional<GroupOrder>& group, int64_t job);
  void OnGroup(Worker& worker, const GroupOrder& group);
  void FollowDonor(Worker& worker);
  void Gather(Worker& worker) override;
  static void Renew(Member& member);
  void BeginRun(Worker& worker);
  void KeepState(Worker& worker, bool keep_state) override;
  bool IsFollowed(const MemberId& id) const;
  bool MayReadOwn(const Worker& worker,
                  const std::vector<MemberId>& sources) const override;
  std::optional<uint64_t> FindPiece(
      Worker& worker, const Piece& piece,
      const std::vector<MemberId>& sources) override;
  void CheckRestored(Worker&, const Piece&, uint64_t) override {}
  std::vector<LayerRange> OwnLayers(const Worker&) const override {
    return {{0, layers_}};
  }
  // Calls the state machine, and does what it says.
  template <typename Machine, typename... Parameters, typename... Arguments>
  void Tell(Worker& worker, void (Machine::*function)(Parameters...),
            const Arguments&... arguments) {
    constexpr bool kRounds = std::is_same_v<Machine, RoundMember>;
    std::conditional_t<kRounds, RoundActions, GossipActions> actions;
    Machine* machine = nullptr;
    if constexpr (kRounds) {
      machine = MemberOf(worker).rounds.get();
    } else {
      machine = MemberOf(worker).gossip.get();
    }
    if (machine == nullptr) return;  // the run has ended meanwhile
    (machine->*function)(arguments..., Now(), actions);
    for (const auto& action : actions) {
      std::visit([&](const auto& each) { Do(worker, each); }, action);
    }
    Work(worker);
  }
  void Do(Worker& worker, const SendMessage& send);
  void Do(Worker& worker, const struct Aggregate& request);
  void Do(Worker& worker, const struct Apply& apply);
  void Do(Worker& worker, const Suspect& suspect);
  void Do(Worker& worker, const ReportMismatch& report);
  void Do(Worker& worker, const TakeState& take);
  void Do(Worker& worker, const OfferState& offer);
  void Do(Worker& worker, const EndExchange& end);
  void Transmit(Worker& from, const MemberId& to, const RoundMessage& message,
                const State& state);
  void Deliver(Worker& worker, const RoundMessage& message, const State& state);
  RoundMessage MessageOf(const Worker& worker, Body body);
  void TickMember(Worker& worker);
  // Takes the next turn, if the compute thread has none.
  void Work(Worker& worker);
  void Take(Worker& worker);
  void ComputePart(Worker& worker, int64_t step);
  void TellState(Worker& worker);
  void OfferStates(Worker& worker);
  // As MemberParts::on_state.
  bool OnState(Worker& worker, int64_t steps, std::optional<int64_t> compared);
  bool IsDue(Member& member, int64_t steps) const;
  void DepositState(Worker& worker, int64_t steps, const State& state);
  const std::optional<View>& ViewOf(const Member& member) const {
    return gossip_ ? member.gossip->view() : member.rounds->view();
  }
  int64_t NextOf(const Member& member) const {
    return gossip_ ? member.gossip->next() : member.rounds->next();
  }
  bool HasTakenPart(const Member& member) const;

  // --- world.cc: the coordinator ---
  RecoveryPolicy Policy() const override;
  absl::StatusOr<std::vector<RunPlace>> Plan(
      const std::vector<RunCandidate>& candidates) const override;
  void BeginJob() override;
  void RestoreJob() override;
  void CrashCoordinator(bool roll_back) override;
  void SeeReport(Worker& worker, JobReport& report) override;
  void SeeAttached(Worker& worker) override;
  void SeePiece(Cut) override {}  // a group's floor needs no second machine
  void SeeTransition(const JobTransition& row) override;
  void Lose(int64_t index, const std::string& why) override;
  void SetDraining(int64_t index, bool drains) override;
  void Store(const StoreAttempt& store) override;
  void SendDown(const MemberId& to, const JobOrder& order) override;
  void CheckWatchdogs() override;
  void MakeCheckpoint() override;
  void MaybeFault() override;
  bool HasEnded() const override { return finished_ || Base::HasEnded(); }
  void CheckRow(const StoreAttempt& store) override;
  void CheckOrder(const MemberId&, const JobOrder&) override {}
  void CheckEnd() override {}

  GroupOptions OptionsOfGroup() const;
  // One transaction, durable after a while; orders that come later wait for it.
  void Write(std::function<void()> change);
  void WriteNext();
  void Flush();
  void Deliver(const Outgoing& outgoing);
  std::optional<GroupOrder> GroupOrderOf(const MemberId& id) const;
  void SendGroupOrders();
  void SendNoRun(const MemberId& to);
  void CheckProcess(int64_t index);
  void RenewExcluded();
  void TakeNews();
  void TakeLeaver(const GroupLeaver& leaver);
  void OnAllDone();
  void FetchCheckpoint(Cut cut);
  void OnFetched(Cut cut, const std::map<int, uint64_t>& layers);
  void AskExport(bool stops);
  void ResumeJob();
  bool Corrupt(Worker& worker);
  // A wrong state may be used from now on, since the product does not see it:
  //   - a member that leaves deposits what nobody has compared, and copies of
  //     that count even if the coordinator does not trust the member;
  //   - members that gossip deposit a step one after the other, and a machine
  //     that copies from both has pieces of both;
  //   - where the newest checkpoint is of such a deposit, and the group is torn
  //     then, this world keeps no older one.
  void PassOver() {
    forgiven_ = forgiven_ || joint_.flaw != JointFlaw::kPassOverNothing;
  }
  // The layers are used: as a base, a checkpoint or a result.
  void CheckUse(const std::string& by, Cut cut,
                const std::map<int, uint64_t>& layers);
  void See(Moment moment) { Hit(4, moment, gossip_); }

  const WorldOptions joint_;
  WorldResult sums_;

  // The shape of this world.
  bool gossip_ = false;
  int64_t checkpoint_every_ = 0;
  int64_t most_members_ = 0;
  RoundOptions round_;

  std::vector<Member> members_;  // by worker
  std::optional<Said> said_;     // the report that is being handled
  bool finished_ = false;

  // The coordinator.
  std::optional<JobGroup> group_;
  Kept kept_;
  std::map<int64_t, MemberId> attached_;
  std::map<MemberId, std::optional<GroupOrder>> sent_;
  std::map<MemberId, int64_t> renewals_;  // due, in us
  std::deque<std::function<void()>> writes_;
  int64_t issued_ = 0;  // writes
  int64_t written_ = 0;
  std::deque<Outgoing> outbox_;
  bool fetching_ = false;
  int64_t failed_at_ = 0;  // a checkpoint of this step
  int64_t deposit_from_ = 0;
  bool exports_ = false;
  bool stops_ = false;
  int64_t asked_attempt_ = 0;  // an export was asked for
  int64_t asked_step_ = 0;     // that was reported then
  int false_starts_ = 0;
  // Durable, with what the base has.
  Kept disk_;

  // The checks know this.
  std::unordered_map<uint64_t, Origin> origins_;  // by a piece's content
  std::map<std::pair<int64_t, Cut>, uint64_t> used_;
  std::map<std::pair<int64_t, Cut>, uint64_t> deposited_;  // first
  std::set<MemberId> heard_;    // has taken part in the newest attempt
  int64_t reached_ = 0;         // the furthest step that was reported
  std::set<MemberId> accused_;  // the states of most members are others
  bool corrupted_ = false;
  // Nobody can know any more which state is the right one.
  bool forgiven_ = false;
};

}  // namespace paceline::joint_world
