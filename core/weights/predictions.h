// The result of an inference job: one file of predictions.  Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/tensor.h"
#include "core/job/spec/job_spec.h"
#include "core/model/description.h"
#include "core/weights/safetensors_layout.h"

namespace paceline {

// A file of predictions holds these tensors for N samples, to each of which the
// model's last layer gives [classes], or [tokens, classes]:
//   classes  int64 [N] or [N, tokens]: where the output is highest, the first
//            of equals; kNoClass where there is NaN in it
//   labels   int64, the same: what the data set says; -100: it says nothing, or
//            has a label for each token, which is its text
//   outputs  float32 [N, classes] or [N, tokens, classes]; InferSpec::outputs
//   skipped  uint8 [N, blocks]: 1 where the sample went without that residual
//            block of the model; where the job may go without any
// and where the data set has names:
//   files        uint8: a line for each sample, with its file's name
//   class_names  uint8: a line for each class
//
// A picture that cannot be read has kNoClass and NaN.
inline constexpr int64_t kNoClass = -1;
inline constexpr char kPredictedClasses[] = "classes";
inline constexpr char kPredictedLabels[] = "labels";
inline constexpr char kPredictedOutputs[] = "outputs";
inline constexpr char kPredictedSkipped[] = "skipped";
inline constexpr char kPredictedFiles[] = "files";
inline constexpr char kPredictedClassNames[] = "class_names";

// Bytes of the names; 0: there are none.
struct PredictedNameBytes {
  int64_t files = 0;
  int64_t class_names = 0;
};

// A class for each of these: the shape of a sample's output without its last
// dimension.
Shape PredictionShape(const ModelDescription& model);

// A row of `skipped` as the model is now; empty: the file has none.
std::vector<uint8_t> SkippedRow(const ModelDescription& model,
                                const InferSpec& infer);

// samples: N > 0.  Metadata: {"format": "pt", "model": name, "content":
// "predictions"}.
// Errors: InvalidArgument  a size that overflows
absl::StatusOr<SafetensorsLayout> LayOutPredictions(
    const ModelDescription& model, const InferSpec& infer, int64_t samples,
    const PredictedNameBytes& names = {});

}  // namespace paceline
