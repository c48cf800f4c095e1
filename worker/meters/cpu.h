// The capability level of this CPU, and the environment that keeps every
// library at one level of it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
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

}  // namespace paceline
