#include "core/obs/process_metrics.h"

#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "absl/time/time.h"
#include "core/base/clock.h"

namespace paceline {
namespace {

int OpenFiles() {
  std::error_code error;
  int files = -1;  // the one that reads the folder
  for (std::filesystem::directory_iterator file("/proc/self/fd", error), end;
       !error && file != end; file.increment(error)) {
    ++files;
  }
  return files;
}

}  // namespace

ProcessMetrics::ProcessMetrics(MetricsRegistry& registry)
    : registry_(registry) {
  registry.DeclareCounter(kProcessCpu, "CPU seconds of all threads.");
  registry.DeclareGauge(kProcessMemory, "Resident memory.");
  registry.DeclareGauge(kProcessFiles, "Open files and sockets.");
  registry.DeclareGauge(kProcessThreads, "Threads.");
  registry.DeclareGauge(kProcessStart, "Unix time at which it started.");
  registry.GetGauge(kProcessStart)
      .Set(absl::ToDoubleSeconds(SystemClock().Today() - absl::UnixEpoch()));
  Update();
}

void ProcessMetrics::Update() {
  timespec cpu = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  const double seconds = absl::ToDoubleSeconds(absl::DurationFromTimespec(cpu));
  registry_.GetCounter(kProcessCpu).Add(seconds - cpu_seconds_);
  cpu_seconds_ = seconds;
  registry_.GetGauge(kProcessFiles).Set(OpenFiles());
  std::ifstream status("/proc/self/status");
  std::string word;
  double value = 0;
  while (status >> word) {
    if (word == "VmRSS:" && status >> value) {
      registry_.GetGauge(kProcessMemory).Set(value * 1024);
    } else if (word == "Threads:" && status >> value) {
      registry_.GetGauge(kProcessThreads).Set(value);
    }
  }
}

}  // namespace paceline
