// The measurements of a model on a worker and of the links between workers.
// They are the planner's input; the coordinator keeps them.  Values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/job/spec/job_spec.h"

namespace paceline {

// Seconds of one micro-batch.  `wall` is the median of several runs, `spread`
// half the distance between their quartiles; `cpu` is the compute thread's own
// time, a mean, which no other process and no quota can stretch.
struct MeasuredSeconds {
  double wall = 0;
  double spread = 0;
  double cpu = 0;

  friend bool operator==(const MeasuredSeconds&,
                         const MeasuredSeconds&) = default;
};

struct LayerMeasurement {
  std::string name;  // as in ModelDescription
  std::string kind;  // the operation with the most FLOPs
  MeasuredSeconds forward;
  MeasuredSeconds backward;   // 0 where nothing needs a gradient
  double update_seconds = 0;  // once a step: gate report and optimizer
  double flops = 0;           // forward, of the whole micro-batch
  int64_t output_bytes = 0;
  int64_t parameter_bytes = 0;
  int64_t kept_bytes = 0;  // for backward, as allocated

  friend bool operator==(const LayerMeasurement&,
                         const LayerMeasurement&) = default;
};

// A key distinguishes one profile from another; profiles with equal keys
// replace each other.
struct ProfileKey {
  std::string model;  // ModelKey()
  int64_t micro_batch = 0;
  std::string dtype = "f32";  // ProfileDType() of core/job/spec/job_spec.h
  int32_t threads = 1;
  std::string device;  // the worker's name

  friend auto operator<=>(const ProfileKey&, const ProfileKey&) = default;
};

// One model on one worker.
struct DeviceProfile {
  ProfileKey key;
  std::string cpu_capability;
  std::string cpu_model;
  std::vector<LayerMeasurement> layers;
  int32_t runs = 0;  // number of runs behind the medians
  // CPU seconds of a frame at each of its ends, a fixed part and a part for
  // each byte, and of a step gate's report.
  double frame_seconds = 0;
  double frame_seconds_per_byte = 0;
  double gate_seconds = 0;
  // CPU seconds that one busy thread gets in a second.  It is below 1 where a
  // quota stops the thread, every quota_period_seconds (0: no quota).
  double cpu_share = 1;
  double quota_period_seconds = 0;
  int64_t measured_unix_ms = 0;

  friend bool operator==(const DeviceProfile&, const DeviceProfile&) = default;
};

// One direction of a pair: `from` dials `to`, as a sender does.
struct LinkMeasurement {
  std::string from;  // workers' names
  std::string to;
  double bytes_per_second = 0;
  double latency_seconds = 0;  // half a round trip of an empty message
  int64_t measured_unix_ms = 0;
  // CPU seconds that a byte costs the process at each end, measured over this
  // link; 0: not known.
  double send_cpu_seconds_per_byte = 0;
  double receive_cpu_seconds_per_byte = 0;
  // The reason why `from` could not dial `to`.  Then bytes_per_second is
  // kRefusedBytesPerSecond, and nothing is measured.
  std::string error = {};

  friend bool operator==(const LinkMeasurement&,
                         const LinkMeasurement&) = default;
};

// Returns the CPU seconds that a byte of a frame costs `device` at its end: a
// mean of both directions over all its measured links.  It is never less than
// the profile's value, which was measured inside one machine.
double FrameSecondsPerByte(const DeviceProfile& profile,
                           const std::vector<LinkMeasurement>& links);

// "vit(depth=4,width=64,heads=4,patch=7,dropout=0) 1x28x28 -> 10": everything
// that may change a layer's cost.
std::string ModelKey(const ModelSpec& model, const Shape& input,
                     int32_t classes);

}  // namespace paceline
