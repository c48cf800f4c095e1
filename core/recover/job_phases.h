// The phases of a job in the coordinator, and what leads from one to another.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace paceline {

enum class JobPhase : uint8_t {
  kQueued,
  kAdopting,  // a coordinator that has just started listens, and orders nothing
  kChoosing,  // a plan and a cut
  kStarting,
  kRunning,
  kStopping,   // stage 0 ends with the batch that it is at
  kLeaving,    // everybody drops the attempt
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
  kReturned,  // one that is not known to have left is there
  kMembersChanged,
  kAllRun,
  kAllDone,
  kAllStopped,
  kMove,  // a better plan, a drain, a join; or a stage has stopped
  kLoss,  // lost, restarted, hung
  kFailure,
  kHopeless,  // a permanent error, or too many failed attempts
  kAllLeft,
  kCanFinish,
  kFinished,
};
constexpr int kJobCauses = 18;
absl::string_view JobCauseName(JobCause cause);

// Also what the caller is told when it happens.
struct JobTransition {
  JobPhase from;
  JobCause cause;
  JobPhase to;
};
// README.md explains it.  What is not in it never happens.
const std::vector<JobTransition>& JobTransitions();

}  // namespace paceline
