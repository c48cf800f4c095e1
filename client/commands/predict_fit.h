// `paceline predict`: times that were never measured; asks no coordinator.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/commands/command.h"
#include "client/render/console.h"
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

}  // namespace paceline
