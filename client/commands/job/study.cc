#include "client/study/study.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/commands/job/job.h"
#include "client/commands/plan/plan.h"
#include "client/files/plan_file.h"
#include "client/files/whole_file.h"
#include "client/render/report.h"
#include "client/render/sections.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/data/batch.h"
#include "core/data/data_sets.h"
#include "core/job/job_check.h"
#include "core/rpc/convert/job_convert.h"
#include "core/simulate/simulation.h"

namespace paceline {
namespace {

// A study that is ready to be submitted.
struct ReadyStudy : StudyResults {
  std::vector<Rung> rungs = {};  // of a race
  LoadModelWeights load = {};    // as LookForFiles() has it
};

// Warnings go to the console.
absl::StatusOr<ReadyStudy> ReadyStudyOf(const StudyOptions& options,
                                        const ReadMetadata& read,
                                        Console& console) {
  ReadyStudy ready;
  PACELINE_ASSIGN_OR_RETURN(ready.study,
                            ReadStudyFile(options.file, options.sets));
  const int64_t jobs = JobCount(ready.study);
  if (jobs > kMostJobs) {
    return InvalidArgument(options.file, " asks for more than ", kMostJobs,
                           " jobs, trials times repeats: take values out");
  }
  if (jobs > kManyJobs && !options.yes) {
    return InvalidArgument(options.file, " asks for ", jobs,
                           " jobs, trials times repeats: take values out, or "
                           "say --yes to mean it");
  }
  PACELINE_ASSIGN_OR_RETURN(ready.trials, TrialsOf(ready.study));
  if (ready.study.plan.has_value()) return ready;
  std::vector<std::string> warnings;
  PACELINE_ASSIGN_OR_RETURN(ready.jobs,
                            JobsOf(ready.study, ready.trials, &warnings));
  for (TrialJob& job : ready.jobs) {
    const absl::Status filled = FillInSizes(read, job.spec.model);
    if (!filled.ok()) job.why = std::string(filled.message());
    if (job.why.empty()) job.request_id = RequestId(ready.study, job.spec);
  }
  if (ready.study.race.has_value()) {
    PACELINE_ASSIGN_OR_RETURN(ready.rungs, BeginRace(ready.study, ready.jobs));
  }
  console.NoteEach("paceline: warning: ", warnings);
  return ready;
}

// The trial is refused; another one may be taken.  All other errors of a
// submission are about the coordinator, or are Ctrl-C.
bool IsRefusal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status) ||
         absl::IsFailedPrecondition(status) || absl::IsNotFound(status) ||
         absl::IsDataLoss(status);
}

// The name of a job's data, and its files.
using NamedFiles = std::vector<std::pair<std::string, std::string>>;

// Looks for a job's files, but for those in `known`, to which it adds those
// that it has found; and has a worker look into its script.
absl::Status MakeReady(const CommandContext& context,
                       const LoadModelWeights& load, JobSpec& spec,
                       std::set<NamedFiles>& known) {
  NamedFiles files = FilesOf(spec);
  files.emplace_back("data.name", spec.data.name);
  if (!known.contains(files)) {
    PACELINE_RETURN_IF_ERROR(LookForFiles(context, spec, load));
    known.insert(files);
  }
  return FillInScript(context, std::nullopt, &spec);
}

absl::Status WriteReport(const std::string& file, const ReadyStudy& ready) {
  for (const ReportForm& form : kReportForms) {
    if (!absl::EndsWith(file, form.ending)) continue;
    return WriteWholeFile(file, form.print(StudyReport(ready, form.plain)));
  }
  return absl::OkStatus();
}

// Prints the results, and writes the report.
Outcome PrintStudy(const StudyOptions& options, const ReadyStudy& ready,
                   Console& console) {
  console.Print(RenderStudy(ready, console.unicode()), StudyDocument(ready));
  PACELINE_RETURN_IF_ERROR(WriteReport(options.report, ready));
  const bool all_well = absl::c_all_of(
      ready.jobs, [](const TrialJob& job) { return job.why.empty(); });
  return all_well ? kExitOk : kExitFailed;
}

