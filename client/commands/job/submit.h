// `paceline job submit`: what a job will need, a job that follows a plan file,
// and its submission.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/commands/command.h"
#include "client/commands/plan/simulate.h"
#include "client/files/job_file.h"
#include "client/files/plan_file.h"
#include "client/render/report.h"
#include "client/values/document.h"
#include "core/job/spec/job_spec.h"

namespace paceline {

struct StageEstimate {
  v1::StagePlacement placement;
  std::string first_layer;  // names
  std::string last_layer;   // the last one inside
  int64_t parameters = 0;
  int64_t trained = 0;  // of these parameters
  int64_t parameter_bytes = 0;
  int64_t memory_bytes = 0;  // parameters, gradients, optimizer, activations
  double forward_flops = 0;  // a sample
};

struct JobEstimate {
  int layers = 0;
  int64_t parameters = 0;
  int64_t trained = 0;  // of these; 0: inference
  int64_t parameter_bytes = 0;
  std::vector<StageEstimate> stages;
  bool chosen = true;  // false: how many stages is decided once there are
                       // workers; these are as for one
  std::optional<v1::RunEstimate> run;  // nothing while there is no worker
  int64_t steps = 0;                   // of the job; 0: not known here
  bool inference = false;
  // Only a data-parallel job has shards; 0: none, or not known before there are
  // workers.
  int32_t shards = 0;
  std::string shards_why = {};  // of the mesh's choice
};

// stages: as the coordinator would place them; empty while it has no worker:
// then the cuts are made here, and no worker holds the stages.
// Errors: InvalidArgument  the spec is wrong
absl::StatusOr<JobEstimate> EstimateJob(
    const JobSpec& spec, Placements stages,
    std::optional<v1::RunEstimate> run = std::nullopt);

// Lines for people: what a step takes, or all of inference, samples a second,
// bubbles, where the times come from, and all of it when `steps` is known (not
// 0).
std::vector<std::pair<std::string, std::string>> RunFacts(
    const v1::RunEstimate& run, int64_t steps, bool inference);

Document ToDocument(const JobEstimate& estimate);
std::string RenderEstimate(const JobEstimate& estimate);

// Makes spec.pipeline cut as `plan` does, on the same workers when it was made
// for a mesh; `name` is the file's, for errors.  The schedule stays the job's.
// Returns what a person should know of that, or nothing: that only its cuts are
// followed, that it does not count what layers share.
//
// Errors: InvalidArgument  the plan is of another model than the job (names
//         both) or of another number of layers, has stages of several workers
//         where the job trains or they are no mesh's, the job has cuts of its
//         own, or its spec does not allow these cuts (CheckJobSpec: under
//         pipedream layers that share parameters must be on one stage)
absl::StatusOr<std::string> FollowPlan(const std::string& name,
                                       const PlanFile& plan, JobSpec& spec);

// The keys among these settings (KEY=VALUE) that a plan decides.
std::vector<std::string> KeysOfAPlan(const std::vector<std::string>& sets);

// As the real run would be simulated, where the plan knows its devices.
SimulatedPlan SimulationOf(const PlanFile& plan);

// The job that `word` names (a number, or "last") as it was submitted, changed
// by `sets`.  Of a script: what is in the file is to be asked anew.
// Errors: those of ResolveJob(), ControlClient::GetJob() and ChangeJob()
absl::StatusOr<ParsedJob> JobAgain(ControlClient& client,
                                   const std::string& word,
                                   const std::vector<std::string>& sets);

// Says of a job that goes on as `now` what its writer may not have meant:
// another learning rate than the job `before` would have had (a cosine is
// stretched), weights that are not read.
//   step  of the checkpoint; 0: the newest one
//   sets  what --set has changed
std::vector<std::string> ResumeNotes(const v1::Job& before, const JobSpec& now,
                                     int64_t step,
                                     const std::vector<std::string>& sets);

struct SubmitOptions {
  JobSpec spec;
  std::vector<std::string> warnings;  // of the job file, for people
  std::string request_id;  // random; repeats of this call carry the same
  // The job goes on from a checkpoint; step 0: the newest one.
  std::optional<v1::ResumedFrom> resume = {};
  bool detach = false;
  bool dry_run = false;
  std::optional<absl::Duration> timeout;  // of the wait; the job goes on
};

// Submits, then waits as `job wait` does unless `detach`.  A coordinator that
// cannot be reached is tried again for a moment, under one request_id, so that
// a repeat never makes a second job.
ExitCode SubmitCommand(const CommandContext& context,
                       const SubmitOptions& options);

}  // namespace paceline
