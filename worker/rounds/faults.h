// Faults on purpose (JobSpec.faults) in a worker's gradients, labels and
// process; pure except for FaultActions.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "core/base/tensor.h"
#include "core/job/spec/job_spec.h"

namespace paceline {

// Applies the faults to the gradient, a sum over `samples`; noise is drawn from
// `seed`.
void SpoilGradient(const StepFaults& faults, int64_t samples, uint64_t seed,
                   absl::Span<float> gradient);

// A copy in which label c is classes - 1 - c; values that are no class stay.
Tensor FlipLabels(const Tensor& labels, int64_t classes);

// The faults that need the operating system.  One real implementation, one in
// the tests.
class FaultActions {
 public:
  virtual ~FaultActions() = default;
  virtual void Kill() = 0;
  // Returns after `time`.
  virtual void Hang(absl::Duration time) = 0;
};

// Kill() sends this process SIGKILL, Hang() SIGSTOP; a process that Hang()
// starts then sends SIGCONT. If it cannot start, Hang() only logs that.
class ProcessFaults final : public FaultActions {
 public:
  void Kill() override;
  void Hang(absl::Duration time) override;
};

}  // namespace paceline
