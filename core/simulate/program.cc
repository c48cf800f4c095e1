#include "core/simulate/program.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/schedule/asynchronous.h"
#include "core/schedule/schedule.h"
#include "core/simulate/replica_order.h"

namespace paceline {
namespace {

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

absl::StatusOr<std::vector<InstructionList>> ListsOfSchedule(
    const Program& program, const ProgramRequest& request) {
  ScheduleRequest wanted;
  wanted.name = std::string(request.schedule);
  wanted.stages = program.stages;
  wanted.micro_batches = program.micro_batches;
  wanted.training = program.training;
  for (const std::vector<int>& workers : program.workers_of) {
    wanted.worker_of.push_back(workers.front());
  }
  PACELINE_ASSIGN_OR_RETURN(Schedule schedule, MakeSchedule(wanted));
  return std::move(schedule.workers);
}

// Name and sizes, as MakeSchedule checks them, and that replicas can run it.
absl::Status CheckForReplicas(const Program& program,
                              const ProgramRequest& request) {
  ScheduleRequest probe;
  probe.name = std::string(request.schedule);
  probe.worker_of = {0};
  PACELINE_RETURN_IF_ERROR(MakeSchedule(probe).status());
  if (program.training && request.schedule != "gpipe" &&
      request.schedule != "1f1b") {
    return absl::InvalidArgumentError(
        absl::StrCat("the schedule '", request.schedule,
                     "' is not made for replicated stages: use 1f1b or gpipe, "
                     "or a plan without replicas"));
  }
  const int64_t cells = int64_t{program.stages} * program.micro_batches;
  if (cells <= kMaxScheduleCells) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(program.stages, " stages x ", program.micro_batches,
                   " micro-batches are too many for one batch, at most ",
                   kMaxScheduleCells, " together: use larger micro-batches"));
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
      work[worker].in_flight =
          schedule == "gpipe" ? program.micro_batches : later / replicas + 1;
    }
  }
  return work;
}

// As core/schedule: a LOAD or RECV right before the compute that needs it, a
// SEND right after the one that made it, STEP last.
InstructionList Expand(const Program& program, int stage,
                       const ComputeOrder& order) {
  const bool first = stage == 0;
  const bool last = stage == program.stages - 1;
  InstructionList list;
  for (const auto& [of, micro_batch, op] : order) {
    if (op == Op::kBackward) {
      if (!last) list.push_back({stage, Op::kRecvB, micro_batch});
      list.push_back({stage, Op::kBackward, micro_batch});
      if (!first) list.push_back({stage, Op::kSendB, micro_batch});
      continue;
    }
    list.push_back({stage, first ? Op::kLoad : Op::kRecvF, micro_batch});
    list.push_back({stage, Op::kForward, micro_batch});
    if (!last) list.push_back({stage, Op::kSendF, micro_batch});
  }
  if (program.training) list.push_back({stage, Op::kStep, 0});
  return list;
}

std::vector<InstructionList> ListsOfReplicas(const Program& program,
                                             absl::string_view schedule) {
  const std::vector<ReplicaWork> work = WorkOfReplicas(program, schedule);
  const std::vector<ComputeOrder> orders = OrderReplicas(
      work, program.stages, program.micro_batches, program.training);
  std::vector<InstructionList> lists;
  for (size_t w = 0; w < work.size(); ++w) {
    lists.push_back(Expand(program, work[w].stage, orders[w]));
  }
  return lists;
}

}  // namespace

absl::StatusOr<Program> MakeProgram(const Placement& placement,
                                    const ProgramRequest& request) {
  Program program;
  program.stages = static_cast<int>(placement.size());
  program.micro_batches = request.micro_batches;
  program.training = request.training;
  if (request.training && IsAsynchronous(request.schedule)) {
    program.streamed_step = request.micro_batches;
    program.micro_batches *= request.steps;
  }
  AddWorkers(placement, &program);
  const bool replicated =
      std::any_of(placement.begin(), placement.end(),
                  [](const PlacedStage& s) { return s.devices.size() > 1; });
  program.route.resize(placement.size());
  if (!replicated) {
    PACELINE_ASSIGN_OR_RETURN(program.lists, ListsOfSchedule(program, request));
    return program;
  }
  PACELINE_RETURN_IF_ERROR(CheckForReplicas(program, request));
  for (size_t s = 0; s < placement.size(); ++s) {
    program.route[s] = MakeRouteTable(placement[s].shares);
  }
  program.lists = ListsOfReplicas(program, request.schedule);
  return program;
}

}  // namespace paceline
