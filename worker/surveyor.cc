#include "worker/surveyor.h"

#include "core/base/status_macros.h"
#include "core/model/description.h"
#include "core/model/precision.h"
#include "worker/cpu_time.h"
#include "worker/profiler.h"
#include "worker/run_order.h"

namespace paceline {
namespace {

absl::StatusOr<DeviceProfile> MeasureLayers(const JobSpec& spec,
                                            const SurveyorParts& parts,
                                            const CancelToken& cancel) {
  PACELINE_ASSIGN_OR_RETURN(
      const ModelDescription model,
      DescribeModel(spec.model, spec.data.shape, spec.data.classes));
  parts.factory.SetThreads(spec.threads);

  DeviceProfile profile;
  profile.key = {ModelKey(spec.model, spec.data.shape, spec.data.classes),
                 spec.train.micro_batch, ProfileDType(spec.precision),
                 spec.threads, parts.name};
  profile.cpu_capability = parts.cpu_capability;
  profile.cpu_model = parts.cpu_model;
  ProfileFacts facts;
  PACELINE_ASSIGN_OR_RETURN(
      profile.layers,
      ProfileLayers(spec, model, parts.memory_bytes, ProfilerOptions(),
                    {[&parts](const EngineOptions& options) {
                       return parts.factory.MakeEngine(options);
                     },
                     parts.clock, ThreadCpuTime, cancel},
                    &facts));
  profile.runs = facts.runs;
  const double period = MeasurePausePeriod(parts.clock);
  // Threads of a pool compute beside this one: its own CPU time says nothing.
  if (facts.cpu_share < 1 && period > 0 && spec.threads == 1) {
    profile.cpu_share = facts.cpu_share;
    profile.quota_period_seconds = period;
  }
  PACELINE_ASSIGN_OR_RETURN(const FrameCost frames,
                            parts.prober->MeasureFrames(cancel));
  profile.frame_seconds = frames.seconds;
  profile.frame_seconds_per_byte = frames.seconds_per_byte;
  profile.gate_seconds = frames.gate_seconds;
  profile.measured_unix_ms = absl::ToUnixMillis(parts.clock.Today());
  return profile;
}

absl::Status Fill(const MeasureOrder& order, const SurveyorParts& parts,
                  const CancelToken& cancel, Measurement& measurement) {
  if (parts.prober == nullptr) {
    return absl::UnimplementedError("this worker cannot measure");
  }
  if (order.link.has_value()) {
    PACELINE_ASSIGN_OR_RETURN(
        measurement.links,
        parts.prober->ProbeLink(parts.name, *order.link, cancel));
    const int64_t now = absl::ToUnixMillis(parts.clock.Today());
    for (LinkMeasurement& link : measurement.links) link.measured_unix_ms = now;
    return absl::OkStatus();
  }
  PACELINE_RETURN_IF_ERROR(CheckSpecOfOrder(*order.layers));
  if (NeedsWorker(order.layers->model)) {
    parts.factory.SetThreads(order.layers->threads);
    PACELINE_ASSIGN_OR_RETURN(measurement.script,
                              parts.factory.ReadScript(*order.layers));
    return absl::OkStatus();
  }
  PACELINE_ASSIGN_OR_RETURN(measurement.profile,
                            MeasureLayers(*order.layers, parts, cancel));
  return absl::OkStatus();
}

}  // namespace

Measurement CarryOut(const MeasureOrder& order, const SurveyorParts& parts,
                     const CancelToken& cancel) {
  Measurement measurement;
  measurement.id = order.id;
  measurement.error = Fill(order, parts, cancel, measurement);
  return measurement;
}

}  // namespace paceline
