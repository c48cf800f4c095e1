#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "core/base/errors.h"
#include "core/job/aggregation.h"
#include "core/job/job_model.h"
#include "core/obs/log.h"
#include "core/recover/run_state.h"
#include "core/rpc/convert/job_convert.h"
#include "core/rpc/convert/mirror.h"
#include "core/weights/safetensors_layout.h"
#include "worker/control/run_order.h"
#include "worker/control/worker_run.h"
#include "worker/pipeline/predictions.h"
#include "worker/pipeline/stage_runner.h"

namespace paceline {
namespace {

constexpr int kWarmUps = 2;
// How often a first stage that waits for a snapshot looks whether it is safe.
constexpr absl::Duration kLook = absl::Milliseconds(1);

class PipelineRun final : public WorkerRun, public SnapshotKeeper {
 public:
  explicit PipelineRun(RunContext context)
      : run_(std::move(context)),
        snapshots_({.every = run_.order.spec.pipeline.snapshot_every},
                   run_.order.base.step),
        marked_(run_.order.base.step),
        deposited_(run_.order.base.step) {}

  absl::Status Run() override;
  void Cancel(const absl::Status& why) override;
  void OnStop() override { stop_ = true; }
  std::optional<v1::KeptState> Leave() override;
  v1::KeptState Finish(const FinishOrder& finish) override;
  std::optional<MemberReport> Member() const override;
  std::map<WorkerId, int64_t> SentBytes() const override;

  // SnapshotKeeper.
  absl::Status OnBatch(BatchInfo& batch) override;
  void Deposit(int64_t step) override;

 private:
  absl::Status Prepare();
  StageEngines StagesByLayer() const;
  absl::Status WarmUp(int stage, StageEngine& engine) const;
  absl::Status OpenData();
  void KeepRest(const StageRunner::Rest& rest);
  bool infers() const { return IsInference(run_.order.spec); }

  const RunContext run_;
  SnapshotClock snapshots_;
  int64_t marked_;     // the newest step that stage 0 marked here
  int64_t deposited_;  // the newest step of our own
  std::atomic<bool> stop_{false};
  std::optional<v1::KeptState> kept_;
  std::optional<v1::StepRecord> held_record_;  // as StageRunner::Rest has it
  std::map<int, std::unique_ptr<StageEngine>> engines_;  // by stage
  v1::Inputs inputs_;                    // as far as they are read here
  WeightsOrigin origin_;                 // of the weights that were read here
  std::unique_ptr<BatchSource> source_;  // where stage 0 is ours
  // Where the first stage (for names) or the last one of an inference job is
  // ours.
  std::unique_ptr<PredictionUpload> upload_;

