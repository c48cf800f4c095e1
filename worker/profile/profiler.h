// Measures a model's layers on this machine: what a real stage would compute,
// layer by layer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/job/spec/job_spec.h"
#include "core/model/description.h"
#include "core/os/thread.h"
#include "core/plan/measurement.h"
#include "paceline/v1/coordinator.pb.h"
#include "worker/control/run_factory.h"
#include "worker/pipeline/stage_engine.h"

namespace paceline {

struct ProfilerOptions {
  int warm_up_steps = 1;
  int least_runs = 8;
  int most_runs = 200;
  // Micro-batches of a step: reading all gradients and writing all parameters
  // leaves little of a small model's weights in the caches.
  int step_runs = 4;
  // Runs end after this long, but not before least_runs.
  absl::Duration budget = absl::Seconds(3);
};

// The parts that the profiler takes from outside.
struct ProfilerParts {
  std::function<absl::StatusOr<std::unique_ptr<StageEngine>>(
      const EngineOptions&)>
      make_engine;
  const Clock& clock;
  // CPU time of the calling thread.
  std::function<absl::Duration()> thread_cpu;
  const CancelToken& cancel;
};

// A thread that no quota and no neighbour stops gets at least this much.
inline constexpr double kFreeShare = 0.9;

// Runs one micro-batch of random samples forward and backward, over and over,
// through one engine that holds the whole model, so that caches are as warm as
// they are in training; once a step the step gate's report and the optimizer.
// The loss counts to the last layer.
//
// memory_bytes: of this worker (0: not known); a model that would not fit is
// measured in several runs of layers.
//
// Returns the layers, the runs that their medians are of, and the CPU seconds a
// second that the computing thread got; 1 from kFreeShare on.
//
// Lives on the compute thread.
// Errors: those of the engine; cancel.status(); ResourceExhausted  one layer
// alone does not fit
absl::StatusOr<DeviceProfile> ProfileLayers(const JobSpec& spec,
                                            const ModelDescription& model,
                                            int64_t memory_bytes,
                                            const ProfilerOptions& options,
                                            const ProfilerParts& parts);

// How often a busy thread is stopped, by a quota or by neighbours: seconds from
// one pause of at least half a millisecond to the next, on average; 0: (nearly)
// never.  Keeps a CPU busy for a quarter of a second.  A quota's own period is
// not seen everywhere: a kernel that looks at ticks of 4 ms stops a quota of
// every 5 ms after 4 or 8.
double MeasurePausePeriod(const Clock& clock);

// CPU seconds at each end, whichever thread spends them.
struct FrameCost {
  double seconds = 0;           // a frame, whatever its size
  double seconds_per_byte = 0;  // and for each byte of it
  double gate_seconds = 0;      // a step gate's report and verdict
};

// Called on the compute thread.  One real implementation (worker/transport),
// one in the tests.
class Prober {
 public:
  virtual ~Prober() = default;

  // Dials `target` as `self` would to send it frames, and measures the way
  // there.
  // Errors: Unavailable  cannot be reached; DeadlineExceeded; cancel.status();
  // InvalidArgument  it answers with a number that is none;
  // FailedPrecondition  `target` has the address of this worker
  virtual absl::StatusOr<LinkMeasurement> ProbeLink(
      const std::string& self, const v1::MeasureLink& target,
      const CancelToken& cancel) = 0;

  // Measures the cost of the data plane's frames on this machine.
  virtual absl::StatusOr<FrameCost> MeasureFrames(
      const CancelToken& cancel) = 0;
};

struct MeasureParts {
  std::string name;  // this worker's
  std::string cpu_capability;
  std::string cpu_model;
  int64_t memory_bytes = 0;  // 0: not known
  Prober* prober = nullptr;  // null: nothing can be measured
  RunFactory& factory;
  const Clock& clock;
};

// Blocks until everything is measured or `cancel` says otherwise.  On the
// compute thread; never fails but in the answer's error.
v1::Measurement CarryOut(const v1::MeasureOrder& order,
                         const MeasureParts& parts, const CancelToken& cancel);

}  // namespace paceline