// --- Plans in place of jobs -------------------------------------------------

// Seconds of a micro-batch under 1F1B, in a step of `micro_batches`.
absl::StatusOr<double> SimulatedSeconds(PlanProblem problem,
                                        const Placement& placement,
                                        int64_t micro_batches) {
  problem.micro_batches = micro_batches;
  SimulationOptions options;
  options.machine_ports = true;
  PACELINE_ASSIGN_OR_RETURN(const SimulationResult run,
                            Simulate(problem, placement, options));
  return run.step_seconds / static_cast<double>(micro_batches);
}

// The document that FindPlanMeasure() is about.
absl::StatusOr<Document> PlannedTrial(const PlanBase& base, const Trial& trial,
                                      const Clock& clock) {
  PlanOptions options;
  for (const auto* settings : {&base.settings, &trial.settings}) {
    for (const Setting& each : *settings) {
      PACELINE_RETURN_IF_ERROR(SetPlanOption(each.key, each.value, options));
    }
  }
  PACELINE_RETURN_IF_ERROR(CheckPlanOptions(options));
  PACELINE_ASSIGN_OR_RETURN(
      const ProfileSource source,
      ReadProfileFile(std::filesystem::path(base.folder) / options.profile));
  PACELINE_ASSIGN_OR_RETURN(const PlanBesideGroup plan,
                            PlanForStudy(source, options, clock));
  PACELINE_ASSIGN_OR_RETURN(
      const double simulated,
      SimulatedSeconds(plan.problem, plan.placement, base.micro_batches));
  PACELINE_ASSIGN_OR_RETURN(
      const double simulated_group,
      SimulatedSeconds(plan.problem, GroupPlacement(plan.problem),
                       base.micro_batches));
  return Document{
      {"configuration", plan.configuration},
      {"bottleneck", plan.bottleneck_seconds},
      {"speed_up", plan.group_seconds / plan.bottleneck_seconds},
      {"over_one", plan.one_device_seconds / plan.bottleneck_seconds},
      {"simulated", simulated},
      {"simulated_speed_up", simulated_group / simulated}};
}

// A study in which nothing can be planned is refused.
Outcome RunPlans(const CommandContext& context, const StudyOptions& options,
                 ReadyStudy& ready) {
  absl::Status wrong;
  for (size_t t = 0; t < ready.trials.size(); ++t) {
    if (context.pauser.Sleep(absl::ZeroDuration())) return kExitInterrupted;
    auto planned =
        PlannedTrial(*ready.study.plan, ready.trials[t], context.clock);
    TrialJob& job = ready.jobs.emplace_back();
    job.trial = t;
    job.state = planned.ok() ? v1::JOB_STATE_SUCCEEDED : v1::JOB_STATE_FAILED;
    job.why = std::string(planned.status().message());
    wrong.Update(planned.status());
    if (planned.ok()) job.document = *std::move(planned);
  }
  const bool any = absl::c_any_of(
      ready.jobs, [](const TrialJob& job) { return job.why.empty(); });
  return any ? PrintStudy(options, ready, context.console)
             : ReportSubmitError(context.console, wrong);
}

// --- A dry run --------------------------------------------------------------

absl::StatusOr<v1::SubmitJobResponse> TryToPlace(const CommandContext& context,
                                                 const JobSpec& spec) {
  v1::SubmitJobRequest request;
  *request.mutable_spec() = ToProto(spec);
  request.set_dry_run(true);
  return context.client.SubmitJob(request);
}

struct TrialEstimate {
  v1::SubmitJobResponse answer;
  std::string why;     // refused
  double seconds = 0;  // of a job; 0: not known
};

// Counts the steps of a job; inference counts as one.  0: only a worker that
// has the data knows.
double StepsOf(const JobSpec& spec) {
  if (IsInference(spec)) return 1;
  const int64_t samples = TrainSamplesOf(spec.data);
  if (spec.train.steps == 0 && samples == 0) return 0;
  return static_cast<double>(
      BatchWalk(spec.train, std::max<int64_t>(samples, 1), /*test_samples=*/0)
          .total_steps());
}

