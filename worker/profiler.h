// Measures a model's layers on this machine: what a real stage would compute,
// layer by layer.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/model/description.h"
#include "core/model/job_spec.h"
#include "core/plan/measurement.h"
#include "worker/cancel_token.h"
#include "worker/stage_engine.h"

namespace paceline {

struct ProfilerOptions {
  int warm_up_runs = 3;
  int least_runs = 8;
  int most_runs = 200;
  // Runs end after this long, but not before least_runs.
  absl::Duration budget = absl::Seconds(3);
};

// What the profiler needs from outside.
struct ProfilerParts {
  std::function<absl::StatusOr<std::unique_ptr<StageEngine>>(
      const EngineOptions&)>
      make_engine;
  const Clock& clock;
  // CPU time of the calling thread.
  std::function<absl::Duration()> thread_cpu;
  const CancelToken& cancel;
};

// Runs one micro-batch of random samples forward and backward, over and over,
// through one engine that holds the whole model, so that caches are as warm as
// they are in training; then the step gate's report and the optimizer.  The
// loss counts to the last layer.
//
// memory_bytes: of this worker (0: not known); a model that would not fit is
// measured in several runs of layers.
//
// Lives on the compute thread.
// Errors: those of the engine; cancel.status(); ResourceExhausted  one layer
// alone does not fit
absl::StatusOr<std::vector<LayerMeasurement>> ProfileLayers(
    const JobSpec& spec, const ModelDescription& model, int64_t memory_bytes,
    const ProfilerOptions& options, const ProfilerParts& parts, int* runs);

// What one busy thread gets of a CPU, and how often a quota stops it: keeps a
// CPU busy for about a fifth of a second.
struct CpuShare {
  double share = 1;           // CPU seconds a second
  double period_seconds = 0;  // 0: nothing stops it
};
CpuShare MeasureCpuShare(const Clock& clock,
                         const std::function<absl::Duration()>& thread_cpu);

// CPU time of the calling thread, as the system counts it.
absl::Duration ThreadCpuTime();
// And of all threads of this process.
absl::Duration ProcessCpuTime();

}  // namespace paceline
