// The agent's part for a run: what it needs is made, joined and, in the end,
// handed over.
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/model/description.h"
#include "core/obs/log.h"
#include "worker/agent.h"

namespace paceline {
namespace {

constexpr int kWarmUps = 2;

}  // namespace

// What the variables ask for and what a library makes of them may differ: a
// build without these kernels, a CPU that hides them.  The job's bytes depend
// on it, so it fails rather than computes with something else.
absl::Status Agent::CheckActiveCapability(const RunOrder& order) const {
  if (options_.active_capability.empty() ||
      options_.active_capability == order.cpu_capability) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the job computes with cpu_capability ", order.cpu_capability,
      ", but this worker's kernels run at ", options_.active_capability,
      ": submit it with --set cpu_capability=", options_.active_capability,
      ", or stop this worker"));
}

absl::Status Agent::RunJob(const RunOrder& order) {
  PACELINE_RETURN_IF_ERROR(CheckSpecOfOrder(order.spec));
  WorkerId self;
  {
    absl::MutexLock lock(&mutex_);
    self = self_;
  }
  PACELINE_ASSIGN_OR_RETURN(
      const ModelDescription model,
      DescribeModel(order.spec.model, order.spec.data.shape,
                    order.spec.data.classes));
  PACELINE_RETURN_IF_ERROR(order.group.has_value()
                               ? CheckGroupOrder(order, model, self).status()
                               : CheckOrder(order, model, self));
  if (NeedsRestart(order.cpu_capability)) {
    return absl::CancelledError("the process is starting anew");
  }
  PACELINE_RETURN_IF_ERROR(CheckActiveCapability(order));
  return order.group.has_value() ? ComputeInGroup(order, model, self)
                                 : Compute(order, model, self);
}

absl::StatusOr<std::map<int, std::unique_ptr<StageEngine>>> Agent::MakeEngines(
    const RunOrder& order, const ModelDescription& model, WorkerId self) {
  std::map<int, std::unique_ptr<StageEngine>> engines;
  for (const int stage : StagesOf(order, self)) {
    PACELINE_ASSIGN_OR_RETURN(
        engines[stage],
        factory_.MakeEngine(EngineOptionsOf(order, model, stage)));
    if (IsInference(order.spec)) {
      PACELINE_RETURN_IF_ERROR(WarmUp(order, model, stage, *engines[stage]));
    }
    if (order.spec.model.weights.empty()) continue;
    PACELINE_ASSIGN_OR_RETURN(
        const std::vector<NamedTensor> weights,
        factory_.ReadWeights(order.spec.model, model,
                             ReplicasOf(order, stage).front().layers));
    PACELINE_RETURN_IF_ERROR(engines[stage]->SetWeights(weights));
    Log(LogLevel::kInfo, "stage begins with weights from a file",
        {{"stage", stage},
         {"tensors", static_cast<int64_t>(weights.size())},
         {"file", order.spec.model.weights}});
  }
  return engines;
}