absl::StatusOr<TrialEstimate> EstimateTrial(const CommandContext& context,
                                            const LoadModelWeights& load,
                                            const TrialJob& job,
                                            std::set<NamedFiles>& files) {
  TrialEstimate trial;
  trial.why = job.why;
  if (!trial.why.empty()) return trial;
  JobSpec spec = job.spec;
  absl::Status status = MakeReady(context, load, spec, files);
  if (status.ok()) {
    auto answer = TryToPlace(context, spec);
    status = answer.status();
    if (answer.ok()) trial.answer = *std::move(answer);
  }
  if (!status.ok() && !IsRefusal(status)) return status;
  trial.why = std::string(status.message());
  const double step = trial.answer.estimate().step_seconds();
  if (step > 0) trial.seconds = step * StepsOf(spec);
  return trial;
}

// A busy mesh has no times; its last note says for what the job would wait.
std::string WhyNoTime(const TrialEstimate& trial) {
  const auto& notes = trial.answer.notes();
  const bool waits =
      !notes.empty() && absl::StartsWith(*notes.rbegin(), "queued: ");
  return trial.why.empty() && waits ? *notes.rbegin() : trial.why;
}

Outcome DryRun(const CommandContext& context, const ReadyStudy& ready) {
  Table table({"trial", ">jobs", ">stages", ">a step", ">a job", "why"});
  Document trials = Document::array();
  std::set<NamedFiles> files;
  double total = 0;
  bool refused = false;
  for (const TrialJob& job : ready.jobs) {
    if (job.repeat > 0) continue;
    PACELINE_ASSIGN_OR_RETURN(const auto trial,
                              EstimateTrial(context, ready.load, job, files));
    const v1::RunEstimate& run = trial.answer.estimate();
    const int stages = trial.answer.stages().empty()
                           ? 0
                           : trial.answer.stages().rbegin()->stage() + 1;
    const std::string& label = ready.trials[job.trial].label;
    const auto text = [](double seconds) {
      return seconds > 0 ? ValueText(seconds, Unit::kSeconds) : "-";
    };
    table.AddRow(label, ready.study.repeat, stages, text(run.step_seconds()),
                 text(trial.seconds), WhyNoTime(trial));
    trials.push_back({{"label", label},
                      {"stages", OrNull(stages)},
                      {"step_seconds", OrNull(run.step_seconds())},
                      {"seconds", OrNull(trial.seconds)},
                      {"why", OrNull(WhyNoTime(trial))}});
    total += trial.seconds * static_cast<double>(ready.study.repeat);
    refused = refused || !trial.why.empty();
  }
  std::string rungs;
  size_t jobs = ready.rungs.empty() ? ready.jobs.size() : 0;
  double steps = 0;
  int64_t begin = 0;
  for (const Rung& rung : ready.rungs) {
    jobs += rung.trials;
    steps += static_cast<double>(rung.trials) *
             static_cast<double>(rung.end - std::exchange(begin, rung.end));
    absl::StrAppend(&rungs, Counted(rung.trials, "trial"), " to step ",
                    rung.end, "\n");
  }
  if (!ready.rungs.empty()) {  // so far it is the time of the first one
    total *= steps / static_cast<double>(ready.rungs[0].trials) /
             static_cast<double>(ready.rungs[0].end);
  }
  context.console.Print(
      absl::StrCat(table.Render(), "\n", rungs, Counted(jobs, "job"), "; ",
                   total > 0 ? absl::StrCat("one after the other, those with a "
                                            "known time take ",
                                            HumanDuration(absl::Seconds(total)))
                             : "their times are not known",
                   "\n"),
      {{"name", ready.study.name},
       {"dry_run", Document(true)},
       {"jobs", jobs},
       {"seconds", total},
       {"trials", std::move(trials)}});
  return refused ? kExitFailed : kExitOk;
}

// --- The jobs ---------------------------------------------------------------

