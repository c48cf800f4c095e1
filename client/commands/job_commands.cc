#include "client/commands/job_commands.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/commands/command.h"
#include "client/commands/watch.h"
#include "client/render/report.h"
#include "client/render/text.h"

namespace paceline {
namespace {

constexpr absl::Duration kFollowPeriod = absl::Milliseconds(500);

// Prints records as they come: at once where each stands for itself (table,
// jsonl), at the end where all form one document.
template <typename Record>
class RecordPrinter {
 public:
  RecordPrinter(Console& console, std::string key,
                std::string (*render)(const Record&))
      : console_(console), key_(std::move(key)), render_(render) {}

  void Print(const google::protobuf::RepeatedPtrField<Record>& records) {
    for (const Record& record : records) {
      if (console_.table()) {
        console_.Print(render_(record));
      } else if (console_.format() == OutputFormat::kJsonLines) {
        console_.Print(MessageDocument(record));
      } else {
        gathered_.push_back(MessageDocument(record));
      }
    }
    console_.Flush();
  }

  void Finish() {
    if (console_.table() || console_.format() == OutputFormat::kJsonLines) {
      return;
    }
    console_.PrintList(key_, std::move(gathered_));
  }

 private:
  Console& console_;
  const std::string key_;
  std::string (*render_)(const Record&);
  Document gathered_ = Document::array();
};

// fetch(): prints everything new, false when there was nothing.  Whether the
// job has ended is asked *before* the fetch, so that its last records are not
// missed.
template <typename Fetch>
ExitCode Follow(const CommandContext& context, int64_t id, bool follow,
                const Fetch& fetch) {
  Patience patience;
  for (;;) {
    absl::Status error;
    bool ended = !follow;
    if (follow) {
      const absl::StatusOr<v1::Job> job = context.client.GetJob(id, 0, 0);
      error = job.status();
      ended = job.ok() && HasEnded(StateOf(*job));
    }
    if (error.ok()) error = fetch();
    if (error.ok()) {
      const std::string say = patience.OnAnswer();
      if (!say.empty()) context.console.Note(say);
      if (ended) return kExitOk;
    } else {
      const auto verdict = patience.OnError(error, context.clock.Now());
      if (!follow || !verdict.retry) return ReportError(context.console, error);
      if (!verdict.say.empty()) context.console.Note(verdict.say);
    }
    if (context.pauser.Sleep(kFollowPeriod)) return kExitInterrupted;
  }
}

void PrintJob(const CommandContext& context, const v1::Job& job) {
  Console& console = context.console;
  if (!console.table()) {
    console.Print(ToDocument(job, /*with_curve=*/true));
    return;
  }
  PlotOptions plot;
  plot.unicode = console.unicode();
  console.Print(RenderJob(job, plot));
}

}  // namespace

absl::StatusOr<int64_t> ResolveJob(ControlClient& client,
                                   const std::string& word) {
  int64_t id = 0;
  if (absl::SimpleAtoi(word, &id) && id > 0) return id;
  if (word != "last") {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", word,
        "' is not a job: give its number, or 'last' for the newest"));
  }
  const absl::StatusOr<v1::ListJobsResponse> jobs = client.ListJobs(1);
  if (!jobs.ok()) return jobs.status();
  if (jobs->jobs().empty()) {
    return absl::NotFoundError(
        "there are no jobs yet; submit one with 'paceline job submit FILE'");
  }
  return jobs->jobs(0).id();
}

ExitCode ListJobsCommand(const CommandContext& context, int limit) {
  const auto jobs = context.client.ListJobs(limit);
  if (!jobs.ok()) return ReportError(context.console, jobs.status());
  if (context.console.table()) {
    context.console.Print(RenderJobs(*jobs));
    if (jobs->jobs().empty()) {
      context.console.Note(absl::StrCat("no jobs yet; submit one with '",
                                        context.program, " job submit FILE'"));
    }
    return kExitOk;
  }
  Document list = Document::array();
  for (const v1::Job& job : jobs->jobs()) {
    list.push_back(ToDocument(job, false));
  }
  context.console.PrintList("jobs", std::move(list));
  return kExitOk;
}

ExitCode ShowJobCommand(const CommandContext& context, int64_t id) {
  const auto job = context.client.GetJob(id, kCurvePoints, 0);
  if (!job.ok()) return ReportError(context.console, job.status());
  PrintJob(context, *job);
  return kExitOk;
}

