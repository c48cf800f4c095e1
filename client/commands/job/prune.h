// `paceline model prune`: a smaller model out of the weights of a larger one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/commands/command.h"
#include "client/commands/plan/profile.h"
#include "client/render/console.h"
#include "core/job/spec/job_spec.h"

namespace paceline {

struct PruneOptions {
  std::string weights;  // the file
  std::string out;      // the new one
  double target_macs = 0;
  std::string score = "l1";  // or "taylor"
  int batches = 0;           // taylor: as many jobs; 0: 8

  // They say which model the weights belong to.
  std::string model;  // a name; else
  std::string job_file;
  std::vector<std::string> sets;
};

// Reads what a weights file's metadata has for a key; empty: nothing.  Real:
// ReadSafetensorsMetadata of core/weights.
using ReadMetadata = std::function<absl::StatusOr<std::string>(
    const std::string& path, const std::string& key)>;

// Sets model.sizes to those of the pruned file that the job begins with, where
// it names none and the file is on this machine.
// Errors: InvalidArgument  they are no sizes
absl::Status FillInSizes(const ReadMetadata& read, ModelSpec& spec);

// Writes the pruned weights, says what is left, and prints model.sizes; the
// file's metadata has these too, and what the whole one's has.
//   spec  the job of options.weights
//   mesh  for the score taylor: its workers find options.weights where it is
//         here, and run a job of one step for each batch, which is deleted
ExitCode PruneModelCommand(Console& console, const LoadModelWeights& load,
                           const JobSpec& spec, const PruneOptions& options,
                           const CommandContext* mesh = nullptr);

}  // namespace paceline
