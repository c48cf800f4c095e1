// Groups runs the round groups of data-parallel jobs: it begins them, takes
// their members' reports, admits and removes members, and begins a job again
// whose group is lost.
//
// Assumes: a data-parallel job goes on with its remaining members, and takes in
// new ones while no job waits in the queue.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "coordinator/job_progress.h"
#include "coordinator/mesh_state.h"

namespace paceline {

// Counts over all round groups since the start.
struct GroupCounts {
  int64_t views = 0;                     // decided
  std::map<GroupExit, int64_t> leavers;  // processes that left
};

// Thread-compatible; lives on the coordinator's loop.
class Groups {
 public:
  // Both outlive this.
  Groups(MeshState& mesh, JobProgress& progress)
      : mesh_(mesh), progress_(progress) {}

  // Makes the first view of an attempt of a placed job.
  void Start(JobEntry& job, Moment moment);
  // Goes on with the view that an earlier coordinator stored.
  void Restore(JobEntry& job, Moment moment);

  // Takes a worker's report on the present run of a job with a group.
  void TakeReport(JobEntry& job, const Member& member,
                  const WorkerReport& report, Moment moment);
  // Checks for each of the job's workers whether its process is gone, replaced
  // or back.  Does nothing for a job without a group.
  void Check(JobEntry& job, Moment moment);
  // Files of jobs that failed on this worker have changed: asks it back now.
  void OnRepaired(const Member& member, const v1::Heartbeat& heartbeat,
                  Moment moment);
  void SetDraining(JobEntry& job, WorkerId worker, bool drain, Moment moment);
  // Takes idle workers into the groups, unless a queued job may want them.
  void AdmitJoiners(Moment moment);

  // Names the workers of the last attempt that start anew; empty: none.
  std::string WaitsForReturn(const JobEntry& job) const;
  // Whether the result, which could not be saved, is awaited again.
  bool WaitsForUpload(JobEntry& job, const absl::Status& error, Moment moment);

  StandingOrder OrderOf(const JobEntry& job, WorkerId worker) const;
  // preparing, training, paused or saving; also for a job without a group.
  static std::string PhaseOf(const JobEntry& job);
  const GroupCounts& counts() const { return counts_; }

 private:
  GroupOptions OptionsOf(const JobEntry& job) const;
  static GroupWorker WorkerOf(const Member& member);
  void TakeRound(JobEntry& job, const v1::RoundRecord& record, Moment moment);
  void TakePartEvaluation(JobEntry& job, WorkerId worker,
                          const v1::EvaluationRecord& part, Moment moment);
  // True when no further part of the oldest open evaluation can come.
  static bool EvaluationIsOver(const JobEntry& job);
  // Ends the oldest open evaluation.
  void EndEvaluation(JobEntry& job, Moment moment);
  void TakeNews(JobEntry& job, Moment moment);
  void Keep(JobEntry& job, const GroupNews& news);
  void TakeLeaver(JobEntry& job, const GroupLeaver& leaver, Moment moment);
  void OnLost(JobEntry& job, Moment moment);
  void BeginAgain(JobEntry& job, const std::string& why, Moment moment);

  void CheckProcess(JobEntry& job, WorkerId worker, Moment moment);
  void RefreshRenewals(JobEntry& job, Moment moment);
  void AddWorker(JobEntry& job, const Member& member,
                 const ModelDescription& model);
  void AdmitJoinersOf(JobEntry& job, Moment moment);
  std::vector<const Member*> MembersOf(const JobEntry& job) const;
  // Whether it and a member of the group cannot reach each other.
  bool CannotDial(const JobEntry& job, const Member& joiner) const;
  bool HasMemory(JobEntry& job, const Member& joiner,
                 const ModelDescription& model, Moment moment);
  static bool HasRoom(const JobEntry& job);

  MeshState& mesh_;
  JobProgress& progress_;
  GroupCounts counts_;
};

}  // namespace paceline
