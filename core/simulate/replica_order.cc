#include "core/simulate/replica_order.h"

#include <cstddef>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"

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

  std::vector<ComputeOrder> Run() && {
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

  bool CanRun(const Compute& compute) const {
    const auto [stage, micro_batch, op] = compute;
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
      const Compute compute = {
          work.stage,
          work.micro_batches[forward ? next.forward : next.backward],
          forward ? Op::kForward : Op::kBackward};
      if (!CanRun(compute)) return;
      Execute(worker, compute);
    }
  }

  void Execute(size_t worker, const Compute& compute) {
    const auto [stage, micro_batch, op] = compute;
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
      return Compute{workers_[worker].stage,
                     workers_[worker].micro_batches[next_[worker].backward],
                     Op::kBackward};
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
    PACELINE_CHECK(best < workers_.size(),
                   absl::StrCat("the replicas deadlock with ", remaining_,
                                " computes left"));
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
  std::vector<ComputeOrder> orders_;
  std::deque<size_t> awake_;
  size_t remaining_ = 0;
};

}  // namespace

std::vector<ComputeOrder> OrderReplicas(const std::vector<ReplicaWork>& workers,
                                        int stages, int micro_batches,
                                        bool training) {
  return DryRunOfReplicas(workers, stages, micro_batches, training).Run();
}

}  // namespace paceline
