// JobQueue checks jobs, keeps those that wait, and starts them.
//
// Assumes: a worker runs one job at a time; jobs are served first come, first
// served, except that a job that waits for absent workers holds up no other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/attempts/pipelines.h"
#include "coordinator/mesh/mesh_measurements.h"
#include "coordinator/mesh/mesh_state.h"

namespace paceline {

struct Submission {
  JobRecord job;
  bool repeated = false;         // the job exists already; nothing to do
  v1::SubmitJobResponse answer;  // without its id
};

// Thread-compatible; lives on the coordinator's loop.
class JobQueue {
 public:
  // next: the id of the next job.  The others outlive this.
  JobQueue(MeshState& mesh, Pipelines& pipelines,
           const MeshMeasurements& measurements, JobId next)
      : mesh_(mesh),
        pipelines_(pipelines),
        measurements_(measurements),
        next_job_(next) {}

  // As Brain::CheckSubmit().
  absl::StatusOr<Submission> CheckSubmit(const v1::SubmitJobRequest& request,
                                         Moment moment) const;
  void OnSubmitted(JobRecord job, Moment moment);
  // Starts every job that can start, and sets the why of the others.
  void Serve(Moment moment);

 private:
  void AddStages(const std::vector<StageOfPlan>& stages,
                 v1::SubmitJobResponse& answer) const;
  // The inputs of placements.  One walk through the queue keeps them until it
  // starts a job.
  struct Look {
    std::vector<Candidate> free;   // as MeshState::Candidates()
    std::vector<Candidate> there;  // all present workers, as if idle
    uint64_t key;
  };

  const Look& LookAtMesh();
  bool HoldsTheQueue(JobEntry& job, bool settled, Moment moment);
  bool WaitsForSettling(JobEntry& job, const PlacementVerdict& verdict);

  MeshState& mesh_;
  Pipelines& pipelines_;
  const MeshMeasurements& measurements_;
  JobId next_job_;
  std::optional<Look> look_;
};

}  // namespace paceline
