#include "core/simulate/runner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "core/base/errors.h"

namespace paceline {
namespace {

// Periods of different machines do not begin together.
Quota QuotaOf(const SimulationOptions& options, int device) {
  if (options.quotas.empty()) return {};
  const CpuQuota& quota = options.quotas[device];
  if (!(quota.period_seconds > 0) || quota.share >= 1) return {};
  constexpr double kGolden = 0.6180339887498949;
  return {quota.share, quota.period_seconds,
          -std::fmod(device * kGolden, 1.0) * quota.period_seconds};
}

}  // namespace

Runner::Runner(const PlanProblem& problem, const SimulationOptions& options,
               const Program& program, const std::vector<StageWork>& stages)
    : world_{.problem = problem,
             .options = options,
             .program = program,
             .stages = stages,
             .network = Network(problem, options.machine_ports),
             .trace = TraceKeeper(options.keep_trace)},
      path_(world_),
      step_end_(world_, path_),
      workers_(program.workers()),
      arrived_(2 * static_cast<size_t>(program.stages) * program.micro_batches,
               0),
      slow_now_(options.slow_downs.size(), false),
      workers_done_(options.steps, 0) {
  world_.uses.resize(program.workers());
  world_.step_of.resize(program.workers(), 0);
  world_.memory.resize(program.workers());
  for (int w = 0; w < program.workers(); ++w) {
    world_.processors.emplace_back(QuotaOf(options, program.device_of[w]));
    world_.memory[w].fixed = problem.reserved_bytes;
  }
  for (int stage = 0; stage < program.stages; ++stage) {
    const std::vector<int>& replicas = program.workers_of[stage];
    for (size_t i = 0; i < replicas.size(); ++i) {
      workers_[replicas[i]].replica = static_cast<int>(i);
      world_.uses[replicas[i]].stages.push_back(stage);
      world_.memory[replicas[i]].fixed += stages[stage].fixed_bytes;
    }
  }
  for (int w = 0; w < program.workers(); ++w) {
    world_.ChangeMemory(w, world_.memory[w].fixed);
  }
  if (program.streamed_step == 0) return;
  std::vector<int> forced;
  if (options.vertical_sync) {
    forced = VersionsOfFirstStage(program.lists[program.workers_of[0][0]],
                                  program.micro_batches);
  }
  versions_.assign(program.workers(), VersionCounter(forced));
}

void Runner::PushPlannedEvents() {
  const auto& slow_downs = world_.options.slow_downs;
  for (size_t i = 0; i < slow_downs.size(); ++i) {
    const int index = static_cast<int>(i);
    const SimulatedSlowDown& slow = slow_downs[i];
    world_.queue.Push(slow.at_seconds, {SimEventKind::kSlowBegin, index});
    world_.queue.Push(slow.at_seconds + slow.for_seconds,
                      {SimEventKind::kSlowEnd, index});
  }
  const auto& failures = world_.options.failures;
  for (size_t i = 0; i < failures.size(); ++i) {
    world_.queue.Push(failures[i].at_seconds,
                      {SimEventKind::kFail, static_cast<int>(i)});
  }
}

absl::StatusOr<SimulationResult> Runner::Run() {
  PushPlannedEvents();
  for (int w = 0; w < world_.program.workers(); ++w) Proceed(w);
  const size_t steps = static_cast<size_t>(world_.options.steps);
  while (!stopped_ && step_ends_.size() < steps) {
    const double at = world_.queue.empty()
                          ? std::numeric_limits<double>::infinity()
                          : world_.queue.next_seconds();
    if (at == std::numeric_limits<double>::infinity()) {
      return InvalidArgument(
          "in step ", step_ends_.size(), " at ", world_.now,
          " s no worker can go on: a credit of ", world_.options.credit_frames,
          " frames is too small where senders wait for what they send; give "
          "more, or let transfers overlap");
    }
    world_.now = at;
    React(world_.queue.Pop());
  }
  return Summarize();
}

void Runner::React(const SimEvent& event) {
  switch (event.kind) {
    case SimEventKind::kWorkDue:
      return OnWorkDue(event.index, event.version);
    case SimEventKind::kFrameCpuDue:
      if (const auto frame = path_.OnFrameCpuDue(event.index, event.version)) {
        HandOver(*frame);
      }
      return;
    case SimEventKind::kReachPort:
      return path_.OnReachPort(event.index);
    case SimEventKind::kArrived: {
      const SimFrame& frame = path_.at(event.index);
      if (frame.kind != SimFrameKind::kPart) {
        world_.ChangeMemory(frame.to, frame.bytes);
      }
      if (const auto here = path_.OnArrived(event.index)) HandOver(*here);
      return;
    }
    case SimEventKind::kCredit: {
      const int worker = path_.OnCredit(event.index);
      if (workers_[worker].wait == Wait::kRoom) Proceed(worker);
      return;
    }
    case SimEventKind::kReport:
      return step_end_.OnReport();
    case SimEventKind::kVerdict:
      return OnVerdict(event.index);
    case SimEventKind::kSlowBegin:
    case SimEventKind::kSlowEnd:
      slow_now_[event.index] = event.kind == SimEventKind::kSlowBegin;
      return OnSlow(world_.options.slow_downs[event.index].device);
    case SimEventKind::kFail:
      return OnFail(world_.options.failures[event.index]);
    case SimEventKind::kRecover:
      return OnRecover();
  }
}

// --- Instructions -----------------------------------------------------------

void Runner::Proceed(int worker) {
  WorkerState& state = workers_[worker];
  const InstructionList& list = world_.program.lists[worker];
  state.wait = Wait::kNothing;
  while (!state.finished) {
    if (state.next == 0 && !HasRoom(worker)) {
      state.wait = Wait::kRoom;
      return;
    }
    if (state.next < list.size()) {
      if (!Execute(worker, list[state.next])) return;
      ++state.next;
    }
    // Forwards alone have no gate between batches.
    if (state.next == list.size()) OnListDone(worker);
  }
}

bool Runner::Execute(int worker, const Instruction& instruction) {
  const StageWork& stage = world_.stages[instruction.stage];
  switch (instruction.op) {
    case Op::kLoad:
      if (world_.options.load_seconds == 0) return true;
      StartWork(worker, CpuPart::kLoad, world_.options.load_seconds);
      return false;
    case Op::kRecvF:
    case Op::kRecvB:
      return Receive(worker, instruction);
    case Op::kForward:
      FollowVersions(worker, instruction);
      world_.ChangeMemory(worker, stage.kept_bytes);
      StartWork(worker, CpuPart::kForward,
                SecondsOf(stage.forward_seconds, worker));
      return false;
    case Op::kBackward:
      StartWork(worker, CpuPart::kBackward,
                SecondsOf(stage.backward_seconds, worker));
      return false;
    case Op::kBackwardInput:
      world_.ChangeMemory(worker, stage.split_bytes);
      StartWork(worker, CpuPart::kBackward,
                SecondsOf(stage.input_seconds, worker));
      return false;
    case Op::kBackwardWeight:
      StartWork(worker, CpuPart::kBackward,
                SecondsOf(stage.backward_seconds, worker) -
                    SecondsOf(stage.input_seconds, worker));
      return false;
    case Op::kUpdate:
      FollowVersions(worker, instruction);
      StartWork(worker, CpuPart::kOptimizer,
                SecondsOf(stage.optimizer_seconds, worker));
      return false;
    case Op::kSendF:
    case Op::kSendB:
      return Send(worker, instruction);
    case Op::kStep:
      return EndStep(worker);
  }
  return true;
}

// Training batches have the gate between them; see Link::AwaitRoom.
bool Runner::HasRoom(int worker) {
  if (world_.program.training) return true;
  for (const int stage : world_.uses[worker].stages) {
    if (!path_.HasRoomForBatch(stage, worker)) return false;
  }
  return true;
}

bool Runner::IsLocal(int stage, int other_stage, int micro_batch) const {
  return world_.program.WorkerOf(stage, micro_batch) ==
         world_.program.WorkerOf(other_stage, micro_batch);
}

uint32_t& Runner::Arrived(SimFrameKind kind, int stage, int micro_batch) {
  const size_t cell =
      static_cast<size_t>(stage) * world_.program.micro_batches + micro_batch;
  return arrived_[2 * cell + (kind == SimFrameKind::kGradient ? 1 : 0)];
}

bool Runner::Receive(int worker, const Instruction& instruction) {
  const auto [stage, op, micro_batch] = instruction;
  const bool gradient = op == Op::kRecvB;
  const SimFrameKind kind =
      gradient ? SimFrameKind::kGradient : SimFrameKind::kActivation;
  uint32_t& arrived = Arrived(kind, stage, micro_batch);
  if (arrived == 0) {
    workers_[worker].wait = Wait::kFrame;
    return false;
  }
  --arrived;
  if (!IsLocal(stage, gradient ? stage + 1 : stage - 1, micro_batch)) {
    path_.OnConsumed(kind, stage, micro_batch);
  }
  return true;
}

bool Runner::Send(int worker, const Instruction& instruction) {
  const auto [stage, op, micro_batch] = instruction;
  const bool gradient = op == Op::kSendB;
  const SimFrameKind kind =
      gradient ? SimFrameKind::kGradient : SimFrameKind::kActivation;
  const int to_stage = gradient ? stage - 1 : stage + 1;
  if (IsLocal(stage, to_stage, micro_batch)) {
    ++Arrived(kind, to_stage, micro_batch);
    return true;
  }
  const int boundary = std::min(stage, to_stage);
  path_.Send({.kind = kind,
              .stage = to_stage,
              .micro_batch = micro_batch,
              .from = worker,
              .to = world_.program.WorkerOf(to_stage, micro_batch),
              .bytes = world_.stages[boundary].output_bytes});
  if (world_.problem.overlap) return true;
  workers_[worker].wait = Wait::kDelivery;
  return false;
}

void Runner::HandOver(int id) {
  const SimFrame frame = path_.at(id);
  path_.Drop(id);
  if (frame.kind == SimFrameKind::kPart) return step_end_.OnPart(frame);
  world_.ChangeMemory(frame.from, -frame.bytes);
  ++Arrived(frame.kind, frame.stage, frame.micro_batch);
  if (workers_[frame.to].wait == Wait::kFrame) Proceed(frame.to);
  if (workers_[frame.from].wait == Wait::kDelivery) {
    ++workers_[frame.from].next;
    Proceed(frame.from);
  }
}

// A worker of several stages reports for each and asks the gate once.
bool Runner::EndStep(int worker) {
  WorkerState& state = workers_[worker];
  const size_t stages = world_.uses[worker].stages.size();
  if (static_cast<size_t>(++state.steps_reported) < stages) return true;
  state.steps_reported = 0;
  state.wait = Wait::kVerdict;
  step_end_.OnComputed(worker);
  return false;
}

void Runner::OnVerdict(int worker) {
  double seconds = 0;
  for (const int stage : world_.uses[worker].stages) {
    seconds += SecondsOf(world_.stages[stage].optimizer_seconds, worker);
  }
  workers_[worker].wait = Wait::kNothing;
  StartWork(worker, CpuPart::kOptimizer, seconds);
}

void Runner::StartWork(int worker, CpuPart part, double seconds) {
  Processor& processor = world_.processors[worker];
  processor.StartWork(part, seconds, world_.now);
  world_.queue.Push(processor.work_due_seconds(),
                    {SimEventKind::kWorkDue, worker, processor.work_version()});
}

void Runner::OnWorkDue(int worker, uint32_t version) {
  Processor& processor = world_.processors[worker];
  if (version != processor.work_version()) return;
  // Frames have come in between.
  if (processor.work_due_seconds() > world_.now) {
    world_.queue.Push(processor.work_due_seconds(),
                      {SimEventKind::kWorkDue, worker, version});
    return;
  }
  TraceWork(worker);
  processor.FinishWork();
  const Instruction& done = world_.program.lists[worker][workers_[worker].next];
  OnDone(worker, done);
  if (++workers_[worker].next == world_.program.lists[worker].size()) {
    OnListDone(worker);
  }
  Proceed(worker);
}

void Runner::OnDone(int worker, const Instruction& done) {
  switch (done.op) {
    case Op::kForward:
      return OnForwardDone(worker, done);
    case Op::kBackward:
      OnInputGradientDone(worker, done.stage);
      OnWeightGradientDone(worker, done.stage, /*split=*/false);
      return FollowVersions(worker, done);
    case Op::kBackwardInput:
      return OnInputGradientDone(worker, done.stage);
    case Op::kBackwardWeight:
      return OnWeightGradientDone(worker, done.stage, /*split=*/true);
    case Op::kUpdate:
      // In a stream no gate ends a step: its last update does.
      if ((done.micro_batch + 1) % world_.program.streamed_step == 0) {
        OnStepDone(worker);
      }
      return;
    default:
      return;
  }
}

void Runner::TraceWork(int worker) {
  const Processor& processor = world_.processors[worker];
  const double begin = processor.work_start_seconds();
  if (!world_.trace.keeps() || !processor.working() || begin > world_.now) {
    return;
  }
  const Instruction& work = world_.program.lists[worker][workers_[worker].next];
  const bool updates = work.op == Op::kStep || work.op == Op::kUpdate;
  world_.trace.Add(TraceSlice{.begin_seconds = begin,
                              .seconds = world_.now - begin,
                              .device = world_.program.device_of[worker],
                              .track = TraceTrack::kCompute,
                              .what = NameOf(updates ? Op::kStep : work.op),
                              .stage = work.stage,
                              .micro_batch = work.micro_batch,
                              .step = world_.step_of[worker]});
}

void Runner::OnForwardDone(int worker, const Instruction& instruction) {
  const int stage = instruction.stage;
  if (stage + 1 < world_.program.stages) {
    world_.ChangeMemory(worker, world_.stages[stage].output_bytes);
  } else if (!world_.program.training) {
    ++micro_batches_done_;
  }
  if (stage > 0) {
    world_.ChangeMemory(worker, -world_.stages[stage - 1].output_bytes);
  }
}

void Runner::OnInputGradientDone(int worker, int stage) {
  double change = 0;
  if (stage + 1 < world_.program.stages) {
    change -= world_.stages[stage].output_bytes;
  }
  if (stage > 0) change += world_.stages[stage - 1].output_bytes;
  world_.ChangeMemory(worker, change);
}

void Runner::OnWeightGradientDone(int worker, int stage, bool split) {
  const StageWork& work = world_.stages[stage];
  if (stage == 0) ++micro_batches_done_;
  world_.ChangeMemory(worker,
                      -work.kept_bytes - (split ? work.split_bytes : 0));
}

void Runner::FollowVersions(int worker, const Instruction& done) {
  if (versions_.empty()) return;
  VersionCounter& versions = versions_[worker];
  const int before = versions.kept();
  const absl::Status status = versions.Follow(done);
  PACELINE_CHECK(status.ok(), status.ToString());
  world_.ChangeMemory(worker, (versions.kept() - before) *
                                  world_.stages[done.stage].parameter_bytes);
}

void Runner::OnListDone(int worker) {
  // The steps of a stream were counted one by one.
  if (world_.program.streamed_step > 0) {
    workers_[worker].finished = true;
  } else {
    OnStepDone(worker);
    workers_[worker].next = 0;
    workers_[worker].finished = world_.step_of[worker] == world_.options.steps;
  }
}

void Runner::OnStepDone(int worker) {
  const int step = world_.step_of[worker]++;
  if (++workers_done_[step] < world_.program.workers()) return;
  step_ends_.push_back(world_.now);
  result_.all_step_seconds.push_back(world_.now - step_began_);
  step_began_ = attempt_began_ = world_.now;
}

// --- Disturbances -----------------------------------------------------------

int Runner::WorkerOfDevice(int device) const {
  const std::vector<int>& device_of = world_.program.device_of;
  const auto at = std::ranges::find(device_of, device);
  return at == device_of.end() ? -1 : static_cast<int>(at - device_of.begin());
}

void Runner::OnSlow(int device) {
  const int worker = WorkerOfDevice(device);
  if (worker < 0) return;  // holds no stage
  double factor = 1;
  for (size_t i = 0; i < slow_now_.size(); ++i) {
    const SimulatedSlowDown& slow = world_.options.slow_downs[i];
    if (slow_now_[i] && slow.device == device) factor *= slow.factor;
  }
  Processor& processor = world_.processors[worker];
  processor.SetFactor(factor, world_.now);
  for (const Processor::FrameJob& job : processor.frames()) {
    world_.queue.Push(job.due_seconds, {SimEventKind::kFrameCpuDue, worker,
                                        processor.frame_version()});
  }
  if (!processor.working()) return;
  world_.queue.Push(processor.work_due_seconds(),
                    {SimEventKind::kWorkDue, worker, processor.work_version()});
}

void Runner::OnFail(const SimulatedFailure& failure) {
  if (WorkerOfDevice(failure.device) < 0) return;
  for (int w = 0; w < world_.program.workers(); ++w) {
    TraceWork(w);
    world_.processors[w].Abandon(world_.now);
  }
  if (!failure.recover_after_seconds.has_value()) {
    result_.failed_device = failure.device;
    stopped_ = true;
    return;
  }
  world_.queue.Retain([](const SimEvent& event) {
    return event.kind >= SimEventKind::kSlowBegin;
  });
  world_.queue.Push(world_.now + *failure.recover_after_seconds,
                    {SimEventKind::kRecover});
  ++recoveries_due_;
  // No worker does anything until the recovery.
  for (WorkerState& state : workers_) state.wait = Wait::kNothing;
}

void Runner::OnRecover() {
  if (--recoveries_due_ > 0) return;
  ++result_.restarts;
  result_.lost_seconds += world_.now - attempt_began_;
  attempt_began_ = world_.now;
  const int step = static_cast<int>(step_ends_.size());
  std::fill(workers_done_.begin() + step, workers_done_.end(), 0);
  std::ranges::fill(arrived_, 0);
  path_.Clear();
  step_end_.Clear();
  world_.network.Clear();
  micro_batches_done_ = int64_t{step} * world_.program.micro_batches;
  for (int w = 0; w < world_.program.workers(); ++w) {
    workers_[w] = {.replica = workers_[w].replica};
    world_.step_of[w] = step;
    const MemoryMeter& bytes = world_.memory[w];
    world_.ChangeMemory(w, bytes.fixed - bytes.now);
  }
  for (int w = 0; w < world_.program.workers(); ++w) Proceed(w);
}

// --- The end ----------------------------------------------------------------

SimulationResult Runner::Summarize() {
  result_.seconds = world_.now;
  result_.devices.resize(world_.problem.devices.size());
  for (Processor& processor : world_.processors) processor.Abandon(world_.now);
  for (int w = 0; w < world_.program.workers(); ++w) {
    const Processor& processor = world_.processors[w];
    DeviceUse& use = world_.uses[w];
    use.used = true;
    use.load_seconds = processor.busy_seconds(CpuPart::kLoad);
    use.forward_seconds = processor.busy_seconds(CpuPart::kForward);
    use.backward_seconds = processor.busy_seconds(CpuPart::kBackward);
    use.optimizer_seconds = processor.busy_seconds(CpuPart::kOptimizer);
    use.send_seconds = processor.busy_seconds(CpuPart::kSend);
    use.receive_seconds = processor.busy_seconds(CpuPart::kReceive);
    const double busy = use.load_seconds + use.forward_seconds +
                        use.backward_seconds + use.optimizer_seconds +
                        use.send_seconds + use.receive_seconds;
    use.wait_seconds = std::max(0.0, result_.seconds - busy);
    use.peak_bytes = world_.memory[w].peak;
    result_.devices[world_.program.device_of[w]] = std::move(use);
  }
  double idle = 0;
  for (const DeviceUse& use : result_.devices) idle += use.wait_seconds;
  const double there = world_.program.workers() * result_.seconds;
  if (there > 0) result_.bubble_share = idle / there;

  const std::vector<double>& steps = result_.all_step_seconds;
  const size_t first = steps.size() > 1 ? 1 : 0;
  for (size_t s = first; s < steps.size(); ++s) {
    result_.step_seconds +=
        steps[s] / static_cast<double>(steps.size() - first);
  }
  if (result_.step_seconds > 0) {
    result_.micro_batches_per_second =
        static_cast<double>(world_.problem.micro_batches) /
        result_.step_seconds;
    result_.samples_per_second =
        result_.micro_batches_per_second *
        static_cast<double>(world_.options.micro_batch_samples);
  }
  result_.unfinished_micro_batches =
      micro_batches_done_ -
      static_cast<int64_t>(steps.size()) * world_.problem.micro_batches;
  result_.trace = world_.trace.Take();
  return std::move(result_);
}

}  // namespace paceline
