// Workers that misbehave on purpose (JobSpec.faults): what goes wrong at which
// step, as data.  Workers and the simulation of rounds read it alike.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/job/spec/job_spec.h"

namespace paceline {

// One worker does these things wrong in one step.
struct StepFaults {
  bool kill = false;                // the process ends as by SIGKILL
  absl::Duration hang;              // all of its threads stand still
  absl::Duration delay;             // its compute thread does
  bool label_flip = false;          // of n classes, c becomes n - 1 - c
  std::optional<double> sign_flip;  // its gradient times minus this
  std::optional<double> gaussian;   // noise of this deviation a sample instead
  bool nan = false;                 // NaN and infinity in its gradient
  bool bit_flip = false;   // a bit of the part after its hash was taken
  bool duplicate = false;  // every offer is made twice

  bool spoils_gradient() const {
    return sign_flip.has_value() || gaussian.has_value() || nan;
  }
  friend bool operator==(const StepFaults&, const StepFaults&) = default;
};

// Immutable.
class FaultPlan {
 public:
  FaultPlan() = default;
  // Those of `specs` that are `worker`'s.
  //   began_with_the_job  false: this process came later.  It is never killed
  //                       again: the step that killed the one before it may
  //                       come anew, and would kill every one after it.
  FaultPlan(const std::vector<FaultSpec>& specs, absl::string_view worker,
            bool began_with_the_job);

  // step: optimizer updates done before.
  StepFaults At(int64_t step) const;

  // Whether to be killed in this phase of serving `step`: "gathering",
  // "spreading" or "committing".
  bool KillsServer(int64_t step, absl::string_view phase) const;

 private:
  std::vector<FaultSpec> faults_;
};

}  // namespace paceline
