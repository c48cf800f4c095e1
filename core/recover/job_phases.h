// The phases of a job in the coordinator, and the causes of their changes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace paceline {

enum class JobPhase : uint8_t {
  kQueued,
  kAdopting,  // a coordinator that has just started sends no orders
  kChoosing,  // chooses a plan and a cut
  kStarting,
  kRunning,
  kStopping,   // stage 0 ends after its present batch
  kLeaving,    // all workers leave the attempt
  kFinishing,  // replicas apply the step that one of them has applied
  kPaused,
  kDone,
  kFailed,
};
constexpr int kJobPhases = 11;
absl::string_view JobPhaseName(JobPhase phase);

enum class JobCause : uint8_t {
  kBegin,
  kAdopted,
  kNotAdopted,
  kStored,
  kNoPlan,
  kTooManyLosses,
  kReturned,  // a worker is back that may not have left
  kMembersChanged,
  kAllRun,
  kAllDone,
  kAllStopped,
  kMove,  // a better plan, a drain, a join; or a stage has stopped
  kLoss,  // a worker is lost, restarted or hung
  kFailure,
  kHopeless,  // a permanent error, or too many failed attempts
  kAllLeft,
  kCanFinish,
  kFinished,
};
constexpr int kJobCauses = 18;
absl::string_view JobCauseName(JobCause cause);

// A row of the table.  The caller gets it as an action when it happens.
struct JobTransition {
  JobPhase from;
  JobCause cause;
  JobPhase to;
};
// All transitions; README.md explains them.  No other one ever happens.
const std::vector<JobTransition>& JobTransitions();

}  // namespace paceline
