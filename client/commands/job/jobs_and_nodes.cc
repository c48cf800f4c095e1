#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/commands/job/job.h"
#include "client/render/report.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/base/text.h"

namespace paceline {

namespace {

// The sequence number to go on from behind a page that is not empty.
int64_t LastOf(const v1::GetEventsResponse& page) {
  return page.events().rbegin()->sequence();
}
int64_t LastOf(const v1::GetLogsResponse& page) { return page.last(); }

// Prints the records of job `id` as they come where each stands for itself
// (table, jsonl), and at the end where all form one document.
//   follow   goes on until the job has ended or Ctrl-C
//   fetch    a page of them, behind a sequence number
//   records  those of a page
template <typename Page, typename Record>
Outcome PrintRecords(
    const CommandContext& context, int64_t id, bool follow,
    const std::string& key,
    absl::StatusOr<Page> (ControlClient::*fetch)(int64_t id, int64_t after),
    const google::protobuf::RepeatedPtrField<Record>& (Page::*records)() const,
    std::string (*render)(const Record&)) {
  Console& console = context.console;
  const bool as_they_come =
      console.table() || console.format() == OutputFormat::kJsonLines;
  Document gathered = Document::array();
  bool ended = !follow;
  int64_t after = 0;
  const auto ask = [&]() -> absl::Status {
    // Before the records, so that the last ones are not missed.
    if (follow) {
      PACELINE_ASSIGN_OR_RETURN(const v1::Job job,
                                context.client.GetJob(id, 0, 0));
      ended = HasEnded(job.state());
    }
    for (;;) {
      PACELINE_ASSIGN_OR_RETURN(const Page page,
                                (context.client.*fetch)(id, after));
      for (const Record& record : (page.*records)()) {
        if (as_they_come) {
          console.Print(render(record), MessageDocument(record));
        } else {
          gathered.push_back(MessageDocument(record));
        }
      }
      console.Flush();
      // A page that does not advance would come again for ever.  Events that
      // are not stored yet have no number to go on from.
      if ((page.*records)().empty() || LastOf(page) <= after) {
        return absl::OkStatus();
      }
      after = LastOf(page);
    }
  };
  const absl::Status end = WaitUntil(
      context, {.patience = follow ? kPatience : absl::ZeroDuration()}, ask,
      [&] { return ended; });
  if (!end.ok() && !absl::IsCancelled(end)) return end;
  if (!as_they_come) console.Print(Document{{key, std::move(gathered)}});
  return ExitCodeFor(end);
}

// As RenderEvent(); the reasons for a placement are many, a line each.
std::string RenderEventLines(const v1::JobEvent& event) {
  const std::string line = RenderEvent(event);
  if (event.kind() != "placed") return line;
  const size_t indent = line.find(Printable(event.text()));
  return absl::StrReplaceAll(
      line, {{"; ", absl::StrCat(";\n", std::string(indent, ' '))}});
}

}  // namespace

absl::StatusOr<int64_t> ResolveJob(ControlClient& client,
                                   const std::string& word) {
  int64_t id = 0;
  if (absl::SimpleAtoi(word, &id) && id > 0) return id;
  if (word != "last") {
    return InvalidArgument(
        "'", word, "' is not a job: give its number, or 'last' for the newest");
  }
  const absl::StatusOr<v1::ListJobsResponse> jobs = client.ListJobs(1);
  if (!jobs.ok()) return jobs.status();
  if (jobs->jobs().empty()) {
    return NotFound(
        "there are no jobs yet; submit one with 'paceline job submit FILE'");
  }
  return jobs->jobs(0).id();
}

void KeepWanted(const JobFilter& filter, v1::ListJobsResponse& listed) {
  auto& jobs = *listed.mutable_jobs();
  const auto left_out = [&](const v1::Job& job) {
    const std::string state(JobStateName(job.state()));
    return !(filter.states.empty() ||
             std::count(filter.states.begin(), filter.states.end(), state)) ||
           !(filter.model.empty() ||
             filter.model == job.spec().model().name()) ||
           !absl::StrContains(job.spec().name(), filter.name);
  };
  jobs.erase(std::remove_if(jobs.begin(), jobs.end(), left_out), jobs.end());
  if (filter.limit > 0 && jobs.size() > filter.limit) {
    jobs.DeleteSubrange(filter.limit, jobs.size() - filter.limit);
  }
}

Outcome ListJobsCommand(const CommandContext& context, const JobFilter& filter,
                        bool watch) {
  if (watch) return WatchJobsCommand(context, filter);
  const bool all =
      filter.states.empty() && filter.model.empty() && filter.name.empty();
  PACELINE_ASSIGN_OR_RETURN(v1::ListJobsResponse listed,
                            context.client.ListJobs(all ? filter.limit : 0));
  KeepWanted(filter, listed);
  const auto& jobs = listed.jobs();
  context.console.PrintList(RenderJobs(listed, context.console.wide()), "jobs",
                            ListOf(jobs, [](const v1::Job& job) {
                              return ToDocument(job, /*with_curve=*/false);
                            }));
  if (!context.console.table() || !jobs.empty()) return kExitOk;
  context.console.Note(
      all ? "no jobs yet; submit one with '" : "no job matches; '",
      context.program, all ? " job submit FILE'" : " job list' shows all");
  return kExitOk;
}

Outcome ShowJobCommand(const CommandContext& context, int64_t id, bool watch) {
  if (watch) return WatchOneJobCommand(context, id);
  PACELINE_ASSIGN_OR_RETURN(const auto job,
                            context.client.GetJob(id, kCurvePoints, 0));
  context.console.Print(RenderJob(job, {.unicode = context.console.unicode()}),
                        ToDocument(job, /*with_curve=*/true));
  return kExitOk;
}

Outcome JobEventsCommand(const CommandContext& context, int64_t id,
                         bool follow) {
  return PrintRecords(context, id, follow, "events", &ControlClient::GetEvents,
                      &v1::GetEventsResponse::events, RenderEventLines);
}

Outcome JobLogsCommand(const CommandContext& context, int64_t id, bool follow) {
  return PrintRecords(context, id, follow, "lines", &ControlClient::GetLogs,
                      &v1::GetLogsResponse::lines, RenderLogLine);
}

Outcome WaitJobCommand(const CommandContext& context, int64_t id,
                       const WaitJobOptions& options) {
  Console& console = context.console;
  v1::Job last;
  const absl::Status end =
      WatchJob(context, id, options.timeout, options.events, last);
  if (!end.ok() && !StoppedWaiting(end)) {
    const ExitCode code = ReportError(console, end);
    if (code == kExitUnreachable) {
      console.Note("the workers go on without you; come back with: ",
                   context.program, " job wait ", id);
    }
    return code;
  }
  if (console.table()) {
    console.Print(RenderOutcome(last));
  } else {
    PACELINE_ASSIGN_OR_RETURN(const auto whole,
                              context.client.GetJob(id, kCurvePoints, 0));
    Document document = ToDocument(whole, /*with_curve=*/true);
    document.update(options.extra);
    console.Print(document);
  }
  const std::string job = absl::StrCat(context.program, " job ");
  if (!end.ok()) {
    console.Note(absl::IsCancelled(end) ? "detached" : end.message(), "; job ",
                 id, " goes on.  Come back: ", job, "wait ", id,
                 "   stop it: ", job, "stop ", id);
    return ExitCodeFor(end);
  }
  if (last.state() == v1::JOB_STATE_FAILED) {
    console.Note("job ", id, " failed: ", Printable(last.why()));
  }
  console.Note("next: ", job, "show ", id);
  if (last.state() == v1::JOB_STATE_SUCCEEDED) {
    console.Note("      ", job, "export ", id, " -o ", ResultName(last),
                 ".safetensors");
  } else {
    console.Note("      ", job, "logs ", id);
  }
  return ExitCodeFor(last.state());
}

Outcome StopJobCommand(const CommandContext& context, int64_t id) {
  PACELINE_ASSIGN_OR_RETURN(const auto job, context.client.StopJob(id));
  context.console.Print(RenderOutcome(job),
                        ToDocument(job, /*with_curve=*/false));
  const v1::JobState state = job.state();
  if (state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED) {
    context.console.Note("job ", id, " had ended before");
  }
  return kExitOk;
}

Outcome DeleteJobCommand(const CommandContext& context, int64_t id) {
  PACELINE_RETURN_IF_ERROR(context.client.DeleteJob(id));
  if (context.console.table()) {
    context.console.Note("job ", id, " is deleted");
  } else {
    context.console.Print(Document{{"id", id}, {"deleted", Document(true)}});
  }
  return kExitOk;
}

Outcome ListNodesCommand(const CommandContext& context, bool watch) {
  if (watch) return WatchNodesCommand(context);
  PACELINE_ASSIGN_OR_RETURN(const auto workers, context.client.ListWorkers());
  context.console.PrintList(
      RenderWorkers(workers, context.console.wide()), "workers",
      ListOf(workers.workers(),
             [](const v1::Worker& worker) { return ToDocument(worker); }));
  if (context.console.table() && workers.workers().empty()) {
    context.console.Note(
        "no workers yet; start one with 'paceline-worker --coordinator "
        "HOST:PORT'");
  }
  return kExitOk;
}

Outcome ShowNodeCommand(const CommandContext& context,
                        const std::string& word) {
  PACELINE_ASSIGN_OR_RETURN(const auto workers, context.client.ListWorkers());
  // A name may look like a number: names go first.
  const v1::Worker* found = nullptr;
  for (const v1::Worker& worker : workers.workers()) {
    if (worker.registration().name() == word) found = &worker;
  }
  for (const v1::Worker& worker : workers.workers()) {
    if (found == nullptr && absl::StrCat(worker.id()) == word) found = &worker;
  }
  if (found == nullptr) {
    const std::string known = Joined(
        workers.workers(), ", ",
        [](const v1::Worker& worker) { return worker.registration().name(); });
    return NotFound("no worker '", word, "'; known are: ",
                    known.empty() ? std::string("none") : known);
  }
  context.console.Print(RenderWorker(*found), ToDocument(*found));
  return kExitOk;
}

Outcome DrainNodeCommand(const CommandContext& context, const std::string& word,
                         bool drain) {
  PACELINE_ASSIGN_OR_RETURN(const auto worker,
                            context.client.DrainWorker(word, drain));
  const std::string what = !drain ? " takes new work again"
                           : worker.job() == 0
                               ? " is drained: it gets nothing new"
                               : absl::StrCat(
                                     " is draining: it gets nothing new, "
                                     "and its part in job ",
                                     worker.job(),
                                     " moves to other workers if they can take "
                                     "it; `node list` shows when it is free");
  context.console.Print(
      absl::StrCat("worker ", worker.registration().name(), what, "\n"),
      ToDocument(worker));
  return kExitOk;
}

Outcome ForgetNodeCommand(const CommandContext& context,
                          const std::string& word) {
  PACELINE_ASSIGN_OR_RETURN(const auto worker,
                            context.client.ForgetWorker(word));
  context.console.Print(
      absl::StrCat("worker ", worker.registration().name(), " is forgotten\n"),
      ToDocument(worker));
  return kExitOk;
}

}  // namespace paceline