// Submits the jobs of a study and follows them.  Every call of Turn() brings it
// further, and may be repeated after an error.
class StudyRunner {
 public:
  StudyRunner(const CommandContext& context, ReadyStudy& ready)
      : context_(context), ready_(ready) {}

  // Looks for the files of the first job, before anything is measured.
  absl::Status LookForFiles() {
    return MakeReady(context_, ready_.load, ready_.jobs.front().spec, files_);
  }

  // Finds the jobs that an earlier run of this study has submitted.
  absl::Status Begin() {
    PACELINE_ASSIGN_OR_RETURN(const v1::ListJobsResponse listed,
                              context_.client.ListJobs(0));
    for (const v1::Job& job : listed.jobs()) {
      if (!job.request_id().empty()) earlier_[job.request_id()] = job.id();
    }
    if (const size_t found = TakeEarlier(); found > 0) {
      context_.console.Note("the study goes on: ", found, " of its ",
                            Counted(ready_.jobs.size(), "job"),
                            found == 1 ? " is" : " are", " there already");
    }
    return absl::OkStatus();
  }

  absl::Status Turn() {
    TakeEarlier();  // the jobs of a further rung
    for (TrialJob& job : ready_.jobs) {
      if (IsOpen(job)) PACELINE_RETURN_IF_ERROR(Refresh(job));
    }
    PACELINE_ASSIGN_OR_RETURN(const std::vector<v1::Worker> live,
                              LiveWorkers(context_.client));
    const bool idle =
        !live.empty() && absl::c_all_of(live, [](const v1::Worker& worker) {
          return worker.state() == v1::WORKER_STATE_IDLE;
        });
    for (TrialJob& job : ready_.jobs) {
      if (IsOpen(job) && DecideStuck(job, idle, context_.clock.Now())) {
        PACELINE_RETURN_IF_ERROR(GiveUp(job));
      }
    }
    while (const std::optional<size_t> next =
               NextJob(ready_.jobs, ready_.study.exclusive,
                       static_cast<int>(live.size()))) {
      PACELINE_RETURN_IF_ERROR(Submit(ready_.jobs[*next]));
    }
    return absl::OkStatus();
  }

  bool IsDone() {
    const auto count = [&](bool (*is)(const TrialJob&)) {
      return absl::c_count_if(ready_.jobs, is);
    };
    const auto ended = count(HasEnded);
    if (context_.console.live()) {
      context_.console.Redraw(
          absl::StrCat(ended, " of ", Counted(ready_.jobs.size(), "job"),
                       ended == 1 ? " has" : " have", " ended, ", count(IsOpen),
                       " under way"));
    }
    return ended == std::ssize(ready_.jobs) &&
           !(ready_.study.race.has_value() &&
             AddRung(ready_.study, ready_.rungs, ready_.jobs));
  }

  // Submits one job and waits for its end, with its progress on the console.
  // Errors: those of SubmitJob and GetJob; DeadlineExceeded, Cancelled
  // (Ctrl-C);
  //         Aborted  it has failed, or was stopped
  absl::Status Follow(TrialJob& job, std::optional<absl::Duration> timeout) {
    PACELINE_RETURN_IF_ERROR(Place(job));
    v1::Job last;
    const absl::Status end =
        WatchJob(context_, job.id, timeout, /*events=*/false, last);
    if (StoppedWaiting(end)) {
      return absl::Status(end.code(),
                          absl::StrCat(end.message(), " while job ", job.id,
                                       " ran; it goes on: stop it with: ",
                                       context_.program, " job stop ", job.id));
    }
    PACELINE_RETURN_IF_ERROR(end);
    job.state = v1::JOB_STATE_UNSPECIFIED;  // its end is no news
    PACELINE_RETURN_IF_ERROR(Refresh(job));
    return job.why.empty() ? absl::OkStatus() : Aborted(job.why);
  }

  // "7, 8".
  std::string OpenJobs() const {
    std::vector<int64_t> ids;
    for (const TrialJob& job : ready_.jobs) {
      if (IsOpen(job)) ids.push_back(job.id);
    }
    return absl::StrJoin(ids, ", ");
  }

