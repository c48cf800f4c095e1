// `paceline job export`: the weights of a job into a file.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/commands/command.h"
#include "client/commands/reference.h"
#include "core/weights/safetensors_layout.h"

namespace paceline {

// Says why an export must not go to `path`; empty: it may.  In other commands
// -o names the form of the output.  A user who types `-o json` here means that
// form, and would get a file of weights called json.
std::string WhyNoExportFile(const std::string& path);

// The file that is written; all but kWhole are for jobs with adapters
// (model.lora).
enum class ExportForm {
  kWhole,     // all weights, adapters among them; the result as it is
  kMerged,    // all weights, of a model without adapters that computes the same
  kAdapters,  // what trained, as Hugging Face's PEFT loads it
};

struct ExportRequest {
  int64_t id = 0;
  // "-": standard output.  kAdapters: a folder, made where there is none, for
  // adapter_model.safetensors and adapter_config.json.
  std::string path;
  ExportForm form = ExportForm::kWhole;
};

// Reads all tensors of a weights file.  Real: ReadSafetensors of core/weights.
using ReadTensors = std::function<absl::StatusOr<std::vector<NamedTensor>>(
    const std::string& path)>;

// Writes a weights file.  What was there before stays until the new file is
// whole.
// Errors: FailedPrecondition  it cannot be written; says why
absl::Status WriteWeightsFile(
    const std::string& path, const std::vector<NamedTensor>& tensors,
    const std::map<std::string, std::string>& metadata);

// Writes a new file beside its path, reads it back, compares it with the
// job's hash, and only then renames it.  So the old file stays until the
// new one is good.  A device or a pipe is written as it is.
//   read_tensors  used for kMerged and kAdapters
ExitCode ExportJobCommand(const CommandContext& context,
                          const ReadWeights& read,
                          const ReadTensors& read_tensors,
                          const ExportRequest& request);

}  // namespace paceline
