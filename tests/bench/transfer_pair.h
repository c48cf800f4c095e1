// A sender and a receiver, each a process of its own, and what they measured.
#pragma once

#include <string>

#include "tests/bench/transfers.h"

namespace paceline {

struct TransferCost {
  double seconds = 0;      // from the first frame received to the last
  double cpu_seconds = 0;  // user and system time of both processes
};

// Runs one transfer `way` in two children of this program, which main() must
// hand to RunChildIfAsked().  Crashes when one of them fails.
TransferCost MeasureTransfer(const std::string& way, const TransferSpec& spec);

// In a child that MeasureTransfer() started: does its part and returns true
// with the exit code.  Call it before anything else in main().
bool RunChildIfAsked(int argc, char** argv, int* exit_code);

}  // namespace paceline