 private:
  size_t TakeEarlier() {
    size_t found = 0;
    for (TrialJob& job : ready_.jobs) {
      const auto known = earlier_.find(job.request_id);
      if (known == earlier_.end() || job.id > 0 || !job.why.empty()) continue;
      job.id = known->second;
      ++found;
    }
    return found;
  }

  absl::Status Refresh(TrialJob& job) {
    auto now = context_.client.GetJob(job.id, 0, 0);
    if (now.ok() && HasEnded(now->state())) {
      // The job's last heartbeats are recorded when it has ended.
      now = context_.client.GetJob(job.id, kCurvePoints, 0);
    }
    if (absl::IsNotFound(now.status())) {
      job.why = absl::StrCat("job ", job.id, " was deleted");
      return absl::OkStatus();
    }
    PACELINE_RETURN_IF_ERROR(now.status());
    const bool is_news = job.state != v1::JOB_STATE_UNSPECIFIED;
    job.state = now->state();
    waits_for_[job.id] = now->why();
    if (!HasEnded(job.state)) return absl::OkStatus();
    if (job.state == v1::JOB_STATE_SUCCEEDED) {
      job.document = JobDocument(*now);
      job.result = *std::move(now);
    } else {
      job.why = absl::StrCat("job ", job.id, " ", JobStateName(job.state),
                             now->why().empty() ? "" : ": ", now->why());
    }
    if (is_news) {
      Tell(job, absl::StrCat("job ", job.id, " ", JobStateName(job.state)));
    }
    return absl::OkStatus();
  }

  absl::Status Place(TrialJob& job) {
    JobSpec spec = job.spec;
    PACELINE_RETURN_IF_ERROR(MakeReady(context_, ready_.load, spec, files_));
    v1::SubmitJobRequest request;
    if (job.goes_on_from.has_value()) {
      const TrialJob& from = ready_.jobs[*job.goes_on_from];
      request.mutable_resume()->set_job(from.id);
      request.mutable_resume()->set_step(from.spec.train.steps);
      // Another one rounds differently.
      spec.cpu_capability = from.document.value("cpu_capability", "");
    }
    *request.mutable_spec() = ToProto(spec);
    request.set_request_id(job.request_id);
    PACELINE_ASSIGN_OR_RETURN(const v1::SubmitJobResponse submitted,
                              context_.client.SubmitJob(request));
    job.id = submitted.id();
    job.state = v1::JOB_STATE_QUEUED;
    return absl::OkStatus();
  }

  // It is deleted, so that the next run of the study tries it again.
  absl::Status GiveUp(TrialJob& job) {
    PACELINE_RETURN_IF_ERROR(context_.client.StopJob(job.id).status());
    PACELINE_RETURN_IF_ERROR(context_.client.DeleteJob(job.id));
    job.why = absl::StrCat("it cannot be placed: ", waits_for_[job.id]);
    job.id = 0;
    Tell(job, job.why);
    return absl::OkStatus();
  }

  absl::Status Submit(TrialJob& job) {
    const absl::Status status = Place(job);
    if (!status.ok() && !IsRefusal(status)) return status;
    job.why = std::string(status.message());
    Tell(job, status.ok() ? absl::StrCat("is job ", job.id)
                          : absl::StrCat("refused: ", job.why));
    return absl::OkStatus();
  }

  void Tell(const TrialJob& job, const std::string& what) {
    context_.console.Note(
        Printable(absl::StrCat(ready_.trials[job.trial].label, ", seed ",
                               job.spec.train.seed, ": ", what)));
  }

  const CommandContext& context_;
  ReadyStudy& ready_;
  std::map<std::string, int64_t> earlier_;  // jobs by request id
  std::map<int64_t, std::string>
      waits_for_;               // by job: why it stands as it does
  std::set<NamedFiles> files_;  // that were looked for
};

