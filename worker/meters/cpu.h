// The capability level of this CPU, the environment that keeps every library at
// one level of it, and the energy that the processors take.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace paceline {

// Ordered: a machine that can do one can do all before it.
constexpr const char* kCpuCapabilities[] = {"default", "avx2", "avx512",
                                            "avx512_bf16"};

// The highest of kCpuCapabilities that this CPU has.
std::string DetectCpuCapability();
// The level at which a process begins: the detected one without the part that
// only bf16 jobs ask for.  So only bf16 jobs need a process that starts anew.
std::string FirstCpuCapability();
// "AMD EPYC": for people; empty when /proc/cpuinfo does not say.
std::string CpuModelName();
std::string Architecture();  // uname -m
// Memory of the machine, or the limit of this process's cgroup if that is less,
// as MemoryMax= of its unit; 0: unknown.
int64_t MemoryBytes();
// The least limit of the cgroups that /proc/self/cgroup names in `memberships`,
// and of those above them; 0: none.  root: where they are mounted.
int64_t CgroupMemoryLimit(absl::string_view memberships,
                          const std::string& root);

// The variable that says at which level this process runs.
constexpr char kCapabilityVariable[] = "PACELINE_CPU_CAPABILITY";

// Variables to set before LibTorch, oneDNN and OpenBLAS load: each of them
// reads its own once a process.  Also holds the thread pools at one thread
// until the job says how many: an idle pool thread spins
// a small machine's quota away.
//
// Errors:
//   InvalidArgument     no such capability
//   FailedPrecondition  this CPU has less; says what it has
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> EnvironmentFor(
    absl::string_view capability, absl::string_view architecture,
    absl::string_view detected);

// CPU time of the calling thread.
absl::Duration ThreadCpuTime();
// CPU time of all threads of this process.
absl::Duration ProcessCpuTime();

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
