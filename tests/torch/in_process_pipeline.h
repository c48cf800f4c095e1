// Several engines driven by hand through real schedules, in one thread and
// without links.  Shows no LibTorch.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/random.h"
#include "core/cluster/run_order.h"
#include "core/data/batch.h"
#include "core/data/data_sets.h"
#include "core/model/catalog.h"
#include "core/model/description.h"
#include "core/optim/step_gate.h"
#include "core/plan/plan.h"
#include "core/schedule/schedule.h"
#include "gtest/gtest.h"
#include "tests/support/pipeline/memory_link.h"
#include "worker/control/run_order.h"
#include "worker/pipeline/step_exchange.h"
#include "worker/torch/engine.h"

namespace paceline {

// Samples that a model can learn: a class raises a few pixels of its own; with
// a vocabulary they are tokens, each of which says what follows it, or a class
// has tokens of its own, or the second sentence of a pair is the first
// backwards.
struct TinySet {
  Shape shape = {1, 28, 28};
  int64_t samples = 23;
  int32_t classes = 10;
  int64_t vocabulary = 0;        // of tokens [block]
  bool labels_tokens = false;    // with the next one
  int64_t padding = -1;          // what samples end with; -1: nothing
  int64_t unlabelled_every = 0;  // tokens; 0: all have a label
  bool pairs = false;            // [2 x block]: as core/data/data_sets.h says

  Shape label_shape() const {
    if (pairs) return {shape[0] / 2};
    return labels_tokens ? shape : Shape{};
  }

  // The samples at positions [first, first + count) of an epoch's order, and
  // their labels.
  TensorList Take(const std::vector<int32_t>& order, int64_t first,
                  int64_t count) const {
    if (pairs) return TakePairs(order, first, count);
    if (vocabulary > 0) return TakeTokens(order, first, count);
    Shape whole = {count};
    whole.insert(whole.end(), shape.begin(), shape.end());
    Tensor images = Tensor::Allocate(DType::kF32, whole);
    Tensor labels = Tensor::Allocate(DType::kI64, {count});
    const int64_t values = NumElements(shape);
    float* out = images.As<float>().data();
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t sample = order[first + i];
      const int64_t label = sample % classes;
      SplitMix64 random(MixSeed({sample}));
      for (int64_t j = 0; j < values; ++j) {
        const float raised = j % classes == label ? 0.5f : 0;
        *out++ = random.Unit() - 0.5f + raised;
      }
      labels.As<int64_t>()[i] = label;
    }
    return {images, labels};
  }

 private:
  // Sentences of from 1 to block - 1 words each.
  TensorList TakePairs(const std::vector<int32_t>& order, int64_t first,
                       int64_t count) const {
    const int64_t block = shape[0] / 2;
    Tensor tokens = Tensor::Allocate(DType::kI64, {count, 2 * block});
    Tensor labels = Tensor::Allocate(DType::kI64, {count, block});
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t sample = order[first + i];
      SplitMix64 random(MixSeed({sample}));
      const auto length = static_cast<int64_t>(1 + random.Below(block - 1));
      int64_t* const source = tokens.As<int64_t>().data() + 2 * i * block;
      int64_t* const label = labels.As<int64_t>().data() + i * block;
      for (int64_t j = 0; j < block; ++j) {
        source[j] = j < length ? 4 + random.Below(vocabulary - 4) : 0;
      }
      for (int64_t j = 0; j < block; ++j) {
        label[j] = j < length    ? source[length - 1 - j]
                   : j == length ? kEndToken
                                 : kNoLabel;
        const bool real = j > 0 && j <= length;
        source[block + j] = j == 0 ? kBeginToken : real ? label[j - 1] : 0;
      }
    }
    return {tokens, labels};
  }

  TensorList TakeTokens(const std::vector<int32_t>& order, int64_t first,
                        int64_t count) const {
    const int64_t block = shape[0];
    Tensor tokens = Tensor::Allocate(DType::kI64, {count, block});
    Tensor labels = Tensor::Allocate(
        DType::kI64, labels_tokens ? Shape{count, block} : Shape{count});
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t sample = order[first + i];
      SplitMix64 random(MixSeed({sample}));
      const int64_t label = sample % classes;
      int64_t token = random.Below(vocabulary);
      const int64_t length = padding < 0 ? block : block - sample % 3;
      for (int64_t j = 0; j < block; ++j) {
        tokens.As<int64_t>()[i * block + j] = j < length ? token : padding;
        if (labels_tokens) {
          token = (3 * token + 1) % vocabulary;
          const bool none =
              unlabelled_every > 0 && (i + j) % unlabelled_every == 0;
          labels.As<int64_t>()[i * block + j] = none ? kNoLabel : token;
        } else {
          token = 2 + (5 * label + random.Below(3)) % (vocabulary - 2);
        }
      }
      if (!labels_tokens) labels.As<int64_t>()[i] = label;
    }
    return {tokens, labels};
  }
};

