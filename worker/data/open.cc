#include "worker/data/open.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "worker/data/idx_set.h"
#include "worker/data/sample_set.h"
#include "worker/data/synthetic_set.h"
#include "worker/data/walk_source.h"

namespace paceline {
namespace {

constexpr char kFashionMnistFolder[] = "/usr/share/datasets/fashion-mnist";
// Mean and standard deviation of the training images' pixels over 255.
constexpr float kFashionMnistMean = 0.2860f;
constexpr float kFashionMnistDeviation = 0.3530f;

IdxOptions IdxOptionsOf(const DataSpec& data) {
  IdxOptions options;
  options.folder = data.path;
  options.remedy = "set data.path to the folder that holds it on this machine";
  options.shape = data.shape;
  options.classes = data.classes;
  return options;
}

IdxOptions FashionMnistOptions(const DataSpec& data) {
  IdxOptions options = IdxOptionsOf(data);
  options.mean = kFashionMnistMean;
  options.deviation = kFashionMnistDeviation;
  if (options.folder.empty()) {
    options.folder = kFashionMnistFolder;
    options.remedy = "run: apt install dataset-fashion-mnist";
  }
  return options;
}

absl::StatusOr<std::unique_ptr<const SampleSet>> OpenSamples(
    const JobSpec& spec) {
  const DataSpec& data = spec.data;
  if (data.name == "synthetic") {
    return std::make_unique<SyntheticSet>(data, spec.train.seed);
  }
  if (data.name == "fashion-mnist") {
    return IdxSet::Open(FashionMnistOptions(data));
  }
  if (data.name == "idx") {
    if (data.path.empty()) {
      return absl::InvalidArgumentError(
          "data set idx needs data.path, the folder of its four files");
    }
    return IdxSet::Open(IdxOptionsOf(data));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown data set '", data.name,
                   "'; there are fashion-mnist, idx and synthetic"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<BatchSource>> OpenBatchSource(
    const JobSpec& spec) {
  PACELINE_ASSIGN_OR_RETURN(std::unique_ptr<const SampleSet> samples,
                            OpenSamples(spec));
  return std::make_unique<WalkSource>(spec.train, std::move(samples),
                                      spec.data.prefetch_threads);
}

}  // namespace paceline
