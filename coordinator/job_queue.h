// JobQueue checks jobs, keeps those that wait, and starts them.
//
// Assumes: one worker runs one job at a time; jobs are served first come first
// served, but a job that waits for workers that are not there holds up no
// other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/groups.h"
#include "coordinator/mesh_measurements.h"
#include "coordinator/mesh_state.h"
#include "coordinator/pipelines.h"

namespace paceline {

struct Submission {
  JobRecord job;
  bool repeated = false;  // the job is known already; nothing is to be done
  v1::SubmitJobResponse answer;  // without the id
};

// Thread-compatible; lives on the coordinator's loop.
class JobQueue {
 public:
  // next: the id of the next job.  The others outlive this.
  JobQueue(MeshState& mesh, Groups& groups, Pipelines& pipelines,
           const MeshMeasurements& measurements, JobId next)
      : mesh_(mesh),
        groups_(groups),
        pipelines_(pipelines),
        measurements_(measurements),
        next_job_(next) {}

  // As Brain::CheckSubmit().
  absl::StatusOr<Submission> CheckSubmit(const v1::SubmitJobRequest& request,
                                         Moment moment) const;
  void OnSubmitted(JobRecord job, Moment moment);
  // Starts all that can start, and says of the others for what they wait.
  void Serve(Moment moment);

 private:
  void AddStages(const std::vector<StageOfPlan>& stages,
                 v1::SubmitJobResponse& answer) const;
  // Holds all that placements are made of, while a walk through the queue
  // changes nothing of it.
  struct Look {
    std::vector<Candidate> free;   // as MeshState::Candidates()
    std::vector<Candidate> there;  // all that are there, as if they were idle
    uint64_t key;
  };

  const Look& LookAtMesh();
  bool HoldsTheQueue(JobEntry& job, bool settled, Moment moment);
  bool WaitsForSettling(JobEntry& job, const PlacementVerdict& verdict);
  PlacementVerdict DecideStart(const JobSpec& spec,
                               const std::vector<Candidate>& candidates) const;
  void StartJob(JobEntry& job, const PlacementVerdict& verdict, Moment moment);

  MeshState& mesh_;
  Groups& groups_;
  Pipelines& pipelines_;
  const MeshMeasurements& measurements_;
  JobId next_job_;
  std::optional<Look> look_;
};

}  // namespace paceline
