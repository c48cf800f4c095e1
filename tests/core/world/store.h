// The store of a coordinator, as far as its process suffers from it: writes
// that take long, and writes that fail.  The world itself keeps the data.
#pragma once

#include <cstdint>

#include "tests/core/world/kernel.h"

namespace paceline::world {

// Thread-compatible.
struct Store {
  // Draws how long a write takes that begins now.
  int64_t WriteTime(Kernel& kernel) const {
    return kernel.now_us() < slow_until_us ? kernel.Between(20'000, slowest_us)
                                           : kernel.Between(100, fair_us);
  }
  // Whether a write fails now.
  bool fails(const Kernel& kernel) const {
    return kernel.now_us() < fails_until_us;
  }
  void Heal() { slow_until_us = fails_until_us = 0; }

  int64_t fair_us = 0;  // a write takes at most
  int64_t slowest_us = 0;
  int64_t slow_until_us = 0;
  int64_t fails_until_us = 0;
};

}  // namespace paceline::world
