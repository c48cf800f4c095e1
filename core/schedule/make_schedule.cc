#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/schedule/schedule.h"

namespace paceline {
namespace {

// --- stages that share a worker ---------------------------------------------

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// A backward computes the gradients of inputs and of weights, each about as
// much work as the forward.
int64_t TicksOf(Op op) { return op == Op::kBackward ? 2 : 1; }

// A lower rank goes first: other stages wait for it more.
int RankOf(Op op) {
  return op == Op::kForward ? 1 : op == Op::kBackwardWeight ? 2 : 0;
}

// Merges the orders of stages that share a worker by list scheduling: a dry
// run of the whole pipeline in which a forward takes 1 tick, a backward 2 and a
// transfer none.  A worker that is free takes, among the next computes of its
// stages whose input is there,
//
//   1. a backward before a forward: it frees what a stage keeps, and the stages
//      before wait for it;
//   2. of one kind the lowest micro-batch, which is the furthest on its way;
//   3. the lowest stage.  This decides only between second halves of backwards:
//      of two stages, any other kind and micro-batch can be ready on one only,
//      as one's output is the other's input.
//
// Each stage keeps its own order, and so the bounds of kept micro-batches that
// this order proves.  The result cannot deadlock: sorted by the tick in which
// they started, all computes have their inputs before them.
class ListScheduler {
 public:
  ListScheduler(const std::vector<InstructionList>& orders,
                const std::vector<int>& worker_of, int workers)
      : orders_(orders),
        stages_of_(workers),
        next_(orders.size(), 0),
        finished_at_(orders.size()),
        free_at_(workers, 0),
        merged_(workers) {
    for (size_t stage = 0; stage < orders.size(); ++stage) {
      stages_of_[worker_of[stage]].push_back(static_cast<int>(stage));
      remaining_ += orders[stage].size();
      // Every micro-batch has at most one forward and one backward.
      finished_at_[stage].assign(2 * orders[stage].size(), kNever);
    }
  }

  std::vector<InstructionList> Run() && {
    int64_t now = 0;
    while (remaining_ > 0) {
      for (size_t worker = 0; worker < free_at_.size(); ++worker) {
        if (free_at_[worker] <= now) StartOne(worker, now);
      }
      int64_t next = kNever;
      for (const int64_t free_at : free_at_) {
        if (free_at > now) next = std::min(next, free_at);
      }
      PACELINE_CHECK(next != kNever || remaining_ == 0,
                     "the stages' orders deadlock with ", remaining_,
                     " computes left");
      now = next;
    }
    return std::move(merged_);
  }

 private:
  // The tick at which the output of a compute was there; kNever before the
  // compute started.
  int64_t& FinishedAt(int stage, int micro_batch, bool forward) {
    return finished_at_[stage][2 * static_cast<size_t>(micro_batch) +
                               (forward ? 0 : 1)];
  }

  bool IsReady(const Instruction& compute, int64_t now) {
    // Its other half comes before it in its stage's own order.
    if (compute.op == Op::kBackwardWeight) return true;
    const bool forward = compute.op == Op::kForward;
    const int from = compute.stage + (forward ? -1 : 1);
    // The first stage loads; the last finds its own forward before it.
    if (from < 0 || from >= static_cast<int>(orders_.size())) return true;
    return FinishedAt(from, compute.micro_batch, forward) <= now;
  }

  void StartOne(size_t worker, int64_t now) {
    const Instruction* best = nullptr;
    const auto rank = [](const Instruction& compute) {
      return std::make_tuple(RankOf(compute.op), compute.micro_batch,
                             compute.stage);
    };
    for (const int stage : stages_of_[worker]) {
      if (next_[stage] == orders_[stage].size()) continue;
      const Instruction& candidate = orders_[stage][next_[stage]];
      if (!IsReady(candidate, now)) continue;
      if (best == nullptr || rank(candidate) < rank(*best)) best = &candidate;
    }
    if (best == nullptr) return;
    free_at_[worker] = now + TicksOf(best->op);
    if (best->op != Op::kBackwardWeight) {
      FinishedAt(best->stage, best->micro_batch, best->op == Op::kForward) =
          free_at_[worker];
    }
    merged_[worker].push_back(*best);
    ++next_[best->stage];
    --remaining_;
  }

