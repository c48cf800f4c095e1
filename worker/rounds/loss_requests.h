// zeno's loss on a trusted batch: asked for by the thread that sums, computed
// by the compute thread when its turn comes.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "core/round/rule.h"
#include "worker/rounds/round_turn.h"

namespace paceline {

// Thread-safe; one question at a time.  What a question points to is memory of
// the one who asks: once the compute thread has taken it, it is waited for,
// whatever else happens.
class LossRequests final : public TrustedLoss {
 public:
  // turns outlives this.
  explicit LossRequests(RoundTurns& turns) : turns_(turns) {}

  // Wait for the answer.  Errors: the answer's; Cancelled  nobody took the
  // question, and nobody will
  absl::StatusOr<double> AtPresent() override { return Ask({}, 0); }
  absl::StatusOr<double> After(absl::Span<const float> direction,
                               double step) override {
    return Ask(direction, step);
  }

  // The compute thread has a kLoss turn.  True: it answers now.  False: the
  // question was withdrawn, and what it points to may be gone.
  bool Take(const RoundTurn& turn);
  void Answer(absl::StatusOr<double> loss);

  // While shut, questions that nobody took are withdrawn, and new ones refused:
  // the compute thread waits for memory that the asking one still reads.
  void SetShut(bool shut);
  // For good, from any thread.
  void End();

 private:
  absl::StatusOr<double> Ask(absl::Span<const float> direction, double step);
  bool IsSettled() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  RoundTurns& turns_;

  absl::Mutex mutex_;
  int64_t last_ ABSL_GUARDED_BY(mutex_) = 0;  // number of a question
  int64_t open_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: none is
  bool taken_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::StatusOr<double>> answer_ ABSL_GUARDED_BY(mutex_);
  bool shut_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace paceline
