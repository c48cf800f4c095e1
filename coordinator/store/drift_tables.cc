#include "coordinator/store/drift_tables.h"

#include <cmath>
#include <cstddef>

#include "core/base/status_macros.h"

namespace paceline {
namespace {

absl::Status PutEstimate(Database& database, JobId job,
                         const RunEstimate& estimate) {
  return Query(database,
               "UPDATE jobs SET predicted_step=?, predicted_rate=?, "
               "predicted_bubble=?, prediction_source=?, prediction_measured=? "
               "WHERE id=?")
      .Bind(estimate.step_seconds)
      .Bind(estimate.samples_per_second)
      .Bind(estimate.bubble_share)
      .Bind(estimate.source)
      .Bind(int64_t{estimate.measured})
      .Bind(job.value)
      .Run();
}

}  // namespace

absl::Status PutDrift(Database& database, const JobRecord& job) {
  if (job.estimate.has_value()) {
    PACELINE_RETURN_IF_ERROR(PutEstimate(database, job.id, *job.estimate));
  }
  for (size_t i = 0; i < job.stages.size(); ++i) {
    const bool predicted =
        job.estimate.has_value() && i < job.estimate->stage_seconds.size();
    const bool profiled =
        job.estimate.has_value() && i < job.estimate->layer_seconds.size();
    const StageTime time =
        i < job.stage_times.size() ? job.stage_times[i] : StageTime{};
    PACELINE_RETURN_IF_ERROR(
        Query(database,
              "INSERT OR REPLACE INTO stage_times (job, stage, predicted, "
              "seconds, micro_batches, updates, skipped_updates, staleness, "
              "versions, version_bytes, layer_seconds) "
              "VALUES (?,?,?,?,?,?,?,?,?,?,?)")
            .Bind(job.id.value)
            .Bind(static_cast<int64_t>(i))
            .Bind(predicted ? job.estimate->stage_seconds[i] : NAN)
            .BindOr(time.seconds, 0)
            .Bind(time.micro_batches)
            .Bind(time.updates)
            .Bind(time.skipped_updates)
            .Bind(time.staleness)
            .Bind(int64_t{time.versions})
            .Bind(time.version_bytes)
            .Bind(profiled ? job.estimate->layer_seconds[i] : NAN)
            .Run());
  }
  return absl::OkStatus();
}

absl::Status LoadDrift(Database& database, JobRecord& job) {
  Query row(database,
            "SELECT predicted_step, predicted_rate, predicted_bubble, "
            "prediction_source, prediction_measured FROM jobs WHERE id=?");
  row.Bind(job.id.value);
  if (row.Next() && !std::isnan(row.Real(0))) {
    job.estimate.emplace();
    job.estimate->step_seconds = row.Real(0);
    job.estimate->samples_per_second = row.Real(1);
    job.estimate->bubble_share = row.Real(2);
    job.estimate->source = row.Text(3);
    job.estimate->measured = row.Integer(4) != 0;
  }
  PACELINE_RETURN_IF_ERROR(row.status());
  Query times(database,
              "SELECT stage, predicted, seconds, micro_batches, updates, "
              "skipped_updates, staleness, versions, version_bytes, "
              "layer_seconds "
              "FROM stage_times WHERE job=? ORDER BY stage");
  times.Bind(job.id.value);
  while (times.Next()) {
    if (job.estimate.has_value() && !std::isnan(times.Real(1))) {
      job.estimate->stage_seconds.push_back(times.Real(1));
    }
    if (job.estimate.has_value() && !std::isnan(times.Real(9))) {
      job.estimate->layer_seconds.push_back(times.Real(9));
    }
    job.stage_times.push_back(
        {.stage = static_cast<int32_t>(times.Integer(0)),
         .seconds = times.Real(2),
         .micro_batches = times.Integer(3),
         .updates = times.Integer(4),
         .skipped_updates = times.Integer(5),
         .staleness = times.Integer(6),
         .versions = static_cast<int32_t>(times.Integer(7)),
         .version_bytes = times.Integer(8)});
  }
  return times.status();
}

}  // namespace paceline
