// Ratios between ways of transfer that took turns.  Pure.
#pragma once

#include <optional>
#include <vector>

namespace paceline {

struct Rate {
  double bytes_per_second = 0;
  double cpu_seconds_per_gb = 0;
};

// A way's rates turn by turn, and the medians of both figures.
Rate MedianRate(const std::vector<Rate>& turns);

// The data plane must reach these, against a bare stream of the same run.
constexpr double kLeastThroughput = 0.9;
constexpr double kMostCpu = 1.5;

struct Ratios {
  double throughput = 0;
  double cpu = 0;

  bool good() const {
    return throughput >= kLeastThroughput && cpu <= kMostCpu;
  }
};

// Medians of the ratios within each turn: what else the machine did then hit
// both alike.  Nothing unless both have the same number of turns, at least one.
std::optional<Ratios> CompareTurns(const std::vector<Rate>& ours,
                                   const std::vector<Rate>& bare);

}  // namespace paceline
