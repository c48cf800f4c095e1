// The sentences that tell a person what to do about a job that did not go well.
// Pure.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "coordinator/records.h"

namespace paceline {

// After what need not come again: a worker that was lost or restarted.
std::string SubmitAgain();

// After a worker's or the coordinator's `error`.  To submit the same job once
// more helps only where a peer or a connection was at fault (Unavailable,
// Aborted, Cancelled, DeadlineExceeded); all else would come again, so it says
// what to do before.  It names no key that has no effect in `spec`.
std::string AdviceAfter(const absl::Status& error, const JobSpec& spec);

// After an error of the disk to which the coordinator writes the result.
std::string AdviceAfterSaving(const absl::Status& error, const JobSpec& spec);

// Steps of the job's own that the step gate skipped; where every micro-batch is
// an update, the updates that the stage with the most of them skipped.
struct Skips {
  int64_t skipped = 0;
  int64_t of = 0;
  bool updates = false;  // else steps
};
Skips SkipsOf(const JobRecord& record);

// "3 of 60 steps were skipped"; "7 of 96 updates of a stage were skipped";
// empty when none was.
std::string SkippedText(const JobRecord& record);

// "workers could not read 3 samples, which were left out"; empty when there is
// none.
std::string UnreadableText(const JobRecord& record);
// Why the job fails for them; empty: they are few enough.
std::string WhyUnreadable(const JobRecord& record);

// More than half of what should have changed the weights did not.
bool MostlySkipped(const JobRecord& record);

// Why the weights of such a job, or of one that has skipped too many steps in a
// row, are of no use, and what to change.
std::string WhyMostlySkipped(const JobRecord& record);
std::string AdviceAfterSkips(const JobSpec& spec);
// From which sound checkpoint another job may go on; empty: there is none.
std::string ResumeHint(const JobRecord& record);
// Both.
std::string AdviceAfterSkips(const JobRecord& record);

// Why a job fails that has come to its end: the last evaluation, or most of the
// predictions, are NaN or infinity; empty: they are not.
std::string WhyNotFinite(const JobRecord& record);
// "3 of 60 predictions are not finite", but for those of samples that could not
// be read; empty when there is none.
std::string NotFiniteText(const JobRecord& record);

}  // namespace paceline
