#include "core/schedule/compute_order.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/schedule/asynchronous.h"
#include "core/schedule/merge.h"

namespace paceline {
namespace {

// The order of one stage, wherever it lies.
using StageOrder = ComputeOrder (*)(const ScheduleRequest& request, int stage);

ComputeOrder ForwardOnly(const ScheduleRequest& request, int stage) {
  ComputeOrder order;
  for (int i = 0; i < request.micro_batches; ++i) {
    order.push_back({stage, i, Op::kForward});
  }
  return order;
}

// Stages that share a worker are merged.
std::vector<ComputeOrder> EachStage(const ScheduleRequest& request, int workers,
                                    StageOrder stage_order) {
  std::vector<ComputeOrder> orders;
  for (int stage = 0; stage < request.stages; ++stage) {
    orders.push_back(request.training ? stage_order(request, stage)
                                      : ForwardOnly(request, stage));
  }
  return MergeByWorker(orders, request.worker_of, workers);
}

// --- gpipe, 1f1b
// --------------------------------------------------------------

// `warm_up` forwards, then a forward and a backward in turn while there are
// forwards left, then the backwards that remain.
ComputeOrder InTurn(int stage, int micro_batches, int warm_up) {
  ComputeOrder order;
  int backwards = 0;
  for (int forward = 0; forward < micro_batches; ++forward) {
    order.push_back({stage, forward, Op::kForward});
    if (forward >= warm_up) {
      order.push_back({stage, backwards++, Op::kBackward});
    }
  }
  while (backwards < micro_batches) {
    order.push_back({stage, backwards++, Op::kBackward});
  }
  return order;
}

ComputeOrder GPipeOfStage(const ScheduleRequest& request, int stage) {
  return InTurn(stage, request.micro_batches,
                /*warm_up=*/request.micro_batches);
}

ComputeOrder OneForwardOneBackwardOfStage(const ScheduleRequest& request,
                                          int stage) {
  return InTurn(stage, request.micro_batches,
                std::min(request.stages - 1 - stage, request.micro_batches));
}

absl::StatusOr<std::vector<ComputeOrder>> GPipe(const ScheduleRequest& request,
                                                int workers) {
  return EachStage(request, workers, &GPipeOfStage);
}

absl::StatusOr<std::vector<ComputeOrder>> OneForwardOneBackward(
    const ScheduleRequest& request, int workers) {
  return EachStage(request, workers, &OneForwardOneBackwardOfStage);
}

// --- zero-bubble
// --------------------------------------------------------------

// ZB-H1 of Qi et al. 2023, "Zero Bubble Pipeline Parallelism", section 2.2: as
// 1f1b, but a stage puts the gradients of its weights off, by so many
// micro-batches that it keeps as many as the first stage does.  They then fill
// the gaps in which 1f1b waits for gradients at the end.
ComputeOrder ZeroBubbleOfStage(const ScheduleRequest& request, int stage) {
  const int micro_batches = request.micro_batches;
  const int warm_up = std::min(request.stages - 1 - stage, micro_batches);
  const int put_off = stage;
  ComputeOrder order;
  int inputs = 0;
  int weights = 0;
  const auto go_backward = [&] {
    order.push_back({stage, inputs++, Op::kBackwardInput});
    if (inputs - weights > put_off) {
      order.push_back({stage, weights++, Op::kBackwardWeight});
    }
  };
  for (int forward = 0; forward < micro_batches; ++forward) {
    order.push_back({stage, forward, Op::kForward});
    if (forward >= warm_up) go_backward();
  }
  while (inputs < micro_batches) go_backward();
  while (weights < micro_batches) {
    order.push_back({stage, weights++, Op::kBackwardWeight});
  }
  return order;
}

absl::StatusOr<std::vector<ComputeOrder>> ZeroBubble(
    const ScheduleRequest& request, int workers) {
  return EachStage(request, workers, &ZeroBubbleOfStage);
}

// --- interleaved-1f1b
// ---------------------------------------------------------

absl::Status CheckRoundRobin(const ScheduleRequest& request, int workers) {
  bool good = request.stages % workers == 0;
  for (int stage = 0; stage < request.stages; ++stage) {
    good = good && request.worker_of[stage] == stage % workers;
  }
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "interleaved-1f1b deals the stages out in turn, as many to each worker: "
      "got ",
      request.stages, " stages on ", workers, " workers, [",
      absl::StrJoin(request.worker_of, ", "),
      "]: use a multiple of the workers, stage s on worker s mod ", workers));
}

