// Plans with more stages than devices: a device holds several.  Pure.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/plan/cut.h"
#include "core/plan/policy.h"
#include "core/plan/problem.h"

namespace paceline {

// SolvePlan for `stages` of them on fewer devices, as MakePlan places a job's:
// the policy decides what each of the devices, all of them, computes, and that
// is cut further; `equal` cuts all stages and deals them out in order, which
// also decides where what the policy wants does not fit.
//
// Of the answer, placement, stage_seconds, transfer_seconds (0 between two
// stages of one device) and memory_bytes (of all stages of a device) are those
// of all stages.  The step, its pace and their bound are those of one run of
// layers a device: cutting these further changes nothing of what a device
// computes in all.
//
//   problem.stages  is not asked; more `stages` than devices
//
// Errors: SolvePlan's, and
//   InvalidArgument    more stages than layers; a schedule that wants a device
//                      for each stage (pipedream)
//   ResourceExhausted  a device has less memory than all of its stages need
absl::StatusOr<PlanAnswer> SolveShared(absl::string_view policy,
                                       const PlanProblem& problem, int stages,
                                       const PolicyOptions& options);

// The same of stages that are given, whatever their number: neighbours whose
// holder is the same are one run.  `why` becomes the answer's.
// Errors: as above
absl::StatusOr<PlanAnswer> AnswerForShared(const PlanProblem& problem,
                                           const SharedStages& shared,
                                           absl::string_view why);

}  // namespace paceline
