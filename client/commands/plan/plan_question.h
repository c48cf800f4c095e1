// The question that `paceline plan` is asked, and the answer that a job for the
// mesh itself gets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/files/profile_file.h"
#include "client/rpc/control_client.h"
#include "client/values/plan_options.h"
#include "core/job/spec/job_spec.h"
#include "core/plan/inputs.h"
#include "core/plan/search/policy.h"
#include "core/simulate/group_step.h"

namespace paceline {

// From what `paceline plan` was given to what the policies are asked.

// A job for the mesh that there is.
struct MeshJob {
  JobSpec spec;  // with the schedule asked for
  ModelDescription model;
  // By id, as the problem's devices, with the memory that the options leave.
  std::vector<MemberInput> workers;
  Measurements measurements;
};

struct PlanQuestion {
  PlanInputs inputs;  // facts are empty where devices are made up
  std::string policy = "optimal";
  std::string schedule = "1f1b";
  std::string model;        // ModelKey; empty: not one of our models
  int64_t micro_batch = 0;  // samples; 0: not known
  // With fewer workers than stages: of all stages, which the workers share; 0:
  // a stage has workers of its own.
  int shared_stages = 0;
  bool own_cuts = false;       // the job's own decide, not a policy
  std::optional<MeshJob> job;  // of a mesh
  // A job could ask the same, so that MakePlan() answers as it does there.
  bool as_job = false;
};

// Makes a problem forward only, and the devices' own times too: by `facts`
// where there are any, else by the layers' parts.
void LeaveOutBackward(const std::vector<DeviceFacts>& facts,
                      PlanProblem& problem);

// For the coordinator's live workers, with all that it ever measured.  `spec`
// has passed CheckJobSpec.
//
// Errors: InvalidArgument     sizes that do not fit; an option that is wrong
//         FailedPrecondition  no worker is attached
//         and those of ControlClient
absl::StatusOr<PlanQuestion> AskForMesh(ControlClient& client,
                                        const JobSpec& spec,
                                        const PlanOptions& options);

// For the machines that the options describe, else for those of the source.
//
// Errors: InvalidArgument  machines, bandwidths, speeds or memory that are
//         wrong, missing or too few; too many states; an option that is wrong
absl::StatusOr<PlanQuestion> AskForProfile(const ProfileSource& source,
                                           const PlanOptions& options);

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
