// Stages with replicas, and members of a group, with LibTorch's engine: what
// they train is what one process trains, but for the order of their sums.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/synchronization/mutex.h"
#include "core/model/catalog.h"
#include "core/optim/optimizer.h"
#include "core/schedule/route.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_checks.h"
#include "tests/torch/stream_request.h"
#include "tests/worker/rounds/training_group.h"

namespace paceline {
namespace {

using ::testing::FloatNear;
using ::testing::Pointwise;
using ::testing::SizeIs;

using Counts = std::vector<int>;  // [stages], of replicas

// An engine of LibTorch, of which the process has several: dropout draws from
// one generator for all threads, so that one computes at a time.
//
// With several replicas it is an engine of one process that adds up as they do:
// the gradients of each one's micro-batches, and then these sums in their
// order.
class SharedEngine final : public StageEngine {
 public:
  SharedEngine(const EngineOptions& options, int replicas)
      : engine_(MakeTorchEngine(options).value()),
        route_(MakeRouteTable(std::vector<double>(replicas, 1))) {
    if (!options.flat_gradient) return;
    MakeFlat(options);
    sums_.assign(replicas, std::vector<float>(Flat().size(), 0.0f));
  }

  absl::StatusOr<ForwardResult> Forward(const BatchInfo& batch, int micro_batch,
                                        TensorList input) override {
    const absl::MutexLock lock(&mutex_);
    const Turn turn(*this, batch, micro_batch);
    return engine_->Forward(batch, micro_batch, std::move(input));
  }
  absl::StatusOr<TensorList> Backward(const BatchInfo& batch, int micro_batch,
                                      TensorList output_gradient) override {
    const Turn turn(*this, batch, micro_batch);
    return engine_->Backward(batch, micro_batch, std::move(output_gradient));
  }
  absl::StatusOr<StepReport> Report(const BatchInfo& batch) override {
    if (is_flat()) {
      const absl::Span<float> sum = *FlatGradient();
      if (sums_.size() > 1) {
        absl::c_fill(sum, 0.0f);
        for (const std::vector<float>& each : sums_) AddTo(sum, each);
      }
      absl::c_copy(sum, Flat().begin());
      for (std::vector<float>& each : sums_) each.assign(each.size(), 0.0f);
    }
    return engine_->Report(batch);
  }
  absl::StatusOr<TensorList> BackwardInput(const BatchInfo&, int,
                                           TensorList) override {
    return absl::UnimplementedError("no replicas do");
  }
  absl::Status BackwardWeight(const BatchInfo&, int) override {
    return absl::UnimplementedError("no replicas do");
  }
  absl::StatusOr<TiedTensors> Tied(const std::string& name,
                                   bool owner) override {
    return engine_->Tied(name, owner);
  }
  absl::Status Apply(const StepVerdict& verdict) override {
    if (is_flat()) {
      const absl::Span<float> sum = *FlatGradient();
      absl::c_fill(sum, 0.0f);
    }
    return engine_->Apply(verdict);
  }
  absl::Status UseVersion(int64_t version) override {
    return engine_->UseVersion(version);
  }
  StashReading Stash() const override { return engine_->Stash(); }
  absl::StatusOr<std::vector<NamedTensor>> Weights() override {
    return engine_->Weights();
  }
  absl::Status SetWeights(const std::vector<NamedTensor>& weights) override {
    return engine_->SetWeights(weights);
  }
  std::vector<ScatteredBytes> State() const override {
    return engine_->State();
  }

 private:
  // While a micro-batch is computed the engine's sum is that of its replica.
  class Turn {
   public:
    Turn(SharedEngine& engine, const BatchInfo& batch, int micro_batch)
        : engine_(engine) {
      if (!engine.is_flat() || batch.phase != BatchPhase::kTrain) return;
      sum_ = &engine.sums_[engine.route_.ReplicaOf(micro_batch)];
      absl::c_copy(*sum_, engine.Flat().begin());
    }
    ~Turn() {
      if (sum_ == nullptr) return;
      const absl::Span<float> flat = engine_.Flat();
      sum_->assign(flat.begin(), flat.end());
      absl::c_copy(flat, engine_.FlatGradient()->begin());
    }

