// JobProgress takes into a job's record how far its workers say they are.
#pragma once

#include "coordinator/mesh_state.h"

namespace paceline {

// Thread-compatible; lives on the coordinator's loop.
class JobProgress {
 public:
  explicit JobProgress(MeshState& mesh) : mesh_(mesh) {}  // outlives this

  // Logs, and of the present run steps.  Returns whether the heartbeat is of
  // the job's present run.
  bool TakeRecords(JobEntry& job, const Member& member,
                   v1::Heartbeat& heartbeat, Moment moment);
  // Takes all that a worker reports of the present run, but for its phase.
  void TakeRun(JobEntry& job, WorkerId worker, const v1::RunState& run,
               Moment moment);
  void TakeEvaluation(JobEntry& job, const v1::EvaluationRecord& evaluation,
                      Moment moment);
  // Every worker has handed over what it had.
  void OnAllDone(JobEntry& job, Moment moment);

  // Takes the record of a run of the job's attempt, which the worker may have
  // left.
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

// Over the last steps, also those of an earlier coordinator; 0: not known.
double SamplesPerSecond(const JobEntry& job);

}  // namespace paceline
