// The simulated world itself; world.h says what it is for.
#pragma once

#include <cstdint>
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
#include "core/recover/job_recovery.h"
#include "core/recover/run_state.h"
#include "tests/core/recover/world.h"
#include "tests/core/world/kernel.h"
#include "tests/core/world/network.h"

namespace paceline {

// For traces and violations.
inline std::string Word(Cut cut) { return CutText(cut); }

namespace recover_world {

constexpr int64_t kMs = 1000;
constexpr int64_t kLeaseUs = 300 * kMs;
constexpr int64_t kHeartbeatUs = 50 * kMs;
constexpr int64_t kRetryUs = 30 * kMs;

// The core with a mistake, if one is asked for.
class FlawedJob final : public JobRecovery {
 public:
  FlawedJob(RecoverFlaw flaw, const RecoveryPolicy& policy,
            OrderCounter& orders, PlacementPlanner planner)
      : JobRecovery(policy, orders, std::move(planner)), flaw_(flaw) {}

 private:
  bool IsValid(Cut cut) const override;
  bool HasLeft(const Peer& peer) const override;
  bool IsExcluded(const MemberId& process) const override;
  int64_t NextAttempt() const override;
  bool AllHeard() const override;
  std::set<MachineId> UsableMachines() const override;
  Cut FloorAfter(Cut floor, Cut computed) const override;

  const RecoverFlaw flaw_;
};

class FlawedRun final : public WorkState {
 public:
  explicit FlawedRun(RecoverFlaw flaw) : flaw_(flaw) {}

 private:
  bool HasLeft(const Fence& fence) const override {
    return flaw_ != RecoverFlaw::kBeginTwice && WorkState::HasLeft(fence);
  }

  const RecoverFlaw flaw_;
};

// A process begins with this, and loses it when it ends.
struct Life {
  bool refuses = false;
  std::unique_ptr<WorkState> state;
  JobOrder order;  // the newest
  WorkPhase phase = WorkPhase::kIdle;
  WorkPhase seen_phase = WorkPhase::kIdle;  // for the coverage
  absl::Status error;                       // of kFailed
  KeepRule keep;
  int64_t stream = 0;  // to the coordinator; 0: none
  int64_t job = 1;     // that its order names
  bool pieces_said = false;
  Instant acknowledged{absl::InfiniteDuration() * -1};
  std::set<Cut> listed;  // of a flawed coordinator

  // Its run: what the order said of it when it began, and whether to stop.
  std::optional<RunPlan> run;
  bool active = false;  // has begun, and was not told to leave
  int64_t attempt = 0;
  std::map<int, uint64_t> layers;  // state
  int64_t step = 0;                // applied
  int64_t computed = 0;            // the step that it has computed and held
  int64_t run_number = 0;          // grows with every begin and leave
  std::vector<Cut> torn;  // deposits that a layer is still missing from
  int64_t own_mark = 0;   // kMarkByStage
  // A replica has left, and may have to finish.
  std::optional<KeptState> kept;

  // As stage 0.
  std::set<MemberId> reported;  // that have computed step + 1
  bool mark = false;            // of step + 1, in its headers
  bool last = false;
  std::map<int64_t, std::pair<bool, bool>> verdicts;  // mark and last, by step
};

struct Worker : world::Process, Life {
  MemberId id() const { return {{index + 1}, {incarnation()}}; }
  int64_t ordered_attempt() const { return run ? run->attempt : 0; }

  int64_t index = 0;
  MachineId machine;
  bool lacks_file = false;
  bool stays_dead = false;  // in the calm, if it is dead then
  bool settled = true;
  world::Process compute{this};  // its thread; it hangs when this is frozen
  std::optional<SnapshotClock> clock;  // of stage 0
  std::map<Piece, uint64_t> pieces;  // a process hands them over, or is killed
  bool cut = false;                  // from the coordinator
  world::Stream up;                  // reports
  world::Stream down;
};

// The coordinator's adapter knows this of a worker.
struct Link {
  int64_t stream = 0;  // 0: never attached
  int64_t last_heard_us = 0;
  bool lost = false;
  int64_t lost_at_us = 0;
  std::set<Piece> pieces;  // for kKeepList
};

inline std::string Word(const Worker& worker) {
  return absl::StrCat("w", worker.index, ".", worker.incarnation());
}
const char* FaultName(Fault fault);
const char* WorkName(WorkPhase phase);

// A job of stages.  tests/core/joint derives from it a world whose attempts are
// groups: what differs there is virtual.
class World : protected world::Kernel {
 public:
  World(const WorldOptions& options, world::Coverage* coverage);

