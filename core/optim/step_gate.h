// The step gate: a step is applied on all stages or on none.  Every
// stage reports; with all reports in, the verdict is a pure function of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/job/spec/job_spec.h"

namespace paceline {

// A stage's report on its summed gradient.
struct StepReport {
  int64_t step = 0;  // optimizer updates done before
  int stage = 0;
  int replica = 0;  // of the stage
  // XXH3-64 of the gradient, in layer order; of a replica, of its sum and of
  // the state before the step; 0: of a group's member.
  uint64_t result_hash = 0;
  std::vector<double> squared_norms;  // one a parameter, in layer order
  bool finite = true;
  int64_t samples = 0;  // labels that the sum covers: the divisor

  friend bool operator==(const StepReport&, const StepReport&) = default;
};

// The verdict that all stages carry out.  One process computes the scalars and
// sends them along, so that every CPU uses the same bits.
struct StepVerdict {
  int64_t step = 0;
  bool skip = false;
  std::string why;
  float gradient_scale = 0;  // clip factor / labels
  float learning_rate = 0;
  float bias_correction1 = 1;
  float bias_correction2_sqrt = 1;
  double gradient_norm = 0;  // of the mean gradient before clipping; skip: 0

  friend bool operator==(const StepVerdict&, const StepVerdict&) = default;
};

// Decides one step.  reports: one a stage, sorted by stage, of the same step
// and samples.  total_steps: for the cosine schedule.
//
// Skips when a stage's gradient is not finite (the why names the stages) or
// when there are no labels.  Clipping is by the norm of the mean gradient over
// all stages: factor min(1, clip_norm / (norm + 1e-6)), as torch's
// clip_grad_norm_; sums run in stage, then parameter order, in float64.
StepVerdict DecideStep(const TrainSpec& train, int64_t total_steps,
                       const std::vector<StepReport>& reports);

// A job that skips as many steps in a row has diverged, or never trained.
constexpr int64_t kMostSkippedInRow = 20;

// Counts them where they are made.  Thread-compatible.
class SkipCount {
 public:
  // before: those in a row right before the first one to come.
  explicit SkipCount(int64_t before = 0) : in_row_(before) {}

  // Errors: InvalidArgument  it is the last one that a job may skip; says why
  absl::Status OnStep(bool skipped, const std::string& why);

 private:
  int64_t in_row_;
};

// Collects the reports at the first stage.  Keeps those of step t and its
// verdict until a report of t+1 has its verdict too, and answers again when
// asked.  Thread-compatible.
class StepGate {
 public:
  // replicas: [stages], of each; all of them report.
  // first_step: the first one that is reported.
  StepGate(const TrainSpec& train, int64_t total_steps,
           std::vector<int> replicas, int64_t first_step = 0);

  // Takes a report.  Returns the verdict if this was the last missing report or
  // if the step is already decided; nothing while others are missing.
  //
  // Errors (state unchanged):
  //   InvalidArgument  no such stage or replica, a second and different report,
  //                    or samples that differ from the other stages'
  //   DataLoss         replicas of a stage hold different sums or states
  //   Aborted          a step long decided
  //   FailedPrecondition  a step beyond the next one
  absl::StatusOr<std::optional<StepVerdict>> Add(const StepReport& report);

  // Stages whose report of the open step is missing.
  std::vector<int> Missing() const;

 private:
  absl::StatusOr<std::optional<StepVerdict>> AddToOpenStep(
      const StepReport& report);

  // Constant after construction.
  const TrainSpec train_;
  const int64_t total_steps_;
  const std::vector<int> replicas_;  // [stages]

  using Reports = std::map<std::pair<int, int>, StepReport>;  // stage, replica
  int64_t open_step_;
  Reports reports_;                          // of open_step_
  Reports last_reports_;                     // of open_step_ - 1
  std::optional<StepVerdict> last_verdict_;  // of open_step_ - 1
};

}  // namespace paceline
