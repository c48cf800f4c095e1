// Pipelines runs the attempts of all jobs: it tracks each worker's progress and
// carries out the recovery when one breaks.
//
// A job survives the loss of workers.  Training goes on from states that its
// workers keep; inference goes on after the stored predictions.  Groups judges
// the members of a round group, and says when it is over.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/attempts/groups.h"
#include "coordinator/mesh/mesh_state.h"
#include "coordinator/place/placement.h"

namespace paceline {

// Thread-compatible; lives on the coordinator's loop.
class Pipelines {
 public:
  // Both outlive this.
  Pipelines(MeshState& mesh, Groups& groups) : mesh_(mesh), groups_(groups) {}

  // --- Jobs that recover; each event concerns all of them ---

  // Begins the job on the live workers.
  void Begin(JobEntry& job, Moment moment);
  // Goes on with an attempt that an earlier coordinator stored.
  void Restore(JobEntry& job, Moment moment);
  // The job's group has changed.
  void OnRoster(JobEntry& job, Moment moment);
  void OnAttached(const Member& member, Moment moment);
  void OnLost(const Member& member, Moment moment);
  void OnDrain(WorkerId worker, bool drain, Moment moment);
  // Returns whether it changes anything.
  bool OnHeartbeat(const Member& member, const v1::Heartbeat& heartbeat,
                   Moment moment);
  void OnTick(Moment moment);
  // There are new workers or profiles.
  void OnPlansChanged(Moment moment);
  // Takes a worker's report on its compute thread and its links.  Returns its
  // reports on links.
  std::vector<PeerReport> Watch(JobEntry& job, const Member& member,
                                const WorkerReport& report, Moment moment);
  // True where a job has removed the process, which shall execute itself anew.
  bool Excludes(const MemberId& process) const;
  // The coordinator stood still for `duration`, until now.
  void OnStandstill(absl::Duration duration, Moment moment);
  // Adds the states that the process shall keep and copy, for all jobs, and the
  // CPU capability at which it shall start anew before an attempt.
  void AddTo(v1::StandingOrder& standing, const MemberId& process) const;
  // Keeps a running job's cut on its workers while it is copied to the disk.
  void SetPin(JobEntry& job, Cut cut, bool pinned, Moment moment);
  // empty: not known
  std::string AddressOf(const MemberId& process) const {
    const Member* const member = mesh_.membership.Find(process.worker);
    return member == nullptr ? "" : member->registration.address();
  }

  // --- All pipelines ---

  // Takes a worker's report on the present run.  OnHeartbeat() and Groups judge
  // it.
  void TakeReport(JobEntry& job, WorkerId worker,
                  const v1::Heartbeat& heartbeat, Moment moment);
  // Nothing: the worker shall leave the job's run.
  std::optional<RunOrder> OrderOf(const JobEntry& job, WorkerId worker) const;

 private:
  using Act = std::function<void(JobEntry&, RecoveryTurn&)>;

  MachineId MachineOf(const Member& member);
  void MakeRecovery(JobEntry& job);
  // Tells the recovery of a live worker that holds no state of the job yet.
  void Introduce(const Member& member, JobRecovery& recovery,
                 RecoveryTurn& turn);
  // The longest that one instruction may take.
  absl::Duration InstructionBound(JobEntry& job) const;
  // Looks for a worker that hangs, and for a cut link between two workers.
  void Judge(JobEntry& job, RecoveryTurn& turn);
  PlacedStages PlanFor(JobEntry& job,
                       const std::vector<RunCandidate>& there) const;
  // The job without its lost stages, where it goes on without them.
  std::optional<JobSpec> WithoutLost(const JobEntry& job,
                                     const JobSpec& spec) const;
  // Null: it is being made.
  const PlacementVerdict* Place(const JobSpec& spec,
                                const std::vector<Candidate>& candidates,
                                PlacementMemo& memo) const;
  // Whether the job leaves idle workers to a job that waits in the queue.
  bool LeavesIdle(const JobEntry& job) const;
  // Estimates the time that the plan of job.attempt.verdict saves, which has
  // these places; nothing: not known.
  std::optional<MoveEstimate> EstimateMove(
      const JobEntry& job, const std::vector<RunPlace>& places) const;
  void LookForBetterPlan(JobEntry& job, RecoveryTurn& turn);
  // Calls `act` for every job that recovers, and carries out the actions.
  void ForEach(Moment moment, const Act& act);
  void Carry(JobEntry& job, const RecoveryActions& actions, Moment moment);
  void OnStoreAttempt(JobEntry& job, const StoreAttempt& attempt,
                      Moment moment);
  void OnTransition(JobEntry& job, const JobTransition& transition,
                    Moment moment);

  MeshState& mesh_;
  Groups& groups_;
  std::map<std::string, MachineId> machines_;  // by the workers' machine id
};

}  // namespace paceline
