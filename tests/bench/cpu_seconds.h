#pragma once

namespace paceline {

// CPU time, user and system, of this process so far.
inline double CpuSeconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

}  // namespace paceline
