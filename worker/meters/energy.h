// Reads how much energy the machine's processors take (RAPL).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace paceline {

// Thread-safe.
class EnergyMeter {
 public:
  // folder: where the kernel shows the counters.
  explicit EnergyMeter(std::string folder = "/sys/class/powercap");

  // A run begins.
  void Begin();
  // Since then, of all packages, with all that else runs on them; 0: the
  // machine has no such counters, or they may not be read.  To be called more
  // often than they begin anew: every minute is enough.
  double Joules();

 private:
  struct Counter {
    int64_t now = 0;    // microjoules
    int64_t range = 0;  // it begins anew above that
  };
  void ReadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string folder_;
  absl::Mutex mutex_;
  std::map<std::string, Counter> counters_ ABSL_GUARDED_BY(mutex_);  // by name
  double joules_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace paceline
