// The phases of a job in the coordinator, and the causes of their changes.
#pragma once

#include <cstdint>

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
inline constexpr absl::string_view kJobPhaseNames[] = {
    "queued",  "adopting",  "choosing", "starting", "running", "stopping",
    "leaving", "finishing", "paused",   "done",     "failed"};

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
inline constexpr absl::string_view kJobCauseNames[] = {
    "begin",           "adopted",   "not adopted", "stored",  "no plan",
    "too many losses", "returned",  "members",     "all run", "all done",
    "all stopped",     "move",      "loss",        "failure", "hopeless",
    "all left",        "to finish", "finished"};

// A row of the table.  The caller gets it as an action when it happens.
struct JobTransition {
  JobPhase from;
  JobCause cause;
  JobPhase to;
};
// All transitions; README.md explains them.  No other one ever happens.
inline constexpr JobTransition kJobTransitions[] = {
    {JobPhase::kQueued, JobCause::kBegin, JobPhase::kChoosing},
    {JobPhase::kAdopting, JobCause::kAdopted, JobPhase::kStarting},
    {JobPhase::kAdopting, JobCause::kNotAdopted, JobPhase::kLeaving},
    {JobPhase::kChoosing, JobCause::kStored, JobPhase::kStarting},
    {JobPhase::kChoosing, JobCause::kNoPlan, JobPhase::kPaused},
    {JobPhase::kChoosing, JobCause::kTooManyLosses, JobPhase::kPaused},
    {JobPhase::kChoosing, JobCause::kReturned, JobPhase::kLeaving},
    {JobPhase::kPaused, JobCause::kMembersChanged, JobPhase::kChoosing},
    {JobPhase::kStarting, JobCause::kAllRun, JobPhase::kRunning},
    {JobPhase::kStarting, JobCause::kLoss, JobPhase::kLeaving},
    {JobPhase::kStarting, JobCause::kFailure, JobPhase::kLeaving},
    {JobPhase::kStarting, JobCause::kHopeless, JobPhase::kFailed},
    {JobPhase::kRunning, JobCause::kMove, JobPhase::kStopping},
    {JobPhase::kRunning, JobCause::kAllDone, JobPhase::kDone},
    {JobPhase::kRunning, JobCause::kLoss, JobPhase::kLeaving},
    {JobPhase::kRunning, JobCause::kFailure, JobPhase::kLeaving},
    {JobPhase::kRunning, JobCause::kHopeless, JobPhase::kFailed},
    {JobPhase::kStopping, JobCause::kAllStopped, JobPhase::kChoosing},
    {JobPhase::kStopping, JobCause::kAllDone, JobPhase::kDone},
    {JobPhase::kStopping, JobCause::kLoss, JobPhase::kLeaving},
    {JobPhase::kStopping, JobCause::kFailure, JobPhase::kLeaving},
    {JobPhase::kStopping, JobCause::kHopeless, JobPhase::kFailed},
    {JobPhase::kLeaving, JobCause::kAllLeft, JobPhase::kChoosing},
    {JobPhase::kLeaving, JobCause::kCanFinish, JobPhase::kFinishing},
    {JobPhase::kFinishing, JobCause::kFinished, JobPhase::kChoosing},
    {JobPhase::kFinishing, JobCause::kLoss, JobPhase::kLeaving}};

constexpr absl::string_view JobPhaseName(JobPhase phase) {
  return kJobPhaseNames[static_cast<int>(phase)];
}
constexpr absl::string_view JobCauseName(JobCause cause) {
  return kJobCauseNames[static_cast<int>(cause)];
}

}  // namespace paceline
