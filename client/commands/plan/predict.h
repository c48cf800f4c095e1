// `paceline predict`: times that were never measured, from measured ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/commands/command.h"
#include "client/render/console.h"
#include "client/rpc/control_client.h"
#include "core/predict/layer_predictor.h"
#include "core/predict/time_predictor.h"

namespace paceline {

// A million measurements have some 50 MB; what is larger is a mistake.
constexpr int64_t kMaxTimingFileBytes = int64_t{1} << 30;

struct PredictFitOptions {
  std::vector<std::string> files;  // comma separated, at least one
  // Each is one more time to predict: "op=all_reduce,dtype=f16,elements=4096".
  std::vector<std::string> at;
};

// Fits all files together, leaves measured points out, predicts them, and
// prints the error; then predicts what `at` asks for.
ExitCode PredictFitCommand(Console& console, const PredictFitOptions& options);

// "COLUMN=VALUE,...,SIZE_COLUMN=NUMBER".
// Errors: InvalidArgument  a part without '=', no or two sizes, a size that is
//                          no number
absl::StatusOr<TimeQuery> ParseTimeQuery(absl::string_view text);

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
ExitCode PredictModelCommand(const CommandContext& context, const JobSpec& spec,
                             const PredictModelOptions& options);

}  // namespace paceline
