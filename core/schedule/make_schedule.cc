#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/schedule/asynchronous.h"
#include "core/schedule/compute_order.h"
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
void Append(const ScheduleRequest& request, const Compute& compute,
            InstructionList* out) {
  const auto [stage, micro_batch, op] = compute;
  const bool first = stage == 0;
  const bool last = stage == request.stages - 1;
  switch (op) {
    case Op::kForward:
      out->push_back({stage, first ? Op::kLoad : Op::kRecvF, micro_batch});
      out->push_back({stage, op, micro_batch});
      if (!last) out->push_back({stage, Op::kSendF, micro_batch});
      return;
    case Op::kBackwardWeight:
      out->push_back({stage, op, micro_batch});
      return;
    default:
      if (!last) out->push_back({stage, Op::kRecvB, micro_batch});
      out->push_back({stage, op, micro_batch});
      if (!first) out->push_back({stage, Op::kSendB, micro_batch});
      // After the send: the stage before does not wait for our optimizer.
      if (IsAsynchronous(request.name)) {
        out->push_back({stage, Op::kUpdate, micro_batch});
      }
  }
}

InstructionList Expand(const ScheduleRequest& request,
                       const ComputeOrder& order) {
  InstructionList instructions;
  for (const Compute& compute : order) Append(request, compute, &instructions);
  return instructions;
}

void TakeLarger(const std::vector<int>& other, std::vector<int>* bounds) {
  for (size_t i = 0; i < bounds->size(); ++i) {
    (*bounds)[i] = std::max((*bounds)[i], other[i]);
  }
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

  PACELINE_ASSIGN_OR_RETURN(const std::vector<ComputeOrder> orders,
                            generator(request, workers));
  Schedule schedule{.stages = request.stages,
                    .micro_batches = request.micro_batches,
                    .training = request.training,
                    .asynchronous = IsAsynchronous(request.name),
                    .vertical_sync = request.vertical_sync,
                    .worker_of = request.worker_of,
                    .workers = {}};
  for (const ComputeOrder& order : orders) {
    schedule.workers.push_back(Expand(request, order));
  }
  if (!request.training || schedule.asynchronous) return schedule;
  for (int stage = 0; stage < request.stages; ++stage) {
    schedule.workers[request.worker_of[stage]].push_back({stage, Op::kStep, 0});
  }
  return schedule;
}

absl::StatusOr<ScheduleBounds> BoundsOfRun(ScheduleRequest request) {
  if (request.training && IsAsynchronous(request.name)) {
    // However small its batches, the stream is long; twice the stages is
    // beyond its warm-up, and from there on it repeats itself.
    request.micro_batches =
        std::max(request.micro_batches, 2 * std::max(request.stages, 1));
  }
  PACELINE_ASSIGN_OR_RETURN(const Schedule schedule, MakeSchedule(request));
  PACELINE_ASSIGN_OR_RETURN(ScheduleBounds bounds, CheckSchedule(schedule));
  if (request.training && request.name == "interleaved-1f1b") {
    // What a shorter batch may run instead.
    request.name = "1f1b";
    PACELINE_ASSIGN_OR_RETURN(const Schedule shorter, MakeSchedule(request));
    PACELINE_ASSIGN_OR_RETURN(const ScheduleBounds others,
                              CheckSchedule(shorter));
    TakeLarger(others.activation_frames, &bounds.activation_frames);
    TakeLarger(others.gradient_frames, &bounds.gradient_frames);
    TakeLarger(others.kept_micro_batches, &bounds.kept_micro_batches);
  }
  return bounds;
}

}  // namespace paceline
