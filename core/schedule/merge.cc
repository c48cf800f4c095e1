#include "core/schedule/merge.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace paceline {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// A backward computes the gradients of inputs and of weights, each about as
// much work as the forward.
int64_t TicksOf(Op op) { return op == Op::kBackward ? 2 : 1; }

// The lower, the more others wait for it.
int RankOf(Op op) {
  switch (op) {
    case Op::kForward:
      return 1;
    case Op::kBackwardWeight:
      return 2;
    default:
      return 0;
  }
}

// The dry run's state at one tick.
class ListScheduler {
 public:
  ListScheduler(const std::vector<ComputeOrder>& orders,
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

  std::vector<ComputeOrder> Run() && {
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
                     absl::StrCat("the stages' orders deadlock with ",
                                  remaining_, " computes left"));
      now = next;
    }
    return std::move(merged_);
  }

 private:
  // When what the neighbours wait for was there; kNever before its compute
  // started.
  int64_t& FinishedAt(int stage, int micro_batch, bool forward) {
    return finished_at_[stage][2 * static_cast<size_t>(micro_batch) +
                               (forward ? 0 : 1)];
  }

  bool IsReady(const Compute& compute, int64_t now) {
    // Its other half comes before it in its stage's own order.
    if (compute.op == Op::kBackwardWeight) return true;
    const bool forward = compute.op == Op::kForward;
    const int from = compute.stage + (forward ? -1 : 1);
    // The first stage loads; the last finds its own forward before it.
    if (from < 0 || from >= static_cast<int>(orders_.size())) return true;
    return FinishedAt(from, compute.micro_batch, forward) <= now;
  }

  void StartOne(size_t worker, int64_t now) {
    const Compute* best = nullptr;
    const auto rank = [](const Compute& compute) {
      return std::make_tuple(RankOf(compute.op), compute.micro_batch,
                             compute.stage);
    };
    for (const int stage : stages_of_[worker]) {
      if (next_[stage] == orders_[stage].size()) continue;
      const Compute& candidate = orders_[stage][next_[stage]];
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
  const std::vector<ComputeOrder>& orders_;  // outlives the scheduler
  std::vector<std::vector<int>> stages_of_;  // [workers], ascending

  std::vector<size_t> next_;                       // [stages]
  std::vector<std::vector<int64_t>> finished_at_;  // [stages][2 x micro-batch]
  std::vector<int64_t> free_at_;                   // [workers]
  std::vector<ComputeOrder> merged_;               // [workers]
  size_t remaining_ = 0;
};

}  // namespace

std::vector<ComputeOrder> MergeByWorker(const std::vector<ComputeOrder>& orders,
                                        const std::vector<int>& worker_of,
                                        int workers) {
  return ListScheduler(orders, worker_of, workers).Run();
}

}  // namespace paceline
