// `paceline model prune`: a smaller model out of the weights of a larger one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/commands/command.h"
#include "client/render/console.h"
#include "core/model/job_spec.h"
#include "core/model/safetensors_layout.h"
#include "core/plan/plan.h"

namespace paceline {

struct PruneOptions {
  std::string weights;  // the file
  std::string out;      // the new one
  double target_macs = 0;
  std::string score = "l1";        // or "taylor"
  std::vector<std::string> after;  // taylor: files, as UnitScores() has them

  // They say which model the weights belong to.
  std::string model;  // a name; else
  std::string job_file;
  std::vector<std::string> sets;
};

// Reads the weights of a model.  Real: LoadWeights of core/weights.
using LoadModelWeights = std::function<absl::StatusOr<std::vector<NamedTensor>>(
    const ModelSpec& spec, const ModelDescription& model,
    const LayerRange& layers)>;

// Writes the pruned weights, says what is left, and prints model.sizes for the
// job that begins with them; the file's metadata has these too.
//   spec  the job of options.weights
ExitCode PruneModelCommand(Console& console, const LoadModelWeights& load,
                           const JobSpec& spec, const PruneOptions& options);

}  // namespace paceline
