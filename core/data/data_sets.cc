#include "core/data/data_sets.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "core/base/text.h"

namespace paceline {
namespace {

constexpr int64_t kMostSamples = 1'000'000'000;
constexpr int64_t kMostValues = 1 << 24;  // of one sample
constexpr int64_t kMostClasses = 1 << 20;
constexpr int64_t kMostBlock = 1 << 20;
constexpr int64_t kLongestSide = 16384;  // pixels
constexpr int64_t kMostLoaders = 64;
constexpr int64_t kByteTokens = 256;
constexpr int32_t kPairBlock = 16;

const std::vector<DataSetTraits>& DataSets() {
  using enum SampleKind;
  // Name, kind, needs a path, own shape, shape, classes, samples, in memory;
  // sorted by name.
  static const auto& sets = *new std::vector<DataSetTraits>{
      {"cifar10", kImages, true, true, {3, 32, 32}, 10, 50000},
      {"cifar100", kImages, true, true, {3, 32, 32}, 100, 50000},
      {"fashion-mnist", kImages, false, true, {1, 28, 28}, 10, 60000, true},
      {"idx", kImages, true, false, {1, 28, 28}, 10, 0, true},
      {"imagefolder", kImages, true, false, {3, 224, 224}, 1000},
      {"synthetic", kImages, false, false, {1, 28, 28}, 10},
      {"synthetic-labels", kLabelledTokens, false, false, {}, 2},
      {"synthetic-pairs", kPairs, false, false, {}, 32},
      {"synthetic-tokens", kTokens, false, false, {}, 256},
      {"text", kTokens, true, false, {}, 256},
      {"text-labels", kLabelledTokens, true, false, {}, 2},
      {"text-pairs", kPairs, true, false, {}, 256},
  };
  return sets;
}

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

bool CheckOwnShape(const DataSetTraits& set, const DataSpec& data,
                   SpecProblems& problems) {
  bool good = true;
  if (data.shape != set.shape) {
    problems.Add("data.shape", set.name, " has samples of shape ",
                 absl::StrJoin(set.shape, ","), ", got ",
                 absl::StrJoin(data.shape, ","), "; leave it out");
    good = false;
  }
  if (data.classes != set.classes) {
    problems.Add("data.classes", set.name, " has ", set.classes,
                 " classes, got ", data.classes, "; leave it out");
    good = false;
  }
  return good;
}

bool CheckImageShape(const DataSpec& data, SpecProblems& problems) {
  if (data.shape.empty()) {
    problems.Add("data.shape", "is empty; an image is channels,height,width");
    return false;
  }
  const int64_t least = *std::ranges::min_element(data.shape);
  const int64_t values = NumElements(data.shape);
  if (least < 1 || values < 1 || values > kMostValues) {
    problems.Add("data.shape", "must have sizes of at least 1 and at most ",
                 kMostValues, " values a sample, got ",
                 absl::StrJoin(data.shape, ","));
    return false;
  }
  const bool is_picture =
      data.shape.size() == 3 && (data.shape[0] == 1 || data.shape[0] == 3);
  if (data.name == "imagefolder" && !is_picture) {
    problems.Add("data.shape",
                 "must be channels,height,width with 1 (grey) or 3 (colours) "
                 "channels, got ",
                 absl::StrJoin(data.shape, ","));
    return false;
  }
  return problems.Whole("data.classes", data.classes, 2, kMostClasses);
}

bool CheckTokenShape(const DataSpec& data, SpecProblems& problems) {
  if (!problems.Whole("data.block", data.block, 1, kMostBlock)) return false;
  const Shape shape = FormatOf(data).shape;
  if (data.shape != shape) {
    problems.Add("data.shape", data.name, " has samples of shape [",
                 shape[0] == data.block ? "" : "2 x ", "block], which is ",
                 shape[0], ", got ", absl::StrJoin(data.shape, ","),
                 "; leave it out and set data.block");
    return false;
  }
  return problems.Whole("data.classes", data.classes, 2, kMostClasses);
}

void CheckText(const DataSpec& data, SpecProblems& problems) {
  const bool plain = data.name == "text";
  if (plain) {
    problems.OneOf("data.tokens", "kind of tokens", data.tokens,
                   {"byte", "character", "uint16"});
  }
  const bool bytes =
      data.name == "text-pairs" || (plain && data.tokens == "byte");
  if (bytes && data.classes < kByteTokens) {
    problems.Add("data.classes",
                 "must be at least 256, since a token is a byte, got ",
                 data.classes);
  }
  problems.Number("data.test_fraction", data.test_fraction,
                  data.test_fraction >= 0 && data.test_fraction <= 1,
                  "in [0, 1]");
}

void CheckLabelledTokens(const DataSpec& data, SpecProblems& problems) {
  const bool vocabulary =
      problems.Whole("data.vocabulary", data.vocabulary, 2, kMostClasses);
  if (vocabulary) {
    problems.Whole("data.padding", data.padding, 0, VocabularyOf(data) - 1);
  }
}

// There must be a word, and room for what begins or ends a sentence.
bool CheckPairs(const DataSpec& data, SpecProblems& problems) {
  return problems.Whole("data.block", data.block, 2, kMostBlock) &&
         problems.Whole("data.classes", data.classes, kFirstWordToken + 1,
                        kMostClasses);
}

// Returns the first of [channels, height, width]; 1 for another shape.
int64_t Channels(const DataSpec& data) {
  return data.shape.size() == 3 ? data.shape[0] : 1;
}

void CheckPerChannel(const char* path, const std::vector<double>& values,
                     const DataSpec& data, double above,
                     SpecProblems& problems) {
  const auto count = static_cast<int64_t>(values.size());
  if (count > 1 && count != Channels(data)) {
    problems.Add(path, "has ", Counted(count, "number"),
                 "; give one, or one for each of the ",
                 Counted(Channels(data), "channel"));
  }
  for (const double value : values) {
    if (std::isfinite(value) && value > above) continue;
    problems.Add(path, "must hold finite numbers",
                 above == 0 ? " greater than 0" : "", ", got ", value);
    return;
  }
}

void CheckPictures(const DataSpec& data, SpecProblems& problems) {
  const bool folder = data.name == "imagefolder";
  problems.OneOf(
      "data.crop", "crop", data.crop,
      folder ? std::vector<std::string>{"center", "random", "random-resized"}
             : std::vector<std::string>{"center", "random"});
  problems.Number("data.flip", data.flip, data.flip >= 0 && data.flip <= 1,
                  "a probability in [0, 1]");
  CheckPerChannel("data.mean", data.mean, data, -INFINITY, problems);
  CheckPerChannel("data.deviation", data.deviation, data, 0, problems);
  if (!folder || data.resize == 0) return;
  const int64_t side =
      data.shape.size() == 3 ? std::max(data.shape[1], data.shape[2]) : 1;
  if (data.resize < side || data.resize > kLongestSide) {
    problems.Add("data.resize",
                 "must be 0 (an eighth more than the crop) or from ", side,
                 ", the longer side of data.shape, to ", kLongestSide, ", got ",
                 data.resize);
  }
}

}  // namespace

int64_t MostUnreadable(int64_t samples) {
  return std::min({std::max<int64_t>(2, samples / 10), kMostUnreadable,
                   std::max<int64_t>(0, samples - 1)});
}

std::vector<std::string> DataSetNames() {
  return NamesOf(DataSets(), &DataSetTraits::name);
}

const DataSetTraits* FindDataSet(const std::string& name) {
  return FindNamed(DataSets(), name, &DataSetTraits::name);
}

DataSpec DefaultDataSpec(const std::string& name) {
  DataSpec data;
  data.name = name;
  const DataSetTraits* const set = FindDataSet(name);
  if (set == nullptr) return data;
  // All that a decoder says depends on what it said: short sentences.
  if (set->kind == SampleKind::kPairs) data.block = kPairBlock;
  data.shape = set->shape;
  if (set->kind != SampleKind::kImages) data.shape = FormatOf(data).shape;
  data.classes = set->classes;
  return data;
}

SampleFormat FormatOf(const DataSpec& data) {
  const DataSetTraits* const set = FindDataSet(data.name);
  if (set == nullptr || set->kind == SampleKind::kImages) {
    return {DType::kF32, data.shape, {}};
  }
  if (set->kind == SampleKind::kPairs) {
    return {DType::kI64, {2 * int64_t{data.block}}, {data.block}};
  }
  const bool each = set->kind == SampleKind::kTokens;
  return {DType::kI64, {data.block}, each ? Shape{data.block} : Shape{}};
}

bool IsSynthetic(const DataSpec& data) {
  return absl::StartsWith(data.name, "synthetic");
}

std::string FilesOf(const DataSpec& data) {
  if (IsSynthetic(data)) return "";
  // Fashion-MNIST alone needs no path.
  return data.path.empty() ? kFashionMnistFolder : data.path;
}

std::vector<std::pair<std::string, std::string>> FilesOf(const JobSpec& spec) {
  return {{"data.path", FilesOf(spec.data)},
          {"model.weights", spec.model.weights},
          {"model.file", spec.model.file},
          {"train.distill.weights",
           IsInference(spec) ? "" : spec.train.distill.weights}};
}

int64_t TrainSamplesOf(const DataSpec& data) {
  if (IsSynthetic(data)) return data.train_samples;
  const DataSetTraits* const set = FindDataSet(data.name);
  return set == nullptr ? 0 : set->train_samples;
}

DataSpec WithPixelScale(DataSpec data) {
  const bool grey = data.shape.size() != 3 || data.shape[0] == 1;
  const bool own = !(grey && data.name == "imagefolder");
  const Statistics& statistics = StatisticsOf(own ? data.name : "");
  if (data.mean.empty()) data.mean = statistics.mean;
  if (data.deviation.empty()) data.deviation = statistics.deviation;
  for (std::vector<double>* const each : {&data.mean, &data.deviation}) {
    if (each->size() == 1 && !grey) each->resize(data.shape[0], each->front());
  }
  return data;
}

int64_t VocabularyOf(const DataSpec& data) {
  if (FormatOf(data).dtype != DType::kI64) return 0;
  if (data.name == "synthetic-labels") return data.vocabulary;
  // A byte is a token.
  return data.name == "text-labels" ? kByteTokens : data.classes;
}

bool CheckDataSpec(const DataSpec& data, SpecProblems& problems) {
  problems.Whole("data.workers", data.workers, 0, kMostLoaders);
  if (!problems.OneOf("data.name", "data set", data.name, DataSetNames())) {
    return false;
  }
  const DataSetTraits& set = *FindDataSet(data.name);
  if (set.needs_path && data.path.empty()) {
    problems.Add(
        "data.path", data.name,
        " needs the place of its files, on the workers that read them");
  }
  problems.AbsolutePath("data.path", data.path, "the workers that read it");
  if (IsSynthetic(data)) {
    problems.Whole("data.train_samples", data.train_samples, 1, kMostSamples);
    problems.Whole("data.test_samples", data.test_samples, 0, kMostSamples);
  }
  const bool shape =
      set.own_shape ? CheckOwnShape(set, data, problems)
      : set.kind == SampleKind::kImages
          ? CheckImageShape(data, problems)
          : CheckTokenShape(data, problems) &&
                (set.kind != SampleKind::kPairs || CheckPairs(data, problems));
  if (absl::StartsWith(data.name, "text")) CheckText(data, problems);
  if (set.kind == SampleKind::kLabelledTokens) {
    CheckLabelledTokens(data, problems);
  }
  if (set.kind == SampleKind::kImages && !IsSynthetic(data)) {
    CheckPictures(data, problems);
  }
  return shape;
}

}  // namespace paceline