  // Constant after construction.
  const std::vector<InstructionList>& orders_;  // outlives the scheduler
  std::vector<std::vector<int>> stages_of_;     // [workers], ascending

  std::vector<size_t> next_;                       // [stages]
  std::vector<std::vector<int64_t>> finished_at_;  // [stages][2 x micro-batch]
  std::vector<int64_t> free_at_;                   // [workers]
  std::vector<InstructionList> merged_;            // [workers]
  size_t remaining_ = 0;
};

// --- generators -------------------------------------------------------------
//
// A generator says in which order workers compute (F, B, I and W), before
// anything is sent or received.

// The order of one stage, wherever it lies.
using StageOrder = InstructionList (*)(const ScheduleRequest& request,
                                       int stage);

InstructionList ForwardOnly(const ScheduleRequest& request, int stage) {
  InstructionList order;
  for (int i = 0; i < request.micro_batches; ++i) {
    order.push_back({stage, Op::kForward, i});
  }
  return order;
}

// Stages that share a worker are merged.
template <StageOrder stage_order>
absl::StatusOr<std::vector<InstructionList>> EachStage(
    const ScheduleRequest& request, int workers) {
  std::vector<InstructionList> orders;
  for (int stage = 0; stage < request.stages; ++stage) {
    orders.push_back(request.training ? stage_order(request, stage)
                                      : ForwardOnly(request, stage));
  }
  return ListScheduler(orders, request.worker_of, workers).Run();
}

// --- gpipe, 1f1b ------------------------------------------------------------

// `warm_up` forwards, then a forward and a backward in turn while there are
// forwards left, then the backwards that remain.
InstructionList InTurn(int stage, int micro_batches, int warm_up) {
  InstructionList order;
  int backwards = 0;
  for (int forward = 0; forward < micro_batches; ++forward) {
    order.push_back({stage, Op::kForward, forward});
    if (forward >= warm_up) {
      order.push_back({stage, Op::kBackward, backwards++});
    }
  }
  while (backwards < micro_batches) {
    order.push_back({stage, Op::kBackward, backwards++});
  }
  return order;
}

InstructionList GPipe(const ScheduleRequest& request, int stage) {
  return InTurn(stage, request.micro_batches,
                /*warm_up=*/request.micro_batches);
}

InstructionList OneForwardOneBackward(const ScheduleRequest& request,
                                      int stage) {
  return InTurn(stage, request.micro_batches,
                std::min(request.stages - 1 - stage, request.micro_batches));
}

// --- zero-bubble ------------------------------------------------------------

// ZB-H1 of Qi et al. 2023, "Zero Bubble Pipeline Parallelism", section 2.2: as
// 1f1b, but a stage puts the gradients of its weights off, by so many
// micro-batches that it keeps as many as the first stage does.  They then fill
// the gaps in which 1f1b waits for gradients at the end.
InstructionList ZeroBubble(const ScheduleRequest& request, int stage) {
  const int put_off = stage;
  InstructionList order;
  int weights = 0;
  for (const auto& [of, op, micro_batch] :
       OneForwardOneBackward(request, stage)) {
    if (op == Op::kForward) {
      order.push_back({stage, op, micro_batch});
      continue;
    }
    order.push_back({stage, Op::kBackwardInput, micro_batch});
    if (micro_batch + 1 - weights > put_off) {
      order.push_back({stage, Op::kBackwardWeight, weights++});
    }
  }
  while (weights < request.micro_batches) {
    order.push_back({stage, Op::kBackwardWeight, weights++});
  }
  return order;
}

// --- interleaved-1f1b -------------------------------------------------------

absl::Status CheckRoundRobin(const ScheduleRequest& request, int workers) {
  bool good = request.stages % workers == 0;
  for (int stage = 0; stage < request.stages; ++stage) {
    good = good && request.worker_of[stage] == stage % workers;
  }
  if (good) return absl::OkStatus();
  return InvalidArgument(
      "interleaved-1f1b deals the stages out in turn, as many to each worker: "
      "got ",
      request.stages, " stages on ", workers, " workers, [",
      absl::StrJoin(request.worker_of, ", "),
      "]: use a multiple of the workers, stage s on worker s mod ", workers);
}

absl::Status CheckWholeGroups(const ScheduleRequest& request, int workers) {
  if (request.micro_batches % workers == 0) return absl::OkStatus();
  return InvalidArgument(
      "interleaved-1f1b on ", workers,
      " workers needs the micro-batches of a batch to be a multiple of ",
      workers, ", got ", request.micro_batches,
      ": use another train.micro_batch or train.batch, or pipeline.schedule "
      "1f1b");
}

// Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU
// Clusters Using Megatron-LM", section 2.2: worker w holds the `chunks` stages
// w, w + W, ...; micro-batches go through a worker's stages in groups of W, so
// that the first of a group is back from the last worker when its turn at the
// next chunk comes.
InstructionList InterleavedOfWorker(const ScheduleRequest& request, int workers,
                                    int worker) {
  const int chunks = request.stages / workers;
  const int group = workers * chunks;
  const int total = request.micro_batches * chunks;
  // The k-th compute of either direction.
  const auto at = [&](int k, Op op) {
    const int in_group = k % group;
    const int position = in_group / workers;
    const int chunk = op == Op::kForward ? position : chunks - 1 - position;
    return Instruction{chunk * workers + worker, op,
                       k / group * workers + in_group % workers};
  };
  const int warm_up =
      std::min(total, 2 * (workers - 1 - worker) + (chunks - 1) * workers);
  InstructionList order;
  for (int k = 0; k < warm_up; ++k) order.push_back(at(k, Op::kForward));
  for (int k = warm_up; k < total; ++k) {
    order.push_back(at(k, Op::kForward));
    order.push_back(at(k - warm_up, Op::kBackward));
  }
  for (int k = total - warm_up; k < total; ++k) {
    order.push_back(at(k, Op::kBackward));
  }
  return order;
}

absl::StatusOr<std::vector<InstructionList>> Interleaved(
    const ScheduleRequest& request, int workers) {
  PACELINE_RETURN_IF_ERROR(CheckRoundRobin(request, workers));
  const absl::Status whole = CheckWholeGroups(request, workers);
  // With one stage a worker there is nothing to interleave.  A group that is
  // not whole is not back in time: the order below would deadlock.
  if (!request.training || request.stages == workers ||
      (request.shorter_batch && !whole.ok())) {
    return EachStage<OneForwardOneBackward>(request, workers);
  }
  PACELINE_RETURN_IF_ERROR(whole);
  std::vector<InstructionList> orders;
  for (int worker = 0; worker < workers; ++worker) {
    orders.push_back(InterleavedOfWorker(request, workers, worker));
  }
  return orders;
}

// --- pipedream --------------------------------------------------------------

// Each stage has the order of 1F1B; what an asynchronous stage decides for
// itself (AsynchronousOrder) is the same.
absl::StatusOr<std::vector<InstructionList>> PipeDream(
    const ScheduleRequest& request, int workers) {
  // Two stages of one worker would have to agree whose turn it is in a stream
  // whose end nobody knows.
  if (workers != request.stages) {
    return InvalidArgument("pipedream needs a worker for each stage, got ",
                           request.stages, " stages on ", workers,
                           workers == 1 ? " worker" : " workers",
                           ": use fewer stages, or pipeline.schedule 1f1b");
  }
  return EachStage<OneForwardOneBackward>(request, workers);
}

// The order of each of `workers` workers.  request.worker_of names each of
// them, and the sizes are those that MakeSchedule allows.
// Errors: InvalidArgument  the schedule is not made for this placement or so
//                          many micro-batches.
using Generator = absl::StatusOr<std::vector<InstructionList>> (*)(
    const ScheduleRequest& request, int workers);

struct Entry {
  ScheduleTraits traits;
  Generator generator;
};

// The table of schedules, sorted by name.
constexpr Entry kSchedules[] = {
    {{.name = "1f1b"}, &EachStage<OneForwardOneBackward>},
    {{.name = "gpipe", .keeps_all = true}, &EachStage<GPipe>},
    {{.name = "interleaved-1f1b", .deals = true, .only_trains = true},
     &Interleaved},
    {{.name = "pipedream", .asynchronous = true, .only_trains = true},
     &PipeDream},
    {{.name = "zero-bubble", .splits = true, .only_trains = true},
     &EachStage<ZeroBubble>},
};

const Entry* FindSchedule(absl::string_view name) {
  return FindNamed(kSchedules, name,
                   [](const Entry& entry) { return entry.traits.name; });
}

// --- lists ------------------------------------------------------------------

// The number of workers, when worker_of uses each of 0..W-1.
absl::StatusOr<int> CountWorkers(const ScheduleRequest& request) {
  const std::vector<int>& worker_of = request.worker_of;
  if (worker_of.size() != static_cast<size_t>(request.stages)) {
    return InvalidArgument("worker_of names a worker for ", worker_of.size(),
                           " stages, need ", request.stages);
  }
  std::vector<int> sorted = worker_of;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  const int workers = static_cast<int>(sorted.size());
  if (sorted.front() != 0 || sorted.back() != workers - 1) {
    return InvalidArgument("worker_of [", absl::StrJoin(worker_of, ", "),
                           "] must use every worker from 0 on without a gap");
  }
  return workers;
}

void TakeLarger(const std::vector<int>& other, std::vector<int>* bounds) {
  for (size_t i = 0; i < bounds->size(); ++i) {
    (*bounds)[i] = std::max((*bounds)[i], other[i]);
  }
}

}  // namespace

const ScheduleTraits& ScheduleTraitsOf(absl::string_view name) {
  static constexpr ScheduleTraits kNone = {};
  const Entry* const entry = FindSchedule(name);
  return entry == nullptr ? kNone : entry->traits;
}

std::vector<std::string> ScheduleNames() {
  return NamesOf(kSchedules,
                 [](const Entry& entry) { return entry.traits.name; });
}

absl::Status CheckScheduleSizes(int stages, int micro_batches) {
  if (stages < 1 || micro_batches < 1) {
    return InvalidArgument(
        "a schedule needs at least 1 stage and 1 micro-batch, got ", stages,
        " and ", micro_batches);
  }
  if (int64_t{stages} * micro_batches <= kMaxScheduleCells) {
    return absl::OkStatus();
  }
  return InvalidArgument(stages, " stages x ", micro_batches,
                         " micro-batches are too many for one batch, at most ",
                         kMaxScheduleCells,
                         " together: use larger micro-batches");
}

InstructionList WithFrames(const InstructionList& order, int stages,
                           bool asynchronous) {
  InstructionList list;
  for (const auto& [stage, op, micro_batch] : order) {
    const bool first = stage == 0;
    const bool last = stage == stages - 1;
    switch (op) {
      case Op::kForward:
        list.push_back({stage, first ? Op::kLoad : Op::kRecvF, micro_batch});
        list.push_back({stage, op, micro_batch});
        if (!last) list.push_back({stage, Op::kSendF, micro_batch});
        break;
      case Op::kBackwardWeight:
        list.push_back({stage, op, micro_batch});
        break;
      default:
        if (!last) list.push_back({stage, Op::kRecvB, micro_batch});
        list.push_back({stage, op, micro_batch});
        if (!first) list.push_back({stage, Op::kSendB, micro_batch});
        // After the send: the stage before does not wait for our optimizer.
        if (asynchronous) list.push_back({stage, Op::kUpdate, micro_batch});
    }
  }
  return list;
}

std::string ToText(const Schedule& schedule) {
  std::string text;
  for (const InstructionList& worker : schedule.workers) {
    absl::StrAppend(&text, ToText(worker), "\n");
  }
  return text;
}

absl::StatusOr<Schedule> MakeSchedule(const ScheduleRequest& request) {
  const Entry* const entry = FindSchedule(request.name);
  if (entry == nullptr) {
    return InvalidArgument("no schedule is named '", request.name,
                           "', there are ",
                           absl::StrJoin(ScheduleNames(), ", "));
  }
  PACELINE_RETURN_IF_ERROR(
      CheckScheduleSizes(request.stages, request.micro_batches));
  PACELINE_ASSIGN_OR_RETURN(const int workers, CountWorkers(request));

  PACELINE_ASSIGN_OR_RETURN(const std::vector<InstructionList> orders,
                            entry->generator(request, workers));
  Schedule schedule{.stages = request.stages,
                    .micro_batches = request.micro_batches,
                    .training = request.training,
                    .asynchronous = entry->traits.asynchronous,
                    .vertical_sync = request.vertical_sync,
                    .worker_of = request.worker_of,
                    .workers = {}};
  for (const InstructionList& order : orders) {
    schedule.workers.push_back(
        WithFrames(order, request.stages, schedule.asynchronous));
  }
  if (!request.training || schedule.asynchronous) return schedule;
  for (int stage = 0; stage < request.stages; ++stage) {
    schedule.workers[request.worker_of[stage]].push_back({stage, Op::kStep, 0});
  }
  return schedule;
}

absl::StatusOr<ScheduleBounds> BoundsOfRun(ScheduleRequest request) {
  if (request.training && ScheduleTraitsOf(request.name).asynchronous) {
    // However small its batches, the stream is long; twice the stages is
    // beyond its warm-up, and from there on it repeats itself.
    request.micro_batches =
        std::max(request.micro_batches, 2 * std::max(request.stages, 1));
  }
  PACELINE_ASSIGN_OR_RETURN(const Schedule schedule, MakeSchedule(request));
  PACELINE_ASSIGN_OR_RETURN(ScheduleBounds bounds, CheckSchedule(schedule));
  if (request.training && ScheduleTraitsOf(request.name).deals) {
    // A shorter batch may run the first schedule of the table instead.
    request.name = std::string(kSchedules[0].traits.name);
    PACELINE_ASSIGN_OR_RETURN(const Schedule shorter, MakeSchedule(request));
    PACELINE_ASSIGN_OR_RETURN(const ScheduleBounds others,
                              CheckSchedule(shorter));
    TakeLarger(others.activation_frames, &bounds.activation_frames);
    TakeLarger(others.gradient_frames, &bounds.gradient_frames);
    TakeLarger(others.kept_micro_batches, &bounds.kept_micro_batches);
  }
  return bounds;
}

// --- text ---

namespace {

// By Op.
constexpr absl::string_view kOpNames[] = {
    "LOAD",   "RECV_F", "F", "SEND_F", "RECV_B", "B",
    "SEND_B", "STEP",   "I", "W",      "UPDATE"};

}  // namespace

absl::string_view NameOf(Op op) { return kOpNames[static_cast<size_t>(op)]; }

std::string ToText(const Instruction& instruction) {
  const auto [stage, op, micro_batch] = instruction;
  return op == Op::kStep ? absl::StrCat(stage, NameOf(op))
                         : absl::StrCat(stage, NameOf(op), micro_batch);
}

std::optional<Instruction> PartnerOf(const Instruction& instruction) {
  const auto [stage, op, micro_batch] = instruction;
  switch (op) {
    case Op::kSendF:
      return Instruction{stage + 1, Op::kRecvF, micro_batch};
    case Op::kRecvF:
      return Instruction{stage - 1, Op::kSendF, micro_batch};
    case Op::kSendB:
      return Instruction{stage - 1, Op::kRecvB, micro_batch};
    case Op::kRecvB:
      return Instruction{stage + 1, Op::kSendB, micro_batch};
    default:
      return std::nullopt;
  }
}

std::string ToText(const InstructionList& instructions) {
  return Joined(instructions, " ",
                [](const Instruction& each) { return ToText(each); });
}

}  // namespace paceline
