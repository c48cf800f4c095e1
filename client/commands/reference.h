// Commands that ask no coordinator: `paceline model ...`, `job keys`, and
// `context ...`, which gives names to meshes.  Each prints to the console and
// returns the exit code.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "client/commands/command.h"
#include "client/render/console.h"
#include "client/values/document.h"
#include "core/job/spec/job_spec.h"
#include "core/weights/safetensors.h"

namespace paceline {

Outcome ListModelsCommand(Console& console);

// Whether `model list` shows it.
bool IsModel(const std::string& word);

// Layers, shapes and sizes of spec.model for spec.data's samples.  A model
// that there is not is NotFound, with what was probably meant.
Outcome InspectModelCommand(Console& console, const JobSpec& spec);

// Checks the whole of a weights file and reads it once.  Real:
// SummarizeSafetensors of core/weights, which main.cc hands over.
// Errors: InvalidArgument  not a weights file, or one that lies
//         NotFound, PermissionDenied, ...  as the system says
using ReadWeights =
    std::function<absl::StatusOr<WeightsSummary>(const std::string& path)>;

// Whether `word` means a file: it ends in .safetensors, or there is one of that
// name.
bool LooksLikeWeightsFile(const std::string& word);

// `paceline model inspect FILE`: its tensors, metadata and hash.
Outcome InspectWeightsCommand(Console& console, const ReadWeights& read,
                              const std::string& path);

// A job file in which every key stands with its default, below a comment that
// says what it means.  A key whose default depends on other keys, or that has
// no effect beside the other defaults, is commented out: its "# " is all that a
// person removes, since every section stands.
//   section  "train" or "train.optimizer" for its keys only; empty: all
std::string JobReference(const std::string& section = "");

// The same as keys[]; client/README.md lists their fields.
Document JobReferenceDocument(const std::string& section = "");

// Ends with kExitUsage for a section that there is not.
Outcome JobKeysCommand(Console& console, const std::string& section);

Outcome ListContextsCommand(Console& console);

Outcome SetContextCommand(Console& console, const std::string& name,
                          const std::string& coordinator);

// name: empty for no context.
Outcome UseContextCommand(Console& console, const std::string& name);

Outcome DeleteContextCommand(Console& console, const std::string& name);

}  // namespace paceline
