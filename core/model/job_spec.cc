#include "core/model/job_spec.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/model/description.h"

namespace paceline {
namespace {

// Far above what anyone trains on small machines, and low enough that no
// product of two of them overflows.
constexpr int64_t kMostEpochs = 1'000'000;
constexpr int64_t kMostSteps = 1'000'000'000;
constexpr int64_t kMostSamples = 1'000'000'000;
constexpr int64_t kMostBatch = 1 << 20;
constexpr int64_t kMostMicroBatches = 4096;
constexpr int64_t kMostValues = 1 << 24;  // of one sample
constexpr int64_t kMostClasses = 1 << 20;
constexpr int64_t kMostThreads = 1024;
constexpr int64_t kMostStages = 1024;
constexpr size_t kLongestName = 128;

// Gathers what is wrong, in the order in which it is asked for.
class Problems {
 public:
  void Add(std::string path, std::string why) {
    problems_.push_back({std::move(path), std::move(why)});
  }

  // Adds nothing and returns true when low <= value <= high.
  bool Whole(const char* path, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return true;
    Add(path, absl::StrCat("must be a whole number from ", low, " to ", high,
                           ", got ", value));
    return false;
  }

  // `range` says in words what `good` tests.
  bool Number(const char* path, double value, bool good, const char* range) {
    if (good && std::isfinite(value)) return true;
    Add(path, absl::StrCat("must be ", range, ", got ", value));
    return false;
  }

  bool OneOf(const char* path, const char* what, const std::string& word,
             const std::vector<std::string>& known) {
    if (std::find(known.begin(), known.end(), word) != known.end()) return true;
    const std::string choices = absl::StrJoin(known, ", ");
    if (word.empty()) {
      Add(path, absl::StrCat("names no ", what, "; choose one of: ", choices));
      return false;
    }
    const std::string meant = DidYouMean(word, known);
    Add(path,
        absl::StrCat("unknown ", what, " '", word, "'",
                     meant.empty() ? "" : "; did you mean '", meant,
                     meant.empty() ? "" : "'?", "; choose one of: ", choices));
    return false;
  }

  std::vector<SpecProblem> Take() { return std::move(problems_); }

