// Sentences that advise a person after a job went wrong.  Pure.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "coordinator/jobs/records.h"

namespace paceline {

// After a fault that need not come again, such as a lost worker.
std::string SubmitAgain();

// After a worker's or the coordinator's `error`.  Submitting the same job again
// helps only after faults of a peer or a connection (Unavailable, Aborted,
// Cancelled, DeadlineExceeded).  Other errors would come again, so it names the
// action to take first.  It names no key without effect in `spec`.
std::string AdviceAfter(const absl::Status& error, const JobSpec& spec);

// After an error of the disk that the coordinator writes the result to.
std::string AdviceAfterSaving(const absl::Status& error, const JobSpec& spec);

// The job's own steps that the step gate skipped.  Where every micro-batch is
// an update: the skipped updates of the stage that skipped most.
struct Skips {
  int64_t skipped = 0;
  int64_t of = 0;
  bool updates = false;  // false: steps
};
Skips SkipsOf(const JobRecord& record);

// "3 of 60 steps were skipped"; "7 of 96 updates of a stage were skipped";
// empty when none was.
std::string SkippedText(const JobRecord& record);

// "workers could not read 3 samples, which were left out"; empty when there is
// none.
std::string UnreadableText(const JobRecord& record);
// Why the job fails for unreadable samples; empty: they are few enough.
std::string WhyUnreadable(const JobRecord& record);

// True when more than half of the updates were skipped.
bool MostlySkipped(const JobRecord& record);

// Says why the weights are useless when MostlySkipped(), or after too many
// skipped steps in a row, and what to change.
std::string WhyMostlySkipped(const JobRecord& record);
std::string AdviceAfterSkips(const JobSpec& spec);
// Names the sound checkpoint from which a new job may go on; empty: none.
std::string ResumeHint(const JobRecord& record);
// AdviceAfterSkips() of the spec and ResumeHint().
std::string AdviceAfterSkips(const JobRecord& record);

// Why a job fails at its end: its last evaluation, or most of its predictions,
// are NaN or infinite; empty: they are finite.
std::string WhyNotFinite(const JobRecord& record);
// "3 of 60 predictions are not finite", not counting unreadable samples; empty
// when there is none.
std::string NotFiniteText(const JobRecord& record);

}  // namespace paceline
