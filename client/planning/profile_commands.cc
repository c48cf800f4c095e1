#include "client/planning/profile_commands.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/patience.h"
#include "client/planning/profile_render.h"
#include "client/text.h"
#include "core/base/status_macros.h"
#include "core/model/catalog.h"

namespace paceline {
namespace {

constexpr absl::Duration kPollPeriod = absl::Milliseconds(200);

struct Watched {
  ProfileProgress progress;
  ExitCode end = kExitOk;  // or kExitTimedOut, kExitInterrupted
};

// Both directions of a link are one thing to measure, as in `waiting`.
size_t CountDone(const ProfileProgress& progress) {
  std::set<std::pair<std::string, std::string>> links;
  for (const LinkMeasurement& link : progress.links) {
    links.insert(std::minmax(link.from, link.to));
  }
  return progress.profiles.size() + links.size() + progress.failed.size();
}

// Says what is waited for: a redrawn line on a terminal, else a line whenever
// something was finished.
class WaitingLine {
 public:
  explicit WaitingLine(Console& console) : console_(console) {}

  void Show(const ProfileProgress& progress) {
    if (progress.waiting.empty()) return;
    const std::string text = Printable(
        absl::StrCat(CountDone(progress), " done, ", progress.waiting.size(),
                     " to go: ", absl::StrJoin(progress.waiting, "; ")));
    if (console_.live()) {
      console_.Redraw(text);
    } else if (progress.waiting.size() != last_waiting_) {
      console_.Note(text);
    }
    last_waiting_ = progress.waiting.size();
  }

