// A coordinator's store, as far as a world is to suffer from it.
#pragma once

#include <cstdint>

#include "tests/core/world/kernel.h"

namespace paceline::world {

// A coordinator's store: how long a write takes, and whether it fails.
struct Store {
  int64_t WriteTime(Kernel& kernel) const {
    return kernel.now_us() < slow_until_us ? kernel.Between(20'000, slowest_us)
                                           : kernel.Between(100, fair_us);
  }
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
