// JobProgress enters the workers' reports on their progress in a job's record.
#pragma once

#include "coordinator/mesh/mesh_state.h"

namespace paceline {

// Thread-compatible; lives on the coordinator's loop.
class JobProgress {
 public:
  explicit JobProgress(MeshState& mesh) : mesh_(mesh) {}  // outlives this

  // Takes log lines, and the steps of the present run.  Returns whether the
  // heartbeat belongs to the job's present run.
  bool TakeRecords(JobEntry& job, const Member& member,
                   v1::Heartbeat& heartbeat, Moment moment);
  // Takes a worker's report on the present run, without its phase.
  void TakeRun(JobEntry& job, WorkerId worker, const v1::RunState& run,
               Moment moment);
  void TakeEvaluation(JobEntry& job, const v1::EvaluationRecord& evaluation,
                      Moment moment);
  // Every worker has uploaded its part of the result.
  void OnAllDone(JobEntry& job, Moment moment);

  // Takes a step's record of the job's attempt, even of a run that the worker
  // has left.
  void TakeStep(JobEntry& job, WorkerId worker, const v1::StepRecord& part,
                Moment moment);

 private:
  void CountStep(JobEntry& job, const v1::StepRecord& step, Moment moment);
  void NoteWalk(JobEntry& job, int64_t steps, Moment moment);
  // May fail the job.
  void TakeUnreadable(JobEntry& job, const v1::JobWorker& part,
                      const v1::Unreadable& said, Moment moment);
  void TakeNotes(JobEntry& job, const v1::RunState& run, Moment moment);
  static void TakeFlow(JobEntry& job, Moment moment);
  static void AddRate(JobEntry& job, const Rate& rate);
  static void TakeMarks(JobEntry& job, WorkerId worker,
                        const v1::RunState& run);
  static void TakeTimes(JobRecord& record, WorkerId worker,
                        const v1::RunState& run);
  void Evaluate(JobEntry& job, Moment moment);

  MeshState& mesh_;
};

// The rate over the last steps, also under an earlier coordinator; 0: not
// known.
double SamplesPerSecond(const JobEntry& job);

}  // namespace paceline
