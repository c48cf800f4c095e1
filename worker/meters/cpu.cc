#include "worker/meters/cpu.h"

#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/errors.h"
#include "core/os/files.h"

namespace paceline {

namespace {

// Index in kCpuCapabilities, or -1.
int Rank(absl::string_view capability) {
  const auto* const found = absl::c_find(kCpuCapabilities, capability);
  return found == std::end(kCpuCapabilities)
             ? -1
             : static_cast<int>(found - std::begin(kCpuCapabilities));
}

constexpr int64_t kLongestNumber = 64;  // bytes

// The number that a file has; nothing when there is none ("max").
std::optional<int64_t> NumberIn(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kLongestNumber);
  int64_t number = 0;
  if (!text.ok() || !absl::SimpleAtoi(*text, &number) || number < 0) {
    return std::nullopt;
  }
  return number;
}

}  // namespace

std::string DetectCpuCapability() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx2 && avx512) {
    return __builtin_cpu_supports("avx512bf16") ? "avx512_bf16" : "avx512";
  }
  if (avx2) return "avx2";
#endif
  return "default";
}

std::string FirstCpuCapability() {
  const std::string detected = DetectCpuCapability();
  return detected == "avx512_bf16" ? "avx512" : detected;
}

std::string CpuModelName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    // arm64 kernels say "Model" for the board instead.
    if (!absl::StartsWith(line, "model name") &&
        !absl::StartsWith(line, "Model\t")) {
      continue;
    }
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    return std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return "";
}

std::string Architecture() {
  utsname names{};
  return uname(&names) == 0 ? names.machine : "";
}

int64_t MemoryBytes() {
  int64_t bytes =
      static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  const int64_t limit = CgroupMemoryLimit(
      ReadFile("/proc/self/cgroup", 1 << 20).value_or(""), "/sys/fs/cgroup");
  if (limit > 0) bytes = std::min(bytes, limit);
  return std::max<int64_t>(bytes, 0);
}

int64_t CgroupMemoryLimit(absl::string_view memberships,
                          const std::string& root) {
  int64_t least = 0;
  for (const absl::string_view line : absl::StrSplit(memberships, '\n')) {
    // "0::/a/b" in version 2, "5:memory:/a/b" in version 1.
    const std::vector<std::string> fields =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() < 3) continue;
    const bool is_unified = fields[1].empty();
    if (!is_unified && fields[1] != "memory") continue;
    std::string group = fields[2];
    while (true) {
      const int64_t limit = NumberIn(is_unified ? root + group + "/memory.max"
                                                : root + "/memory" + group +
                                                      "/memory.limit_in_bytes")
                                .value_or(0);
      if (limit > 0) least = least == 0 ? limit : std::min(least, limit);
      const size_t slash = group.rfind('/');
      if (slash == std::string::npos) break;
      group.resize(slash);
    }
  }
  return least;
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> EnvironmentFor(
    absl::string_view capability, absl::string_view architecture,
    absl::string_view detected) {
  const int rank = Rank(capability);
  if (rank < 0) {
    return InvalidArgument("cpu_capability '", capability,
                           "': need default, avx2, avx512 or avx512_bf16");
  }
  if (rank > Rank(detected)) {
    return FailedPrecondition("the job wants cpu_capability ", capability,
                              ", this CPU has ", detected,
                              ": submit it with --set cpu_capability=auto");
  }
  std::vector<std::pair<std::string, std::string>> variables = {
      {kCapabilityVariable, std::string(capability)},
      {"OMP_NUM_THREADS", "1"},
      {"OPENBLAS_NUM_THREADS", "1"}};
  if (architecture == "x86_64") {
    // OpenBLAS names cores, not instruction sets: the oldest core of a level.
    // Products in bf16 are oneDNN's: the others stay as they are for avx512.
    constexpr const char* kAten[] = {"default", "avx2", "avx512", "avx512"};
    constexpr const char* kOneDnn[] = {"SSE41", "AVX2", "AVX512_CORE",
                                       "AVX512_CORE_BF16"};
    constexpr const char* kOpenBlas[] = {"NEHALEM", "HASWELL", "SKYLAKEX",
                                         "SKYLAKEX"};
    variables.emplace_back("ATEN_CPU_CAPABILITY", kAten[rank]);
    variables.emplace_back("ONEDNN_MAX_CPU_ISA", kOneDnn[rank]);
    variables.emplace_back("OPENBLAS_CORETYPE", kOpenBlas[rank]);
  } else {
    variables.emplace_back("ATEN_CPU_CAPABILITY", "default");
    variables.emplace_back("OPENBLAS_CORETYPE", "ARMV8");
  }
  return variables;
}

namespace {

absl::Duration CpuTimeOf(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return absl::DurationFromTimespec(time);
}

}  // namespace

absl::Duration ThreadCpuTime() { return CpuTimeOf(CLOCK_THREAD_CPUTIME_ID); }

absl::Duration ProcessCpuTime() { return CpuTimeOf(CLOCK_PROCESS_CPUTIME_ID); }

namespace {

// "intel-rapl:0" may be a package, "intel-rapl:0:1" is a part of it.  What is
// called psys has the packages in it.
bool IsPackage(const std::filesystem::path& path) {
  const std::string name = path.filename();
  const size_t colon = name.find(':');
  return name.starts_with("intel-rapl:") &&
         name.find(':', colon + 1) == std::string::npos &&
         !absl::StartsWith(ReadFile(path / "name", kLongestNumber).value_or(""),
                           "psys");
}

}  // namespace

EnergyMeter::EnergyMeter(std::string folder) : folder_(std::move(folder)) {}

void EnergyMeter::ReadLocked() {
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename();
    if (!IsPackage(entry.path())) continue;
    const std::string path = absl::StrCat(folder_, "/", name);
    const auto now = NumberIn(absl::StrCat(path, "/energy_uj"));
    const auto range = NumberIn(absl::StrCat(path, "/max_energy_range_uj"));
    if (!now.has_value()) continue;
    const auto [found, is_new] = counters_.try_emplace(name);
    Counter& counter = found->second;
    counter.range = range.value_or(0);
    const int64_t more = *now - std::exchange(counter.now, *now);
    if (is_new) continue;
    joules_ +=
        1e-6 * static_cast<double>(more < 0 ? more + counter.range : more);
  }
}

void EnergyMeter::Begin() {
  absl::MutexLock lock(&mutex_);
  counters_.clear();
  joules_ = 0;
  ReadLocked();
}

double EnergyMeter::Joules() {
  absl::MutexLock lock(&mutex_);
  ReadLocked();
  return joules_;
}

}  // namespace paceline
