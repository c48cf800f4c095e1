#include "core/simulate/program.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "core/base/errors.h"
#include "core/plan/stage_memory.h"
#include "core/schedule/schedule.h"

namespace paceline {
namespace {

class DryRunOfReplicas {
 public:
  DryRunOfReplicas(const std::vector<ReplicaWork>& workers, int stages,
                   int micro_batches, bool training)
      : workers_(workers),
        stages_(stages),
        micro_batches_(micro_batches),
        training_(training),
        worker_of_(static_cast<size_t>(stages) * micro_batches, 0),
        done_(2 * worker_of_.size(), false),
        next_(workers.size()),
        orders_(workers.size()) {
    for (size_t w = 0; w < workers.size(); ++w) {
      for (const int micro_batch : workers[w].micro_batches) {
        worker_of_[Cell(workers[w].stage, micro_batch)] = static_cast<int>(w);
      }
      remaining_ += workers[w].micro_batches.size() * (training ? 2 : 1);
      awake_.push_back(w);
    }
  }

  std::vector<InstructionList> Run() && {
    for (;;) {
      while (!awake_.empty()) {
        const size_t worker = awake_.front();
        awake_.pop_front();
        RunWhilePossible(worker);
      }
      if (remaining_ == 0) return std::move(orders_);
      GoBackwardOutOfTurn();
    }
  }

 private:
  // How many of a worker's micro-batches went forward and backward.
  struct Next {
    size_t forward = 0;
    size_t backward = 0;
  };

  size_t Cell(int stage, int micro_batch) const {
    return static_cast<size_t>(stage) * micro_batches_ + micro_batch;
  }
  bool Done(int stage, int micro_batch, bool backward) const {
    return done_[2 * Cell(stage, micro_batch) + (backward ? 1 : 0)];
  }

  bool CanRun(const Instruction& compute) const {
    const auto [stage, op, micro_batch] = compute;
    if (op == Op::kForward) {
      return stage == 0 || Done(stage - 1, micro_batch, false);
    }
    return stage == stages_ - 1 || Done(stage + 1, micro_batch, true);
  }

  void RunWhilePossible(size_t worker) {
    const ReplicaWork& work = workers_[worker];
    for (;;) {
      const Next& next = next_[worker];
      const size_t all = work.micro_batches.size();
      const size_t flying = next.forward - next.backward;
      const bool forward =
          next.forward < all &&
          (!training_ || flying < static_cast<size_t>(work.in_flight));
      if (!forward && (!training_ || next.backward == all)) return;
      const Instruction compute = {
          work.stage, forward ? Op::kForward : Op::kBackward,
          work.micro_batches[forward ? next.forward : next.backward]};
      if (!CanRun(compute)) return;
      Execute(worker, compute);
    }
  }

  void Execute(size_t worker, const Instruction& compute) {
    const auto [stage, op, micro_batch] = compute;
    const bool backward = op == Op::kBackward;
    orders_[worker].push_back(compute);
    ++(backward ? next_[worker].backward : next_[worker].forward);
    done_[2 * Cell(stage, micro_batch) + (backward ? 1 : 0)] = true;
    --remaining_;
    const int neighbour = backward ? stage - 1 : stage + 1;
    if (neighbour >= 0 && neighbour < stages_) {
      awake_.push_back(worker_of_[Cell(neighbour, micro_batch)]);
    }
  }

  void GoBackwardOutOfTurn() {
    const auto backward_of = [&](size_t worker) {
      return Instruction{
          workers_[worker].stage, Op::kBackward,
          workers_[worker].micro_batches[next_[worker].backward]};
    };
    size_t best = workers_.size();
    for (size_t w = 0; w < workers_.size(); ++w) {
      if (next_[w].backward == next_[w].forward) continue;
      if (!CanRun(backward_of(w))) continue;
      if (best == workers_.size() ||
          backward_of(w).micro_batch < backward_of(best).micro_batch) {
        best = w;
      }
    }
    PACELINE_CHECK(best < workers_.size(), "the replicas deadlock with ",
                   remaining_, " computes left");
    Execute(best, backward_of(best));
    awake_.push_back(best);
  }