   private:
    SharedEngine& engine_;
    std::vector<float>* sum_ = nullptr;
  };

  absl::Span<float> Flat() { return engine_->FlatGradient().value(); }
  void AbandonStep() override { engine_->AbandonStep(); }

  static inline absl::Mutex mutex_;
  const std::unique_ptr<StageEngine> engine_;
  const RouteTable route_;
  std::vector<std::vector<float>> sums_;  // [replicas]
};

// Two epochs of two batches of eight micro-batches and one of two, so that some
// replicas have none.  Steps are so small that rounding does not grow.
PipelineRequest SmallJob(const std::string& model) {
  PipelineRequest request =
      StreamRequest(model == "resnet18" ? model : "lenet", {0});
  JobSpec& spec = request.spec;
  spec.model = DefaultModel(model);
  spec.model.width = model == "resnet18" ? 4 : 16;
  spec.model.depth = 2;
  spec.model.heads = 2;
  spec.model.patch = 7;
  if (model != "resnet18") spec.model.dropout = 0.2;
  spec.data.train_samples = 2 * 48 + 12;
  spec.data.test_samples = 6;
  spec.train.epochs = 2;
  spec.train.batch = 48;
  spec.train.micro_batch = 6;
  spec.train.learning_rate.base = 0.002;
  spec.train.clip_norm = 2;
  spec.train.optimizer.momentum = 0.9;
  spec.pipeline.schedule = "gpipe";
  request.model =
      DescribeModel(spec.model, spec.data.shape, spec.data.classes).value();
  request.make_engine = [](const EngineOptions& options)
      -> absl::StatusOr<std::unique_ptr<StageEngine>> {
    return std::make_unique<SharedEngine>(options, 1);
  };
  return request;
}

// Describes the model anew, of which `only` trains.
void Change(PipelineRequest& request, const std::string& only) {
  JobSpec& spec = request.spec;
  spec.model.only = only;
  request.model =
      DescribeModel(spec.model, spec.data.shape, spec.data.classes).value();
}

PipelineRequest WithReplicas(PipelineRequest request, const Counts& counts,
                             const std::string& schedule) {
  const auto stages = static_cast<int>(counts.size());
  request.spec.pipeline.stages = stages;
  request.spec.pipeline.schedule = schedule;
  int next = stages;
  request.worker_of.clear();
  for (int stage = 0; stage < stages; ++stage) {
    request.worker_of.push_back(stage);
    std::vector<int>& others = request.replicas.emplace_back();
    for (int i = 1; i < counts[stage]; ++i) others.push_back(next++);
  }
  return request;
}

// All stages on one worker.
PipelineRequest InOneProcess(PipelineRequest request, const Counts& counts) {
  request.spec.pipeline.stages = static_cast<int32_t>(counts.size());
  request.worker_of.assign(counts.size(), 0);
  request.make_engine = [counts](EngineOptions options)
      -> absl::StatusOr<std::unique_ptr<StageEngine>> {
    options.flat_gradient = counts[options.stage] > 1;
    return std::make_unique<SharedEngine>(options, counts[options.stage]);
  };
  return request;
}

void ExpectLosses(const PipelineOutcome& outcome,
                  const PipelineOutcome& expected) {
  ASSERT_THAT(outcome.steps, SizeIs(expected.steps.size()));
  for (size_t i = 0; i < expected.steps.size(); ++i) {
    EXPECT_NEAR(outcome.steps[i].loss(), expected.steps[i].loss(), 1e-5);
    EXPECT_EQ(outcome.steps[i].samples(), expected.steps[i].samples());
  }
  ASSERT_FALSE(expected.evaluations.empty());
  EXPECT_NEAR(outcome.evaluations.back().loss(),
              expected.evaluations.back().loss(), 1e-5);
}

class Replicas : public ::testing::TestWithParam<const char*> {};

TEST_P(Replicas, TrainToTheLossesOfOneProcess) {
  const PipelineRequest job = SmallJob(GetParam());
  const auto alone = Value(RunPipeline(job));
  ASSERT_GT(alone.steps[0].gradient_norm(), job.spec.train.clip_norm)
      << "nothing is clipped";

  for (const char* schedule : {"gpipe", "1f1b", "interleaved-1f1b"}) {
    for (const Counts& counts : {Counts{3, 2, 1}, Counts{1, 3}}) {
      const auto outcome =
          Value(RunPipeline(WithReplicas(job, counts, schedule)));

      ExpectLosses(outcome, alone);
    }
  }
}

// Even where rounding decides, as at the maximum of a pool, or in AdamW where a
// gradient is nothing but rounding.
TEST_P(Replicas, EndWithTheBytesOfOneProcessThatAddsInTheirOrder) {
  PipelineRequest job = SmallJob(GetParam());
  job.spec.train.learning_rate.base = 0.01;
  for (const char* optimizer : {"sgd", "adamw"}) {
    job.spec.train.optimizer = {.name = optimizer};
    for (const Counts& counts : {Counts{3, 2, 1}, Counts{1, 3}}) {
      const auto alone = Value(RunPipeline(InOneProcess(job, counts)));

      const auto outcome =
          Value(RunPipeline(WithReplicas(job, counts, "1f1b")));

      EXPECT_EQ(outcome.weights, alone.weights) << optimizer;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OfAModel, Replicas,
                         ::testing::Values("lenet", "vit", "resnet18"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

// The replicas of a stage that trains nothing have nothing to agree on but
// labels.
TEST(FrozenStage, HasReplicasThatTrainToTheLossesOfOneProcess) {
  PipelineRequest job = SmallJob("vit");
  Change(job, "last-2");
  const auto alone = Value(RunPipeline(job));

  const auto outcome = Value(RunPipeline(WithReplicas(job, {2, 1, 1}, "1f1b")));

  ExpectLosses(outcome, alone);
}

void ExpectAGroupToTrainAsOneProcess(PipelineRequest job) {
  job.spec.data.train_samples = 96;
  job.spec.train.epochs = 0;
  // Later a last bit decides on a ReLU or a maximum, on some CPUs more often.
  job.spec.train.steps = 2;
  job.spec.train.clip_norm = 0;
  const auto alone = Value(RunPipeline(job));
  job.spec.aggregation.mode = "rolling";
  job.spec.aggregation.shards = 2;
  job.spec.aggregation.deadline = 30;

  TrainingGroup group(job.spec, {1, 2, 1}, MakeTorchEngine);
  group.TrainToEqualStates();

  for (const NamedTensor& weight : group.trainer(0).Weights()) {
    if (weight.tensor.dtype != DType::kF32) continue;
    const std::vector<uint8_t>& expected = alone.weights.at(weight.name);
    EXPECT_THAT(weight.tensor.As<float>(),
                Pointwise(FloatNear(1e-5f),
                          absl::MakeConstSpan(
                              reinterpret_cast<const float*>(expected.data()),
                              expected.size() / sizeof(float))))
        << weight.name;
  }
}

// Batch normalisations fold what all members saw.
TEST(Members, OfAGroupTrainAResnetAsOneProcessDoes) {
  ExpectAGroupToTrainAsOneProcess(SmallJob("resnet18"));
}

// Rounds have the adapters and the head alone.
TEST(Members, OfAGroupTrainAdaptersAsOneProcessDoes) {
  PipelineRequest job = SmallJob("vit");
  job.spec.model.dropout = 0;
  job.spec.model.lora.rank = 2;
  Change(job, kTrainsAll);
  ExpectAGroupToTrainAsOneProcess(job);
}

}  // namespace
}  // namespace paceline
