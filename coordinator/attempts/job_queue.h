// JobQueue checks jobs, keeps those that wait, and starts them.
//
// Assumes: a worker runs one job at a time; jobs are served first come, first
// served, except that a job that waits for absent workers holds up no other.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/attempts/pipelines.h"
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
  JobQueue(MeshState& mesh, Pipelines& pipelines, JobId next)
      : mesh_(mesh), pipelines_(pipelines), next_job_(next) {}

  // As Brain::CheckSubmit().
  void CheckSubmit(const v1::SubmitJobRequest& request, Moment moment,
                   Done<Submission> done) const;
  void OnSubmitted(JobRecord job, Moment moment);
  // Starts every job that can start, and sets the why of the others.
  void Serve(Moment moment);

 private:
  // The job of an earlier request with the same id.
  std::optional<Submission> Known(const v1::SubmitJobRequest& request) const;
  absl::StatusOr<Submission> SubmissionOf(const v1::SubmitJobRequest& request,
                                          const JobSpec& spec,
                                          const ModelDescription& model,
                                          const PlacementVerdict& verdict,
                                          Moment moment) const;
  void AddStages(const std::vector<StageOfPlan>& stages,
                 v1::SubmitJobResponse& answer) const;
  // The inputs of placements.  One walk through the queue keeps them until it
  // starts a job.
  struct Seen {
    std::vector<Candidate> by_id;
    std::shared_ptr<const PlacementInputs> copied;  // null: not yet
  };
  struct Look {
    Seen free;   // as MeshState::Candidates()
    Seen there;  // all present workers, as if idle
    uint64_t key;
  };

  Look& LookAtMesh();
  // Null: the placement is being made.
  const PlacementVerdict* Place(JobEntry& job, PlacementMemo& memo,
                                Seen Look::*seen);
  const PlacementVerdict* PlaceNow(JobEntry& job) {
    return Place(job, job.queued.start, &Look::free);
  }
  bool HoldsTheQueue(JobEntry& job, bool settled, Moment moment);
  bool WaitsForSettling(JobEntry& job, const PlacementVerdict& verdict);

  MeshState& mesh_;
  Pipelines& pipelines_;
  JobId next_job_;
  std::optional<Look> look_;
  bool is_placing_ = false;  // the job at which this walk has stopped
};

}  // namespace paceline
