#include "client/commands/submit.h"

#include "absl/strings/str_cat.h"
#include "client/commands/estimate.h"
#include "client/commands/job_commands.h"
#include "client/render/report.h"
#include "client/render/text.h"
#include "core/model/aggregation.h"
#include "core/rpc/convert.h"

namespace paceline {
namespace {

// A restarting coordinator is back by then; and with the time of the last try
// it is still less than the five seconds a caller may have to wait for "no".
constexpr absl::Duration kSubmitPatience = absl::Seconds(2);
constexpr absl::Duration kSubmitPeriod = absl::Milliseconds(400);

absl::StatusOr<v1::SubmitJobResponse> SubmitPatiently(
    const CommandContext& context, const v1::SubmitJobRequest& request) {
  const Instant begin = context.clock.Now();
  for (;;) {
    absl::StatusOr<v1::SubmitJobResponse> submission =
        context.client.SubmitJob(request);
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

// Notes where the members that are known do not meet an assumption of the rule.
void NoteAggregation(Console& console, const JobSpec& spec,
                     const v1::SubmitJobResponse& submission) {
  if (!IsDataParallel(spec)) return;
  const int64_t members = submission.stages().empty()
                              ? KnownMembers(spec.aggregation)
                              : submission.stages_size();
  if (members < 1) return;
  for (const std::string& note : AggregationNotes(spec, members)) {
    console.Note(absl::StrCat("note: ", Printable(note)));
  }
}

ExitCode PrintDryRun(const CommandContext& context,
                     const SubmitOptions& options,
                     const v1::SubmitJobResponse& submission) {
  std::optional<v1::RunEstimate> run;
  if (submission.has_estimate()) run = submission.estimate();
  const auto estimate = EstimateJob(options.spec, submission.stages(), run);
  if (!estimate.ok()) return ReportError(context.console, estimate.status());
  if (context.console.table()) {
    context.console.Print(RenderEstimate(*estimate));
  } else {
    Document document = ToDocument(*estimate);
    document["warnings"] = options.warnings;
    context.console.Print(document);
  }
  return kExitOk;
}

// One line for a stage, "stage 1: w2, layers 4-7": where it goes; for each of
// its replicas with what part of it.  Then in how many shards members add up.
void NotePlan(Console& console, const JobSpec& spec,
              const v1::SubmitJobResponse& submission) {
  for (int i = 0; i < submission.stages_size(); ++i) {
    const v1::StagePlacement& stage = submission.stages(i);
    console.Note(Printable(absl::StrCat(
        "  stage ", stage.stage(), ": ", stage.worker_name(), ", layers ",
        stage.first_layer(), "-", stage.last_layer() - 1,
        ShareText(submission.stages(), i))));
  }
  const auto estimate = EstimateJob(spec, submission.stages());
  if (estimate.ok() && estimate->shards > 0) {
    console.Note(absl::StrCat("  shards: ", estimate->shards));
  }
}

void NoteSubmitted(Console& console, const JobSpec& spec,
                   const v1::SubmitJobResponse& submission) {
  const int stages = submission.stages().empty()
                         ? StageCount(spec.pipeline)
                         : submission.stages().rbegin()->stage() + 1;
  console.Note(absl::StrCat(
      "job ", submission.id(), " is submitted: ", Printable(spec.model.name),
      " on ", Printable(spec.data.name), ", ", StagesText(stages), ", ",
      Printable(ScheduleText(spec))));
  NotePlan(console, spec, submission);
  if (!submission.has_estimate()) return;
  for (const auto& [key, value] :
       RunFacts(submission.estimate(), spec.train.steps)) {
    if (value.empty()) continue;
    console.Note(absl::StrCat("  ", key, ": ", Printable(value)));
  }
}

ExitCode PrintDetached(const CommandContext& context,
                       const SubmitOptions& options,
                       const v1::SubmitJobResponse& submission) {
  const int64_t id = submission.id();
  NotePlan(context.console, options.spec, submission);
  if (context.console.table()) {
    context.console.Print(absl::StrCat("job ", id, ": submitted\n"));
  } else {
    const auto job = context.client.GetJob(id, kCurvePoints, 0);
    if (!job.ok()) return ReportError(context.console, job.status());
    Document document = ToDocument(*job, /*with_curve=*/true);
    document["warnings"] = options.warnings;
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
  v1::SubmitJobRequest request;
  *request.mutable_spec() = ToProto(options.spec);
  request.set_request_id(options.request_id);
  request.set_dry_run(options.dry_run);
  const auto submission = SubmitPatiently(context, request);
  if (!submission.ok()) {
    ReportError(console, submission.status());
    return SubmitExitCodeFor(submission.status());
  }
  for (const std::string& note : submission->notes()) {
    console.Note(absl::StrCat("note: ", Printable(note)));
  }
  NoteAggregation(console, options.spec, *submission);
  if (options.dry_run) return PrintDryRun(context, options, *submission);
  if (options.detach) return PrintDetached(context, options, *submission);
  NoteSubmitted(console, options.spec, *submission);
  return WaitJobCommand(context, submission->id(), options.timeout,
                        {{"warnings", options.warnings}});
}

}  // namespace paceline
