// Where every tensor of a model lies in its safetensors file.  Pure: the same
// model gives the same bytes, so that weights can be compared by hash.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensor.h"
#include "core/job/spec/job_spec.h"
#include "core/model/description.h"

namespace paceline {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

struct TensorPlace {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  int64_t offset = 0;  // bytes from the beginning of the file
  int64_t bytes = 0;
};

struct SafetensorsLayout {
  std::string header;  // the file's first bytes: length (8, LE), JSON, padding
  std::vector<TensorPlace> tensors;  // in the order of the file
  int64_t file_bytes = 0;
  std::string content = "weights";  // or "predictions": what a file is called
};

// Lays `tensors` out one after the other in the order given (offset and bytes
// are filled in); metadata goes under "__metadata__".  The header is padded
// with spaces so that data starts at a multiple of 8.
//
// Errors: InvalidArgument  a name twice, or a size that overflows.
absl::StatusOr<SafetensorsLayout> LayOut(
    std::vector<TensorPlace> tensors,
    const std::map<std::string, std::string>& metadata);

// A file begins with its header's length, little-endian.
inline constexpr int64_t kLengthBytes = 8;
// Metadata of a pruned model's file: a list of numbers, model.sizes.
inline constexpr char kSizesKey[] = "model.sizes";

// {"format": "pt", "model": name}, what the weights are made with, and
// kSizesKey where the model was pruned.
std::map<std::string, std::string> MetadataOf(const ModelDescription& model);

// All parameters and buffers of a model in layer order, with MetadataOf() it.
absl::StatusOr<SafetensorsLayout> LayOut(const ModelDescription& model);

// --- the state of a model, in a checkpoint ---

// The state of one layer (StageEngine::State()) is a range of the file.
struct StateLayout {
  struct Range {
    int64_t offset = 0;
    int64_t bytes = 0;
  };

  SafetensorsLayout file;
  std::vector<Range> layers;
  // ModelDescription::made_with; the file does not have it.
  std::map<std::string, std::string> made_with = {};
};

// The parameters and buffers of each layer under their own names, each followed
// by the optimizer's slots ("fc.weight.optimizer.0"), then what the layer
// borrows ("layer.5.borrowed.wte.weight").
// Errors: those of LayOut()
absl::StatusOr<StateLayout> LayOutState(const ModelDescription& model,
                                        const OptimizerSpec& optimizer);

// Errors: InvalidArgument  a state laid out as `has` is none of `wants`; says
//                          the first difference, or what they were made with
absl::Status CheckSameState(const StateLayout& has, const StateLayout& wants);

// --- predictions: the result of an inference job ---

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
