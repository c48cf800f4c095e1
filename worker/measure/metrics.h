// Every metric of the worker; names, help and labels are in metrics.cc.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/cluster/run_report.h"
#include "core/obs/metrics.h"
#include "worker/measure/plane_stats.h"
#include "worker/measure/time_meter.h"
#include "worker/rounds/round_event_log.h"

namespace paceline {

// Counters of the process at one moment, as its parts keep them.
struct WorkerReading {
  bool attached = false;
  bool running = false;
  int64_t instructions = 0;
  int64_t steps = 0;
  int64_t steps_skipped = 0;
  int64_t samples = 0;
  PlaneStats frames;  // between stages
  TimeReading time;
  std::vector<StageTime> stages;  // of the present run
  std::optional<FlowTimes> flow;  // of the present run
  RoundReading rounds;
  PlaneStats round_frames;
  // The most bytes of tensors in the present run; predicted 0: not known.
  int64_t peak_memory_bytes = 0;
  int64_t predicted_memory_bytes = 0;
};

// Turns readings into metrics.  Thread-compatible: one caller at a time.
class WorkerMetrics {
 public:
  // `registry` outlives this.  version: of the program.
  WorkerMetrics(MetricsRegistry& registry, const std::string& version);

  // Counters only grow: a reading is taken as the new total.
  void Update(const WorkerReading& reading);

 private:
  void UpdateFlow(const FlowTimes& flow);
  void UpdateVersions(const std::vector<StageTime>& stages);
  void UpdateRounds(const RoundReading& reading);
  void AddDurations(const RoundStats& rounds);
  void UpdateFrames(const PlaneStats& frames, const PlaneStats& rounds);
  void Raise(const std::string& name, const LabelValues& labels, int64_t total);

  MetricsRegistry& registry_;
  std::map<std::pair<std::string, LabelValues>, int64_t> totals_;
  RoundStats rounds_;  // whose durations are counted
};

}  // namespace paceline