struct Experiment {
  JobSpec job;
  TinySet set;
  int stages = 1;
  std::string schedule = "gpipe";
};

struct Outcome {
  std::map<std::string, std::vector<float>> weights;
  std::vector<double> losses;  // mean, one a step
  // Each layer's, after the step that was asked for.
  std::vector<std::vector<uint8_t>> states;
};

inline ModelDescription Describe(const Experiment& experiment) {
  auto model = DescribeModel(experiment.job.model, experiment.set.shape,
                             experiment.set.classes);
  EXPECT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(SkipBlocksOf(experiment.job, *model).ok());
  return *std::move(model);
}

// The engine of a stage; of the whole model unless told.
inline std::unique_ptr<StageEngine> MakeStage(const Experiment& experiment,
                                              int stage = 0, int stages = 1,
                                              bool stashes = false,
                                              bool flat = false) {
  SetComputeThreads(1);
  const ModelDescription model = Describe(experiment);
  const auto ranges = CutEqually(static_cast<int>(model.layers.size()), stages);
  EXPECT_TRUE(ranges.ok()) << ranges.status();
  EngineOptions options{model, (*ranges)[stage], experiment.job.train, stage,
                        stages};
  options.precision = PrecisionOf(experiment.job.precision);
  options.stashes = stashes;
  options.flat_gradient = flat;
  auto engine = MakeTorchEngine(options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

// Parameters and buffers by name, counts as floats.
inline std::map<std::string, std::vector<float>> WeightsOf(
    StageEngine& engine) {
  std::map<std::string, std::vector<float>> all;
  const auto weights = engine.Weights();
  EXPECT_TRUE(weights.ok()) << weights.status();
  for (const NamedTensor& weight : *weights) {
    std::vector<float>& values = all[weight.name];
    if (weight.tensor.dtype == DType::kI64) {
      for (const int64_t value : weight.tensor.As<int64_t>()) {
        values.push_back(static_cast<float>(value));
      }
    } else {
      const auto floats = weight.tensor.As<float>();
      values.assign(floats.begin(), floats.end());
    }
  }
  return all;
}

// Walks `instructions` of all workers until all are done; a worker whose next
// instruction must wait is passed over.
class InProcessPipeline {
 public:
  explicit InProcessPipeline(const Experiment& experiment,
                             int64_t first_step = 0)
      : experiment_(experiment),
        walk_(experiment.job.train, experiment.set.samples, 0, first_step) {
    for (int s = 0; s < experiment.stages; ++s) {
      engines_.push_back(MakeStage(experiment, s, experiment.stages));
    }
    const ModelDescription model = Describe(experiment);
    const auto ranges =
        CutEqually(static_cast<int>(model.layers.size()), experiment.stages);
    Tie(model, *ranges);
  }

  // states: as in Outcome.
  void Restore(const std::vector<std::vector<uint8_t>>& states) {
    auto next = states.begin();
    for (const auto& engine : engines_) {
      const auto end = next + std::ssize(engine->State());
      const absl::Status restored = engine->RestoreState(
          std::vector<absl::Span<const uint8_t>>(next, end));
      EXPECT_TRUE(restored.ok()) << restored;
      next = end;
    }
  }

  // The outcome has the states after `copied_step` steps; 0: none.
  Outcome Run(int64_t copied_step = 0) {
    Outcome outcome;
    while (const std::optional<WalkBatch> batch = walk_.Next()) {
      loss_ = 0;
      labels_ = 0;
      RunBatch(*batch);
      outcome.losses.push_back(loss_ / static_cast<double>(labels_));
      if (batch->info.step + 1 == copied_step) CopyStates(outcome);
    }
    for (const auto& engine : engines_) {
      outcome.weights.merge(WeightsOf(*engine));
    }
    return outcome;
  }

 private:
  // All stages are of one worker, so that nothing goes over its link.
  void Tie(const ModelDescription& model,
           const std::vector<LayerRange>& ranges) {
    RunOrder order;
    MemoryWiring wiring;
    std::map<int, StageEngine*> engines;
    for (size_t s = 0; s < ranges.size(); ++s) {
      order.stages.push_back(
          {static_cast<int32_t>(s), ranges[s], WorkerId{1}, "", ""});
      wiring.workers_of.push_back({0});
      engines[static_cast<int>(s)] = engines_[s].get();
    }
    wiring.bounds.activation_frames.assign(ranges.size() - 1, 1);
    wiring.bounds.gradient_frames.assign(ranges.size() - 1, 1);
    auto links = MakeMemoryLinks(wiring);
    ASSERT_TRUE(links.ok()) << links.status();
    link_ = std::move(links->front());
    ties_.emplace(TiesOf(order, model), static_cast<int>(ranges.size()),
                  engines, *link_);
  }

  void CopyStates(Outcome& outcome) const {
    for (const auto& engine : engines_) {
      for (const ScatteredBytes& state : engine->State()) {
        state.CopyTo(outcome.states.emplace_back(state.size()).data());
      }
    }
  }

  void RunBatch(const WalkBatch& batch) {
    std::vector<int> worker_of;
    for (int s = 0; s < experiment_.stages; ++s) worker_of.push_back(s);
    const auto schedule =
        MakeSchedule({experiment_.schedule, experiment_.stages,
                      batch.info.micro_batches, true, worker_of});
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    std::vector<size_t> next(schedule->workers.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t w = 0; w < next.size(); ++w) {
        const InstructionList& list = schedule->workers[w];
        if (next[w] == list.size() || !RunOne(batch, list[next[w]])) continue;
        ++next[w];
        moved = true;
      }
    }
    Step(batch.info);
  }

  // False when what the instruction needs is not there yet.
  bool RunOne(const WalkBatch& batch, const Instruction& instruction) {
    const auto [stage, op, micro_batch] = instruction;
    const auto key = std::make_pair(stage, micro_batch);
    switch (op) {
      case Op::kLoad:
        inputs_[key] = Load(batch, micro_batch);
        return true;
      case Op::kRecvF:
        return inputs_.count(key) > 0;
      case Op::kRecvB:
        return gradients_.count(key) > 0;
      case Op::kForward:
        Forward(batch.info, stage, micro_batch);
        return true;
      case Op::kBackward:
      case Op::kBackwardInput:
        Backward(batch.info, instruction);
        return true;
      case Op::kBackwardWeight:
        EXPECT_TRUE(
            engines_[stage]->BackwardWeight(batch.info, micro_batch).ok());
        return true;
      default:
        return true;  // sends are immediate; the step is taken by all at once
    }
  }

  TensorList Load(const WalkBatch& batch, int micro_batch) const {
    const TrainSpec& train = experiment_.job.train;
    const auto order =
        SampleOrder(train.seed, batch.epoch, experiment_.set.samples);
    return experiment_.set.Take(
        order, batch.first + micro_batch * train.micro_batch,
        MicroBatchSamples(batch.info, train.micro_batch, micro_batch));
  }

  void Forward(const BatchInfo& batch, int stage, int micro_batch) {
    auto result = engines_[stage]->Forward(
        batch, micro_batch,
        std::move(inputs_.extract({stage, micro_batch}).mapped()));
    ASSERT_TRUE(result.ok()) << result.status();
    if (result->loss) {
      loss_ += result->loss->loss;
      labels_ += result->loss->samples;
    }
    if (stage + 1 < experiment_.stages) {
      inputs_[{stage + 1, micro_batch}] = std::move(result->output);
    }
  }

  void Backward(const BatchInfo& batch, const Instruction& instruction) {
    const auto [stage, op, micro_batch] = instruction;
    TensorList gradient = std::exchange(gradients_[{stage, micro_batch}], {});
    StageEngine& engine = *engines_[stage];
    auto result =
        op == Op::kBackward
            ? engine.Backward(batch, micro_batch, std::move(gradient))
            : engine.BackwardInput(batch, micro_batch, std::move(gradient));
    gradients_.erase({stage, micro_batch});
    ASSERT_TRUE(result.ok()) << result.status();
    if (stage > 0) gradients_[{stage - 1, micro_batch}] = *std::move(result);
  }

  void Step(const BatchInfo& batch) {
    std::vector<StepReport> reports;
    ASSERT_TRUE(ties_->AddGradients(batch).ok());
    for (const auto& engine : engines_) {
      auto report = engine->Report(batch);
      ASSERT_TRUE(report.ok()) << report.status();
      reports.push_back(*std::move(report));
    }
    const StepVerdict verdict =
        DecideStep(experiment_.job.train, walk_.total_steps(), reports);
    for (const auto& engine : engines_) {
      ASSERT_TRUE(engine->Apply(verdict).ok());
    }
    if (verdict.skip) return;
    ASSERT_TRUE(ties_->ShareValues(batch).ok());
  }

  const Experiment experiment_;
  BatchWalk walk_;
  std::vector<std::unique_ptr<StageEngine>> engines_;
  std::unique_ptr<Link> link_;
  std::optional<TieExchange> ties_;
  std::map<std::pair<int, int>, TensorList> inputs_;  // by stage, micro-batch
  std::map<std::pair<int, int>, TensorList>
      gradients_;  // by stage, micro-batch
  double loss_ = 0;
  int64_t labels_ = 0;
};

// One model of each family and size of block: made as small as
// SmallExperiment(), the others are the same as one of these.
inline constexpr const char* kSmallModels[] = {
    "mlp",   "lenet", "vit", "vit_b_16", "resnet18", "resnet50",
    "vgg11", "vgg16", "gpt", "bert",     "roberta",  "gnmt"};

// Two epochs of batches 8, 8 and 7 in micro-batches of 3, so that the last
// has 1 or 2 samples.
inline Experiment SmallExperiment(const std::string& model) {
  Experiment experiment;
  experiment.job.model = DefaultModel(model);
  experiment.job.model.hidden = {32, 24, 16};
  experiment.job.model.depth = 2;
  experiment.job.model.width = 16;
  experiment.job.model.heads = 2;
  experiment.job.model.patch = 7;
  // Five halvings want 32 pixels.
  if (model.rfind("vgg", 0) == 0 || model.rfind("resnet", 0) == 0) {
    experiment.set.shape = {3, 32, 32};
    experiment.job.model.width = 4;
  }
  const std::string synthetic = FindModel(model)->synthetic;
  if (synthetic != "synthetic") {
    experiment.set.shape = {8};
    experiment.set.vocabulary = 24;
    experiment.set.labels_tokens = synthetic == "synthetic-tokens";
    experiment.set.classes = experiment.set.labels_tokens ? 24 : 3;
    if (!experiment.set.labels_tokens) {
      experiment.set.padding = FindModel(model)->padding;
    }
    experiment.job.model.vocabulary = 24;
    experiment.job.model.positions = 12;
    if (synthetic == "synthetic-pairs") {
      experiment.set.pairs = true;
      experiment.set.shape = {12};
      experiment.set.classes = 24;
      experiment.set.padding = -1;
      // The third layers are the first with residuals.
      experiment.job.model.depth = 3;
    }
  }
  TrainSpec& train = experiment.job.train;
  train.epochs = 2;
  train.batch = 8;
  train.micro_batch = 3;
  train.optimizer.momentum = 0.9;
  train.learning_rate.base = 0.05;
  return experiment;
}

// SmallExperiment() with dropout, AdamW, clipping and a cosine.
inline Experiment RichExperiment(const std::string& model) {
  Experiment experiment = SmallExperiment(model);
  experiment.job.model.dropout = 0.2;
  TrainSpec& train = experiment.job.train;
  train.optimizer.name = "adamw";
  train.optimizer.momentum = 0;
  train.optimizer.weight_decay = 0.05;
  train.learning_rate = {0.003, "cosine", 2};
  train.clip_norm = 0.5;
  return experiment;
}

// On as many stages as in `cuts` and on one a layer, in each synchronous
// schedule.
inline void ExpectOnEveryCut(Experiment experiment, const Outcome& expected,
                             std::vector<int> cuts) {
  ASSERT_FALSE(expected.losses.empty());
  // A stage a layer checks every layer's shape against its description.
  cuts.push_back(static_cast<int>(Describe(experiment).layers.size()));
  for (const int stages : cuts) {
    for (const char* schedule : {"gpipe", "1f1b", "zero-bubble"}) {
      experiment.stages = stages;
      experiment.schedule = schedule;
      const Outcome cut = InProcessPipeline(experiment).Run();

      EXPECT_EQ(cut.losses, expected.losses)
          << stages << " stages, " << schedule;
      EXPECT_EQ(cut.weights, expected.weights)
          << stages << " stages, " << schedule;
    }
  }
}

inline void ExpectSameBytesOnEveryCut(const Experiment& experiment,
                                      const std::vector<int>& cuts) {
  ExpectOnEveryCut(experiment, InProcessPipeline(experiment).Run(), cuts);
}

// Two stages stop after `step` steps; three go on from their states, and end
// with the same bytes.
inline void ExpectToGoOnFromCopiedStates(Experiment experiment, int64_t step) {
  experiment.stages = 2;
  Outcome whole = InProcessPipeline(experiment).Run(step);
  experiment.stages = 3;
  InProcessPipeline rest(experiment, step);
  rest.Restore(whole.states);
  const Outcome outcome = rest.Run();
  EXPECT_EQ(outcome.weights, whole.weights);
  whole.losses.erase(whole.losses.begin(), whole.losses.begin() + step);
  EXPECT_EQ(outcome.losses, whole.losses);
}

// Names a test whose parameter is a model.
inline constexpr auto kNameOfModel = [](const auto& info) {
  return std::string(info.param);
};

}  // namespace paceline