absl::Status Agent::Compute(const RunOrder& order,
                            const ModelDescription& model, WorkerId self) {
  std::map<int, std::unique_ptr<StageEngine>> engines;
  std::unique_ptr<BatchSource> source;
  std::shared_ptr<RunConnections> connections;
  {
    const ScopedPart part(time_, TimePart::kOrders);
    factory_.SetThreads(order.threads);
    PACELINE_ASSIGN_OR_RETURN(engines, MakeEngines(order, model, self));
    PACELINE_ASSIGN_OR_RETURN(const RunWiring wiring,
                              MakeRunWiring(order, model, self));
    PACELINE_ASSIGN_OR_RETURN(predicted_memory_bytes_,
                              PredictBytes(order, model, self));
    PACELINE_ASSIGN_OR_RETURN(RunConnections opened, factory_.Connect(wiring));
    const auto closed = std::make_shared<absl::Notification>();
    connections = std::shared_ptr<RunConnections>(
        new RunConnections(std::move(opened)), [closed](RunConnections* last) {
          delete last;
          closed->Notify();
        });
    if (engines.contains(0)) {
      PACELINE_ASSIGN_OR_RETURN(
          source, factory_.OpenData(order.spec, TurnsOf(order, self)));
      source->BeginAt(order.restore_step);
      // Replicas of the first stage would each have one, and nobody who asks.
      if (!IsInference(order.spec)) {
        PACELINE_RETURN_IF_ERROR(factory_.OpenGate(
            order.fence, {order.spec.train, source->total_steps()}));
      }
    }
    std::shared_ptr<CancelToken> cancel;
    {
      absl::MutexLock lock(&mutex_);
      connections_ = connections;
      closed_ = closed;
      cancel = cancel_;
      if (source != nullptr && IsInference(order.spec)) {
        const int64_t samples = source->test_samples();
        const int64_t micro_batch = order.spec.infer.micro_batch;
        run_->total_samples = samples;
        run_->steps = (samples + micro_batch - 1) / micro_batch;
      } else if (source != nullptr) {
        run_->steps = source->total_steps();
      }
    }
    // Whoever cancels from here on finds the connections; who did so before
    // has left word.
    PACELINE_RETURN_IF_ERROR(cancel->status());
  }
  SetPhase(RunPhase::kRunning);

  StageRunnerParts parts{{},
                         *connections->link,
                         *connections->gate,
                         source.get(),
                         nullptr,
                         time_,
                         clock_,
                         *this};
  for (const auto& [stage, engine] : engines) {
    parts.engines[stage] = engine.get();
  }
  Predictions predictions(order.spec.infer.outputs, options_.memory_bytes);
  parts.predictions = &predictions;
  PACELINE_RETURN_IF_ERROR(
      StageRunner(RunnerOptions(order, model, self), std::move(parts)).Run());
  return IsInference(order.spec) ? HandOver(order, predictions)
                                 : HandOver(order, engines);
}

// What a library sets up for shapes that it sees for the first time, and
// memory that is touched for the first time, are not the first sample's.
absl::Status Agent::WarmUp(const RunOrder& order, const ModelDescription& model,
                           int stage, StageEngine& engine) {
  const int64_t samples = order.spec.infer.micro_batch;
  const auto zeros = [samples](DType dtype, const Shape& sample) {
    Shape shape = {samples};
    shape.insert(shape.end(), sample.begin(), sample.end());
    Tensor tensor = Tensor::Allocate(dtype, std::move(shape));
    std::memset(tensor.data.get(), 0, tensor.bytes());
    return tensor;
  };
  const int first = ReplicasOf(order, stage).front().layers.first;
  TensorList input;
  for (const SampleTensor& tensor : InputTensors(model, first)) {
    input.push_back(zeros(tensor.dtype, tensor.shape));
  }
  input.push_back(zeros(DType::kI64, model.label_shape));
  BatchInfo batch;
  batch.phase = BatchPhase::kEvaluate;
  batch.samples = samples;
  for (int i = 0; i < kWarmUps; ++i) {
    PACELINE_RETURN_IF_ERROR(engine.Forward(batch, 0, input).status());
  }
  return absl::OkStatus();
}

absl::Status Agent::HandOver(const RunOrder& order, Predictions& predictions) {
  if (predictions.samples() == 0) return absl::OkStatus();
  predictions.WarnOfNoClass();
  const ScopedPart part(time_, TimePart::kSnapshot);
  std::shared_ptr<CancelToken> cancel;
  {
    absl::MutexLock lock(&mutex_);
    cancel = cancel_;
  }
  return factory_.UploadWeights(order.fence, predictions.Take(), *cancel);
}

absl::Status Agent::HandOver(
    const RunOrder& order,
    const std::map<int, std::unique_ptr<StageEngine>>& engines) {
  const ScopedPart part(time_, TimePart::kSnapshot);
  for (const auto& [stage, engine] : engines) {
    PACELINE_RETURN_IF_ERROR(HandOver(order, *engine));
  }
  return absl::OkStatus();
}

absl::Status Agent::HandOver(const RunOrder& order, StageEngine& engine) {
  std::shared_ptr<CancelToken> cancel;
  {
    absl::MutexLock lock(&mutex_);
    cancel = cancel_;
  }
  PACELINE_ASSIGN_OR_RETURN(const std::vector<NamedTensor> weights,
                            engine.Weights());
  std::vector<TensorPart> whole;
  for (const NamedTensor& weight : weights) {
    whole.push_back({weight.name, weight.tensor});
  }
  return factory_.UploadWeights(order.fence, whole, *cancel);
}

}  // namespace paceline
