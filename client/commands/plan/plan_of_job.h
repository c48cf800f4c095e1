// Gives `paceline plan` the plan that a job for the mesh itself gets.  Pure.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/commands/plan/plan_question.h"
#include "core/plan/search/policy.h"

namespace paceline {

// Answers as MakePlan() places question.job, which there is, with its cost by
// the formula of the question's problem.  Of more stages than workers,
// placement, stage_seconds, transfer_seconds (0 between two stages of one
// worker) and memory_bytes (of all its stages) are those of all stages; the
// step, its pace and their bound are those of one run of layers a worker.
// interleaved-1f1b is planned as 1f1b.
//
//   policy  cuts and places; empty: the job's own cuts and workers do
//
// Errors: MakePlan's; InvalidArgument where the job has a worker hold stages
// that are no neighbours, of which the formula knows nothing
absl::StatusOr<PlanAnswer> AnswerOfJob(const std::string& policy,
                                       const PlanQuestion& question,
                                       const PlanOptions& options);

}  // namespace paceline
