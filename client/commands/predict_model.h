// `paceline predict --model`: layer times from what the coordinator has
// measured of anything, beside those that were measured of this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/commands/command.h"
#include "client/rpc/measure_client.h"
#include "core/predict/layer_predictor.h"

namespace paceline {

struct PredictModelOptions {
  std::string model = {};
  int64_t batch = 0;  // samples of a micro-batch
  std::vector<std::string> sets = {};
  std::string device = {};  // empty: all that are attached or were measured
};

struct PredictedPass {
  LayerPrediction predicted;
  double measured_seconds = 0;  // meaningful where the device was measured
};

struct PredictedLayer {
  std::string name = {};
  std::string kind = {};
  PredictedPass forward;
  PredictedPass backward;
};

struct PredictedDevice {
  std::string device = {};
  bool measured = false;  // this model, micro-batch and threads, here
  // The prediction comes from other measurements than the one beside it; false
  // where there is no other.
  bool independent = true;
  // A quota leaves a busy thread this share, as a profile of this device says.
  // Below 1 all seconds are the CPU's, else those of the wall clock.
  double cpu_share = 1;
  std::vector<PredictedLayer> layers = {};
};

// One device, predicted as if it had never measured this model at this
// micro-batch, where anything else was measured.  Seconds are CPU seconds where
// a quota limits the device, as the planner takes them.
// Errors: NotFound  nothing was ever measured
absl::StatusOr<PredictedDevice> PredictDevice(const JobSpec& spec,
                                              const ModelDescription& model,
                                              const std::string& device,
                                              const Measurements& measurements);

// Ends with kExitUsage for sizes that are wrong, kExitNotFound for an unknown
// device and where nothing was measured yet.
ExitCode PredictModelCommand(const CommandContext& context,
                             MeasureClient& measure, const JobSpec& spec,
                             const PredictModelOptions& options);

}  // namespace paceline
