// Workers that misbehave on purpose (JobSpec.faults): what is done to their
// gradients, labels and processes; pure but for FaultActions.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "core/base/tensor.h"
#include "core/model/fault_plan.h"

namespace paceline {

// Does to the gradient, a sum over `samples`, what the faults say; noise is
// drawn from `seed`.
void SpoilGradient(const StepFaults& faults, int64_t samples, uint64_t seed,
                   absl::Span<float> gradient);

// A copy with every label turned around; what is no class stays.
Tensor FlipLabels(const Tensor& labels, int64_t classes);

// The faults that need the operating system.  One real implementation, one in
// the tests.
class FaultActions {
 public:
  virtual ~FaultActions() = default;
  virtual void Kill() = 0;
  // Returns when it is over.
  virtual void Hang(absl::Duration time) = 0;
};

// Sends this process SIGKILL, or SIGSTOP, and then SIGCONT from a process of
// its own.  Where that cannot be started it does not stop, and logs it.
class ProcessFaults final : public FaultActions {
 public:
  void Kill() override;
  void Hang(absl::Duration time) override;
};

}  // namespace paceline
