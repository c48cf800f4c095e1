// Groups runs the round groups of data-parallel jobs within an attempt: it
// takes their members' reports, and admits and removes members.  JobRecovery
// begins the attempts.
//
// Assumes: a data-parallel job goes on with its remaining members, and takes in
// new ones while no job waits in the queue.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "coordinator/mesh/mesh_state.h"

namespace paceline {

// Counts over all round groups since the start.
struct GroupCounts {
  int64_t views = 0;                     // decided
  std::map<GroupExit, int64_t> leavers;  // processes that left
};

// Thread-compatible; lives on the coordinator's loop.
class Groups {
 public:
  // Tells of a change in the job's group, which may be over.
  using OnChange = std::function<void(JobEntry& job, Moment moment)>;

  // `mesh` outlives this.
  Groups(MeshState& mesh, OnChange on_change)
      : mesh_(mesh), on_change_(std::move(on_change)) {}

  // Makes the first view of an attempt of a placed job, whose base has `step`
  // steps.
  void Start(JobEntry& job, int64_t step, Moment moment);
  // The job leaves the attempt.
  static void OnLeft(JobEntry& job) {
    job.group.reset();
    job.saving = false;
  }
  // Goes on with the view that an earlier coordinator stored, if it did.
  void Restore(JobEntry& job, Moment moment);

  // Takes the group's part of a worker's report on the present run.
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

  // Whether the result, which could not be saved, is awaited again.
  bool WaitsForUpload(JobEntry& job, const absl::Status& error, Moment moment);

  // Adds the group to an order to run.  False: the process is not in it.
  bool AddTo(const JobEntry& job, const Member& member, RunOrder& run) const;
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
  void OnOver(JobEntry& job, Moment moment);

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
  const OnChange on_change_;
  GroupCounts counts_;
};

}  // namespace paceline