  WorldResult Run();

 protected:
  void Play();  // to its end

  // --- workers
  void StartProcess(Worker& worker);
  virtual void EndProcess(Worker& worker);
  void Heartbeat(Worker& worker);
  void SendReport(Worker& worker);
  JobReport ReportOf(Worker& worker);
  virtual void Say(Worker& worker, JobReport report);
  void TryAttach(Worker& worker);
  void OnOrder(Worker& worker, const JobOrder& order);
  void CarryOut(Worker& worker, WorkStep step);
  void FinishKept(Worker& worker);
  void SetPhase(Worker& worker, WorkPhase phase, absl::Status error = {});
  void SeePhase(Worker& worker);
  virtual void SeeTransition(const JobTransition& row);
  void LeaveNow(Worker& worker, bool keep_state);
  virtual void KeepState(Worker& worker, bool keep_state);
  virtual void Gather(Worker& worker);
  bool Fetch(Worker& worker, std::map<int, uint64_t>& layers);
  virtual void CheckRestored(Worker& worker, const Piece& piece,
                             uint64_t state);
  // Whether pieces of its own store count.
  virtual bool MayReadOwn(const Worker& /*worker*/,
                          const std::vector<MemberId>& /*sources*/) const {
    return true;
  }
  virtual std::optional<uint64_t> FindPiece(
      Worker& worker, const Piece& piece, const std::vector<MemberId>& sources);
  void Begin(Worker& worker, int64_t step);
  void BeginStep(Worker& worker);
  void Compute(Worker& worker);
  void SayComputed(Worker& worker);
  void OnComputed(Worker& first, const MemberId& from, int64_t step);
  void OnVerdict(Worker& worker, int64_t step, bool mark, bool last);
  void Apply(Worker& worker, int64_t step, bool mark, bool last);
  void ApplyToLayers(Worker& worker, int64_t step);
  void Deposit(Worker& worker, Cut cut);
  void Prune(Worker& worker);
  void Pull(Worker& follower);
  bool IsLinked(const Worker& a, const Worker& b) const {
    return network_.FindCut(a.index, b.index) == nullptr;
  }
  Worker& Of(const MemberId& id) { return workers_[id.worker.value - 1]; }
  Worker* Find(const MemberId& id);  // null: that process is gone
  static std::set<MemberId> MembersOf(const std::vector<RunPlace>& places);
  virtual std::vector<LayerRange> OwnLayers(const Worker& worker) const;

  // --- coordinator
  virtual void StartCoordinator();
  virtual void BeginJob();
  virtual void RestoreJob();
  virtual void CrashCoordinator(bool roll_back);
  void OnReport(int64_t index, int64_t stream, const MemberId& id,
                JobReport report);
  // A report has come, before the core is told of it.
  virtual void SeeReport(Worker& /*worker*/, JobReport& /*report*/) {}
  virtual void SeeAttached(Worker& /*worker*/) {}
  void OnBroken(int64_t index, int64_t stream);
  virtual void Lose(int64_t index, const std::string& why);
  MachineId MachineOf(int64_t index) const {
    return options_.flaw == RecoverFlaw::kCountWorkers
               ? MachineId{index}
               : workers_[index].machine;
  }
  static std::string NameOf(int64_t index) {
    return "w" + std::to_string(index);
  }
  std::set<Cut> ListedCuts() const;
  void Tick();
  // Calls the core, and does what it says.
  template <typename... Parameters, typename... Arguments>
  void Call(void (JobRecovery::*function)(Parameters...),
            const Arguments&... arguments) {
    RecoveryTurn turn{Now()};
    (*job_.*function)(arguments..., turn);
    Carry(turn.actions);
  }
  void Carry(const RecoveryActions& actions);
  void AskToEnd(Worker& worker);
  virtual void Store(const StoreAttempt& store);
  virtual void SendDown(const MemberId& to, const JobOrder& order);
  virtual void CheckWatchdogs();
  virtual void MakeCheckpoint();
  virtual absl::StatusOr<std::vector<RunPlace>> Plan(
      const std::vector<RunCandidate>& candidates) const;
  virtual RecoveryPolicy Policy() const;
  virtual std::unique_ptr<JobRecovery> MakeJob();

