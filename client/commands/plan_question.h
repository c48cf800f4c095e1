// The question that `paceline plan` is asked. Values and a check.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/files/profile_file.h"
#include "client/rpc/control_client.h"
#include "core/model/job_spec.h"
#include "core/plan/inputs.h"
#include "core/simulate/group_step.h"

namespace paceline {

struct PlanOptions {
  // Where the problem comes from: one of them.
  std::string model = {};
  std::string job_file = {};
  std::string profile = {};

  // With model or job_file.
  std::optional<int64_t> batch = {};  // samples of a micro-batch; with model
  std::vector<std::string> sets = {};

  // With profile; core/plan/machines.h.
  std::string machines = {};   // "4x4"
  std::string bandwidth = {};  // "1e10,1.25e9", bytes a second
  std::string latency = {};    // "1e-4,1e-3", seconds
  std::string speed = {};      // "1,1,0.5,...", one a device or one for all
  std::string memory = {};     // "16e9", bytes of a device; with any source

  std::optional<std::string> policy = {};  // nothing: the job's, else optimal
  bool compare = false;
  std::optional<int64_t> micro_batches = {};  // of a step; 0: endless
  bool inference = false;
  std::optional<int> stages = {};
  bool replicas = false;  // asked for: for a mesh's training they are not else
  bool no_replicas = false;
  bool even_shares = false;
  bool no_overlap = false;
  std::optional<std::string> schedule = {};
  double reserve_bytes = 0;
  uint64_t seed = 1;
  std::string cost_model = "paceline";  // or pipedream
  bool count_transfers = false;         // pipedream only
  std::string save = {};                // file, or empty
};

// Errors: InvalidArgument  no source or two, or an option that means nothing
// beside the others; names it.
absl::Status CheckPlanOptions(const PlanOptions& options);

// Sets what a study of plans has under `key`: profile, machines, bandwidth and
// others, named as the flags of `plan`.
// Errors: InvalidArgument  no such key; not a value of its type
absl::Status SetPlanOption(const std::string& key, const std::string& value,
                           PlanOptions& options);

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

}  // namespace paceline
