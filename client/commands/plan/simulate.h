// Machines and models that one does not have: the flags of `paceline simulate`
// as a problem and a placement.  Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/commands/command.h"
#include "client/render/console.h"
#include "core/job/spec/job_spec.h"
#include "core/plan/cost.h"
#include "core/plan/problem.h"
#include "core/simulate/simulation.h"

namespace paceline {

inline constexpr int kMostSimulatedDevices = 4096;
inline constexpr int kMostSimulatedLayers = 1 << 20;

// Each as the command line has it.
struct MachineFlags {
  std::optional<int> devices;      // else as many as speeds, or 4
  std::vector<double> speeds;      // one for all, or one a device
  std::vector<double> bandwidths;  // bytes/s of a device's port; the same
  double latency_seconds = 1e-4;
  double frame_seconds = 0;  // CPU, each end
  // Equal layers ...
  std::optional<int> layers;               // else one a device
  double forward_seconds = 0.01;           // of a micro-batch, on speed 1
  std::optional<double> backward_seconds;  // else twice forward
  double output_bytes = 1e6;
  double parameter_bytes = 4e6;
  double kept_bytes = 4e6;
  // ... or those of a model, by their FLOPs.
  double flops_per_second = 1e10;   // of speed 1
  int64_t micro_batch_samples = 0;  // --batch; with a model at least 1

  std::optional<int> stages;  // else one a device, as layers allow
};

// The input of `paceline simulate`, before its flags change the run.
struct SimulatedPlan {
  PlanProblem problem;
  // As the planner saw it, where the simulator sees it otherwise: a quota is in
  // its times there, and simulated here (OptionsFor).
  std::optional<PlanProblem> planned = {};
  Placement placement;
  SimulationOptions options;
};

// Stages of as many layers each, longer ones first, on devices d0, d1, ... in
// order; more stages than devices: several in a row on each.  A link is as fast
// as the slower of its two ports.
//
// model: where the layers come from; null: equal ones.  A model's backward
// takes twice as long as its forward.
//
// Errors: InvalidArgument  names the flag, what it says, and what would do.
absl::StatusOr<SimulatedPlan> MakeSimulatedPlan(const MachineFlags& flags,
                                                const JobSpec* model);

// --slow and --fail of `paceline simulate`.  Pure.

// "DEVICE@TIME=FACTOR[:DURATION]": a device's name, else its number; seconds.
// Errors: InvalidArgument  names the flag, the part that is wrong, and what is
// right; a factor below 1; a device that there is not.
absl::StatusOr<SimulatedSlowDown> ParseSlowDown(const std::string& text,
                                                const PlanProblem& problem);

// "DEVICE@TIME[:BACK]": BACK seconds later the step is run again.
// Errors: as above.
absl::StatusOr<SimulatedFailure> ParseFailure(const std::string& text,
                                              const PlanProblem& problem);

// `paceline simulate`: what a plan and a schedule would take, event by event;
// asks no coordinator.

struct SimulateFlags {
  // These machines are simulated unless a plan file is given.
  MachineFlags machines;
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
// and prints the result.  machines, model and sets made `plan`, if no file
// did, and are not read.
//
// Bad flags exit with 2, a trace that cannot be written with 1; a failure that
// ends the simulation was asked for and exits with 0.
ExitCode SimulateCommand(Console& console, const SimulateFlags& flags,
                         SimulatedPlan plan);

}  // namespace paceline
