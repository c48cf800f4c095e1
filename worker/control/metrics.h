// Every metric of the worker; names, help and labels are in metrics.cc.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "core/obs/metrics.h"
#include "paceline/v1/coordinator.pb.h"
#include "worker/meters/time_meter.h"
#include "worker/pipeline/piece_store.h"
#include "worker/rounds/parts/round_event_log.h"

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
  v1::TimeSplit time;
  v1::RunState run;  // the present one
  RoundReading rounds;
  PlaneStats round_frames;
  int64_t predicted_memory_bytes = 0;  // of the present run; 0: not known
  PieceStore::Stats pieces;
  // Until when the certificate is valid; InfinitePast: there is none.
  absl::Time certificate_expiry = absl::InfinitePast();
};

// Turns readings into metrics.  Thread-compatible: one caller at a time.
class WorkerMetrics {
 public:
  // `registry` outlives this.  version: of the program.
  WorkerMetrics(MetricsRegistry& registry, const std::string& version);

  // Counters only grow: a reading is taken as the new total.
  void Update(const WorkerReading& reading);

 private:
  void UpdateRun(const WorkerReading& reading);
  void UpdateFlow(const v1::FlowTimes& flow);
  void UpdateRounds(const RoundReading& reading);
  void AddDurations(const RoundStats& rounds);
  void UpdateFrames(const PlaneStats& frames, const PlaneStats& rounds);
  template <typename Number>
  void Set(const char* name, Number value, const LabelValues& labels = {}) {
    registry_.GetGauge(name, labels).Set(static_cast<double>(value));
  }
  void Raise(const std::string& name, const LabelValues& labels, int64_t total);

  MetricsRegistry& registry_;
  std::map<std::pair<std::string, LabelValues>, int64_t> totals_;
  RoundStats rounds_;  // whose durations are counted
};

}  // namespace paceline
