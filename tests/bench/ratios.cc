#include "tests/bench/ratios.h"

#include <utility>

#include "core/base/statistics.h"

namespace paceline {

Rate MedianRate(const std::vector<Rate>& turns) {
  std::vector<double> throughput, cpu;
  for (const Rate& rate : turns) {
    throughput.push_back(rate.bytes_per_second);
    cpu.push_back(rate.cpu_seconds_per_gb);
  }
  return {Median(std::move(throughput)), Median(std::move(cpu))};
}

std::optional<Ratios> CompareTurns(const std::vector<Rate>& ours,
                                   const std::vector<Rate>& bare) {
  if (ours.empty() || ours.size() != bare.size()) return std::nullopt;
  std::vector<double> throughput, cpu;
  for (size_t i = 0; i < ours.size(); ++i) {
    throughput.push_back(ours[i].bytes_per_second / bare[i].bytes_per_second);
    cpu.push_back(ours[i].cpu_seconds_per_gb / bare[i].cpu_seconds_per_gb);
  }
  return Ratios{Median(std::move(throughput)), Median(std::move(cpu))};
}

}  // namespace paceline
