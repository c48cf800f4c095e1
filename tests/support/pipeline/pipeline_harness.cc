#include "tests/support/pipeline/pipeline_harness.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/os/thread.h"
#include "core/plan/plan.h"
#include "core/schedule/schedule.h"
#include "gtest/gtest.h"
#include "tests/support/pipeline/memory_link.h"
#include "worker/control/run_order.h"
#include "worker/pipeline/shared_step_gate.h"
#include "worker/pipeline/stage_runner.h"

namespace paceline {
namespace {

class Collector final : public RunObserver {
 public:
  Collector(PipelineOutcome& outcome, int worker, absl::Mutex& mutex)
      : outcome_(outcome), worker_(worker), mutex_(mutex) {}

  // Copies the state of `engine`, whose first layer this is, after that step.
  void CopyAfter(int64_t step, int first_layer, const StageEngine& engine) {
    copied_step_ = step;
    engines_[first_layer] = &engine;
  }

  void OnStep(const StepVerdict& verdict, int64_t,
              const std::optional<v1::StepRecord>& record) override {
    absl::MutexLock lock(&mutex_);
    // Each replica of the last stage tells of it.
    if (record.has_value() && (outcome_.steps.empty() ||
                               outcome_.steps.back().step() < record->step())) {
      outcome_.steps.push_back(*record);
    }
    for (const auto& [first_layer, engine] : engines_) {
      outcome_.hashes[{first_layer, verdict.step}].insert(engine->StateHash());
    }
    if (verdict.step + 1 != copied_step_) return;
    for (const auto& [first_layer, engine] : engines_) {
      int layer = first_layer;
      for (const ScatteredBytes& state : engine->State()) {
        std::vector<uint8_t>& copy = outcome_.states[layer++];
        copy.resize(state.size());
        state.CopyTo(copy.data());
      }
    }
  }
  void OnSkippedUpdate(int64_t, const std::string&) override {
    absl::MutexLock lock(&mutex_);
    ++outcome_.skipped_updates;
  }
  void OnEvaluation(const v1::EvaluationRecord& record) override {
    absl::MutexLock lock(&mutex_);
    outcome_.evaluations.push_back(record);
  }
  void OnFlow(const v1::FlowTimes& flow, int64_t, bool) override {
    absl::MutexLock lock(&mutex_);
    outcome_.flows[worker_] = flow;
  }
  void OnBatch(std::optional<absl::Duration>,
               const std::vector<v1::StageTime>& times) override {
    absl::MutexLock lock(&mutex_);
    for (const v1::StageTime& time : times) {
      if (time.has_trace()) outcome_.traces[time.stage()] = time.trace();
      if (!time.has_versions()) continue;
      const v1::StageVersions& more = time.versions();
      v1::StageVersions& sum = outcome_.versions[time.stage()];
      sum.set_updates(sum.updates() + more.updates());
      sum.set_skipped_updates(sum.skipped_updates() + more.skipped_updates());
      sum.set_staleness(sum.staleness() + more.staleness());
      sum.set_versions(std::max(sum.versions(), more.versions()));
      sum.set_version_bytes(
          std::max(sum.version_bytes(), more.version_bytes()));
    }
  }
  void OnUnreadable(const v1::Unreadable& unreadable) override {
    absl::MutexLock lock(&mutex_);
    outcome_.unreadable = unreadable;
  }
  void OnProgress(const Instruction& done, const BatchInfo& batch) override {
    absl::MutexLock lock(&mutex_);
    if (batch.phase != BatchPhase::kTrain) return;
    outcome_.instructions[done.stage].push_back(done);
  }

 private:
  PipelineOutcome& outcome_;
  const int worker_;
  absl::Mutex& mutex_;
  int64_t copied_step_ = 0;
  std::map<int, const StageEngine*> engines_;  // by their first layer
};

// Keeps predictions by name.
class KeepPredictions final : public PredictionSink {
 public:
  using Keep = std::function<void(const TensorPart&)>;
  explicit KeepPredictions(Keep keep) : keep_(std::move(keep)) {}
  absl::Status Add(std::vector<TensorPart> parts,
                   const std::optional<v1::PredictedMark>& /*mark*/) override {
    for (const TensorPart& part : parts) keep_(part);
    return absl::OkStatus();
  }

