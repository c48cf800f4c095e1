#include "worker/data/open.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "worker/data/batch_loader.h"
#include "worker/data/byte_images.h"
#include "worker/data/crop.h"
#include "worker/data/image_folder_set.h"
#include "worker/data/sample_set.h"
#include "worker/data/synthetic.h"
#include "worker/data/text_lines.h"
#include "worker/data/text_set.h"
#include "worker/measure/cpu.h"

namespace paceline {
namespace {

constexpr char kFashionMnistFolder[] = "/usr/share/datasets/fashion-mnist";

// Mean and standard deviation of the training images' pixels over 255, by
// channel, as is usual to give them.
struct Statistics {
  const char* name;
  std::vector<double> mean;
  std::vector<double> deviation;
};

const Statistics& StatisticsOf(const std::string& name) {
  static const auto& known = *new std::vector<Statistics>{
      {"cifar10", {0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}},
      {"cifar100", {0.5071, 0.4865, 0.4409}, {0.2673, 0.2564, 0.2762}},
      {"fashion-mnist", {0.2860}, {0.3530}},
      {"imagefolder",
       {0.485, 0.456, 0.406},
       {0.229, 0.224, 0.225}},  // ImageNet
      {"", {0.5}, {0.5}},
  };
  for (const Statistics& each : known) {
    if (name == each.name) return each;
  }
  return known.back();
}

// The job's numbers where it has any.
std::vector<ChannelScale> ScalesOf(const DataSpec& data) {
  const bool grey = data.shape.size() != 3 || data.shape[0] == 1;
  const bool own = !(grey && data.name == "imagefolder");
  const Statistics& statistics = StatisticsOf(own ? data.name : "");
  const int channels = grey ? 1 : static_cast<int>(data.shape[0]);
  return MakeChannelScales(
      channels, data.mean.empty() ? statistics.mean : data.mean,
      data.deviation.empty() ? statistics.deviation : data.deviation);
}

ByteImageOptions ByteImagesOf(const DataSpec& data, int64_t seed) {
  ByteImageOptions options;
  options.folder = data.path;
  options.remedy = "set data.path to the folder that holds it on this machine";
  options.shape = data.shape;
  options.classes = data.classes;
  options.channels = ScalesOf(data);
  options.seed = seed;
  options.most_bytes = MemoryBytes();
  return options;
}

absl::StatusOr<std::unique_ptr<const SampleSet>> OpenIdx(const DataSpec& data,
                                                         int64_t seed) {
  ByteImageOptions options = ByteImagesOf(data, seed);
  options.channels.resize(1);  // of every pixel
  if (data.name == "fashion-mnist" && data.path.empty()) {
    options.folder = kFashionMnistFolder;
    options.remedy = "run: apt install dataset-fashion-mnist";
  }
  return ByteImages::OpenIdx(options);
}

absl::StatusOr<std::unique_ptr<const SampleSet>> OpenCifar(const DataSpec& data,
                                                           int64_t seed) {
  ByteImageOptions options = ByteImagesOf(data, seed);
  const DataSetTraits& traits = *FindDataSet(data.name);
  options.shape = traits.shape;
  options.classes = traits.classes;
  options.crop = CropOf(data.crop);
  options.flip = data.flip;
  return ByteImages::OpenCifar(data.name, options);
}

absl::StatusOr<std::unique_ptr<const SampleSet>> OpenImageFolder(
    const DataSpec& data, int64_t seed, bool inference) {
  ImageFolderOptions options;
  options.path = data.path;
  options.shape = data.shape;
  options.classes = data.classes;
  options.crop = CropOf(data.crop);
  options.resize = data.resize;
  options.flip = data.flip;
  options.channels = ScalesOf(data);
  options.seed = seed;
  options.inference = inference;
  return ImageFolderSet::Open(options);
}

absl::StatusOr<std::unique_ptr<const SampleSet>> OpenSamples(
    const DataSpec& data, int64_t seed, bool inference) {
  if (data.name == "synthetic") {
    return std::make_unique<SyntheticImages>(data, seed);
  }
  if (data.name == "synthetic-tokens") {
    return std::make_unique<SyntheticTokens>(data, seed);
  }
  if (data.name == "synthetic-labels") {
    return std::make_unique<SyntheticLabels>(data, seed);
  }
  if (data.name == "synthetic-pairs") {
    return std::make_unique<SyntheticPairs>(data, seed);
  }
  if (data.name == "text") return TextSet::Open(data);
  if (data.name == "text-labels" || data.name == "text-pairs") {
    return TextLines::Open(data);
  }
  if (data.name == "imagefolder") {
    return OpenImageFolder(data, seed, inference);
  }
  const bool cifar = data.name == "cifar10" || data.name == "cifar100";
  return cifar ? OpenCifar(data, seed) : OpenIdx(data, seed);
}

// The first test samples of a set, as if there were no more.
class FirstSamples final : public SampleSet {
 public:
  // most: of the test split; 0: all.
  FirstSamples(std::unique_ptr<const SampleSet> all, int64_t most)
      : SampleSet(all->format(), all->samples(BatchPhase::kTrain),
                  most == 0
                      ? all->samples(BatchPhase::kEvaluate)
                      : std::min(most, all->samples(BatchPhase::kEvaluate))),
        all_(std::move(all)) {}

  absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                    Tensor& labels) const override {
    return all_->Load(place, inputs, labels);
  }
  int64_t unreadable() const override { return all_->unreadable(); }

 private:
  const std::unique_ptr<const SampleSet> all_;
};

// What was checked at submit, for whoever calls without it.
absl::Status CheckSpec(const DataSpec& data) {
  if (FindDataSet(data.name) == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown data set '", data.name, "'; there are ",
                     absl::StrJoin(DataSetNames(), ", ")));
  }
  SpecProblems problems;
  CheckDataSpec(data, problems);
  for (const SpecProblem& problem : problems.Take()) {
    if (problem.path == "data.workers") continue;  // 0 is fine: no thread
    return absl::InvalidArgumentError(
        absl::StrCat(problem.path, ": ", problem.why));
  }
  return absl::OkStatus();
}

absl::Status CheckSize(const SampleSet& set, const DataSpec& data) {
  for (const BatchPhase split : {BatchPhase::kTrain, BatchPhase::kEvaluate}) {
    if (set.samples(split) <= kMostSamplesOfASplit) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(data.path, ": has ", set.samples(split),
                     " samples, at most ", kMostSamplesOfASplit,
                     " can be numbered; raise data.block or take less"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const SampleSet>> OpenChecked(
    const JobSpec& spec) {
  PACELINE_RETURN_IF_ERROR(CheckSpec(spec.data));
  PACELINE_ASSIGN_OR_RETURN(
      std::unique_ptr<const SampleSet> samples,
      OpenSamples(spec.data, spec.train.seed, IsInference(spec)));
  PACELINE_RETURN_IF_ERROR(CheckSize(*samples, spec.data));
  return samples;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BatchSource>> OpenBatchSource(
    const JobSpec& spec, const Turns& turns) {
  PACELINE_ASSIGN_OR_RETURN(std::unique_ptr<const SampleSet> samples,
                            OpenChecked(spec));
  if (IsInference(spec)) {
    if (samples->samples(BatchPhase::kEvaluate) == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "data set ", spec.data.name,
          " has no test samples, and these are what an inference job takes"));
    }
    samples =
        std::make_unique<FirstSamples>(std::move(samples), spec.infer.samples);
  }
  return std::make_unique<BatchLoader>(spec.train, std::move(samples),
                                       spec.data.workers, turns);
}

}  // namespace paceline
