// Metrics of a process, under the names that Prometheus' own libraries use.
#pragma once

#include "core/obs/metrics.h"

namespace paceline {

inline constexpr char kProcessCpu[] = "process_cpu_seconds_total";
inline constexpr char kProcessMemory[] = "process_resident_memory_bytes";
inline constexpr char kProcessFiles[] = "process_open_fds";
inline constexpr char kProcessThreads[] = "process_threads";
inline constexpr char kProcessStart[] = "process_start_time_seconds";

// Reads /proc/self.  Thread-compatible: one caller at a time.
class ProcessMetrics {
 public:
  // `registry` outlives this.  The process counts as started now.
  explicit ProcessMetrics(MetricsRegistry& registry);

  // Sets all of them anew.
  void Update();

 private:
  MetricsRegistry& registry_;
  double cpu_seconds_ = 0;  // counted so far
};

}  // namespace paceline