 private:
  std::vector<SpecProblem> problems_;
};

void CheckName(const std::string& name, Problems& problems) {
  if (name.size() > kLongestName) {
    problems.Add("name", absl::StrCat("has ", name.size(), " bytes; at most ",
                                      kLongestName, " are allowed"));
  }
  const auto is_control = [](unsigned char c) {
    return absl::ascii_iscntrl(c);
  };
  if (std::any_of(name.begin(), name.end(), is_control)) {
    problems.Add("name", "holds a control character; use printable text");
  }
}

// True when DescribeModel may be asked: it says what is wrong with the sizes.
bool CheckModel(const ModelSpec& model, Problems& problems) {
  const bool known =
      problems.OneOf("model.name", "model", model.name, ModelNames());
  const bool dropout =
      problems.Number("model.dropout", model.dropout,
                      model.dropout >= 0 && model.dropout < 1, "in [0, 1)");
  return known && dropout;
}

bool CheckSampleShape(const DataSpec& data, Problems& problems) {
  if (data.shape.empty()) {
    problems.Add("data.shape", "is empty; an image is channels,height,width");
    return false;
  }
  const int64_t least = *std::min_element(data.shape.begin(), data.shape.end());
  const int64_t values = NumElements(data.shape);
  if (least < 1 || values < 1 || values > kMostValues) {
    problems.Add(
        "data.shape",
        absl::StrCat("must have sizes of at least 1 and at most ", kMostValues,
                     " values a sample, got ", absl::StrJoin(data.shape, ",")));
    return false;
  }
  return problems.Whole("data.classes", data.classes, 2, kMostClasses);
}

bool CheckFashionMnist(const DataSpec& data, Problems& problems) {
  bool good = true;
  if (data.shape != Shape{1, 28, 28}) {
    problems.Add(
        "data.shape",
        absl::StrCat("fashion-mnist has samples of shape 1,28,28, got ",
                     absl::StrJoin(data.shape, ","), "; leave it out"));
    good = false;
  }
  if (data.classes != 10) {
    problems.Add("data.classes",
                 absl::StrCat("fashion-mnist has 10 classes, got ",
                              data.classes, "; leave it out"));
    good = false;
  }
  return good;
}

// True when shape and classes are good.
bool CheckData(const DataSpec& data, Problems& problems) {
  const bool known = problems.OneOf("data.name", "data set", data.name,
                                    {"fashion-mnist", "idx", "synthetic"});
  if (data.name == "idx" && data.path.empty()) {
    problems.Add("data.path",
                 "idx needs the folder of its four files, on the worker that "
                 "holds the first stage");
  }
  if (data.name == "synthetic") {
    problems.Whole("data.train_samples", data.train_samples, 1, kMostSamples);
    problems.Whole("data.test_samples", data.test_samples, 0, kMostSamples);
  }
  const bool shape = data.name == "fashion-mnist"
                         ? CheckFashionMnist(data, problems)
                         : CheckSampleShape(data, problems);
  problems.Whole("data.prefetch_threads", data.prefetch_threads, 1, 64);
  return known && shape;
}

void CheckOptimizer(const OptimizerSpec& optimizer, Problems& problems) {
  problems.OneOf("train.optimizer.name", "optimizer", optimizer.name,
                 {"adamw", "sgd"});
  const auto is_fraction = [](double value) { return value >= 0 && value < 1; };
  problems.Number("train.optimizer.momentum", optimizer.momentum,
                  is_fraction(optimizer.momentum), "in [0, 1)");
  problems.Number("train.optimizer.weight_decay", optimizer.weight_decay,
                  optimizer.weight_decay >= 0, "0 or more");
  problems.Number("train.optimizer.beta1", optimizer.beta1,
                  is_fraction(optimizer.beta1), "in [0, 1)");
  problems.Number("train.optimizer.beta2", optimizer.beta2,
                  is_fraction(optimizer.beta2), "in [0, 1)");
  problems.Number("train.optimizer.epsilon", optimizer.epsilon,
                  optimizer.epsilon > 0, "greater than 0");
}

void CheckLearningRate(const LearningRateSpec& rate, Problems& problems) {
  const bool base = problems.Number("train.learning_rate.base", rate.base,
                                    rate.base > 0, "greater than 0");
  problems.OneOf("train.learning_rate.schedule", "learning-rate schedule",
                 rate.schedule, {"constant", "cosine", "step"});
  problems.Whole("train.learning_rate.warmup_steps", rate.warmup_steps, 0,
                 kMostSteps);
  problems.Number("train.learning_rate.minimum", rate.minimum,
                  rate.minimum >= 0 && (!base || rate.minimum <= rate.base),
                  "from 0 to train.learning_rate.base");
  problems.Whole("train.learning_rate.step_every", rate.step_every, 1,
                 kMostSteps);
  problems.Number("train.learning_rate.gamma", rate.gamma,
                  rate.gamma > 0 && rate.gamma <= 1, "in (0, 1]");
}

void CheckBatch(const TrainSpec& train, Problems& problems) {
  const bool batch = problems.Whole("train.batch", train.batch, 1, kMostBatch);
  if (train.micro_batch < 1 || (batch && train.micro_batch > train.batch)) {
    problems.Add("train.micro_batch",
                 absl::StrCat("must be from 1 to train.batch, which is ",
                              train.batch, "; got ", train.micro_batch));
    return;
  }
  const int64_t micro_batches =
      (train.batch + train.micro_batch - 1) / train.micro_batch;
  if (batch && micro_batches > kMostMicroBatches) {
    problems.Add("train.micro_batch",
                 absl::StrCat("cuts a batch in ", micro_batches,
                              " micro-batches; at most ", kMostMicroBatches,
                              " are allowed"));
  }
}

void CheckTrain(const TrainSpec& train, Problems& problems) {
  // Epochs are not looked at when `steps` decides.
  if (train.steps == 0) {
    problems.Whole("train.epochs", train.epochs, 1, kMostEpochs);
  }
  problems.Whole("train.steps", train.steps, 0, kMostSteps);
  CheckBatch(train, problems);
  problems.Whole("train.seed", train.seed, 0,
                 std::numeric_limits<int64_t>::max());
  CheckOptimizer(train.optimizer, problems);
  CheckLearningRate(train.learning_rate, problems);
  problems.Number("train.clip_norm", train.clip_norm, train.clip_norm >= 0,
                  "0 (no clipping) or more");
  problems.Whole("train.evaluate_every", train.evaluate_every, 0, kMostEpochs);
}

void CheckCuts(const PipelineSpec& pipeline, int64_t layers,
               Problems& problems) {
  const std::vector<int32_t>& cuts = pipeline.cuts;
  if (cuts.empty()) return;
  const std::string given = absl::StrJoin(cuts, ",");
  if (pipeline.stages != 0 &&
      static_cast<int64_t>(cuts.size()) != pipeline.stages - 1) {
    problems.Add("pipeline.cuts",
                 absl::StrCat(given, " makes ", cuts.size() + 1,
                              " stages, but pipeline.stages is ",
                              pipeline.stages, "; give ", pipeline.stages - 1,
                              " cuts, or none and let the policy cut"));
  }
  const auto not_ascending = [](int32_t a, int32_t b) { return a >= b; };
  if (std::adjacent_find(cuts.begin(), cuts.end(), not_ascending) !=
      cuts.end()) {
    problems.Add("pipeline.cuts",
                 absl::StrCat("must ascend without repeats, got ", given));
  }
  const auto [least, most] = std::minmax_element(cuts.begin(), cuts.end());
  if (*least < 1 || (layers > 0 && *most >= layers)) {
    problems.Add(
        "pipeline.cuts",
        absl::StrCat("must lie between 1 and ",
                     layers > 0 ? absl::StrCat(layers - 1, " (the model has ",
                                               layers, " layers)")
                                : "the model's last layer",
                     ", got ", given));
  }
}

// layers: of the model; 0 when it could not be described.
void CheckPipeline(const PipelineSpec& pipeline, int64_t layers,
                   Problems& problems) {
  const bool stages =
      problems.Whole("pipeline.stages", pipeline.stages, 0, kMostStages);
  if (stages && layers > 0 && pipeline.stages > layers) {
    problems.Add("pipeline.stages",
                 absl::StrCat("asks for ", pipeline.stages,
                              " stages, but the model has only ", layers,
                              " layers; ask for at most ", layers));
  }
  problems.OneOf(
      "pipeline.schedule", "schedule", pipeline.schedule,
      {"1f1b", "gpipe", "interleaved-1f1b", "pipedream", "zero-bubble"});
  if (pipeline.vertical_sync && pipeline.schedule != "pipedream") {
    problems.Add("pipeline.vertical_sync",
                 absl::StrCat("belongs to the schedule pipedream; under ",
                              pipeline.schedule,
                              " all stages have the same version anyway: leave "
                              "it out"));
  }
  problems.OneOf("pipeline.policy", "policy", pipeline.policy,
                 {"brute", "dp", "equal", "mcmc", "min-cut", "soft"});
  if (stages) CheckCuts(pipeline, layers, problems);
}

// Two rows of the matrix of Wagner and Fischer 1974.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::vector<SpecProblem> CheckJobSpec(const JobSpec& spec) {
  Problems problems;
  CheckName(spec.name, problems);
  const bool model = CheckModel(spec.model, problems);
  const bool data = CheckData(spec.data, problems);
  int64_t layers = 0;
  if (model && data) {
    const absl::StatusOr<ModelDescription> description =
        DescribeModel(spec.model, spec.data.shape, spec.data.classes);
    if (description.ok()) {
      layers = static_cast<int64_t>(description->layers.size());
    } else {
      problems.Add("model", std::string(description.status().message()));
    }
  }
  CheckTrain(spec.train, problems);
  if (spec.train.clip_norm > 0 && spec.pipeline.schedule == "pipedream") {
    problems.Add("train.clip_norm",
                 absl::StrCat("clips by the norm over all stages, which "
                              "pipedream's updates do not wait for, got ",
                              spec.train.clip_norm,
                              "; leave it out, or use another "
                              "pipeline.schedule"));
  }
  CheckPipeline(spec.pipeline, layers, problems);
  problems.Whole("threads", spec.threads, 1, kMostThreads);
  problems.OneOf("cpu_capability", "CPU capability", spec.cpu_capability,
                 {"auto", "avx2", "avx512", "default"});
  return problems.Take();
}

std::string DidYouMean(const std::string& word,
                       const std::vector<std::string>& known) {
  const std::string lower = absl::AsciiStrToLower(word);
  std::string best;
  size_t best_distance = std::numeric_limits<size_t>::max();
  for (const std::string& candidate : known) {
    const size_t distance =
        EditDistance(lower, absl::AsciiStrToLower(candidate));
    const size_t longer = std::max(word.size(), candidate.size());
    if (distance > std::max<size_t>(longer / 3, 1)) continue;
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace paceline
