// Enters the workers' reports on their progress in a job's record.
#pragma once

#include "coordinator/mesh/mesh_state.h"

namespace paceline {

// Takes log lines, and the steps of the present run.  Returns whether the
// heartbeat belongs to the job's present run.
bool TakeRecords(MeshState& mesh, JobEntry& job, const Member& member,
                 v1::Heartbeat& heartbeat, Moment moment);
// Takes a worker's report on the present run, without its phase.
void TakeRun(MeshState& mesh, JobEntry& job, WorkerId worker,
             const v1::RunState& run, Moment moment);
void TakeEvaluation(MeshState& mesh, JobEntry& job,
                    const v1::EvaluationRecord& evaluation, Moment moment);
// Every worker has uploaded its part of the result.
void OnAllDone(MeshState& mesh, JobEntry& job, Moment moment);

// Takes a step's record of the job's attempt, even of a run that the worker has
// left.
void TakeStep(MeshState& mesh, JobEntry& job, WorkerId worker,
              const v1::StepRecord& part, Moment moment);

// The rate over the last steps, also under an earlier coordinator; 0: not
// known.
double SamplesPerSecond(const JobEntry& job);

}  // namespace paceline