absl::Status CheckWholeGroups(const ScheduleRequest& request, int workers) {
  if (request.micro_batches % workers == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "interleaved-1f1b on ", workers,
      " workers needs the micro-batches of a batch to be a multiple of ",
      workers, ", got ", request.micro_batches,
      ": use another train.micro_batch or train.batch, or pipeline.schedule "
      "1f1b"));
}

// Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU
// Clusters Using Megatron-LM", section 2.2: worker w holds the `chunks` stages
// w, w + W, ...; micro-batches go through a worker's stages in groups of W, so
// that the first of a group is back from the last worker when its turn at the
// next chunk comes.
ComputeOrder InterleavedOfWorker(const ScheduleRequest& request, int workers,
                                 int worker) {
  const int chunks = request.stages / workers;
  const int group = workers * chunks;
  const int total = request.micro_batches * chunks;
  // The k-th compute of either direction.
  const auto at = [&](int k, Op op) {
    const int in_group = k % group;
    const int position = in_group / workers;
    const int chunk = op == Op::kForward ? position : chunks - 1 - position;
    return Compute{chunk * workers + worker,
                   k / group * workers + in_group % workers, op};
  };
  const int warm_up =
      std::min(total, 2 * (workers - 1 - worker) + (chunks - 1) * workers);
  ComputeOrder order;
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

absl::StatusOr<std::vector<ComputeOrder>> Interleaved(
    const ScheduleRequest& request, int workers) {
  PACELINE_RETURN_IF_ERROR(CheckRoundRobin(request, workers));
  if (!request.training) return EachStage(request, workers, &ForwardOnly);
  // With one stage a worker there is nothing to interleave.
  if (request.stages == workers) {
    return OneForwardOneBackward(request, workers);
  }
  const absl::Status whole = CheckWholeGroups(request, workers);
  if (!whole.ok()) {
    // A group that is not whole is not back in time: the order below would
    // deadlock.
    if (request.shorter_batch) return OneForwardOneBackward(request, workers);
    return whole;
  }
  std::vector<ComputeOrder> orders;
  for (int worker = 0; worker < workers; ++worker) {
    orders.push_back(InterleavedOfWorker(request, workers, worker));
  }
  return orders;
}

// --- pipedream
// ----------------------------------------------------------------

ComputeOrder PipeDreamOfStage(const ScheduleRequest& request, int stage) {
  AsynchronousOrder next(stage, request.stages);
  ComputeOrder order;
  int forwards = 0;
  int backwards = 0;
  for (;;) {
    switch (next.Decide(/*more=*/forwards < request.micro_batches)) {
      case AsynchronousOrder::Next::kForward:
        order.push_back({stage, forwards++, Op::kForward});
        next.OnForward();
        break;
      case AsynchronousOrder::Next::kBackward:
        order.push_back({stage, backwards++, Op::kBackward});
        next.OnBackward();
        break;
      case AsynchronousOrder::Next::kNothing:
        return order;
    }
  }
}

absl::StatusOr<std::vector<ComputeOrder>> PipeDream(
    const ScheduleRequest& request, int workers) {
  // Two stages of one worker would have to agree whose turn it is in a stream
  // whose end nobody knows.
  if (workers != request.stages) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pipedream needs a worker for each stage, got ", request.stages,
        " stages on ", workers, workers == 1 ? " worker" : " workers",
        ": use fewer stages, or pipeline.schedule 1f1b"));
  }
  return EachStage(request, workers, &PipeDreamOfStage);
}

struct Entry {
  absl::string_view name;
  Generator generator;
};

// Sorted by name.
constexpr Entry kGenerators[] = {
    {"1f1b", &OneForwardOneBackward},   {"gpipe", &GPipe},
    {"interleaved-1f1b", &Interleaved}, {"pipedream", &PipeDream},
    {"zero-bubble", &ZeroBubble},
};

}  // namespace

Generator FindGenerator(absl::string_view name) {
  for (const Entry& entry : kGenerators) {
    if (entry.name == name) return entry.generator;
  }
  return nullptr;
}

std::vector<std::string> ScheduleNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kGenerators) names.emplace_back(entry.name);
  return names;
}

}  // namespace paceline
