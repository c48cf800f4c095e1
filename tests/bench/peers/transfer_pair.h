// A sender and a receiver, each a process of its own, and what they measured.
#pragma once

#include <string>

#include "tests/bench/peers/transfers.h"

namespace paceline {

struct TransferCost {
  double seconds = 0;      // from the first frame received to the last
  double cpu_seconds = 0;  // user and system time of both processes
};

// Runs one transfer `way` in two children of this process, which must have no
// other thread.  Crashes when one of them fails.
TransferCost MeasureTransfer(const std::string& way, const TransferSpec& spec);

}  // namespace paceline
