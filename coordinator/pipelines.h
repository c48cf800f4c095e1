// Pipelines keeps the jobs whose stages lie on several workers: how far each
// worker is, and what becomes of the job when one of them breaks.
//
// It outlives the workers that it loses.  One that trains goes on from states
// that its workers keep; inference goes on after the predictions that are
// stored.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/job_progress.h"
#include "coordinator/mesh_measurements.h"
#include "coordinator/mesh_state.h"
#include "coordinator/placement.h"

namespace paceline {

// Thread-compatible; lives on the coordinator's loop.
class Pipelines {
 public:
  // All outlive this.
  Pipelines(MeshState& mesh, JobProgress& progress,
            const MeshMeasurements& measurements)
      : mesh_(mesh), progress_(progress), measurements_(measurements) {}

  // --- Jobs that recover; the events concern all of them ---

  // Begins the job on the live workers.
  void Begin(JobEntry& job, Moment moment);
  // Goes on with an attempt that an earlier coordinator stored.
  void Restore(JobEntry& job);
  void OnAttached(const Member& member, Moment moment);
  void OnLost(const Member& member, Moment moment);
  void OnDrain(WorkerId worker, bool drain, Moment moment);
  // Whether anything follows from it.
  bool OnHeartbeat(const Member& member, const v1::Heartbeat& heartbeat,
                   Moment moment);
  void OnTick(Moment moment);
  // Workers or profiles are there that were not.
  void OnPlansChanged(Moment moment);
  // Takes what a worker says of its compute thread and of its links.  Returns
  // the latter.
  std::vector<PeerReport> Watch(JobEntry& job, const Member& member,
                                const WorkerReport& report, Moment moment);
  // A job has taken the process out: it shall execute itself anew.
  bool Excludes(const MemberId& process) const;
  // The coordinator stood still for so long, until now.
  void OnStandstill(absl::Duration duration, Moment moment);
  // Adds what a process shall keep and copy of all jobs, and at which CPU
  // capability it shall start anew before an attempt.
  void AddTo(StandingOrder& standing, const MemberId& process) const;
  // A cut of a job that runs is kept while it is brought to the disk.
  void SetPin(JobEntry& job, Cut cut, bool pinned, Moment moment);
  std::string AddressOf(const MemberId& process) const;  // empty: not known

  // --- All pipelines ---

  // Takes what a worker reports of the present run.  OnHeartbeat() judges it.
  void TakeReport(JobEntry& job, WorkerId worker,
                  const v1::Heartbeat& heartbeat, Moment moment);
  // Nothing: the worker shall leave what it runs of the job.
  std::optional<RunOrder> OrderOf(const JobEntry& job, WorkerId worker) const;

 private:
  using Act = std::function<void(JobEntry&, RecoveryActions&)>;

  MachineId MachineOf(const Member& member);
  void MakeRecovery(JobEntry& job);
  // A worker that lives, and holds nothing of the job yet.
  void Introduce(const Member& member, JobRecovery& recovery, Moment moment,
                 RecoveryActions& actions);
  // The longest that one instruction may take.
  absl::Duration InstructionBound(JobEntry& job) const;
  // Looks for a worker that hangs, and for a cut link between two workers.
  void Judge(JobEntry& job, RecoveryActions& actions, Moment moment);
  absl::StatusOr<std::vector<RunPlace>> PlanFor(
      JobEntry& job, const std::vector<RunCandidate>& there) const;
  // The verdict where the job goes on without lost stages; else as it is.
  absl::Status PlanWithoutLost(JobEntry& job, const JobSpec& spec,
                               const std::vector<Candidate>& candidates) const;
  absl::StatusOr<PlacementVerdict> Place(
      const JobSpec& spec, const std::vector<Candidate>& candidates,
      PlacementMemo& memo) const;
  // Whether idle workers are left to a job that waits in the queue.
  bool LeavesIdle(const JobEntry& job) const;
  // Estimates what the best plan on those who are there would save; nothing:
  // not known.
  std::optional<MoveEstimate> EstimateMove(JobEntry& job) const;
  void LookForBetterPlan(JobEntry& job, RecoveryActions& actions,
                         Moment moment);
  // Calls `act` for every job that recovers, and carries out what follows.
  void ForEach(Moment moment, const Act& act);
  void Carry(JobEntry& job, const RecoveryActions& actions, Moment moment);
  void OnStoreAttempt(JobEntry& job, const StoreAttempt& attempt,
                      Moment moment);
  void OnTransition(JobEntry& job, const JobTransition& transition,
                    Moment moment);

  MeshState& mesh_;
  JobProgress& progress_;
  const MeshMeasurements& measurements_;
  std::map<std::string, MachineId> machines_;  // by the id that workers say
};

}  // namespace paceline
