// Protos to the logic's structs and back.  FromProto fills in the defaults of
// what is absent and checks what a peer could have made wrong.
#pragma once

#include "absl/status/statusor.h"
#include "core/job/job_model.h"
#include "core/job/spec/job_spec.h"
#include "core/optim/step_gate.h"
#include "paceline/v1/stage.pb.h"
#include "paceline/v1/types.pb.h"

namespace paceline {

// Cannot fail: values are checked by CheckJobSpec.
JobSpec FromProto(const v1::JobSpec& proto);
v1::JobSpec ToProto(const JobSpec& spec);  // every field set

// Carries a worker's account of a script. DescribeModel() judges it.
v1::ScriptModel ToProto(const ScriptModel& script);

// A job of `spec` that goes on from a checkpoint of a job of `made`, which had
// read `inputs`, must find these.  Weights count for nothing; the samples do
// not, where the two make other ones of the same files.
v1::Inputs InputsToResume(v1::Inputs inputs, const JobSpec& made,
                          const JobSpec& spec);

absl::StatusOr<StepReport> FromProto(const v1::StepReport& proto);

}  // namespace paceline
