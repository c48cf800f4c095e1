#include "core/job/job_check.h"

#include <algorithm>
#include <set>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/text.h"
#include "core/data/batch.h"
#include "core/data/data_sets.h"
#include "core/job/aggregation.h"
#include "core/job/job_keys.h"
#include "core/job/spec/job_spec.h"
#include "core/model/description.h"
#include "core/round/rules/rule.h"
#include "core/schedule/schedule.h"

namespace paceline {
namespace {

constexpr int64_t kMostMicroBatches = 4096;
constexpr size_t kLongestName = 128;
constexpr int64_t kMostOrthogonal = 2048;  // a minute, 2026

void CheckName(const std::string& name, SpecProblems& problems) {
  if (name.size() > kLongestName) {
    problems.Add("name", "has ", name.size(), " bytes; at most ", kLongestName,
                 " are allowed");
  }
  if (HoldsControl(name)) {
    problems.Add("name", "holds a control character; use printable text");
  }
}

// A worker cannot be interrupted while it draws a matrix.
void CheckInit(const ModelSpec& spec, const ModelDescription& model,
               SpecProblems& problems) {
  if (spec.init != "orthogonal" || !spec.weights.empty()) return;
  for (const Layer& layer : model.layers) {
    for (const Parameter& parameter : layer.parameters) {
      const Shape& shape = parameter.shape;
      if (shape.size() < 2) continue;
      const int64_t rest = NumElements(shape) / shape[0];
      if (std::min(shape[0], rest) <= kMostOrthogonal) continue;
      problems.Add("model.init", "orthogonal takes minutes for the ", shape[0],
                   " x ", rest, " weights of ", parameter.name,
                   ", and is for at most ", kMostOrthogonal,
                   " rows or columns: use kaiming or xavier");
      return;
    }
  }
}

// Whether the key's range matters in such a job.
bool HasCheckedRange(const JobSpec& spec, absl::string_view path) {
  const bool trains = !IsInference(spec);
  if (absl::StartsWith(path, "infer.")) return !trains;
  if (path == "train.epochs") return trains && spec.train.steps == 0;
  if (path == "pipeline.policy") {
    return PresentPolicy(spec.pipeline.policy) == spec.pipeline.policy;
  }
  if (absl::StartsWith(path, "train.") && path != "train.seed") return trains;
  return !absl::StartsWith(path, "model.lora.");  // CheckLora()
}

void CheckRanges(const JobSpec& spec, SpecProblems& problems) {
  for (const JobKey& key : JobKeys()) {
    if (!HasCheckedRange(spec, key.path)) continue;
    const bool of_fault = absl::StartsWith(key.path, "faults.");
    for (size_t i = 0; i < (of_fault ? spec.faults.size() : 1); ++i) {
      if (of_fault && spec.faults[i].kind == kSkipStage) continue;
      CheckKey(key, spec, i, problems);
    }
  }
}

// Counts the keys before `path`, which may be a section or a fault's.
size_t PlaceOf(absl::string_view path) {
  const absl::string_view start = path.substr(0, path.find('['));
  const absl::Span<const JobKey> keys = JobKeys();
  return std::ranges::find_if(keys,
                              [start](const JobKey& key) {
                                return absl::StartsWith(key.path, start);
                              }) -
         keys.begin();
}

// True when DescribeModel may be asked: it says what is wrong with the sizes.
bool CheckModel(const JobSpec& spec, SpecProblems& problems) {
  const ModelSpec& model = spec.model;
  std::vector<std::string> names = ModelNames();
  names.push_back(kScriptModel);
  std::ranges::sort(names);
  const bool known = problems.OneOf("model.name", "model", model.name, names);
  const bool dropout = IsInRange("model.dropout", spec);
  problems.AbsolutePath("model.weights", model.weights, "every worker");
  problems.AbsolutePath("model.file", model.file, "every worker");
  const absl::Status lora = known ? CheckLora(model) : absl::OkStatus();
  if (!lora.ok()) problems.Add("model.lora", std::string(lora.message()));
  if (model.name != kScriptModel) return known && dropout && lora.ok();
  if (model.file.empty()) {
    problems.Add("model.file",
                 "is missing: model.name script needs the TorchScript file, at "
                 "a path at which every worker finds it");
  }
  // Its layers are judged once a worker has said what they are.
  return dropout && lora.ok() && !NeedsWorker(model);
}

// Pictures are no tokens, whatever their shapes.
void CheckInput(const ModelDescription& model, const DataSpec& data,
                SpecProblems& problems) {
  const SampleFormat given = FormatOf(data);
  const auto what = [](DType dtype) {
    return dtype == DType::kI64 ? "tokens" : "images";
  };
  if (given.dtype != model.input_dtype) {
    problems.Add("data.name", data.name, " gives ", what(given.dtype), ", but ",
                 model.name, " takes ", what(model.input_dtype),
                 "; choose another data set or model");
  } else if (given.label_shape != model.label_shape) {
    const auto labels = [](const Shape& samples, const Shape& shape) {
      return shape.empty()      ? "one label a sample"
             : shape == samples ? "a label for each token"
                                : "a label for each token of a target";
    };
    problems.Add("data.name", data.name, " has ",
                 labels(given.shape, given.label_shape), ", but ", model.name,
                 " learns ", labels(model.input, model.label_shape),
                 "; choose another data set or model");
  } else if (VocabularyOf(data) > model.vocabulary) {
    problems.Add("model.vocabulary", "is ", model.vocabulary, ", but ",
                 data.name, " has ", VocabularyOf(data),
                 " different tokens; raise it");
  }
}

// A sample is filled up with the token that the model does not look at.
void CheckPadding(const ModelDescription& model, const DataSpec& data,
                  SpecProblems& problems) {
  for (const Operation& operation : model.layers.front().operations) {
    if (operation.kind != "padding_mask" ||
        operation.sizes[0] == data.padding) {
      continue;
    }
    problems.Add("data.padding", "is ", data.padding, ", but ", model.name,
                 " takes token ", operation.sizes[0],
                 " for padding; set data.padding to ", operation.sizes[0]);
  }
}

// Without a flush nobody waits until the owner of a shared parameter has all
// gradients of it: who shares must be on one stage.
void CheckTies(const JobSpec& spec, const ModelDescription& model,
               SpecProblems& problems) {
  if (!ScheduleTraitsOf(spec.pipeline.schedule).asynchronous) return;
  const std::vector<int32_t>& cuts = spec.pipeline.cuts;
  for (const SharedParameter& shared : SharedParameters(model)) {
    const bool together =
        cuts.empty() ? spec.pipeline.stages == 1
                     : std::ranges::none_of(cuts, [&](int32_t cut) {
                         return cut > shared.owner && cut <= shared.user;
                       });
    if (together) continue;
    const bool whole = shared.owner == 0 &&
                       shared.user + 1 == static_cast<int>(model.layers.size());
    problems.Add("pipeline.schedule", "pipedream needs layers ", shared.owner,
                 " and ", shared.user, " of ", model.name,
                 " on one stage, since both compute with ", shared.name, "; ",
                 whole ? "" : "set pipeline.cuts that keep them together, ",
                 "set pipeline.stages to 1, or use another schedule");
  }
}

void CheckLearningRate(const JobSpec& spec, SpecProblems& problems) {
  const LearningRateSpec& rate = spec.train.learning_rate;
  const bool base = IsInRange("train.learning_rate.base", spec);
  problems.Number("train.learning_rate.minimum", rate.minimum,
                  rate.minimum >= 0 && (!base || rate.minimum <= rate.base),
                  "from 0 to train.learning_rate.base");
}

void CheckBatch(const JobSpec& spec, SpecProblems& problems) {
  const TrainSpec& train = spec.train;
  const bool batch = IsInRange("train.batch", spec);
  if (train.micro_batch < 1 || (batch && train.micro_batch > train.batch)) {
    problems.Add("train.micro_batch",
                 "must be from 1 to train.batch, which is ", train.batch,
                 "; got ", train.micro_batch);
    return;
  }
  const int64_t micro_batches = MicroBatchesOfAStep(train);
  if (batch && micro_batches > kMostMicroBatches) {
    problems.Add("train.micro_batch", "cuts a batch in ", micro_batches,
                 " micro-batches; at most ", kMostMicroBatches, " are allowed");
  }
}

// The samples come to the first stage, and the last one has the loss.
void CheckDistill(const JobSpec& spec, SpecProblems& problems) {
  const bool path = problems.AbsolutePath(
      "train.distill.weights", spec.train.distill.weights, "every worker");
  const bool whole = IsDataParallel(spec) ||
                     (spec.pipeline.stages == 1 && spec.pipeline.cuts.empty());
  if (!path || spec.train.distill.weights.empty() || whole) return;
  problems.Add("train.distill.weights",
               "wants a worker that holds the whole model, since the teacher "
               "sees what goes in and is compared with what comes out: set "
               "pipeline.stages to 1, or aggregation.mode");
}

void CheckTrain(const JobSpec& spec, SpecProblems& problems) {
  const TrainSpec& train = spec.train;
  CheckBatch(spec, problems);
  CheckLearningRate(spec, problems);
  CheckDistill(spec, problems);
  if (!FindRecompute(train.activation_checkpointing).has_value()) {
    problems.Add("train.activation_checkpointing",
                 "must be none, stage, or every-N with N layers from 1 to ",
                 kMostLayersASegment, ", got '",
                 absl::CHexEscape(train.activation_checkpointing), "'");
  }
}

void CheckPrecision(const JobSpec& spec, SpecProblems& problems) {
  if (IsInRange("precision", spec) && spec.precision != "fp32" &&
      spec.model.name == kScriptModel) {
    problems.Add("precision", "is ", spec.precision,
                 ", but a script computes as it is written: leave precision "
                 "out and write the casts into the script");
  }
}

void CheckCuts(const PipelineSpec& pipeline, int64_t layers,
               SpecProblems& problems) {
  const std::vector<int32_t>& cuts = pipeline.cuts;
  if (cuts.empty()) return;
  const std::string given = absl::StrJoin(cuts, ",");
  if (pipeline.stages != 0 &&
      static_cast<int64_t>(cuts.size()) != pipeline.stages - 1) {
    problems.Add("pipeline.cuts", given, " makes ", cuts.size() + 1,
                 " stages, but pipeline.stages is ", pipeline.stages, "; give ",
                 Counted(pipeline.stages - 1, "cut"),
                 ", or none and let the policy cut");
  }
  const auto not_ascending = [](int32_t a, int32_t b) { return a >= b; };
  if (std::ranges::adjacent_find(cuts, not_ascending) != cuts.end()) {
    problems.Add("pipeline.cuts", "must ascend without repeats, got ", given);
  }
  const auto [least, most] = std::ranges::minmax_element(cuts);
  if (*least < 1 || (layers > 0 && *most >= layers)) {
    problems.Add("pipeline.cuts", "must lie between 1 and ",
                 layers > 0 ? absl::StrCat(layers - 1, " (the model has ",
                                           Counted(layers, "layer"), ")")
                            : "the model's last layer",
                 ", got ", given);
  }
}

void CheckWorkers(const PipelineSpec& pipeline, SpecProblems& problems) {
  if (pipeline.workers.empty()) return;
  const size_t stages = pipeline.cuts.size() + 1;
  if (pipeline.cuts.empty() && pipeline.stages != 1) {
    problems.Add("pipeline.workers",
                 "says who holds which stage, and so needs pipeline.cuts (or "
                 "pipeline.stages: 1)");
  } else if (pipeline.replicas.empty() && pipeline.workers.size() != stages) {
    problems.Add("pipeline.workers", "names ",
                 Counted(pipeline.workers.size(), "worker"), " for ",
                 Counted(std::ssize(pipeline.cuts) + 1, "stage"),
                 "; give one for each stage");
  }
}

// Several stages, or replicas of one, leave no gradient out.
void CheckSums(const JobSpec& spec, SpecProblems& problems) {
  const PipelineSpec& pipeline = spec.pipeline;
  if (IsInference(spec) || IsDataParallel(spec) ||
      (pipeline.stages == 1 && pipeline.cuts.empty() &&
       pipeline.replicas.empty())) {
    return;
  }
  const AggregationSpec& a = spec.aggregation;
  if (a.rule != AggregationSpec().rule && FindRule(a.rule) != nullptr) {
    problems.Add("aggregation.rule", "is ", a.rule,
                 ", but a pipeline and the replicas of its stages add up all "
                 "gradients; leave it out, or set aggregation.mode");
  }
  if (a.min_parts > AggregationSpec().min_parts) {
    problems.Add("aggregation.min_parts", "is ", a.min_parts,
                 ", but a pipeline's step needs every micro-batch, and so all "
                 "replicas; leave it out, or set aggregation.mode");
  }
}

// Most workers of one stage: a route has a turn for each at least.
constexpr int32_t kMostReplicas = 1'024;

// Checks what training adds: replicas agree on the sum of their gradients at
// the end of each step.
//   model  null: not known
void CheckTrainedReplicas(const JobSpec& spec, const ModelDescription* model,
                          SpecProblems& problems) {
  const PipelineSpec& pipeline = spec.pipeline;
  const ScheduleTraits& traits = ScheduleTraitsOf(pipeline.schedule);
  const auto most = *std::ranges::max_element(pipeline.replicas);
  if (most <= 1) return;
  if (traits.only_trains && !traits.deals) {
    problems.Add("pipeline.schedule", pipeline.schedule,
                 traits.asynchronous
                     ? " updates each stage without waiting for others, and "
                       "replicas would have to agree on every update; use "
                     : " is not made for stages of several workers; use ",
                 "1f1b or gpipe, or leave pipeline.replicas out");
  }
  const int64_t micro_batches = MicroBatchesOfAStep(spec.train);
  if (most > micro_batches) {
    problems.Add("pipeline.replicas", "gives a stage ", most,
                 " workers, but a batch has ",
                 Counted(micro_batches, "micro-batch"),
                 "; lower it, or lower train.micro_batch");
  }
  if (model == nullptr) return;
  const auto stage_of = [&](int layer) {
    return std::ranges::upper_bound(pipeline.cuts, layer) -
           pipeline.cuts.begin();
  };
  for (const SharedParameter& shared : SharedParameters(*model)) {
    const auto owner = stage_of(shared.owner), user = stage_of(shared.user);
    if (owner == user) continue;
    if (pipeline.replicas[owner] == 1 && pipeline.replicas[user] == 1) continue;
    problems.Add("pipeline.replicas", "gives several workers to stage ",
                 pipeline.replicas[owner] > 1 ? owner : user, ", which shares ",
                 shared.name, " with stage ",
                 pipeline.replicas[owner] > 1 ? user : owner,
                 "; set pipeline.cuts that keep both layers together, or give "
                 "these stages one worker each");
  }
  if (spec.model.name == kScriptModel && HasBuffers(*model)) {
    problems.Add("pipeline.replicas",
                 "needs a model without buffers of its own: the script moves "
                 "them in every forward, and replicas would not agree on them");
  }
}

void CheckReplicas(const JobSpec& spec, const ModelDescription* model,
                   SpecProblems& problems) {
  const PipelineSpec& pipeline = spec.pipeline;
  const std::vector<int32_t>& replicas = pipeline.replicas;
  if (replicas.empty()) {
    if (!pipeline.shares.empty()) {
      problems.Add("pipeline.shares",
                   "says how the replicas of a stage share its work, and so "
                   "needs pipeline.replicas");
    }
    return;
  }
  const size_t stages = pipeline.cuts.size() + 1;
  int64_t workers = 0;
  bool counts = replicas.size() == stages;
  for (const int32_t count : replicas) {
    counts = counts && count >= 1 && count <= kMostReplicas;
    workers += count;
  }
  if (!counts) {
    problems.Add("pipeline.replicas", "must give each of the ",
                 Counted(std::ssize(pipeline.cuts) + 1, "stage"),
                 " between 1 and ", kMostReplicas, " workers, got ",
                 absl::StrJoin(replicas, ","));
  } else if (std::ssize(pipeline.workers) != workers) {
    problems.Add("pipeline.replicas", absl::StrJoin(replicas, ","), " wants ",
                 Counted(workers, "worker"), ", but pipeline.workers names ",
                 pipeline.workers.size());
  }
  const std::set<std::string> names(pipeline.workers.begin(),
                                    pipeline.workers.end());
  if (names.size() < pipeline.workers.size()) {
    problems.Add("pipeline.workers",
                 "names a worker twice: beside replicas each holds one stage");
  }
  if (counts && !IsInference(spec) && !IsDataParallel(spec)) {
    CheckTrainedReplicas(spec, model, problems);
  }
  if (pipeline.shares.empty()) return;
  problems.Shares("pipeline.shares", pipeline.shares, pipeline.workers.size());
}

// layers: of the model; 0 when it could not be described.
void CheckPipeline(const JobSpec& spec, int64_t layers,
                   SpecProblems& problems) {
  const PipelineSpec& pipeline = spec.pipeline;
  const bool stages = IsInRange("pipeline.stages", spec);
  if (stages && layers > 0 && pipeline.stages > layers) {
    problems.Add("pipeline.stages", "asks for ", pipeline.stages,
                 " stages, but the model has only ", Counted(layers, "layer"),
                 "; ask for at most ", layers);
  }
  if (pipeline.vertical_sync &&
      !ScheduleTraitsOf(pipeline.schedule).asynchronous) {
    problems.Add("pipeline.vertical_sync",
                 "belongs to the schedule pipedream; under ", pipeline.schedule,
                 " all stages have the same version anyway: leave it out");
  }
  if (pipeline.snapshot_every == 0 && spec.train.checkpoint_every > 0 &&
      !IsDataParallel(spec)) {
    problems.Add("pipeline.snapshot_every",
                 "is 0, and no state is copied that train.checkpoint_every "
                 "could keep: leave one of them out");
  }
  if (stages) CheckCuts(pipeline, layers, problems);
  CheckWorkers(pipeline, problems);
}

void CheckInfer(const JobSpec& spec, SpecProblems& problems) {
  const std::string& schedule = spec.pipeline.schedule;
  if (ScheduleTraitsOf(schedule).only_trains) {
    problems.Add("pipeline.schedule", schedule,
                 " is a way to train; leave it out, since all schedules are "
                 "the same where nothing comes back");
  }
}

}  // namespace

std::vector<SpecProblem> CheckJobSpec(const JobSpec& spec) {
  SpecProblems problems;
  CheckName(spec.name, problems);
  CheckRanges(spec, problems);
  const bool model = CheckModel(spec, problems);
  const bool data = CheckDataSpec(spec.data, problems);
  problems.AddUnlessEmpty("data.distribution", WhyNoDistribution(spec));
  int64_t layers = 0;
  absl::StatusOr<ModelDescription> description = absl::UnknownError("");
  const ModelDescription* described = nullptr;
  if (model && data) {
    description = DescribeModel(spec.model, spec.data.shape, spec.data.classes);
    if (description.ok()) {
      described = &*description;
      layers = static_cast<int64_t>(description->layers.size());
      CheckInit(spec.model, *description, problems);
      CheckInput(*description, spec.data, problems);
      CheckPadding(*description, spec.data, problems);
    } else {
      problems.Add("model", std::string(description.status().message()));
    }
  }
  if (IsInRange("kind", spec)) {
    IsInference(spec) ? CheckInfer(spec, problems) : CheckTrain(spec, problems);
    // Other sets do not read it.
    if (!IsInference(spec) && absl::StartsWith(spec.data.name, "text") &&
        spec.data.test_fraction >= 1) {
      problems.Add(
          "data.test_fraction",
          "is 1: nothing would be left to train on; that is for kind: infer");
    }
  }
  if (spec.train.clip_norm > 0 &&
      ScheduleTraitsOf(spec.pipeline.schedule).asynchronous) {
    problems.Add("train.clip_norm",
                 "clips by the norm over all stages, which pipedream's updates "
                 "do not wait for, got ",
                 spec.train.clip_norm,
                 "; leave it out, or use another pipeline.schedule");
  }
  if (IsInRange("train.layer_drop", spec) && spec.train.layer_drop > 0 &&
      description.ok()) {
    problems.AddUnlessEmpty("train.layer_drop", WhyNoLayerDrop(*description));
  }
  CheckPipeline(spec, layers, problems);
  CheckReplicas(spec, described, problems);
  CheckSums(spec, problems);
  if (described != nullptr) CheckTies(spec, *described, problems);
  CheckPrecision(spec, problems);
  CheckAggregation(spec, described, problems);
  CheckFaults(spec, described, problems);
  std::vector<SpecProblem> all = problems.Take();
  std::ranges::stable_sort(all, {}, [](const SpecProblem& problem) {
    return PlaceOf(problem.path);
  });
  return all;
}

}  // namespace paceline
