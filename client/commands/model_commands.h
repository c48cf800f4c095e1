// `paceline model ...`: what core/model knows; asks no coordinator.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/commands/command.h"
#include "client/render/console.h"
#include "core/model/job_spec.h"
#include "core/model/weights_summary.h"

namespace paceline {

ExitCode ListModelsCommand(Console& console);

// Whether `model list` shows it.
bool IsModel(const std::string& word);

// Layers, shapes and sizes of spec.model for spec.data's samples.  A model
// that there is not is NotFound, with what was probably meant.
ExitCode InspectModelCommand(Console& console, const JobSpec& spec);

// Reads weights files.  Real: core/weights, by way of main.cc; in tests:
// FakeWeightsFileReader.

// Thread-compatible.
class WeightsFileReader {
 public:
  virtual ~WeightsFileReader() = default;

  // Checks the whole of the file and reads it once.
  // Errors: InvalidArgument  not a weights file, or one that lies
  //         NotFound, PermissionDenied, ...  as the system says
  virtual absl::StatusOr<WeightsSummary> Summarize(const std::string& path) = 0;
};

// Whether `word` means a file: it ends in .safetensors, or there is one of that
// name.
bool LooksLikeWeightsFile(const std::string& word);

// `paceline model inspect FILE`: its tensors, metadata and hash.
ExitCode InspectWeightsCommand(Console& console, WeightsFileReader& reader,
                               const std::string& path);

}  // namespace paceline