  // --- faults
  virtual void MaybeFault();
  void Strike(Fault fault, Worker& worker);
  bool StrikeWorker(Fault fault,
                    Worker& worker);  // false: it could not be done
  bool StrikeCoordinator(Fault fault);
  bool Partition(Worker& worker);
  bool Drain(Worker& worker);
  virtual void SetDraining(int64_t index, bool drains);
  void Kill(Worker& worker, bool come_back);
  void HealStream(Worker& worker);
  void OnThawed(world::Process& process, int64_t stood_us) override;
  void StandStill();
  void Calm();
  virtual bool HasEnded() const;
  std::string WhyNotEnded() const;

  // --- checks
  uint64_t Expected(int64_t attempt, int64_t step, int layer);
  // By the durable rows, for an attempt that replaces rows of its number on.
  bool IsValid(Cut cut, int64_t for_attempt = INT64_MAX) const;
  bool IsStored(int64_t attempt) const;
  void LoseMachine(MachineId machine) { lost_machines_.insert(machine); }
  virtual void SeePiece(Cut cut);
  bool LivesComplete(Cut cut, bool reachable_only, size_t machines) const;
  virtual void CheckRow(const StoreAttempt& store);
  virtual void CheckOrder(const MemberId& to, const JobOrder& order);
  void CheckExclusion(const MemberId& process);
  virtual void CheckEnd();

  const WorldOptions options_;
  WorldResult result_;

  // The shape of this world.
  int layers_ = 4;
  int64_t last_step_ = 12;
  int copies_ = 1;
  SnapshotPolicy snapshots_;
  std::vector<int64_t> replicas_;  // [stages], as wanted; empty: none
  bool records_ = false;
  bool settles_ = false;
  bool checkpoints_ = false;
  bool may_roll_back_ = false;
  int64_t job_number_ = 1;
  int64_t needed_workers_ = 1;
  int64_t idle_workers_ = 0;
  int64_t two_stages_ = 0;  // so many more stages than workers
  int most_losses_ = 8;
  absl::Duration return_period_;
  int64_t rotation_ = 0;  // of the planner's order of workers

  std::deque<Worker> workers_;
  uint64_t incarnations_ = 0;
  int64_t streams_ = 0;
  // Between workers; it carries the messages of the step gate.
  world::Network network_{*this, {0.02, 0.02, 0, 100, 900}};

  // The coordinator.
  std::unique_ptr<JobRecovery> job_;
  OrderCounter counter_;
  world::Process coordinator_;  // lives while job_ does
  std::map<int64_t, Link> links_;
  JobPhase phase_ = JobPhase::kQueued;
  std::set<int64_t> draining_;
  world::Store store_{.fair_us = 5 * kMs, .slowest_us = 300 * kMs};
  // Durable.
  std::vector<AttemptRow> rows_;
  std::vector<RunPlace> places_;
  std::vector<RunPlace> places_before_;  // of the row before the newest
  std::set<int64_t> known_;
  Cut checkpoint_;
  std::map<int, uint64_t> checkpoint_layers_;
  std::map<std::pair<int64_t, int>, uint64_t> results_;  // by attempt and layer
  int64_t recorded_ = 0;

  bool failed_for_good_ = false;

  // The checks know this, from outside.
  std::map<int64_t, Cut> bases_;  // of all attempts that were ever announced
  std::map<std::pair<Cut, int>, uint64_t> expected_;
  std::set<std::pair<MemberId, int64_t>> begun_;
  std::set<MemberId> excluded_;
  int64_t newest_announced_ = 0;
  Cut safe_;  // the newest cut that was on enough machines
  int safe_followers_ = 0;
  std::set<MachineId> lost_machines_;  // since then
  int64_t leaving_since_us_ = 0;       // less what the coordinator stood still
  Cut told_floor_;
};

}  // namespace recover_world
}  // namespace paceline
