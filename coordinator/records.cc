#include "coordinator/records.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/rpc/convert.h"

namespace paceline {

v1::Job ToStored(const JobRecord& record) {
  v1::Job job = record.job;
  *job.mutable_spec() = ToProto(record.spec);
  for (const StageOfPlan& stage : record.stages) {
    v1::StagePlacement& into = *job.add_stages();
    into.set_first_layer(stage.layers.first);
    into.set_last_layer(stage.layers.last);
    into.set_worker_id(stage.worker.value);
    into.set_share(stage.share);
  }
  return job;
}

absl::StatusOr<JobRecord> FromStored(v1::Job job) {
  if (job.state() < 1 || job.state() >= kJobStates) {
    return absl::InvalidArgumentError(
        absl::StrCat("state ", static_cast<int>(job.state())));
  }
  for (const v1::JobWorker& worker : job.workers()) {
    const v1::RunState::Phase phase = worker.run().phase();
    if (v1::RunState::Phase_IsValid(phase)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("phase ", static_cast<int>(phase)));
  }
  JobRecord record;
  record.spec = FromProto(job.spec());
  for (const v1::StagePlacement& stage : job.stages()) {
    record.stages.push_back({{stage.first_layer(), stage.last_layer()},
                             WorkerId{stage.worker_id()},
                             stage.share()});
  }
  job.clear_spec();
  job.clear_stages();
  record.job = std::move(job);
  return record;
}

}  // namespace paceline
