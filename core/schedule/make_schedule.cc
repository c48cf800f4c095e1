#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/schedule/compute_order.h"
#include "core/schedule/merge.h"
#include "core/schedule/schedule.h"

namespace paceline {
namespace {

// The number of workers, when worker_of uses each of 0..W-1.
absl::StatusOr<int> CountWorkers(const ScheduleRequest& request) {
  const std::vector<int>& worker_of = request.worker_of;
  if (worker_of.size() != static_cast<size_t>(request.stages)) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker_of names a worker for ", worker_of.size(),
                     " stages, need ", request.stages));
  }
  std::vector<int> sorted = worker_of;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  const int workers = static_cast<int>(sorted.size());
  if (sorted.front() != 0 || sorted.back() != workers - 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker_of [", absl::StrJoin(worker_of, ", "),
                     "] must use every worker from 0 on without a gap"));
  }
  return workers;
}

absl::Status CheckSizes(const ScheduleRequest& request) {
  if (request.stages < 1 || request.micro_batches < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a schedule needs at least 1 stage and 1 micro-batch, got ",
        request.stages, " and ", request.micro_batches));
  }
  if (int64_t{request.stages} * request.micro_batches > kMaxScheduleCells) {
    return absl::InvalidArgumentError(
        absl::StrCat(request.stages, " stages x ", request.micro_batches,
                     " micro-batches are too many for one batch, at most ",
                     kMaxScheduleCells, " together: use larger micro-batches"));
  }
  return absl::OkStatus();
}

// A compute with what it waits for and what it hands on.
void AppendForward(const ScheduleRequest& request, const Compute& compute,
                   InstructionList* out) {
  const auto [stage, micro_batch, backward] = compute;
  out->push_back({stage, stage == 0 ? Op::kLoad : Op::kRecvF, micro_batch});
  out->push_back({stage, Op::kForward, micro_batch});
  if (stage < request.stages - 1) {
    out->push_back({stage, Op::kSendF, micro_batch});
  }
}

void AppendBackward(const ScheduleRequest& request, const Compute& compute,
                    InstructionList* out) {
  const auto [stage, micro_batch, backward] = compute;
  if (stage < request.stages - 1) {
    out->push_back({stage, Op::kRecvB, micro_batch});
  }
  out->push_back({stage, Op::kBackward, micro_batch});
  if (stage > 0) out->push_back({stage, Op::kSendB, micro_batch});
}

InstructionList Expand(const ScheduleRequest& request,
                       const ComputeOrder& order) {
  InstructionList instructions;
  for (const Compute& compute : order) {
    if (compute.backward) {
      AppendBackward(request, compute, &instructions);
    } else {
      AppendForward(request, compute, &instructions);
    }
  }
  return instructions;
}

}  // namespace

std::string ToText(const Schedule& schedule) {
  std::string text;
  for (const InstructionList& worker : schedule.workers) {
    absl::StrAppend(&text, ToText(worker), "\n");
  }
  return text;
}

absl::StatusOr<Schedule> MakeSchedule(const ScheduleRequest& request) {
  const Generator generator = FindGenerator(request.name);
  if (generator == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("no schedule is named '", request.name, "', there are ",
                     absl::StrJoin(ScheduleNames(), ", ")));
  }
  PACELINE_RETURN_IF_ERROR(CheckSizes(request));
  PACELINE_ASSIGN_OR_RETURN(const int workers, CountWorkers(request));

  std::vector<ComputeOrder> orders;
  for (int stage = 0; stage < request.stages; ++stage) {
    orders.push_back(generator(request, stage));
  }
  Schedule schedule{.stages = request.stages,
                    .micro_batches = request.micro_batches,
                    .training = request.training,
                    .worker_of = request.worker_of,
                    .workers = {}};
  for (const ComputeOrder& order :
       MergeByWorker(orders, request.worker_of, workers)) {
    schedule.workers.push_back(Expand(request, order));
  }
  if (!request.training) return schedule;
  for (int stage = 0; stage < request.stages; ++stage) {
    schedule.workers[request.worker_of[stage]].push_back({stage, Op::kStep, 0});
  }
  return schedule;
}

}  // namespace paceline