  // Constant after construction.
  const std::vector<ReplicaWork>& workers_;  // outlives the run
  const int stages_;
  const int micro_batches_;
  const bool training_;
  std::vector<int> worker_of_;  // by Cell

  std::vector<bool> done_;  // by Cell and direction
  std::vector<Next> next_;  // [workers]
  std::vector<InstructionList> orders_;
  std::deque<size_t> awake_;
  size_t remaining_ = 0;
};

// Numbers the devices in order of appearance.
void AddWorkers(const Placement& placement, Program* program) {
  std::map<int, int> worker_of_device;
  for (const PlacedStage& stage : placement) {
    program->workers_of.emplace_back();
    for (const int device : stage.devices) {
      const auto [entry, is_new] =
          worker_of_device.emplace(device, program->workers());
      if (is_new) program->device_of.push_back(device);
      program->workers_of.back().push_back(entry->second);
    }
  }
}

// Name and sizes, as MakeSchedule checks them, and that replicas can run it.
absl::Status CheckForReplicas(const Program& program,
                              absl::string_view schedule) {
  PACELINE_RETURN_IF_ERROR(
      MakeSchedule({.name = std::string(schedule), .worker_of = {0}}).status());
  // Where each worker has one stage, interleaved-1f1b is 1f1b.
  const ScheduleTraits& traits = ScheduleTraitsOf(schedule);
  if (program.training && traits.only_trains && !traits.deals) {
    return InvalidArgument(
        "the schedule '", schedule,
        "' is not made for replicated stages: use 1f1b or gpipe, "
        "or a plan without replicas");
  }
  return CheckScheduleSizes(program.stages, program.micro_batches);
}

std::vector<ReplicaWork> WorkOfReplicas(const Program& program,
                                        absl::string_view schedule) {
  std::vector<ReplicaWork> work(program.workers());
  int later = program.workers();
  for (int stage = 0; stage < program.stages; ++stage) {
    const std::vector<int>& workers = program.workers_of[stage];
    const int replicas = static_cast<int>(workers.size());
    later -= replicas;
    for (const int worker : workers) work[worker].stage = stage;
    for (int m = 0; m < program.micro_batches; ++m) {
      work[program.WorkerOf(stage, m)].micro_batches.push_back(m);
    }
    for (const int worker : workers) {
      work[worker].in_flight = ScheduleTraitsOf(schedule).keeps_all
                                   ? program.micro_batches
                                   : (later + replicas - 1) / replicas + 1;
    }
  }
  return work;
}

}  // namespace

std::vector<InstructionList> OrderReplicas(
    const std::vector<ReplicaWork>& workers, int stages, int micro_batches,
    bool training) {
  return DryRunOfReplicas(workers, stages, micro_batches, training).Run();
}

Program ProgramOfReplicas(const std::vector<int>& replicas,
                          std::vector<RouteTable> route, int micro_batches,
                          bool training) {
  Program program;
  program.stages = static_cast<int>(replicas.size());
  program.micro_batches = micro_batches;
  program.training = training;
  program.route = std::move(route);
  for (const int count : replicas) {
    std::vector<int>& workers = program.workers_of.emplace_back();
    for (int i = 0; i < count; ++i) {
      workers.push_back(program.workers());
      program.device_of.push_back(program.workers());
    }
  }
  return program;
}

absl::StatusOr<std::vector<InstructionList>> ListsOfReplicas(
    const Program& program, absl::string_view schedule) {
  PACELINE_RETURN_IF_ERROR(CheckForReplicas(program, schedule));
  const std::vector<ReplicaWork> work = WorkOfReplicas(program, schedule);
  const std::vector<InstructionList> orders = OrderReplicas(
      work, program.stages, program.micro_batches, program.training);
  std::vector<InstructionList> lists;
  for (size_t w = 0; w < work.size(); ++w) {
    lists.push_back(
        WithFrames(orders[w], program.stages, /*asynchronous=*/false));
    if (program.training) lists[w].push_back({work[w].stage, Op::kStep, 0});
  }
  return lists;
}

absl::StatusOr<Program> MakeProgram(const PlanProblem& problem,
                                    const Placement& placement,
                                    const SimulationOptions& options) {
  Program program;
  program.stages = static_cast<int>(placement.size());
  program.micro_batches = static_cast<int>(problem.micro_batches);
  program.training = problem.training;
  if (problem.training && ScheduleTraitsOf(options.schedule).asynchronous) {
    program.streamed_step = program.micro_batches;
    program.micro_batches *= options.steps;
  }
  AddWorkers(placement, &program);
  std::vector<int> worker_of;
  bool replicated = false;
  for (size_t s = 0; s < placement.size(); ++s) {
    program.route.push_back(MakeRouteTable(placement[s].shares));
    worker_of.push_back(program.workers_of[s].front());
    replicated = replicated || placement[s].devices.size() > 1;
  }
  if (!replicated) {
    PACELINE_ASSIGN_OR_RETURN(
        Schedule schedule, MakeSchedule({.name = options.schedule,
                                         .stages = program.stages,
                                         .micro_batches = program.micro_batches,
                                         .training = program.training,
                                         .worker_of = std::move(worker_of)}));
    program.lists = std::move(schedule.workers);
    return program;
  }
  PACELINE_ASSIGN_OR_RETURN(program.lists,
                            ListsOfReplicas(program, options.schedule));
  return program;
}

namespace {

struct Seconds {
  double forward = 0;
  double backward = 0;
};

Seconds SecondsOf(const PlanProblem& problem, int layer, const Device& device) {
  const LayerCost& cost = problem.layers[layer];
  const double backward = problem.training ? cost.backward_seconds : 0;
  if (device.layer_seconds.empty()) {
    return {cost.forward_seconds / device.speed, backward / device.speed};
  }
  const double measured = device.layer_seconds[layer];
  const double both = cost.forward_seconds + backward;
  if (!(both > 0)) return {measured, 0};
  const double forward = measured * (cost.forward_seconds / both);
  return {forward, measured - forward};
}

}  // namespace

std::vector<StageWork> WeighStages(
    const PlanProblem& problem, const Placement& placement,
    const std::vector<double>& optimizer_seconds) {
  std::vector<StageWork> stages;
  for (size_t s = 0; s < placement.size(); ++s) {
    const LayerRange layers = placement[s].layers;
    StageWork work;
    work.output_bytes = problem.layers[layers.last - 1].output_bytes;
    const StageAmounts amounts = AmountsOf(problem, layers);
    work.parameter_bytes = amounts.parameters;
    work.fixed_bytes = amounts.fixed + amounts.once;
    if (problem.training) {
      work.kept_bytes = amounts.kept;
      work.split_bytes = amounts.outputs;
    }
    for (const int index : placement[s].devices) {
      const Device& device = problem.devices[index];
      Seconds sum;
      double input_seconds = 0;
      for (int layer = layers.first; layer < layers.last; ++layer) {
        const Seconds seconds = SecondsOf(problem, layer, device);
        sum.forward += seconds.forward;
        sum.backward += seconds.backward;
        const bool weighs = problem.layers[layer].parameter_bytes > 0;
        input_seconds += weighs ? seconds.backward / 2 : seconds.backward;
      }
      work.forward_seconds.push_back(sum.forward);
      work.backward_seconds.push_back(sum.backward);
      work.input_seconds.push_back(input_seconds);
      work.optimizer_seconds.push_back(
          optimizer_seconds.empty() ? 0 : optimizer_seconds[s] / device.speed);
    }
    stages.push_back(std::move(work));
  }
  return stages;
}

}  // namespace paceline