void NoteWinner(const ReadyStudy& ready, Console& console) {
  const std::optional<size_t> winner = WinnerOf(ready.jobs);
  if (!winner.has_value()) return console.Note("no trial won the race");
  const TrialJob& job = ready.jobs[*winner];
  console.Note(Printable(ready.trials[job.trial].label), " won the race; job ",
               job.id, " has its weights after ",
               Counted(job.spec.train.steps, "step"));
}

// How much CPU a quota leaves each worker, by the first of its profiles.
absl::StatusOr<CpuShares> MeasuredShares(ControlClient& client) {
  PACELINE_ASSIGN_OR_RETURN(const Measurements known,
                            client.ListMeasurements(""));
  CpuShares shares;
  for (const auto& [key, profile] : known.profiles) {
    shares.emplace(key.device, profile.cpu_share);
  }
  return shares;
}

// Warns of jobs that cannot be compared.
absl::Status Compare(const CommandContext& context, ReadyStudy& ready) {
  if (ready.study.against.empty()) return absl::OkStatus();
  PACELINE_ASSIGN_OR_RETURN(const CpuShares shares,
                            MeasuredShares(context.client));
  context.console.NoteEach("paceline: warning: no comparison: ",
                           CompareJobs(/*paired=*/false, shares, ready.jobs));
  return absl::OkStatus();
}

Outcome RunStudy(const CommandContext& context, const StudyOptions& options,
                 ReadyStudy& ready) {
  Console& console = context.console;
  StudyRunner runner(context, ready);
  PACELINE_RETURN_IF_ERROR(runner.Begin());
  const absl::Status end = WaitUntil(
      context, {}, [&] { return runner.Turn(); },
      [&] { return runner.IsDone(); });
  console.EndLive();
  if (!end.ok()) {
    const bool interrupted = absl::IsCancelled(end);
    if (!interrupted) ReportError(console, end);
    const std::string open = runner.OpenJobs();
    console.Note(interrupted ? "interrupted; " : "",
                 open.empty() ? "no job of it is under way"
                              : absl::StrCat("jobs ", open, " go on"),
                 "; to go on, type the same command with its --set");
    return ExitCodeFor(end);
  }
  if (ready.study.race.has_value()) NoteWinner(ready, console);
  PACELINE_RETURN_IF_ERROR(Compare(context, ready));
  return PrintStudy(options, ready, console);
}

// --- Benches ----------------------------------------------------------------

// A study of its own jobs, whose cases stand in for trials.
struct ReadyBench {
  BenchOptions options;
  std::vector<BenchCase> cases = {};
  ReadyStudy ready = {};
};

// The coordinator tries every case before the first job runs. It refuses here
// what no spec alone shows, such as stages that cannot be dealt out to these
// workers.
absl::Status TryCases(const CommandContext& context, const JobSpec& spec,
                      ReadyBench& bench) {
  for (const BenchCase& one : bench.cases) {
    const auto placed =
        TryToPlace(context, BenchSpec(spec, bench.options, one));
    if (!placed.ok()) {
      return absl::Status(placed.status().code(),
                          absl::StrCat("nothing was run: ", CaseText(one), ": ",
                                       placed.status().message()));
    }
    if (!bench.options.lengthen) continue;
    bench.options.micro_batches = EnoughMicroBatches(
        bench.options.micro_batches, placed->estimate().step_seconds());
  }
  return absl::OkStatus();
}

// Notes the rows that came after the first `noted`.  Returns how many there
// are.
size_t NoteRows(Console& console, const std::vector<TrialJob>& jobs,
                size_t noted, bool train) {
  size_t rows = 0;
  for (const TrialJob& job : jobs) {
    if (!job.row.has_value() || ++rows <= noted) continue;
    const BenchRow& row = *job.row;
    console.Note(
        absl::StrFormat("%s: %.3f samples/s, %.2fx",
                        CaseText({row.stages, row.policy, row.schedule}),
                        row.throughput, row.speedup));
    if (row.seconds >= kShortBenchSeconds) continue;
    console.Note(absl::StrFormat(
        "  that took %.2f s only, which says little: raise --micro-batches%s",
        row.seconds, train ? " or --steps" : ""));
  }
  return rows;
}

