#include "client/submit.h"

#include "absl/strings/str_cat.h"
#include "client/estimate.h"
#include "client/job_commands.h"
#include "client/render.h"
#include "client/text.h"
#include "core/model/aggregation.h"

namespace paceline {
namespace {

// A restarting coordinator is back by then; and with the time of the last try
// it is still less than the five seconds a caller may have to wait for "no".
constexpr absl::Duration kSubmitPatience = absl::Seconds(2);
constexpr absl::Duration kSubmitPeriod = absl::Milliseconds(400);

absl::StatusOr<Submission> SubmitPatiently(const CommandContext& context,
                                           const SubmitRequest& request) {
  const Instant begin = context.clock.Now();
  for (;;) {
    absl::StatusOr<Submission> submission = context.client.SubmitJob(request);
    const bool again =
        submission.status().code() == absl::StatusCode::kUnavailable &&
        context.clock.Now() - begin + kSubmitPeriod <= kSubmitPatience;
    if (!again) return submission;
    if (context.pauser.Sleep(kSubmitPeriod)) {
      return absl::CancelledError(
          "interrupted; nothing is known to be submitted");
    }
  }
}

// What a rule assumes of the members that there will be, as far as one knows.
void NoteAggregation(Console& console, const JobSpec& spec,
                     const Submission& submission) {
  if (!IsDataParallel(spec)) return;
  const int64_t members = submission.stages.empty()
                              ? KnownMembers(spec.aggregation)
                              : std::ssize(submission.stages);
  if (members < 1) return;
  for (const std::string& note : AggregationNotes(spec, members)) {
    console.Note(absl::StrCat("note: ", Printable(note)));
  }
}

ExitCode PrintDryRun(const CommandContext& context,
                     const SubmitOptions& options,
                     const Submission& submission) {
  const auto estimate =
      EstimateJob(options.spec, submission.stages, submission.estimate);
  if (!estimate.ok()) return ReportError(context.console, estimate.status());
  if (context.console.table()) {
    context.console.Print(RenderEstimate(*estimate));
  } else {
    Document document = ToDocument(*estimate);
    document.Add("warnings", TextList(options.warnings));
    context.console.Print(document);
  }
  return kExitOk;
}

// One line for a stage, "stage 1: w2, layers 4-7": where it goes; for each of
// its replicas with what part of it.  Then in how many shards members add up.
void NotePlan(Console& console, const JobSpec& spec,
              const Submission& submission) {
  for (size_t i = 0; i < submission.stages.size(); ++i) {
    const PlacementView& stage = submission.stages[i];
    console.Note(Printable(
        absl::StrCat("  stage ", stage.stage, ": ", stage.worker_name,
                     ", layers ", stage.first_layer, "-", stage.last_layer - 1,
                     ShareText(submission.stages, i))));
  }
  const auto estimate = EstimateJob(spec, submission.stages);
  if (estimate.ok() && estimate->shards > 0) {
    console.Note(absl::StrCat("  shards: ", estimate->shards));
  }
}

void NoteSubmitted(Console& console, const JobSpec& spec,
                   const Submission& submission) {
  JobView job;
  job.spec = spec;
  const int stages = submission.stages.empty()
                         ? StageCount(job)
                         : submission.stages.back().stage + 1;
  console.Note(absl::StrCat(
      "job ", submission.id, " is submitted: ", Printable(spec.model.name),
      " on ", Printable(spec.data.name), ", ", StagesText(stages), ", ",
      Printable(ScheduleText(spec))));
  NotePlan(console, spec, submission);
  if (!submission.estimate.has_value()) return;
  for (const auto& [key, value] :
       RunFacts(*submission.estimate, spec.train.steps)) {
    if (value.empty()) continue;
    console.Note(absl::StrCat("  ", key, ": ", Printable(value)));
  }
}

ExitCode PrintDetached(const CommandContext& context,
                       const SubmitOptions& options,
                       const Submission& submission) {
  const int64_t id = submission.id;
  NotePlan(context.console, options.spec, submission);
  if (context.console.table()) {
    context.console.Print(absl::StrCat("job ", id, ": submitted\n"));
  } else {
    const auto job = context.client.GetJob(id, kCurvePoints, 0);
    if (!job.ok()) return ReportError(context.console, job.status());
    Document document = ToDocument(*job, /*with_curve=*/true);
    document.Add("warnings", TextList(options.warnings));
    context.console.Print(document);
  }
  context.console.Note(
      absl::StrCat("watch it: ", context.program, " job wait ", id));
  return kExitOk;
}

}  // namespace

ExitCode SubmitCommand(const CommandContext& context,
                       const SubmitOptions& options) {
  Console& console = context.console;
  for (const std::string& warning : options.warnings) {
    console.Note(absl::StrCat("paceline: warning: ", warning));
  }
  const auto submission =
      SubmitPatiently(context, {.spec = options.spec,
                                .request_id = options.request_id,
                                .dry_run = options.dry_run});
  if (!submission.ok()) {
    ReportError(console, submission.status());
    return SubmitExitCodeFor(submission.status());
  }
  for (const std::string& note : submission->notes) {
    console.Note(absl::StrCat("note: ", Printable(note)));
  }
  NoteAggregation(console, options.spec, *submission);
  if (options.dry_run) return PrintDryRun(context, options, *submission);
  if (options.detach) return PrintDetached(context, options, *submission);
  NoteSubmitted(console, options.spec, *submission);
  return WaitJobCommand(context, submission->id, options.timeout,
                        {{"warnings", TextList(options.warnings)}});
}

}  // namespace paceline
