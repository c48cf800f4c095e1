#include "client/commands/job/watch.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/values/text.h"
#include "core/base/status_macros.h"

namespace paceline {

namespace {

constexpr int kBarColumns = 24;
constexpr int kLeastBarColumns = 4;  // a shorter one says nothing
constexpr absl::Duration kPlainPeriod = absl::Seconds(10);

bool Computes(const v1::Job& job) {
  return job.phase() == "training" || job.phase() == "predicting";
}

// The phase of a job that does not compute, and why.
std::string PhaseText(const v1::Job& job) {
  const std::string why = FirstClause(job.why());
  if (absl::StartsWith(why, job.phase())) return why;
  return why.empty() ? Printable(job.phase())
                     : absl::StrCat(Printable(job.phase()), ": ", why);
}

double ShareDone(const v1::Job& job) {
  if (job.steps() <= 0) return 0;
  return std::clamp(static_cast<double>(job.step()) / job.steps(), 0.0, 1.0);
}

std::string Bar(double share, int columns, bool unicode) {
  const int filled = static_cast<int>(share * columns);
  std::string bar = "[";
  for (int i = 0; i < columns; ++i) {
    if (i < filled) {
      bar += unicode ? "█" : "#";
    } else {
      bar += unicode ? "·" : ".";
    }
  }
  return bar + "]";
}

// `parts` with the bar behind the first where it is wanted: what they say comes
// first where columns are few.
std::string Line(const v1::Job& job, std::vector<std::string> parts,
                 const ProgressStyle& style) {
  if (!style.bar || job.steps() <= 0) return absl::StrJoin(parts, "  ");
  int columns = kBarColumns;
  if (style.columns > 0) {
    const int taken = DisplayWidth(absl::StrJoin(parts, "  "));
    // Brackets and two blanks.
    columns = std::min(columns, style.columns - taken - 4);
  }
  if (columns >= kLeastBarColumns) {
    parts.insert(parts.begin() + 1,
                 Bar(ShareDone(job), columns, style.unicode));
  }
  return absl::StrJoin(parts, "  ");
}

}  // namespace

std::optional<absl::Duration> TimeLeft(const v1::Job& job) {
  if (job.steps() <= 0 || job.step() <= 0 || !(job.samples_per_second() > 0)) {
    return std::nullopt;
  }
  const double samples = static_cast<double>(job.steps() - job.step()) *
                         static_cast<double>(job.spec().train().batch());
  return absl::Seconds(std::max(0.0, samples / job.samples_per_second()));
}

std::string ProgressLine(const v1::Job& job,
                         std::optional<v1::StepRecord> newest,
                         const ProgressStyle& style) {
  std::vector<std::string> parts = {absl::StrCat("job ", job.id())};
  if (StateOf(job) != JobState::kRunning) {
    parts.emplace_back(JobStateName(StateOf(job)));
    if (!job.why().empty()) parts.push_back(FirstClause(job.why()));
    return absl::StrJoin(parts, "  ");
  }
  if (job.step() == 0 && !Computes(job)) {
    parts.push_back(job.phase().empty() ? "starting" : PhaseText(job));
    return Line(job, std::move(parts), style);
  }
  parts.push_back(
      absl::StrCat(StepName(job), " ", job.step(),
                   job.steps() > 0 ? absl::StrCat("/", job.steps()) : ""));
  if (job.samples_per_second() > 0) {
    parts.push_back(
        absl::StrCat(HumanRate(job.samples_per_second()), " samples/s"));
  }
  if (newest.has_value()) {
    parts.push_back(newest->skipped()
                        ? std::string("skipped")
                        : absl::StrCat("loss ", HumanLoss(newest->loss())));
  }
  if (!Computes(job) && !job.phase().empty()) {
    parts.push_back(PhaseText(job));
  } else if (const auto left = TimeLeft(job); left.has_value()) {
    parts.push_back(absl::StrCat(HumanDuration(*left), " left"));
  }
  return Line(job, std::move(parts), style);
}

bool PlainProgress::OnProgress(const v1::Job& job, Instant now) {
  const int64_t tenth = static_cast<int64_t>(ShareDone(job) * 10);
  // A number in a reason that moves is no change.
  std::string why = Computes(job) ? "" : FirstClause(job.why());
  std::erase_if(why, absl::ascii_isdigit);
  const bool changed = !printed_ || StateOf(job) != state_ ||
                       job.phase() != phase_ || why != why_;
  const bool due = tenth > tenth_ ||
                   (job.step() > step_ && now - printed_at_ >= kPlainPeriod);
  if (!changed && !due) return false;
  printed_ = true;
  printed_at_ = now;
  state_ = StateOf(job);
  phase_ = job.phase();
  why_ = std::move(why);
  step_ = job.step();
  tenth_ = tenth;
  return true;
}

namespace {

// after: sequence number of the last one that was noted; moves on.
absl::Status NoteEvents(const CommandContext& context, int64_t id,
                        int64_t& after) {
  for (;;) {
    PACELINE_ASSIGN_OR_RETURN(const v1::GetEventsResponse page,
                              context.client.GetEvents(id, after));
    const int64_t before = after;
    for (const v1::JobEvent& event : page.events()) {
      // One that is not stored yet has no number and comes again.
      if (event.sequence() <= after) continue;
      after = event.sequence();
      context.console.Note(
          absl::StripTrailingAsciiWhitespace(RenderEvent(event)));
    }
    if (after == before) return absl::OkStatus();
  }
}

}  // namespace

absl::StatusOr<WatchResult> WatchJob(const CommandContext& context, int64_t id,
                                     std::optional<absl::Duration> timeout,
                                     bool events) {
  // Fast enough to look alive, slow enough to cost nothing.
  constexpr absl::Duration kPollPeriod = absl::Milliseconds(500);
  Console& console = context.console;
  const ProgressStyle style = {.bar = console.live(),
                               .unicode = console.unicode(),
                               .columns = console.columns() - 1};
  PlainProgress plain;
  WatchResult result;
  result.job.set_id(id);
  std::optional<v1::StepRecord> newest;
  int64_t after_step = 0;
  int64_t after_event = 0;
  absl::StatusOr<v1::Job> job;
  const auto ask = [&]() -> absl::Status {
    job = context.client.GetJob(id, 2, after_step);
    if (!job.ok() || !events) return job.status();
    return NoteEvents(context, id, after_event);
  };
  const auto take = [&] {
    if (job->step() < result.job.step()) {  // what was said before is undone
      console.Note("job ", id, " begins again at ", StepName(*job), " ",
                   job->step(), " (was at ", result.job.step(),
                   "): paceline job events ", id, " says why");
      newest.reset();
      job->clear_curve();
      after_step = 0;
    }
    if (!job->curve().empty()) {
      newest = *job->curve().rbegin();
      after_step = newest->step();
    }
    if (console.live()) {
      console.Redraw(ProgressLine(*job, newest, style));
    } else if (!HasEnded(StateOf(*job)) &&
               plain.OnProgress(*job, context.clock.Now())) {
      console.Note(ProgressLine(*job, newest, style));
    }
    result.job = *std::move(job);
    return HasEnded(StateOf(result.job));
  };
  const absl::StatusOr<WaitEnd> end = WaitUntil(
      context, {.period = kPollPeriod, .timeout = timeout}, ask, take);
  console.EndLive();
  PACELINE_RETURN_IF_ERROR(end.status());
  result.end = *end;
  return result;
}

}  // namespace paceline