// Runs the jobs one by one; their rows come with them.
absl::Status RunBenchJobs(const CommandContext& context, StudyRunner& runner,
                          ReadyBench& bench) {
  const BenchOptions& options = bench.options;
  PACELINE_ASSIGN_OR_RETURN(const CpuShares shares,
                            MeasuredShares(context.client));
  size_t noted = 0;
  for (TrialJob& job : bench.ready.jobs) {
    PACELINE_RETURN_IF_ERROR(runner.Follow(job, options.timeout));
    if (!options.keep_jobs) {
      PACELINE_RETURN_IF_ERROR(context.client.DeleteJob(job.id));
    }
    const std::vector<std::string> reasons =
        CompareJobs(options.paired > 0, shares, bench.ready.jobs);
    if (!reasons.empty()) return FailedPrecondition(reasons.front());
    noted = NoteRows(context.console, bench.ready.jobs, noted, options.train);
  }
  return absl::OkStatus();
}

absl::Status RunBench(const CommandContext& context, const JobSpec& spec,
                      ReadyBench& bench) {
  const BenchOptions& options = bench.options;
  std::vector<TrialJob>& jobs = bench.ready.jobs;
  PACELINE_ASSIGN_OR_RETURN(const std::vector<v1::Worker> live,
                            LiveWorkers(context.client));
  if (live.empty()) {
    return ResourceExhausted(
        "no worker is attached: start one, or wait until one is back");
  }
  bench.cases = BenchCases(options, static_cast<int>(live.size()));
  jobs = BenchJobs(spec, options, bench.cases);
  // Nothing is measured for a bench that cannot be finished.
  for (const TrialJob& job : jobs) {
    for (const SpecProblem& problem : CheckJobSpec(job.spec)) {
      return InvalidArgument(problem.path, ": ", problem.why);
    }
  }
  StudyRunner runner(context, bench.ready);
  PACELINE_RETURN_IF_ERROR(runner.LookForFiles());
  if (options.profile) {
    PACELINE_RETURN_IF_ERROR(
        TakeProfile(context, jobs[0].spec, {.timeout = options.timeout})
            .status());
  }
  PACELINE_RETURN_IF_ERROR(TryCases(context, spec, bench));
  jobs = BenchJobs(spec, options, bench.cases);
  return RunBenchJobs(context, runner, bench);
}

}  // namespace

Outcome BenchCommand(const CommandContext& context, const JobSpec& spec,
                     const BenchOptions& options,
                     const LoadModelWeights& load) {
  ReadyBench bench = {.options = options};
  bench.ready.load = load;
  const absl::Status status = RunBench(context, spec, bench);
  const std::vector<BenchRow> rows = MedianRows(bench.ready.jobs);
  if (!rows.empty() || status.ok()) {
    context.console.Print(RenderBench(rows),
                          BenchDocument(bench.options, rows));
  }
  return status.ok() ? kExitOk : ReportSubmitError(context.console, status);
}

std::string WhyNoStudyReport(const std::string& file) {
  const bool known = absl::c_any_of(kReportForms, [&](const auto& form) {
    return absl::EndsWith(file, form.ending);
  });
  return known ? WhyNoExportFile(file)
               : absl::StrCat("'", Printable(file),
                              "' ends with none of .html, .csv and .tex");
}

Outcome StudyCommand(const CommandContext& context, const StudyOptions& options,
                     const ReadMetadata& read, const LoadModelWeights& load) {
  if (!options.report.empty() && !options.dry_run) {
    PACELINE_RETURN_IF_ERROR(CheckWritable(options.report));
  }
  PACELINE_ASSIGN_OR_RETURN(ReadyStudy ready,
                            ReadyStudyOf(options, read, context.console));
  ready.load = load;
  if (ready.study.plan.has_value()) return RunPlans(context, options, ready);
  return options.dry_run ? DryRun(context, ready)
                         : RunStudy(context, options, ready);
}

}  // namespace paceline
