#include "client/watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/patience.h"
#include "client/progress.h"

namespace paceline {
namespace {

// Fast enough to look alive, slow enough to cost nothing.
constexpr absl::Duration kPollPeriod = absl::Milliseconds(500);

// Shows one job's progress as answers come in.  Thread-compatible.
class ProgressView {
 public:
  ProgressView(Console& console, const Clock& clock)
      : console_(console), clock_(clock) {}

  void Show(const JobView& job, std::optional<LossPoint> newest) {
    const ProgressStyle style = {.bar = console_.live(),
                                 .unicode = console_.unicode(),
                                 .columns = console_.columns() - 1};
    if (console_.live()) {
      console_.Redraw(ProgressLine(job, newest, style));
    } else if (!HasEnded(job.state) && plain_.OnProgress(job, clock_.Now())) {
      console_.Note(ProgressLine(job, newest, style));
    }
  }

 private:
  Console& console_;
  const Clock& clock_;
  PlainProgress plain_;
};

void NoteIfAny(Console& console, const std::string& line) {
  if (!line.empty()) console.Note(line);
}

}  // namespace

absl::StatusOr<WatchResult> WatchJob(const CommandContext& context, int64_t id,
                                     std::optional<absl::Duration> timeout) {
  const Instant begin = context.clock.Now();
  ProgressView view(context.console, context.clock);
  Patience patience;
  WatchResult result;
  result.job.id = id;
  std::optional<LossPoint> newest;
  int64_t after_step = 0;
  for (;;) {
    absl::StatusOr<JobView> job = context.client.GetJob(id, 2, after_step);
    if (job.ok()) {
      NoteIfAny(context.console, patience.OnAnswer());
      if (job->step < result.job.step) {  // what was said before is undone
        NoteIfAny(context.console,
                  absl::StrCat("job ", id, " begins again at step ", job->step,
                               " (was at ", result.job.step,
                               "): paceline job events ", id, " says why"));
        newest.reset();
        job->curve.clear();
        after_step = 0;
      }
      if (!job->curve.empty()) {
        newest = job->curve.back();
        after_step = job->curve.back().step;
      }
      view.Show(*job, newest);
      result.job = *std::move(job);
      if (HasEnded(result.job.state)) break;
    } else {
      const auto verdict = patience.OnError(job.status(), context.clock.Now());
      if (!verdict.retry) {
        context.console.EndLive();
        return job.status();
      }
      NoteIfAny(context.console, verdict.say);
    }
    absl::Duration pause = kPollPeriod;
    if (timeout.has_value()) {
      const absl::Duration left = *timeout - (context.clock.Now() - begin);
      if (left <= absl::ZeroDuration()) {
        result.end = WatchEnd::kTimedOut;
        break;
      }
      pause = std::min(pause, left);
    }
    if (context.pauser.Sleep(pause)) {
      result.end = WatchEnd::kInterrupted;
      break;
    }
  }
  context.console.EndLive();
  return result;
}

}  // namespace paceline