 private:
  const Keep keep_;
};

// One worker of the pipeline does this on its thread.
struct WorkerJob {
  const PipelineRequest& request;
  const RunOrder& order;
  int worker;
  Link& link;
  std::shared_ptr<SharedStepGate>
      shared_gate;  // shared by all workers' gate clients
  std::unique_ptr<BatchSource> source;
  PipelineOutcome& outcome;
  absl::Mutex& mutex;
};

absl::Status RunWorker(WorkerJob& job) {
  const SystemClock clock;
  TimeMeter meter(clock);
  Collector collector(job.outcome, job.worker, job.mutex);
  const std::unique_ptr<GateClient> gate = MakeLocalGateClient(job.shared_gate);
  std::map<int, std::unique_ptr<StageEngine>> engines;
  const auto keep = [&job](const TensorPart& part) {
    absl::MutexLock lock(&job.mutex);
    std::vector<uint8_t>& whole = job.outcome.weights[part.name];
    const auto end =
        static_cast<size_t>(part.offset_bytes + part.tensor.bytes());
    whole.resize(std::max(whole.size(), end));
    std::copy_n(part.tensor.data.get(), part.tensor.bytes(),
                whole.begin() + part.offset_bytes);
  };
  KeepPredictions sink(keep);
  Predictions predictions(job.request.spec.infer.outputs,
                          TurnsOf(job.order, WorkerId{job.worker}), sink);
  StageRunnerParts parts{{},           job.link, *gate, job.source.get(),
                         &predictions, meter,    clock, collector};
  for (const int stage : StagesOf(job.order, WorkerId{job.worker})) {
    const EngineOptions options =
        EngineOptionsOf(job.order, job.request.model, stage);
    PACELINE_ASSIGN_OR_RETURN(engines[stage], job.request.make_engine(options));
    parts.engines[stage] = engines[stage].get();
    const LayerRange& layers = options.layers;
    collector.CopyAfter(job.request.copied_step, layers.first, *engines[stage]);
    if (job.request.states.empty()) continue;
    std::vector<absl::Span<const uint8_t>> states;
    for (int i = layers.first; i < layers.last; ++i) {
      states.push_back(job.request.states.at(i));
    }
    PACELINE_RETURN_IF_ERROR(engines[stage]->RestoreState(states));
  }
  StageRunner runner(
      RunnerOptions(job.order, job.request.model, WorkerId{job.worker}),
      std::move(parts));
  PACELINE_RETURN_IF_ERROR(runner.Run());
  if (IsInference(job.request.spec)) return absl::OkStatus();
  for (const auto& [stage, engine] : engines) {
    PACELINE_ASSIGN_OR_RETURN(const std::vector<NamedTensor> weights,
                              engine->Weights());
    for (const NamedTensor& weight : weights) {
      keep({weight.name, weight.tensor});
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<RunOrder> MakeOrder(const PipelineRequest& request) {
  PACELINE_ASSIGN_OR_RETURN(
      const std::vector<LayerRange> ranges,
      CutEqually(static_cast<int>(request.model.layers.size()),
                 static_cast<int>(request.worker_of.size())));
  RunOrder order;
  order.fence = {JobId{1}, 1, 1};
  order.spec = request.spec;
  if (IsInference(request.spec)) order.base.step = request.first_step;
  for (size_t stage = 0; stage < ranges.size(); ++stage) {
    std::vector<int> holders = {request.worker_of[stage]};
    if (!request.replicas.empty()) {
      const std::vector<int>& more = request.replicas[stage];
      holders.insert(holders.end(), more.begin(), more.end());
    }
    for (const int worker : holders) {
      order.stages.push_back({static_cast<int32_t>(stage), ranges[stage],
                              WorkerId{worker}, "", ""});
    }
    order.routes.push_back(
        MakeRouteTable(request.shares.empty() || request.shares[stage].empty()
                           ? std::vector<double>(holders.size(), 1)
                           : request.shares[stage]));
  }
  return order;
}

std::vector<std::vector<int>> HoldersOf(const RunOrder& order) {
  std::vector<std::vector<int>> holders(StageCount(order));
  for (const StagePlacement& place : order.stages) {
    holders[place.stage].push_back(static_cast<int>(place.worker.value));
  }
  return holders;
}

}  // namespace

absl::StatusOr<PipelineOutcome> RunPipeline(const PipelineRequest& request) {
  PACELINE_ASSIGN_OR_RETURN(const RunOrder order, MakeOrder(request));
  PACELINE_ASSIGN_OR_RETURN(
      const RunWiring wiring,
      MakeRunWiring(order, request.model, order.stages[0].worker));
  std::vector<RouteTable> routes;
  std::vector<int> replicas;
  for (const StageWiring& stage : wiring.stages) {
    routes.push_back(stage.route);
    replicas.push_back(static_cast<int>(stage.replicas.size()));
  }
  PACELINE_ASSIGN_OR_RETURN(
      std::vector<std::unique_ptr<Link>> links,
      MakeMemoryLinks(
          {HoldersOf(order), wiring.bounds, order.fence, wiring.ties, routes}));
  std::map<int, std::unique_ptr<BatchSource>> sources;
  int64_t total_steps = 0;
  for (const StagePlacement& place : ReplicasOf(order, 0)) {
    const auto worker = static_cast<int>(place.worker.value);
    PACELINE_ASSIGN_OR_RETURN(
        sources[worker],
        request.open_data(request.spec, TurnsOf(order, place.worker)));
    sources[worker]->BeginAt(request.first_step, /*evaluated=*/false);
    total_steps = sources[worker]->total_steps();
  }
  const auto shared_gate = std::make_shared<SharedStepGate>(
      request.spec.train, total_steps, replicas, request.first_step);

  PipelineOutcome outcome;
  absl::Mutex mutex;
  absl::Status first_error;
  {
    std::vector<Thread> threads;
    for (size_t worker = 0; worker < links.size(); ++worker) {
      auto job = std::make_shared<WorkerJob>(WorkerJob{
          request, order, static_cast<int>(worker), *links[worker], shared_gate,
          std::move(sources[static_cast<int>(worker)]), outcome, mutex});
      threads.emplace_back("worker", [job, &mutex, &first_error, &links] {
        const absl::Status status = RunWorker(*job);
        if (status.ok()) return;
        {
          absl::MutexLock lock(&mutex);
          if (first_error.ok()) first_error = status;
        }
        job->shared_gate->Cancel(status);
        for (const auto& link : links) link->Cancel(status);
      });
    }
  }
  PACELINE_RETURN_IF_ERROR(first_error);
  return outcome;
}

void ExpectToGoOn(PipelineRequest request, int64_t step,
                  const std::vector<int>& worker_of) {
  request.copied_step = step;
  const auto whole = RunPipeline(request).value();
  request.copied_step = 0;
  request.first_step = step;
  request.states = whole.states;
  request.worker_of = worker_of;
  request.spec.pipeline.stages = static_cast<int32_t>(worker_of.size());

  const auto rest = RunPipeline(request).value();

  EXPECT_EQ(rest.weights, whole.weights) << "from step " << step;
  ASSERT_EQ(rest.steps.size() + step, whole.steps.size());
  for (size_t i = 0; i < rest.steps.size(); ++i) {
    const v1::StepRecord& expected = whole.steps[step + i];
    EXPECT_EQ(rest.steps[i].step(), expected.step());
    EXPECT_EQ(rest.steps[i].loss(), expected.loss()) << expected.step();
    EXPECT_EQ(rest.steps[i].learning_rate(), expected.learning_rate());
  }
  ASSERT_FALSE(rest.evaluations.empty());
  EXPECT_EQ(rest.evaluations.back().loss(), whole.evaluations.back().loss());
}

}  // namespace paceline