  mutable absl::Mutex mutex_;
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
  RunConnections connections_;  // constant once connected_
};

void PipelineRun::Cancel(const absl::Status& why) {
  {
    // Run() looks at the token once it is connected.
    absl::MutexLock lock(&mutex_);
    if (!connected_) return;
  }
  connections_.link->Cancel(why);
  connections_.gate->Cancel(why);
  if (upload_ != nullptr) upload_->Cancel(why);
}

// The order names workers, not processes: the coordinator knows which process
// of a worker takes part in the attempt.
std::optional<MemberReport> PipelineRun::Member() const {
  MemberReport report;
  report.turn = run_.time.Computing().has_value() ? 1 : 0;
  {
    absl::MutexLock lock(&mutex_);
    if (!connected_) return report;
  }
  std::vector<BrokenLink> broken = connections_.link->BrokenLinks();
  if (const std::optional<BrokenLink> gate = connections_.gate->broken();
      gate.has_value() && std::ranges::count(broken, gate->neighbour,
                                             &BrokenLink::neighbour) == 0) {
    broken.push_back(*gate);
  }
  for (const BrokenLink& link : broken) {
    report.peers.push_back({.peer = {link.neighbour, Incarnation{1}},
                            .broken = link.since,
                            .refused = link.refused});
  }
  return report;
}

std::map<WorkerId, int64_t> PipelineRun::SentBytes() const {
  {
    absl::MutexLock lock(&mutex_);
    if (!connected_) return {};
  }
  return connections_.link->SentBytes();
}

absl::Status PipelineRun::Run() {
  // A run that fails for it, too.
  const auto say = absl::MakeCleanup([this] {
    if (source_ != nullptr) SayUnreadable(*source_, run_.recorder);
  });
  PACELINE_RETURN_IF_ERROR(Prepare());
  run_.recorder.SetPhase(v1::RunState::PHASE_RUNNING);
  StageRunnerParts parts{{},
                         *connections_.link,
                         *connections_.gate,
                         source_.get(),
                         nullptr,
                         run_.time,
                         run_.clock,
                         run_.recorder,
                         infers() || run_.pieces == nullptr ? nullptr : this};
  for (const auto& [stage, engine] : engines_) {
    parts.engines[stage] = engine.get();
  }
  std::optional<Predictions> predictions;
  if (upload_ != nullptr && engines_.contains(StageCount(run_.order) - 1)) {
    predictions.emplace(run_.order.spec.infer.outputs,
                        TurnsOf(run_.order, run_.self), *upload_,
                        SkippedRow(run_.model, run_.order.spec.infer));
    parts.predictions = &*predictions;
  }
  StageRunner runner(RunnerOptions(run_.order, run_.model, run_.self),
                     std::move(parts));
  const absl::Status ran = runner.Run();
  if (!ran.ok() && runner.rest().has_value()) KeepRest(*runner.rest());
  PACELINE_RETURN_IF_ERROR(ran);
  if (infers()) {
    if (upload_ == nullptr) return absl::OkStatus();
    if (predictions.has_value()) predictions->WarnOfNoClass();
    const ScopedPart part(run_.time, TimePart::kSnapshot);
    return upload_->Finish();
  }
  if (const std::optional<int64_t> step = runner.stopped_at()) {
    run_.recorder.Say(
        [&](v1::RunState& report) { report.set_stopped_at(*step); });
    return absl::OkStatus();
  }
  const ScopedPart part(run_.time, TimePart::kSnapshot);
  for (const auto& [stage, engine] : engines_) {
    // All replicas have the same.
    if (ReplicasOf(run_.order, stage).front().worker != run_.self) continue;
    PACELINE_RETURN_IF_ERROR(UploadWeights(run_, *engine));
  }
  return absl::OkStatus();
}

absl::Status PipelineRun::Prepare() {
  const RunOrder& order = run_.order;
  const ScopedPart part(run_.time, TimePart::kOrders);
  run_.factory.SetThreads(order.threads);
  PACELINE_RETURN_IF_ERROR(ReadWeightInputs(run_, inputs_));
  PACELINE_RETURN_IF_ERROR(TakeInputs(run_, inputs_));
  for (const int stage : StagesOf(order, run_.self)) {
    PACELINE_ASSIGN_OR_RETURN(
        engines_[stage],
        MakeRunEngine(run_, EngineOptionsOf(order, run_.model, stage),
                      origin_));
    if (infers()) PACELINE_RETURN_IF_ERROR(WarmUp(stage, *engines_[stage]));
  }
  PACELINE_ASSIGN_OR_RETURN(RunWiring wiring,
                            MakeRunWiring(order, run_.model, run_.self));
  wiring.on_links = [&recorder = run_.recorder] { recorder.NoteChange(); };
  PACELINE_ASSIGN_OR_RETURN(const int64_t bytes,
                            PredictBytes(order, run_.model, run_.self));
  run_.recorder.SetPredictedMemory(bytes);
  // Inference has no state: its base is where the walk begins.
  if (order.base != Cut() && !infers()) {
    PACELINE_RETURN_IF_ERROR(RestoreBase(run_, StagesByLayer()));
  }
  PACELINE_ASSIGN_OR_RETURN(connections_, run_.factory.Connect(wiring));
  if (infers() &&
      (engines_.contains(0) || engines_.contains(StageCount(order) - 1))) {
    upload_ = std::make_unique<PredictionUpload>(
        [this](const std::vector<TensorPart>& parts,
               const CancelToken& cancel) {
          return run_.factory.UploadWeights(run_.order.fence, parts, cancel);
        },
        [this](const v1::PredictedMark& mark) {
          run_.recorder.AddPredicted(mark);
        });
  }
  {
    absl::MutexLock lock(&mutex_);
    connected_ = true;
  }
  if (engines_.contains(0)) PACELINE_RETURN_IF_ERROR(OpenData());
  // Whoever cancels from here on finds the connections; who did so before has
  // left word.
  return run_.cancel.status();
}

absl::Status PipelineRun::OnBatch(BatchInfo& batch) {
  const JobId job = run_.order.fence.job;
  // The last state takes the place of a worker that is lost before the weights
  // are stored.
  bool mark = batch.step + 1 == source_->total_steps();
  while (!stop_ && run_.pieces->IsNamed(job)) {
    const int64_t floor = run_.pieces->Floor(job).value_or(Cut()).step;
    // Without a flush the marked batch may still be on its way here, which a
    // wait would stop.
    if (deposited_ < marked_ ||
        !snapshots_.MustWait(batch.step, floor, run_.acknowledged(),
                             run_.clock.Now())) {
      mark = mark || snapshots_.ShouldMark(batch.step + 1, floor);
      break;
    }
    PACELINE_RETURN_IF_ERROR(run_.cancel.Pause(kLook));
  }
  batch.stops = stop_;
  batch.marked = batch.stops || (mark && run_.pieces->IsNamed(job));
  if (batch.marked) {
    marked_ = batch.step + 1;
    snapshots_.OnMarked(marked_);
  }
  return absl::OkStatus();
}

StageEngines PipelineRun::StagesByLayer() const {
  StageEngines by_layer;
  for (const auto& [stage, engine] : engines_) {
    by_layer[ReplicasOf(run_.order, stage).front().layers.first] = engine.get();
  }
  return by_layer;
}

void PipelineRun::Deposit(int64_t step) {
  run_.pieces->Deposit(run_.order.fence.job,
                       CopyState(run_, StagesByLayer(), step));
  deposited_ = step;
}

// Where stages have replicas the loss of one takes no layer's state along: the
// next attempt begins at the last step that was applied.
void PipelineRun::KeepRest(const StageRunner::Rest& rest) {
  const RunOrder& order = run_.order;
  if (infers() || run_.pieces == nullptr ||
      std::ssize(order.stages) == StageCount(order) ||
      !run_.pieces->IsNamed(order.fence.job)) {
    return;
  }
  const ScopedPart part(run_.time, TimePart::kSnapshot);
  v1::KeptState& kept = kept_.emplace();
  kept.set_job(order.fence.job.value);
  kept.set_attempt(order.fence.attempt);
  kept.set_applied(order.base.step);
  kept.set_held(rest.held);
  held_record_ = rest.record;
  if (!rest.applied.has_value()) return;
  kept.set_applied(rest.applied->step + 1);
  *kept.mutable_verdict() = ToProto(*rest.applied);
  if (kept.applied() > deposited_) Deposit(kept.applied());
}

std::optional<v1::KeptState> PipelineRun::Leave() {
  {
    absl::MutexLock lock(&mutex_);
    connected_ = false;
  }
  connections_ = {};
  source_.reset();
  return kept_;
}

v1::KeptState PipelineRun::Finish(const FinishOrder& finish) {
  v1::KeptState& kept = *kept_;
  if (finish.attempt != kept.attempt() || finish.step != kept.held() ||
      finish.step != kept.applied() + 1) {
    return kept;
  }
  kept.set_held(0);
  absl::Status applied;
  for (const auto& [stage, engine] : engines_) {
    applied.Update(engine->Apply(finish.verdict));
  }
  if (applied.ok()) {
    kept.set_applied(finish.step);
    *kept.mutable_verdict() = ToProto(finish.verdict);
    Deposit(finish.step);
    if (held_record_.has_value()) {
      held_record_->set_learning_rate(finish.verdict.learning_rate);
      held_record_->set_gradient_norm(finish.verdict.gradient_norm);
      held_record_->set_skipped(finish.verdict.skip);
      run_.recorder.AddStep(*held_record_);
    }
  }
  Log(LogLevel::kInfo, "finished a step that another replica has applied",
      {{"job", kept.job()},
       {"attempt", kept.attempt()},
       {"step", finish.step},
       {"status", applied.ToString()}});
  return kept;
}

// Some forwards on zeros, before the first sample.  A library prepares for
// shapes that it sees for the first time, and the system provides memory at its
// first use.  This keeps both out of the first sample's time.
absl::Status PipelineRun::WarmUp(int stage, StageEngine& engine) const {
  const int64_t samples = run_.order.spec.infer.micro_batch;
  const int first = ReplicasOf(run_.order, stage).front().layers.first;
  TensorList input;
  for (const SampleTensor& tensor : InputTensors(run_.model, first)) {
    input.push_back(
        Tensor::Zeros(tensor.dtype, Batched(samples, tensor.shape)));
  }
  input.push_back(
      Tensor::Zeros(DType::kI64, Batched(samples, run_.model.label_shape)));
  BatchInfo batch;
  batch.phase = BatchPhase::kEvaluate;
  batch.samples = samples;
  for (int i = 0; i < kWarmUps; ++i) {
    PACELINE_RETURN_IF_ERROR(engine.Forward(batch, 0, input).status());
  }
  return absl::OkStatus();
}

absl::Status PipelineRun::OpenData() {
  const RunOrder& order = run_.order;
  PACELINE_ASSIGN_OR_RETURN(v1::NameBytes bytes,
                            OpenRunData(run_, origin_, inputs_, source_));
  source_->BeginAt(order.base.step, order.evaluated);
  if (!infers()) {
    run_.recorder.SetTotals(source_->total_steps(), source_->test_samples(),
                            bytes);
    // The others ask the first one's gate.
    if (ReplicasOf(order, 0).front().worker != run_.self) {
      return absl::OkStatus();
    }
    return run_.factory.OpenGate(
        order.fence,
        {order.spec.train, source_->total_steps(), order.base.step});
  }
  const int64_t samples = source_->test_samples();
  const int64_t micro_batch = order.spec.infer.micro_batch;
  const SampleNames names = source_->TestNames();
  bytes.set_files(std::ssize(names.files));
  bytes.set_class_names(std::ssize(names.classes));
  run_.recorder.SetTotals((samples + micro_batch - 1) / micro_batch, samples,
                          bytes);
  std::vector<TensorPart> parts;
  for (const auto& [name, text] :
       {std::pair(kPredictedFiles, &names.files),
        std::pair(kPredictedClassNames, &names.classes)}) {
    if (text->empty()) continue;
    parts.push_back({name, Tensor::Allocate(DType::kU8, {std::ssize(*text)})});
    std::copy(text->begin(), text->end(), parts.back().tensor.data.get());
  }
  return parts.empty() ? absl::OkStatus()
                       : upload_->Add(std::move(parts), std::nullopt);
}

}  // namespace

std::unique_ptr<WorkerRun> MakePipelineRun(RunContext context) {
  return std::make_unique<PipelineRun>(std::move(context));
}

namespace {

// Whether the run begins with the weights of a file.
bool ReadsWeights(const RunOrder& order) {
  return !order.spec.model.weights.empty() &&
         (order.base == Cut() || IsInference(order.spec));
}

absl::Status TakeWeights(const RunContext& run, const ModelSpec& spec,
                         const EngineOptions& options, WeightsOrigin& origin,
                         StageEngine& engine) {
  PACELINE_ASSIGN_OR_RETURN(
      const std::vector<NamedTensor> weights,
      run.factory.ReadWeights(spec, options.model, options.layers, origin));
  for (const std::string& note : origin.notes) run.recorder.AddNote(note);
  PACELINE_RETURN_IF_ERROR(engine.SetWeights(weights));
  Log(LogLevel::kInfo, "weights were read from a file",
      {{"stage", options.stage},
       {"tensors", static_cast<int64_t>(weights.size())},
       {"file", spec.weights}});
  return absl::OkStatus();
}

// The teacher of an engine of all layers, of which `options` are; null: the job
// has none.
absl::StatusOr<std::shared_ptr<StageEngine>> MakeTeacher(
    const RunContext& run, EngineOptions options) {
  if (run.model.teacher == nullptr) return nullptr;
  options.model = *run.model.teacher;
  options.inference = true;
  options.flat_gradient = false;
  options.stashes = false;
  PACELINE_ASSIGN_OR_RETURN(std::shared_ptr<StageEngine> teacher,
                            run.factory.MakeEngine(options));
  WeightsOrigin origin;
  const absl::Status taken =
      TakeWeights(run, TeacherOf(run.order.spec), options, origin, *teacher);
  if (taken.ok()) return teacher;
  return absl::Status(
      taken.code(),
      absl::StrCat("train.distill, whose teacher is the job's model without "
                   "model.sizes: ",
                   taken.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<StageEngine>> MakeRunEngine(
    const RunContext& run, EngineOptions options, WeightsOrigin& origin) {
  PACELINE_ASSIGN_OR_RETURN(options.teacher, MakeTeacher(run, options));
  PACELINE_ASSIGN_OR_RETURN(std::unique_ptr<StageEngine> engine,
                            run.factory.MakeEngine(options));
  run.recorder.Say([bytes = UpdateBytes(options)](v1::RunState& report) {
    report.set_update_bytes(report.update_bytes() + bytes);
  });
  if (ReadsWeights(run.order)) {
    PACELINE_RETURN_IF_ERROR(
        TakeWeights(run, run.order.spec.model, options, origin, *engine));
  }
  return engine;
}

absl::StatusOr<v1::NameBytes> OpenRunData(
    const RunContext& run, const WeightsOrigin& origin, v1::Inputs& inputs,
    std::unique_ptr<BatchSource>& source) {
  const JobSpec& spec = run.order.spec;
  // The members of a group all read all.
  const Turns turns =
      run.order.group.has_value() ? Turns() : TurnsOf(run.order, run.self);
  PACELINE_ASSIGN_OR_RETURN(source, run.factory.OpenData(spec, turns));
  PACELINE_ASSIGN_OR_RETURN(
      const int64_t needed,
      PredictWithData(run.recorder.predicted_memory_bytes(), spec,
                      source->memory_bytes(), run.memory_bytes));
  run.recorder.SetPredictedMemory(needed);
  PACELINE_ASSIGN_OR_RETURN(
      const uint64_t read,
      source->Fingerprint(IsInference(spec) ? BatchPhase::kEvaluate
                                            : BatchPhase::kTrain));
  inputs.set_data(read);
  const DataFacts facts = source->Facts();
  for (const std::string& note : facts.notes) run.recorder.AddNote(note);
  PACELINE_RETURN_IF_ERROR(CheckClasses(origin, facts.classes, spec.model));
  inputs.set_contents(facts.contents);
  PACELINE_RETURN_IF_ERROR(TakeInputs(run, inputs));
  const int64_t base = run.order.base.step;
  if (!IsInference(spec) && base > source->total_steps()) {
    return InvalidArgument("the job begins at step ", base,
                           ", and ends at step ", source->total_steps());
  }
  v1::NameBytes names;
  names.set_classes(facts.classes);
  return names;
}

absl::Status ReadWeightInputs(const RunContext& run, v1::Inputs& inputs) {
  const JobSpec& spec = run.order.spec;
  if (run.model.teacher != nullptr) {
    PACELINE_ASSIGN_OR_RETURN(
        const uint64_t read,
        run.factory.FingerprintOf(spec.train.distill.weights));
    inputs.set_teacher(read);
  }
  if (!ReadsWeights(run.order)) return absl::OkStatus();
  PACELINE_ASSIGN_OR_RETURN(const uint64_t read,
                            run.factory.FingerprintOf(spec.model.weights));
  inputs.set_weights(read);
  return absl::OkStatus();
}

absl::Status TakeInputs(const RunContext& run, const v1::Inputs& inputs) {
  PACELINE_RETURN_IF_ERROR(
      CheckInputs(inputs, run.order.inputs, run.order.spec));
  run.recorder.Say(
      [&](v1::RunState& report) { *report.mutable_inputs() = inputs; });
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PiecePtr>> FetchCut(
    const RunContext& run, const StageEngines& engines, Cut cut,
    const std::vector<PieceSource>& sources) {
  if (run.exchange == nullptr) {
    return Unimplemented("this worker keeps no pieces");
  }
  // A member of a group may have deposited another state as that cut: members
  // that gossip have states of their own, and a state may be wrong.  Its own
  // one counts where the order names it.
  const auto is_self = [&run](const PieceSource& source) {
    return source.holder.worker == run.self;
  };
  const bool from_store =
      IsGossip(run.order.spec)
          ? !sources.empty() && is_self(sources.front())
          : !IsDataParallel(run.order.spec) || absl::c_any_of(sources, is_self);
  PieceWant want{run.order.fence.job, cut, {}, sources, from_store};
  for (const auto& [first, engine] : engines) {
    int layer = first;
    for (const ScatteredBytes& state : engine->State()) {
      want.bytes[layer++] = static_cast<int64_t>(state.size());
    }
  }
  return run.exchange->Gather(want, run.cancel);
}

// The state of a layer holds what the layer borrows, so that no tied value has
// to be shared here.
absl::Status RestoreBase(const RunContext& run, const StageEngines& engines) {
  const RunOrder& order = run.order;
  const Instant began = run.clock.Now();
  PACELINE_ASSIGN_OR_RETURN(const std::vector<PiecePtr> pieces,
                            FetchCut(run, engines, order.base, order.sources));
  run.recorder.Say([&](v1::RunState& report) {
    report.set_fetch_seconds(absl::ToDoubleSeconds(run.clock.Now() - began));
  });
  auto next = pieces.begin();
  for (const auto& [first, engine] : engines) {
    std::vector<absl::Span<const uint8_t>> states;
    for (size_t i = engine->State().size(); i > 0; --i, ++next) {
      states.push_back((*next)->bytes());
    }
    PACELINE_RETURN_IF_ERROR(engine->RestoreState(states));
  }
  std::vector<PiecePtr> kept;
  for (const PiecePtr& piece : pieces) {
    kept.push_back(AsOf({order.fence.attempt, order.base.step}, *piece));
  }
  run.pieces->Deposit(order.fence.job, kept);
  Log(LogLevel::kInfo, "stages go on from an earlier state",
      {{"job", order.fence.job.value},
       {"attempt", order.fence.attempt},
       {"from", CutText(order.base)},
       {"layers", static_cast<int64_t>(pieces.size())}});
  return absl::OkStatus();
}

std::vector<PiecePtr> CopyState(const RunContext& run,
                                const StageEngines& engines, int64_t step) {
  std::vector<PiecePtr> pieces;
  for (const auto& [first, engine] : engines) {
    int layer = first;
    for (const ScatteredBytes& state : engine->State()) {
      pieces.push_back(
          CopyPiece({{run.order.fence.attempt, step}, layer++}, state));
    }
  }
  return pieces;
}

absl::Status UploadWeights(const RunContext& run, StageEngine& engine) {
  PACELINE_ASSIGN_OR_RETURN(const std::vector<NamedTensor> weights,
                            engine.Weights());
  std::vector<TensorPart> whole;
  for (const NamedTensor& weight : weights) {
    whole.push_back({weight.name, weight.tensor});
  }
  return run.factory.UploadWeights(run.order.fence, whole, run.cancel);
}

}  // namespace paceline
