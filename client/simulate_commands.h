// `paceline simulate`: what a plan and a schedule would take, event by event;
// asks no coordinator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/console.h"
#include "client/exit_code.h"
#include "client/playground.h"

namespace paceline {

struct SimulateFlags {
  // What is simulated unless it is a plan file.
  PlaygroundFlags playground;
  std::string model;              // --model; empty: equal layers
  std::vector<std::string> sets;  // of the model

  std::optional<std::string> schedule;   // else the plan's
  std::optional<int64_t> micro_batches;  // else the plan's, or 32
  bool inference = false;
  int steps = 1;
  int credit_frames = 0;
  std::vector<std::string> slow;  // see disturbance_flags.h
  std::vector<std::string> fail;
  std::string trace_file;  // empty: none
};

// Simulates `plan`, changed by what `flags` say of a run, writes the trace,
// and prints the result.  playground, model and sets made `plan`, if no file
// did, and are not read.
//
// Bad flags exit with 2, a trace that cannot be written with 1; a failure that
// ends the simulation was asked for and exits with 0.
ExitCode SimulateCommand(Console& console, const SimulateFlags& flags,
                         SimulatedPlan plan);

}  // namespace paceline