ExitCode JobEventsCommand(const CommandContext& context, int64_t id,
                          bool follow) {
  RecordPrinter<v1::JobEvent> printer(context.console, "events", RenderEvent);
  int64_t after = 0;
  const ExitCode code = Follow(context, id, follow, [&]() -> absl::Status {
    for (;;) {
      const auto page = context.client.GetEvents(id, after);
      if (!page.ok()) return page.status();
      if (page->events().empty()) return absl::OkStatus();
      printer.Print(page->events());
      // Those that are not stored yet have no number to go on from.
      const int64_t last = page->events().rbegin()->sequence();
      if (last <= after) return absl::OkStatus();
      after = last;
    }
  });
  if (code == kExitOk || code == kExitInterrupted) printer.Finish();
  return code;
}

ExitCode JobLogsCommand(const CommandContext& context, int64_t id,
                        bool follow) {
  RecordPrinter<v1::LogLine> printer(context.console, "lines", RenderLogLine);
  int64_t after = 0;
  const ExitCode code = Follow(context, id, follow, [&]() -> absl::Status {
    for (;;) {
      const auto page = context.client.GetLogs(id, after);
      if (!page.ok()) return page.status();
      if (page->lines().empty()) return absl::OkStatus();
      printer.Print(page->lines());
      // A page that does not advance would come again for ever.
      if (page->last() <= after) return absl::OkStatus();
      after = page->last();
    }
  });
  if (code == kExitOk || code == kExitInterrupted) printer.Finish();
  return code;
}

ExitCode WaitJobCommand(const CommandContext& context, int64_t id,
                        std::optional<absl::Duration> timeout,
                        const Document& extra) {
  Console& console = context.console;
  const auto watched = WatchJob(context, id, timeout);
  if (!watched.ok()) {
    const ExitCode code = ReportError(console, watched.status());
    if (code == kExitUnreachable) {
      console.Note(absl::StrCat(
          "the workers go on without you; come back with: ", context.program,
          " job wait ", id));
    }
    return code;
  }
  if (console.table()) {
    console.Print(RenderOutcome(watched->job));
  } else {
    const auto whole = context.client.GetJob(id, kCurvePoints, 0);
    if (!whole.ok()) return ReportError(console, whole.status());
    Document document = ToDocument(*whole, /*with_curve=*/true);
    document.update(extra);
    console.Print(document);
  }
  const std::string job = absl::StrCat(context.program, " job ");
  switch (watched->end) {
    case WatchEnd::kTimedOut:
      console.Note(absl::StrCat("timed out; job ", id,
                                " goes on.  Come back: ", job, "wait ", id,
                                "   stop it: ", job, "stop ", id));
      return kExitTimedOut;
    case WatchEnd::kInterrupted:
      console.Note(absl::StrCat("detached; job ", id,
                                " goes on.  Come back: ", job, "wait ", id,
                                "   stop it: ", job, "stop ", id));
      return kExitInterrupted;
    case WatchEnd::kEnded:
      break;
  }
  if (StateOf(watched->job) == JobState::kFailed) {
    console.Note(
        absl::StrCat("job ", id, " failed: ", Printable(watched->job.why())));
  }
  console.Note(absl::StrCat("next: ", job, "show ", id));
  if (StateOf(watched->job) == JobState::kSucceeded) {
    console.Note(absl::StrCat("      ", job, "export ", id, " -o ",
                              ResultName(watched->job), ".safetensors"));
  } else {
    console.Note(absl::StrCat("      ", job, "logs ", id));
  }
  return ExitCodeFor(StateOf(watched->job));
}

ExitCode StopJobCommand(const CommandContext& context, int64_t id) {
  const auto job = context.client.StopJob(id);
  if (!job.ok()) return ReportError(context.console, job.status());
  if (context.console.table()) {
    context.console.Print(RenderOutcome(*job));
  } else {
    context.console.Print(ToDocument(*job, /*with_curve=*/false));
  }
  return kExitOk;
}

ExitCode DeleteJobCommand(const CommandContext& context, int64_t id) {
  const absl::Status deleted = context.client.DeleteJob(id);
  if (!deleted.ok()) return ReportError(context.console, deleted);
  if (context.console.table()) {
    context.console.Note(absl::StrCat("job ", id, " is deleted"));
  } else {
    context.console.Print(Document{{"id", id}, {"deleted", Document(true)}});
  }
  return kExitOk;
}

}  // namespace paceline
