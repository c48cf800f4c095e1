#include "worker/pipeline/stage_runner.h"

#include <algorithm>
#include <deque>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/schedule/asynchronous.h"
#include "core/simulate/program.h"
#include "worker/meters/cpu.h"

namespace paceline {
namespace {

// Batches that are traced follow one another after at least so long: the
// coordinator hears of the same one from all workers before the next one.
constexpr absl::Duration kTracePeriod = absl::Seconds(2);
constexpr int64_t kRarestTrace = 1 << 20;
constexpr int kLongestTrace = 256;  // instructions

std::vector<int> OwnStages(const StageRunnerOptions& options) {
  std::vector<int> stages;
  for (size_t stage = 0; stage < options.worker_of.size(); ++stage) {
    if (options.worker_of[stage] == options.worker) {
      stages.push_back(static_cast<int>(stage));
    }
  }
  return stages;
}

// Takes the entry out; a missing one is a schedule that the checker let
// through, or a bug here.
template <typename Map>
TensorList Take(Map& map, const typename Map::key_type& slot) {
  auto node = map.extract(slot);
  PACELINE_CHECK(!node.empty(), "stage=", slot.first,
                 " micro_batch=", slot.second);
  return std::move(node.mapped());
}

}  // namespace

StageRunner::StageRunner(StageRunnerOptions options, StageRunnerParts parts)
    : options_(std::move(options)),
      parts_(std::move(parts)),
      stages_(static_cast<int>(options_.worker_of.size())),
      own_stages_(OwnStages(options_)),
      ties_(options_.ties, stages_, parts_.engines, parts_.link),
      skips_(options_.skipped_in_row) {
  PACELINE_CHECK(!own_stages_.empty(), "worker=", options_.worker);
  if (options_.replicas.empty()) return;
  const int stage = own_stages_.front();
  if (options_.replicas[stage] == 1) return;
  ReplicaPlace place;
  place.boundary =
      stages_ - 1 + static_cast<int32_t>(options_.ties.size()) + stage;
  place.replica = options_.replica;
  place.replicas = options_.replicas[stage];
  // The gate is at the first of stage 0; behind it the one who has the first
  // micro-batch hears of a batch.
  if (stage > 0) place.leader = options_.routes[stage].ReplicaOf(0);
  exchange_.emplace(place, *parts_.engines.at(stage), parts_.link);
}

absl::Status StageRunner::Run() {
  const bool streams = ScheduleTraitsOf(options_.schedule).asynchronous;
  if (options_.trained) return absl::OkStatus();
  for (int64_t ordinal = options_.turns.Next(options_.first_batch);;) {
    PACELINE_ASSIGN_OR_RETURN(const std::optional<BatchInfo> next,
                              NextBatch(ordinal));
    if (!next.has_value()) break;
    BatchInfo batch = *next;
    const bool training = batch.phase == BatchPhase::kTrain;
    if (training) FinishEvaluation();
    if (training && streams) {
      PACELINE_ASSIGN_OR_RETURN(batch, RunStream(batch));
    } else {
      PACELINE_RETURN_IF_ERROR(AwaitRoom(batch));
      PACELINE_RETURN_IF_ERROR(RunBatch(batch));
      if (training) SayBatch(batch);
    }
    if (parts_.source != nullptr) {
      SayUnreadable(*parts_.source, parts_.observer);
    }
    if (!training) {
      trained_.reset();
      if (!options_.inference) flow_.OnBatchDropped();
    }
    if (batch.stops) stopped_at_ = batch.step + 1;
    if (batch.final_batch) break;
    ordinal = options_.turns.Next(batch.ordinal + 1);
    if (options_.inference && ordinal >= batch.total_micro_batches) break;
  }
  FinishEvaluation();
  if (options_.inference || flow_.times().micro_batches() > 0) {
    flow_.Finish();
    SayFlow(/*samples=*/0);
  }
  return absl::OkStatus();
}

void StageRunner::SayBatch(const BatchInfo& batch) {
  std::optional<absl::Duration> wall;
  const Instant now = parts_.clock.Now();
  if (trained_.has_value()) {
    wall = now - *trained_;
    flow_.OnBatchEnd(MomentOfFlow(), batch.micro_batches, batch.samples);
    SayFlow(/*samples=*/0);
  }
  trained_ = now;
  for (auto& [stage, time] : stage_times_) {
    auto trace = traces_.extract({stage, batch.step});
    if (!trace.empty()) *time.mutable_trace() = std::move(trace.mapped());
  }
  // Powers of two, so that workers that differ by one still have batches in
  // common.
  if (wall.has_value() && trace_every_ * *wall < kTracePeriod &&
      trace_every_ < kRarestTrace) {
    trace_every_ *= 2;
  }
  flow_.OnBatchBegin(MomentOfFlow());
  SayStageTimes(wall);
}

void StageRunner::SayStageTimes(std::optional<absl::Duration> wall) {
  std::vector<v1::StageTime> times;
  for (const auto& [stage, time] : stage_times_) times.push_back(time);
  stage_times_.clear();
  parts_.observer.OnBatch(wall, times);
}

void StageRunner::AddStageTime(const Instruction& done, Instant begin,
                               const BatchInfo& batch) {
  if (batch.phase != BatchPhase::kTrain && !options_.inference) return;
  v1::StageTime& time = stage_times_[done.stage];
  time.set_stage(done.stage);
  time.set_seconds(time.seconds() +
                   absl::ToDoubleSeconds(parts_.clock.Now() - begin));
  if (done.op == Op::kForward) time.set_micro_batches(time.micro_batches() + 1);
  if (!options_.inference) Trace(done, begin, batch);
}

void StageRunner::Trace(const Instruction& done, Instant begin,
                        const BatchInfo& batch) {
  const std::pair<int, int64_t> key(done.stage, batch.step);
  // Workers choose their own pace: batches that drain are traced on all.
  const bool begins = done.op == Op::kForward && !traces_.contains(key) &&
                      (batch.drains || batch.step % trace_every_ == 0);
  if (!begins && !traces_.contains(key)) return;
  const Instant now = parts_.clock.Now();
  const int64_t begin_us =
      absl::ToUnixMicros(parts_.clock.Today() - (now - begin));
  v1::BatchTrace& trace = traces_[key];
  if (begins) {
    trace.set_step(batch.step + 1);
    trace.set_begin_unix_us(begin_us);
  }
  if (trace.us_size() == kLongestTrace) return;
  trace.mutable_ops()->push_back(done.op == Op::kForward         ? 'F'
                                 : done.op == Op::kBackward      ? 'B'
                                 : done.op == Op::kBackwardInput ? 'I'
                                                                 : 'W');
  trace.add_micro_batches(done.micro_batch);
  trace.add_begin_us(static_cast<int32_t>(begin_us - trace.begin_unix_us()));
  trace.add_us(static_cast<int32_t>(absl::ToInt64Microseconds(now - begin)));
}

v1::StepRecord RecordOf(const StepVerdict& verdict, const LossSums& losses,
                        int64_t samples, absl::Time now) {
  v1::StepRecord record;
  record.set_step(verdict.step + 1);
  // Over the samples that have a label.
  if (losses.samples > 0) {
    record.set_loss(losses.loss / static_cast<double>(losses.samples));
  }
  record.set_loss_samples(losses.samples);
  record.set_samples(samples);
  record.set_learning_rate(verdict.learning_rate);
  record.set_gradient_norm(verdict.gradient_norm);
  record.set_skipped(verdict.skip);
  record.set_unix_ms(absl::ToUnixMillis(now));
  return record;
}

v1::EvaluationRecord RecordOf(int64_t step, const LossSums& losses) {
  const auto samples = static_cast<double>(losses.samples);
  v1::EvaluationRecord record;
  record.set_step(step);
  if (losses.samples == 0) return record;
  record.set_loss(losses.loss / samples);
  record.set_accuracy(static_cast<double>(losses.correct) / samples);
  record.set_samples(losses.samples);
  return record;
}

void SayUnreadable(const BatchSource& source, RunObserver& observer) {
  v1::Unreadable all;
  for (const BatchPhase split : {BatchPhase::kTrain, BatchPhase::kEvaluate}) {
    const UnreadableSamples some = source.Unreadable(split);
    if (some.numbers.empty()) continue;
    v1::UnreadableSamples& said = split == BatchPhase::kTrain
                                      ? *all.mutable_train()
                                      : *all.mutable_test();
    said.set_of(some.of);
    said.mutable_numbers()->Assign(some.numbers.begin(), some.numbers.end());
  }
  if (all.has_train() || all.has_test()) observer.OnUnreadable(all);
}

std::optional<v1::StepRecord> StageRunner::RecordHere(
    const StepVerdict& verdict, const BatchInfo& batch) const {
  if (!holds_last()) return std::nullopt;
  v1::StepRecord record =
      RecordOf(verdict, losses_, batch.samples, parts_.clock.Today());
  if (options_.replica > 0) record.set_loss_samples(0);
  return record;
}

void StageRunner::SayStep(const StepVerdict& verdict, const BatchInfo& batch,
                          bool skipped) {
  std::optional<v1::StepRecord> record = RecordHere(verdict, batch);
  if (record.has_value()) {
    record->set_skipped(skipped);
    record->set_unapplied(skipped && !batch_applied_);
  }
  parts_.observer.OnStep(verdict, batch.samples, record);
}

// One of several replicas that train tells the others, of whom some may have no
// part in the batch.  Their sources go along.
absl::StatusOr<std::optional<BatchInfo>> StageRunner::NextBatch(
    int64_t ordinal) {
  asked_ = parts_.clock.Now();
  std::optional<BatchInfo> batch;
  if (!exchange_.has_value() || exchange_->leads()) {
    PACELINE_ASSIGN_OR_RETURN(batch, OwnNextBatch(ordinal));
    if (!batch.has_value() || !exchange_.has_value()) return batch;
    const ScopedPart part(parts_.time, TimePart::kSend);
    PACELINE_RETURN_IF_ERROR(exchange_->Tell(*batch));
    return batch;
  }
  if (parts_.source != nullptr) {
    const ScopedPart part(parts_.time, TimePart::kData);
    PACELINE_RETURN_IF_ERROR(parts_.source->NextBatch().status());
  }
  const ScopedPart part(parts_.time, TimePart::kReceiveWait);
  PACELINE_ASSIGN_OR_RETURN(batch, exchange_->Await(ordinal));
  answered_ = parts_.clock.Now();
  return batch;
}

// The first stage asks its source; the others learn what the batch is from the
// first frame of it that reaches their lowest stage.  A replica that gets none
// waits until its order is withdrawn.
absl::StatusOr<std::optional<BatchInfo>> StageRunner::OwnNextBatch(
    int64_t ordinal) {
  if (parts_.source == nullptr) {
    const ScopedPart part(parts_.time, TimePart::kReceiveWait);
    PACELINE_ASSIGN_OR_RETURN(
        const BatchInfo batch,
        parts_.link.AwaitBatch(own_stages_.front() - 1, ordinal));
    answered_ = parts_.clock.Now();
    return batch;
  }
  const ScopedPart part(parts_.time, TimePart::kData);
  PACELINE_ASSIGN_OR_RETURN(std::optional<BatchInfo> batch,
                            parts_.source->NextBatch());
  if (batch.has_value() && batch->ordinal == ordinal) {
    if (parts_.keeper != nullptr && batch->phase == BatchPhase::kTrain) {
      const ScopedPart snapshot(parts_.time, TimePart::kSnapshot);
      PACELINE_RETURN_IF_ERROR(parts_.keeper->OnBatch(*batch));
      if (batch->stops) batch->final_batch = batch->drains = true;
    }
    return batch;
  }
  // Fewer batches in all than it has to wait for its turn.
  const bool first = ordinal == options_.turns.Next(options_.first_batch);
  if (!batch.has_value() && first && options_.inference) return batch;
  return Internal(
      "the data source went on with ",
      batch.has_value() ? absl::StrCat("batch ", batch->ordinal) : "nothing",
      " where batch ", ordinal, " comes");
}

absl::StatusOr<const InstructionList*> StageRunner::InstructionsFor(
    const BatchInfo& batch) {
  const bool training = batch.phase == BatchPhase::kTrain;
  InstructionList& list = lists_[{batch.micro_batches, training}];
  if (list.empty()) {
    PACELINE_ASSIGN_OR_RETURN(list, MakeInstructions(batch));
  }
  return &list;
}

absl::StatusOr<InstructionList> StageRunner::MakeInstructions(
    const BatchInfo& batch) {
  const bool training = batch.phase == BatchPhase::kTrain;
  if (!options_.replicas.empty()) {
    const Program program = ProgramOfReplicas(
        options_.replicas, options_.routes, batch.micro_batches, training);
    PACELINE_ASSIGN_OR_RETURN(std::vector<InstructionList> lists,
                              ListsOfReplicas(program, options_.schedule));
    return std::move(
        lists[program.workers_of[own_stages_.front()][options_.replica]]);
  }
  PACELINE_ASSIGN_OR_RETURN(
      Schedule schedule,
      MakeSchedule(
          {.name = options_.schedule,
           .stages = stages_,
           .micro_batches = batch.micro_batches,
           .training = training,
           .worker_of = options_.worker_of,
           .shorter_batch = batch.micro_batches < options_.micro_batches}));
  PACELINE_RETURN_IF_ERROR(CheckSchedule(schedule).status());
  return std::move(schedule.workers[options_.worker]);
}

// For all that goes to each replica of the next stage.
absl::Status StageRunner::AwaitRoomAtReplicas(const BatchInfo& batch) {
  const int stage = own_stages_.front();
  if (stage + 1 == stages_) return absl::OkStatus();
  PACELINE_RETURN_IF_ERROR(CheckScheduleSizes(stages_, batch.micro_batches));
  std::map<int, std::vector<int>> sent;  // micro-batches by receiver
  for (int m = 0; m < batch.micro_batches; ++m) {
    if (options_.routes[stage].ReplicaOf(m) != options_.replica) continue;
    sent[options_.routes[stage + 1].ReplicaOf(m)].push_back(m);
  }
  for (const auto& [receiver, micro_batches] : sent) {
    PACELINE_RETURN_IF_ERROR(
        parts_.link
            .AwaitRoom(stage, batch.ordinal,
                       static_cast<int>(micro_batches.size()),
                       micro_batches.front())
            .status());
  }
  return absl::OkStatus();
}

absl::Status StageRunner::AwaitRoom(const BatchInfo& batch) {
  const ScopedPart part(parts_.time, TimePart::kSend);
  if (!options_.replicas.empty()) return AwaitRoomAtReplicas(batch);
  for (const int stage : own_stages_) {
    // Inside a worker the frames of one batch are all taken before the next
    // begins, so there is always room.
    if (stage + 1 >= stages_ || parts_.engines.contains(stage + 1)) continue;
    const Instant begin = parts_.clock.Now();
    PACELINE_ASSIGN_OR_RETURN(
        const absl::Duration link,
        parts_.link.AwaitRoom(stage, batch.ordinal, batch.micro_batches));
    flow_.OnBlocked(parts_.clock.Now() - begin, link);
  }
  return absl::OkStatus();
}

absl::Status StageRunner::RunBatch(const BatchInfo& batch) {
  PACELINE_ASSIGN_OR_RETURN(const InstructionList* list,
                            InstructionsFor(batch));
  losses_ = {};
  labels_ = 0;
  for (const Instruction& instruction : *list) {
    PACELINE_RETURN_IF_ERROR(Execute(instruction, batch));
    parts_.observer.OnProgress(instruction, batch);
  }
  if (options_.inference) {
    flow_.OnLabels(losses_.samples, losses_.correct, losses_.loss);
    flow_.OnDone(MomentOfFlow(), batch.samples);
    SayStageTimes(std::nullopt);
    SayFlow(batch.samples);
  }
  if (batch.phase == BatchPhase::kEvaluate && !options_.inference &&
      holds_last()) {
    if (exchange_.has_value()) {
      PACELINE_RETURN_IF_ERROR(SumReplicas(batch).status());
    }
    evaluation_.Add(losses_);
    evaluation_step_ = batch.step;
  }
  return absl::OkStatus();
}

absl::Status StageRunner::Execute(const Instruction& instruction,
                                  const BatchInfo& batch) {
  switch (instruction.op) {
    case Op::kLoad:
      return Load(instruction, batch);
    case Op::kRecvF:
      return Receive(FrameKind::kActivation, instruction, batch);
    case Op::kForward:
      return Forward(instruction, batch);
    case Op::kSendF:
      return Send(FrameKind::kActivation, instruction, batch);
    case Op::kRecvB:
      return Receive(FrameKind::kGradient, instruction, batch);
    case Op::kBackward:
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
      return Backward(instruction, batch);
    case Op::kSendB:
      return Send(FrameKind::kGradient, instruction, batch);
    case Op::kStep:
      return Step(instruction, batch);
    case Op::kUpdate:
      return Update({batch, instruction.micro_batch});
  }
  return Internal("no such instruction: ", ToText(instruction));
}

absl::Status StageRunner::Load(const Instruction& instruction,
                               const BatchInfo& batch) {
  const ScopedPart part(parts_.time, TimePart::kData);
  const Instant began = parts_.clock.Now();
  PACELINE_ASSIGN_OR_RETURN(
      inputs_[Slot(instruction.stage, instruction.micro_batch)],
      parts_.source->NextMicroBatch());
  MeterLoad(instruction, batch, began);
  return absl::OkStatus();
}

absl::Status StageRunner::Receive(FrameKind kind,
                                  const Instruction& instruction,
                                  const BatchInfo& batch) {
  const ScopedPart part(parts_.time, TimePart::kReceiveWait);
  const Instant began = parts_.clock.Now();
  const bool activation = kind == FrameKind::kActivation;
  const int boundary = activation ? instruction.stage - 1 : instruction.stage;
  PACELINE_ASSIGN_OR_RETURN(Frame frame,
                            parts_.link.Receive({kind, boundary, batch.ordinal,
                                                 instruction.micro_batch}));
  if (frame.header.batch != batch) {
    return InvalidArgument(
        "frame for ", ToText(instruction), " of batch ", batch.ordinal,
        " tells of another batch than the first one did: ",
        frame.header.batch.samples, " samples in ",
        frame.header.batch.micro_batches, " micro-batches, not ", batch.samples,
        " in ", batch.micro_batches);
  }
  MeterReceive(instruction, activation, began, frame.header);
  (activation ? inputs_
              : gradients_)[Slot(instruction.stage, instruction.micro_batch)] =
      std::move(frame.tensors);
  return absl::OkStatus();
}

absl::Status StageRunner::Forward(const Instruction& instruction,
                                  const BatchInfo& batch) {
  const Slot slot(instruction.stage, instruction.micro_batch);
  TensorList input = Take(inputs_, slot);
  if (exchange_.has_value()) labels_ += CountLabels(input.back());
  const Instant begin = parts_.clock.Now();
  ForwardResult result;
  {
    const bool evaluates =
        batch.phase == BatchPhase::kEvaluate && !options_.inference;
    const ScopedPart part(
        parts_.time, evaluates ? TimePart::kEvaluation : TimePart::kForward);
    const absl::Duration cpu = ThreadCpuTime();
    PACELINE_ASSIGN_OR_RETURN(
        result,
        parts_.engines.at(instruction.stage)
            ->Forward(batch, instruction.micro_batch, std::move(input)));
    flow_.OnCompute(parts_.clock.Now() - begin, ThreadCpuTime() - cpu);
  }
  if (result.loss.has_value()) losses_.Add(*result.loss);
  AddStageTime(instruction, begin, batch);
  if (instruction.stage + 1 < stages_) {
    outputs_[slot] = std::move(result.output);
    return absl::OkStatus();
  }
  if (!options_.inference) return absl::OkStatus();
  // It may wait for room, which is no sign of a thread that hangs.
  const ScopedPart part(parts_.time, TimePart::kSnapshot);
  return TakeResult(slot, batch, result);
}

absl::Status StageRunner::Backward(const Instruction& instruction,
                                   const BatchInfo& batch) {
  const auto& [stage, op, micro_batch] = instruction;
  const Slot slot(stage, micro_batch);
  const bool of_weights = op == Op::kBackwardWeight;
  TensorList gradient;
  if (!of_weights && stage + 1 < stages_) gradient = Take(gradients_, slot);
  const ScopedPart part(parts_.time, TimePart::kBackward);
  const Instant begin = parts_.clock.Now();
  const absl::Duration cpu = ThreadCpuTime();
  StageEngine& engine = *parts_.engines.at(stage);
  if (of_weights) {
    PACELINE_RETURN_IF_ERROR(engine.BackwardWeight(batch, micro_batch));
  } else {
    PACELINE_ASSIGN_OR_RETURN(
        gradient,
        op == Op::kBackward
            ? engine.Backward(batch, micro_batch, std::move(gradient))
            : engine.BackwardInput(batch, micro_batch, std::move(gradient)));
  }
  flow_.OnCompute(parts_.clock.Now() - begin, ThreadCpuTime() - cpu);
  flow_.OnFilled();
  MeterBackward(instruction, batch);
  AddStageTime(instruction, begin, batch);
  if (!of_weights && stage > 0) gradients_[slot] = std::move(gradient);
  return absl::OkStatus();
}

absl::Status StageRunner::Send(FrameKind kind, const Instruction& instruction,
                               const BatchInfo& batch) {
  const ScopedPart part(parts_.time, TimePart::kSend);
  const bool activation = kind == FrameKind::kActivation;
  const Slot slot(instruction.stage, instruction.micro_batch);
  const int boundary = activation ? instruction.stage : instruction.stage - 1;
  Frame frame =
      FrameOf({kind, boundary, batch.ordinal, instruction.micro_batch}, batch,
              Take(activation ? outputs_ : gradients_, slot));
  MeterSend(slot, activation, frame.header);
  return parts_.link.Send(std::move(frame));
}

absl::StatusOr<uint64_t> StageRunner::SumReplicas(const BatchInfo& batch) {
  ReplicaCounts counts{losses_, labels_};
  uint64_t hash = 0;
  if (batch.phase == BatchPhase::kTrain) {
    PACELINE_ASSIGN_OR_RETURN(hash, exchange_->Sum(batch, counts));
  } else {
    PACELINE_RETURN_IF_ERROR(exchange_->SumCounts(batch, counts));
  }
  losses_ = counts.losses;
  labels_ = counts.labels;
  return hash;
}

absl::Status StageRunner::Report(int stage, const BatchInfo& batch) {
  uint64_t hash = 0;
  if (exchange_.has_value()) {
    PACELINE_ASSIGN_OR_RETURN(hash, SumReplicas(batch));
  }
  PACELINE_ASSIGN_OR_RETURN(StepReport report,
                            parts_.engines.at(stage)->Report(batch));
  report.stage = stage;
  if (exchange_.has_value()) {
    report.replica = options_.replica;
    report.samples = labels_;
    report.result_hash = hash;
  }
  reports_.push_back(std::move(report));
  return absl::OkStatus();
}

absl::Status StageRunner::Apply(const BatchInfo& batch,
                                const StepVerdict& verdict) {
  for (const int stage : own_stages_) {
    StageEngine& engine = *parts_.engines.at(stage);
    PACELINE_RETURN_IF_ERROR(engine.Apply(verdict));
    if (verdict.skip) continue;
    PACELINE_RETURN_IF_ERROR(CheckFinite(engine, batch.step + 1));
  }
  return verdict.skip ? absl::OkStatus() : ties_.ShareValues(batch);
}

void StageRunner::Deposit(const BatchInfo& batch) {
  if (parts_.keeper == nullptr || !batch.marked) return;
  const ScopedPart part(parts_.time, TimePart::kSnapshot);
  parts_.keeper->Deposit(batch.step + 1);
}

// A worker of several stages has several STEPs in its list: it reports for
// each, and asks the gate once, with the last.  Who owns a parameter that
// others use too has its sum only when all stages here have theirs.
absl::Status StageRunner::Step(const Instruction& instruction,
                               const BatchInfo& batch) {
  StepVerdict verdict;
  {
    const ScopedPart part(parts_.time, TimePart::kAggregate);
    stepped_.push_back(instruction.stage);
    if (!ties_.Owns(instruction.stage)) {
      PACELINE_RETURN_IF_ERROR(Report(instruction.stage, batch));
    }
    if (stepped_.size() < own_stages_.size()) return absl::OkStatus();
    PACELINE_RETURN_IF_ERROR(ties_.AddGradients(batch));
    for (const int stage : std::exchange(stepped_, {})) {
      if (ties_.Owns(stage)) PACELINE_RETURN_IF_ERROR(Report(stage, batch));
    }
    std::ranges::sort(reports_, {}, &StepReport::stage);
    const Instant begin = parts_.clock.Now();
    // Values that are shared would have to reach the others.
    if (options_.ties.empty()) {
      rest_->held = batch.step + 1;
      StepVerdict undecided;
      undecided.step = batch.step;
      rest_->record = RecordHere(undecided, batch);
    }
    PACELINE_ASSIGN_OR_RETURN(verdict, parts_.gate.Decide(reports_));
    flow_.OnGate(parts_.clock.Now() - begin);
    reports_.clear();
  }
  {
    const ScopedPart part(parts_.time, TimePart::kOptimizer);
    const Instant begin = parts_.clock.Now();
    rest_.reset();
    PACELINE_RETURN_IF_ERROR(Apply(batch, verdict));
    rest_ = Rest{.applied = verdict};
    flow_.OnUpdate(parts_.clock.Now() - begin);
  }
  // The record goes first: where the deposit is known, the record is too, and
  // the curve of an attempt that begins there has no hole.
  SayStep(verdict, batch, verdict.skip);
  Deposit(batch);
  return skips_.OnStep(verdict.skip, verdict.why);
}

void StageRunner::FinishEvaluation() {
  if (evaluation_.samples > 0 && options_.replica == 0) {
    parts_.observer.OnEvaluation(RecordOf(evaluation_step_, evaluation_));
  }
  evaluation_ = {};
}

// --- Asynchronous schedules ---
//
// Micro-batches stream through without a flush and without a step gate.  There
// is no list of instructions, which would be as long as the job: what comes
// next is decided one compute at a time, and whether another batch comes is in
// the header of the one before.

absl::StatusOr<BatchInfo> StageRunner::RunStream(const BatchInfo& first) {
  // MakeSchedule gives no worker two stages of such a schedule.
  PACELINE_CHECK(own_stages_.size() == 1, "a stream of several stages");
  AsynchronousOrder order(own_stages_.front(), stages_);
  const int64_t base = updates_;
  StageEngine& engine = *parts_.engines.at(own_stages_.front());
  std::deque<InFlight> in_flight;
  InFlight next{first, 0};
  for (;;) {
    // Until a forward of the next batch is due, this stage must not wait for
    // the header that says whether there is one.
    const bool ended = next.micro_batch == next.batch.micro_batches;
    if (ended && !next.batch.drains && order.WantsForward()) {
      PACELINE_ASSIGN_OR_RETURN(const std::optional<BatchInfo> batch,
                                NextBatch(next.batch.ordinal + 1));
      // Turns are for inference only, so there is a next batch.
      next = {*batch, 0};
      continue;
    }
    const bool more = !ended || !next.batch.drains;
    switch (order.Decide(more)) {
      case AsynchronousOrder::Next::kForward:
        PACELINE_RETURN_IF_ERROR(engine.UseVersion(
            base + order.VersionOfNext(options_.vertical_sync)));
        PACELINE_RETURN_IF_ERROR(StreamForward(next));
        in_flight.push_back(next);
        ++next.micro_batch;
        order.OnForward();
        break;
      case AsynchronousOrder::Next::kBackward: {
        order.OnBackward();
        // At the end of a stream no later micro-batch uses this version.
        const int64_t version =
            more ? base + order.VersionOfNext(options_.vertical_sync)
                 : updates_ + 1;
        PACELINE_RETURN_IF_ERROR(StreamBackward(in_flight.front(), version));
        in_flight.pop_front();
        break;
      }
      case AsynchronousOrder::Next::kNothing:
        return next.batch;
    }
  }
}

absl::Status StageRunner::Do(Op op, const InFlight& what) {
  const Instruction instruction{own_stages_.front(), op, what.micro_batch};
  PACELINE_RETURN_IF_ERROR(Execute(instruction, what.batch));
  parts_.observer.OnProgress(instruction, what.batch);
  return absl::OkStatus();
}

absl::Status StageRunner::StreamForward(const InFlight& what) {
  const int stage = own_stages_.front();
  // The last stage has one micro-batch in flight, so sums of two batches do not
  // mix; others have no loss.
  if (what.micro_batch == 0) losses_ = {};
  PACELINE_RETURN_IF_ERROR(Do(stage == 0 ? Op::kLoad : Op::kRecvF, what));
  PACELINE_RETURN_IF_ERROR(Do(Op::kForward, what));
  if (stage + 1 == stages_) return absl::OkStatus();
  return Do(Op::kSendF, what);
}

absl::Status StageRunner::StreamBackward(const InFlight& what,
                                         int64_t next_version) {
  const int stage = own_stages_.front();
  if (stage + 1 < stages_) PACELINE_RETURN_IF_ERROR(Do(Op::kRecvB, what));
  PACELINE_RETURN_IF_ERROR(Do(Op::kBackward, what));
  if (stage > 0) PACELINE_RETURN_IF_ERROR(Do(Op::kSendB, what));
  PACELINE_RETURN_IF_ERROR(parts_.engines.at(stage)->UseVersion(next_version));
  return Do(Op::kUpdate, what);
}

// The rates come from the number of the update; the norm and the check for
// numbers that are none are those of this stage alone.
absl::Status StageRunner::Update(const InFlight& what) {
  const int stage = own_stages_.front();
  StageEngine& engine = *parts_.engines.at(stage);
  const ScopedPart part(parts_.time, TimePart::kOptimizer);
  const Instant begin = parts_.clock.Now();
  BatchInfo alone = what.batch;
  alone.step = what.batch.first_update + what.micro_batch;
  alone.samples = MicroBatchSamples(what.batch, options_.train.micro_batch,
                                    what.micro_batch);
  // All who share a parameter are on this stage.
  PACELINE_RETURN_IF_ERROR(ties_.AddGradients(alone));
  PACELINE_ASSIGN_OR_RETURN(StepReport report, engine.Report(alone));
  report.stage = stage;
  const StepVerdict verdict =
      DecideStep(options_.train, what.batch.total_micro_batches, {report});
  PACELINE_RETURN_IF_ERROR(engine.Apply(verdict));
  if (!verdict.skip) {
    PACELINE_RETURN_IF_ERROR(CheckFinite(engine, what.batch.step + 1));
    PACELINE_RETURN_IF_ERROR(ties_.ShareValues(alone));
  }
  ++updates_;
  flow_.OnUpdate(parts_.clock.Now() - begin);
  const StashReading stash = engine.Stash();
  v1::StageVersions& time = *stage_times_[stage].mutable_versions();
  time.set_staleness(time.staleness() + stash.staleness);
  time.set_versions(std::max(time.versions(), stash.versions));
  time.set_version_bytes(std::max(time.version_bytes(), stash.bytes));
  time.set_updates(time.updates() + 1);
  if (verdict.skip) time.set_skipped_updates(time.skipped_updates() + 1);
  batch_skipped_ = batch_skipped_ || verdict.skip;
  batch_applied_ = batch_applied_ || !verdict.skip;
  if (verdict.skip) {
    parts_.observer.OnSkippedUpdate(alone.step + 1, verdict.why);
  }
  return what.micro_batch + 1 == what.batch.micro_batches
             ? FinishStreamedBatch(what.batch, verdict)
             : absl::OkStatus();
}

absl::Status StageRunner::FinishStreamedBatch(const BatchInfo& batch,
                                              const StepVerdict& last) {
  StepVerdict verdict = last;
  verdict.step = batch.step;
  // Single updates are skipped, not a batch.
  verdict.skip = false;
  SayStep(verdict, batch, batch_skipped_);
  Deposit(batch);
  batch_skipped_ = false;
  const bool applied = std::exchange(batch_applied_, false);
  SayBatch(batch);
  if (parts_.source != nullptr) SayUnreadable(*parts_.source, parts_.observer);
  return skips_.OnStep(!applied, last.why);
}

// --- What a worker waits for, and inference ---
//
// An inference job's walk over the test set comes in batches of one
// micro-batch, so that Link::AwaitRoom() holds a fast stage back after each.

FlowMoment StageRunner::MomentOfFlow() const {
  return {parts_.clock.Now().since_start,
          absl::ToUnixMicros(parts_.clock.Today()), ThreadCpuTime(),
          ProcessCpuTime()};
}

void StageRunner::MeterLoad(const Instruction& instruction,
                            const BatchInfo& batch, Instant began) {
  const FlowMoment now = MomentOfFlow();
  if (options_.inference) {
    admitted_us_[Slot(instruction.stage, instruction.micro_batch)] =
        now.unix_us;
  } else if (batch.phase == BatchPhase::kTrain) {
    entered_[{batch.ordinal, instruction.micro_batch}] = Instant{now.steady};
  }
  flow_.OnInput(now, {began.since_start, now.steady}, /*sent_us=*/0);
}

void StageRunner::MeterBackward(const Instruction& done,
                                const BatchInfo& batch) {
  // The other half is still to come.
  if (done.stage != 0 || done.op == Op::kBackwardInput) return;
  const auto entered = entered_.extract({batch.ordinal, done.micro_batch});
  if (entered.empty()) return;
  flow_.OnResult(parts_.clock.Now() - entered.mapped());
}

void StageRunner::MeterReceive(const Instruction& instruction, bool activation,
                               Instant began, const FrameHeader& header) {
  const int stage = instruction.stage;
  const int from = activation ? stage - 1 : stage + 1;
  if (options_.inference) {
    admitted_us_[Slot(stage, instruction.micro_batch)] = header.admitted_us;
  }
  if (options_.worker_of[from] == options_.worker) return;  // it was here
  const FlowMoment now = MomentOfFlow();
  FlowWait wait = {began.since_start, now.steady};
  // The wait for the frame that a batch begins with was for its header.
  if (activation && stage == own_stages_.front() &&
      instruction.micro_batch == 0) {
    wait = {asked_.since_start, answered_.since_start};
  }
  flow_.OnInput(now, wait, header.sent_us);
}

void StageRunner::MeterSend(const Slot& slot, bool activation,
                            FrameHeader& header) {
  header.sent_us = absl::ToUnixMicros(parts_.clock.Today());
  if (!options_.inference || !activation) return;
  header.admitted_us = admitted_us_[slot];
  admitted_us_.erase(slot);
}

absl::Status StageRunner::TakeResult(const Slot& slot, const BatchInfo& batch,
                                     ForwardResult& result) {
  flow_.OnResult(parts_.clock.Today() -
                 absl::FromUnixMicros(admitted_us_[slot]));
  admitted_us_.erase(slot);
  return parts_.predictions->Add(batch, batch.ordinal * options_.train.batch,
                                 result.output[0], result.output[1],
                                 result.loss.value_or(LossSums()));
}

}  // namespace paceline
