// RecoveryMeter measures a job's recoveries, phase by phase.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "coordinator/jobs/records.h"
#include "core/base/clock.h"
#include "core/recover/job_recovery.h"
#include "paceline/v1/control.pb.h"

namespace paceline {

// The phases of a recovery: labels of a metric.
struct RecoveryPart {
  const char* name;
  double (v1::RecoverySeconds::*seconds)() const;
};
inline constexpr RecoveryPart kRecoveryParts[] = {
    {"detect", &v1::RecoverySeconds::detect},
    {"leave", &v1::RecoverySeconds::leave},
    {"choose", &v1::RecoverySeconds::choose},
    {"fetch", &v1::RecoverySeconds::fetch},
    {"build", &v1::RecoverySeconds::build},
    {"replay", &v1::RecoverySeconds::replay},
};

// Sums the phases up.
double SecondsOf(const v1::Recovery& recovery);

// A recovery begins with the loss and ends when the job is as far as it was.
// Another loss prolongs it.  No phase counts paused time.  Thread-compatible.
class RecoveryMeter {
 public:
  // took: from the last sign of the lost worker to the next loss's detection.
  void SetDetection(absl::Duration took) { detection_ = took; }
  // step: where the job is.  why: the recovery's.
  void OnTransition(const JobTransition& transition, int64_t step, Cut base,
                    const std::string& why, Moment moment);
  // A worker took `seconds` to fetch its state.
  void OnFetched(double seconds) { fetch_ = std::max(fetch_, seconds); }
  // True when a recovery ends at this step; it is then in `sum`.
  bool OnStep(int64_t step, Moment moment, v1::Recovery& sum);
  // The open recovery, with the phases that have ended.
  const std::optional<v1::Recovery>& open() const { return open_; }

 private:
  void CountAgain(int64_t step);
  double Lap(Moment moment);  // seconds since the last Lap()

  std::optional<v1::Recovery> open_;
  absl::Duration detection_;
  double fetch_ = 0;
  Instant since_;
  int64_t furthest_ = 0;
  bool begun_ = false;  // an attempt began, at open_->from_step()
  bool replays_ = false;
};

}  // namespace paceline
