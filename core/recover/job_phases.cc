#include "core/recover/job_phases.h"

namespace paceline {
namespace {

constexpr absl::string_view kPhaseNames[kJobPhases] = {
    "queued",  "adopting",  "choosing", "starting", "running", "stopping",
    "leaving", "finishing", "paused",   "done",     "failed"};
constexpr absl::string_view kCauseNames[kJobCauses] = {
    "begin",           "adopted",   "not adopted", "stored",  "no plan",
    "too many losses", "returned",  "members",     "all run", "all done",
    "all stopped",     "move",      "loss",        "failure", "hopeless",
    "all left",        "to finish", "finished"};

}  // namespace

absl::string_view JobPhaseName(JobPhase phase) {
  return kPhaseNames[static_cast<int>(phase)];
}

absl::string_view JobCauseName(JobCause cause) {
  return kCauseNames[static_cast<int>(cause)];
}

const std::vector<JobTransition>& JobTransitions() {
  using P = JobPhase;
  using C = JobCause;
  static const auto* const table = new std::vector<JobTransition>{
      {P::kQueued, C::kBegin, P::kChoosing},
      {P::kAdopting, C::kAdopted, P::kStarting},
      {P::kAdopting, C::kNotAdopted, P::kLeaving},
      {P::kChoosing, C::kStored, P::kStarting},
      {P::kChoosing, C::kNoPlan, P::kPaused},
      {P::kChoosing, C::kTooManyLosses, P::kPaused},
      {P::kChoosing, C::kReturned, P::kLeaving},
      {P::kPaused, C::kMembersChanged, P::kChoosing},
      {P::kStarting, C::kAllRun, P::kRunning},
      {P::kStarting, C::kLoss, P::kLeaving},
      {P::kStarting, C::kFailure, P::kLeaving},
      {P::kStarting, C::kHopeless, P::kFailed},
      {P::kRunning, C::kMove, P::kStopping},
      {P::kRunning, C::kAllDone, P::kDone},
      {P::kRunning, C::kLoss, P::kLeaving},
      {P::kRunning, C::kFailure, P::kLeaving},
      {P::kRunning, C::kHopeless, P::kFailed},
      {P::kStopping, C::kAllStopped, P::kChoosing},
      {P::kStopping, C::kAllDone, P::kDone},
      {P::kStopping, C::kLoss, P::kLeaving},
      {P::kStopping, C::kFailure, P::kLeaving},
      {P::kStopping, C::kHopeless, P::kFailed},
      {P::kLeaving, C::kAllLeft, P::kChoosing},
      {P::kLeaving, C::kCanFinish, P::kFinishing},
      {P::kFinishing, C::kFinished, P::kChoosing},
      {P::kFinishing, C::kLoss, P::kLeaving},
  };
  return *table;
}

}  // namespace paceline