 private:
  Console& console_;
  size_t last_waiting_ = 0;
};

absl::StatusOr<Watched> Watch(const CommandContext& context,
                              MeasureClient& measure, int64_t id,
                              std::optional<absl::Duration> timeout) {
  const Instant begin = context.clock.Now();
  Patience patience;
  WaitingLine line(context.console);
  Watched watched;
  for (;;) {
    absl::StatusOr<ProfileProgress> progress = measure.GetProfile(id);
    if (progress.ok()) {
      if (const std::string say = patience.OnAnswer(); !say.empty()) {
        context.console.Note(say);
      }
      watched.progress = *std::move(progress);
      if (watched.progress.waiting.empty()) return watched;
      line.Show(watched.progress);
    } else if (absl::IsNotFound(progress.status())) {
      return absl::AbortedError(
          "the coordinator has restarted and forgotten this profile; what was "
          "finished is kept: start it again");
    } else {
      const auto verdict =
          patience.OnError(progress.status(), context.clock.Now());
      if (!verdict.retry) return progress.status();
      if (!verdict.say.empty()) context.console.Note(verdict.say);
    }
    absl::Duration pause = kPollPeriod;
    if (timeout.has_value()) {
      const absl::Duration left = *timeout - (context.clock.Now() - begin);
      if (left <= absl::ZeroDuration()) {
        watched.end = kExitTimedOut;
        return watched;
      }
      pause = std::min(pause, left);
    }
    if (context.pauser.Sleep(pause)) {
      watched.end = kExitInterrupted;
      return watched;
    }
  }
}

absl::StatusOr<ProfileStarted> Start(MeasureClient& measure,
                                     const JobSpec& spec,
                                     const ProfileOptions& options) {
  ProfileOrder order{spec, options.workers, /*links=*/false};
  if (options.links.has_value()) {
    order.links = *options.links;
  } else if (!options.workers.empty()) {
    order.links = options.workers.size() > 1;
  } else {
    PACELINE_ASSIGN_OR_RETURN(const std::vector<WorkerView> live,
                              LiveWorkers(measure));
    order.links = live.size() > 1;
  }
  return measure.StartProfile(order);
}

void PrintProgress(Console& console, const ProfileProgress& progress) {
  if (console.table()) {
    console.Print(RenderProfiles(progress));
  } else {
    console.Print(ToDocument(progress));
  }
}

bool GivesBatch(const std::vector<std::string>& sets) {
  for (const std::string& set : sets) {
    if (absl::StartsWith(set, "train.batch=")) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::vector<WorkerView>> LiveWorkers(MeasureClient& measure) {
  PACELINE_ASSIGN_OR_RETURN(std::vector<WorkerView> workers,
                            measure.ListWorkers());
  std::erase_if(workers, [](const WorkerView& worker) {
    return worker.state != "idle" && worker.state != "busy" &&
           worker.state != "measuring";
  });
  return workers;
}

absl::StatusOr<JobSpec> WithMicroBatch(JobSpec spec, int64_t batch,
                                       const std::vector<std::string>& sets) {
  const TrainSpec defaults;
  spec.train.micro_batch = batch;
  if (!GivesBatch(sets)) {
    spec.train.batch = batch * (defaults.batch / defaults.micro_batch);
  }
  if (spec.data.name.empty()) {
    spec.data = WithSyntheticData(spec.model, spec.data);
  }
  if (spec.name.empty()) spec.name = spec.model.name;
  std::vector<std::string> wrong;
  for (const SpecProblem& problem : CheckJobSpec(spec)) {
    wrong.push_back(absl::StrCat(problem.path, ": ", problem.why));
  }
  if (wrong.empty()) return spec;
  return absl::InvalidArgumentError(absl::StrJoin(wrong, "\n"));
}

absl::StatusOr<ProfileProgress> TakeProfile(const CommandContext& context,
                                            MeasureClient& measure,
                                            const JobSpec& spec,
                                            const ProfileOptions& options) {
  PACELINE_ASSIGN_OR_RETURN(const ProfileStarted started,
                            Start(measure, spec, options));
  context.console.Note(Printable(absl::StrCat(
      "measuring ", spec.model.name, " in micro-batches of ",
      spec.train.micro_batch, " on ", absl::StrJoin(started.workers, ", "))));
  absl::StatusOr<Watched> watched =
      Watch(context, measure, started.id, options.timeout);
  context.console.EndLive();
  PACELINE_RETURN_IF_ERROR(watched.status());
  if (watched->end == kExitTimedOut) {
    return absl::DeadlineExceededError("timed out while measuring");
  }
  if (watched->end == kExitInterrupted) {
    return absl::CancelledError("interrupted while measuring");
  }
  if (!watched->progress.failed.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "not measured: ", absl::StrJoin(watched->progress.failed, "; ")));
  }
  return std::move(watched->progress);
}

absl::Status CheckProfileOptions(const ProfileOptions& options) {
  if (!options.model.empty() || !options.job_file.empty()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "what is to be profiled? Name a model (--model MODEL --batch B) or a job "
      "(-f FILE)");
}

ExitCode ProfileCommand(const CommandContext& context, MeasureClient& measure,
                        const JobSpec& spec, const ProfileOptions& options) {
  Console& console = context.console;
  const auto started = Start(measure, spec, options);
  if (!started.ok()) {
    ReportError(console, started.status());
    return SubmitExitCodeFor(started.status());
  }
  console.Note(Printable(absl::StrCat(
      "measuring ", spec.model.name, " in micro-batches of ",
      spec.train.micro_batch, " on ", absl::StrJoin(started->workers, ", "))));
  const auto watched = Watch(context, measure, started->id, options.timeout);
  console.EndLive();
  if (!watched.ok()) return ReportError(console, watched.status());
  PrintProgress(console, watched->progress);
  for (const std::string& failed : watched->progress.failed) {
    console.Note(absl::StrCat("paceline: not measured: ", Printable(failed)));
  }
  if (watched->end != kExitOk) {
    console.Note(absl::StrCat(
        watched->end == kExitTimedOut ? "timed out" : "interrupted",
        "; the workers go on, and what they find is kept"));
    return watched->end;
  }
  if (!watched->progress.failed.empty()) return kExitFailed;
  console.Note(absl::StrCat("next: ", context.program, " plan --model ",
                            Printable(spec.model.name), " --batch ",
                            spec.train.micro_batch));
  return kExitOk;
}

}  // namespace paceline
