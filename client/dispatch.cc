#include "client/dispatch.h"

#include <algorithm>
#include <csignal>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "client/commands/job/job.h"
#include "client/commands/plan/plan.h"
#include "client/files/plan_file.h"
#include "client/render/report.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/job/job_model.h"
#include "core/rpc/convert/job_convert.h"
#include "core/schedule/schedule.h"

namespace paceline {
namespace {

constexpr char kWarning[] = "paceline: warning: ";

// Warnings go to the console.
absl::StatusOr<JobSpec> ReadJob(const Call& call, const JobSource& from) {
  PACELINE_ASSIGN_OR_RETURN(const ParsedJob job,
                            from.model.empty()
                                ? call.tools.read_job(from.file, from.sets)
                                : ParseModelSettings(from.model, from.sets));
  call.console.NoteEach(kWarning, job.warnings);
  return job.spec;
}

// The job that a command line names, with what a worker says of its script,
// where it is of one.  Warnings go to the console.
absl::StatusOr<JobSpec> JobOf(const Call& call, const JobSource& from) {
  PACELINE_ASSIGN_OR_RETURN(JobSpec spec, ReadJob(call, from));
  if (!from.model.empty()) {
    const int64_t batch = from.batch.value_or(spec.train.micro_batch);
    PACELINE_ASSIGN_OR_RETURN(
        spec, WithMicroBatch(std::move(spec), batch, from.sets));
  }
  PACELINE_RETURN_IF_ERROR(FillInSizes(call.tools.read_metadata, spec.model));
  PACELINE_RETURN_IF_ERROR(
      FillInScript(*call.mesh, call.options.timeout, &spec));
  return spec;
}

Outcome Plan(const Call& call) {
  const PlanOptions& plan = call.options.plan;
  PACELINE_RETURN_IF_ERROR(CheckPlanOptions(plan));
  JobSpec spec;
  if (plan.profile.empty()) {
    PACELINE_ASSIGN_OR_RETURN(
        spec, JobOf(call, {plan.model, plan.batch, plan.job_file, plan.sets}));
  }
  // Ctrl-C is caught while a worker is waited for, not while the planner
  // computes.
  call.mesh->pauser.LetGo();
  absl::StatusOr<PlanQuestion> question;
  if (plan.profile.empty()) {
    question = AskForMesh(call.mesh->client, spec, plan);
  } else {
    PACELINE_ASSIGN_OR_RETURN(const ProfileSource source,
                              ReadProfileFile(plan.profile));
    if (plan.cost_model == "pipedream") {
      return PipedreamPlanCommand(call.console, call.clock, source, plan);
    }
    question = AskForProfile(source, plan);
  }
  if (!question.ok()) return ReportSubmitError(call.console, question.status());
  return PlanCommand(call.console, call.clock, *question, plan);
}

Outcome Bench(const Call& call) {
  BenchOptions bench = call.options.bench;
  bench.timeout = call.options.timeout;
  PACELINE_RETURN_IF_ERROR(CheckBenchSets(bench.sets, bench.train));
  // A key of one schedule may be set where the bench has that schedule.
  for (const std::string& schedule : bench.schedules) {
    if (!ScheduleTraitsOf(schedule).asynchronous) continue;
    bench.sets.push_back(absl::StrCat("pipeline.schedule=", schedule));
  }
  // In an inference every micro-batch is a batch of its own.
  bench.sets.push_back(absl::StrCat(
      "train.batch=",
      bench.micro_batch * (bench.train ? bench.micro_batches : 1)));
  PACELINE_ASSIGN_OR_RETURN(
      const JobSpec spec,
      JobOf(call, {bench.model, bench.micro_batch, "", bench.sets}));
  return BenchCommand(*call.mesh, spec, bench, call.tools.load_weights);
}

Outcome Profile(const Call& call) {
  ProfileOptions profile = call.options.profile;
  profile.timeout = call.options.timeout;
  const JobSource& source = call.options.source;
  if (source.model.empty() && source.file.empty()) {
    return InvalidArgument(
        "nothing to profile: name a model (--model MODEL --batch B) or a job "
        "(-f FILE)");
  }
  PACELINE_ASSIGN_OR_RETURN(const JobSpec spec, JobOf(call, source));
  return ProfileCommand(*call.mesh, spec, profile);
}

Outcome PredictModel(const Call& call) {
  PACELINE_ASSIGN_OR_RETURN(const JobSpec spec,
                            JobOf(call, call.options.source));
  return PredictModelCommand(*call.mesh, spec, call.options.device);
}

Outcome Submit(const Call& call, ParsedJob job, Instant begin,
               std::optional<v1::ResumedFrom> resume = std::nullopt) {
  const ClientOptions& options = call.options;
  // The job gets the rest of the time; with nothing left, it is asked about
  // once.
  std::optional<absl::Duration> timeout = options.timeout;
  if (timeout.has_value()) {
    timeout =
        std::max(absl::ZeroDuration(), *timeout - (call.clock.Now() - begin));
  }
  return SubmitCommand(
      *call.mesh, {std::move(job), call.tools.request_id, std::move(resume),
                   options.detach, options.dry_run, timeout});
}

// The job of a file, or one that was submitted before; as the plan file says
// where there is one.
Outcome SubmitJob(const Call& call) {
  const Instant begin = call.clock.Now();
  const ClientOptions& options = call.options;
  const CommandContext& mesh = *call.mesh;
  PACELINE_ASSIGN_OR_RETURN(
      ParsedJob job,
      options.again.empty()
          ? call.tools.read_job(options.target, options.source.sets)
          : JobAgain(mesh.client, options.again, options.source.sets));
  PACELINE_RETURN_IF_ERROR(
      FillInSizes(call.tools.read_metadata, job.spec.model));
  PACELINE_RETURN_IF_ERROR(
      LookForFiles(mesh, job.spec, call.tools.load_weights));
  PACELINE_RETURN_IF_ERROR(FillInScript(mesh, options.timeout, &job.spec));
  if (options.plan_file.empty()) return Submit(call, std::move(job), begin);
  PACELINE_ASSIGN_OR_RETURN(const PlanFile plan,
                            ReadPlanFile(options.plan_file));
  PACELINE_ASSIGN_OR_RETURN(std::string warning,
                            FollowPlan(options.plan_file, plan, job.spec));
  if (!warning.empty()) job.warnings.push_back(std::move(warning));
  for (const std::string& key : KeysOfAPlan(options.source.sets)) {
    job.warnings.push_back(absl::StrCat(
        "--set ", key, " has no effect: --plan says where it is cut"));
  }
  return Submit(call, std::move(job), begin);
}

// The job as it was submitted, but for what `--set` changes.  It goes on with
// the CPU capability that it had: another one rounds differently.
Outcome ResumeJob(const Call& call) {
  const Instant begin = call.clock.Now();
  const ClientOptions& options = call.options;
  const CommandContext& mesh = *call.mesh;
  PACELINE_ASSIGN_OR_RETURN(const int64_t id,
                            ResolveJob(mesh.client, options.target));
  PACELINE_ASSIGN_OR_RETURN(const v1::Job job, mesh.client.GetJob(id, 0, 0));
  JobSpec spec = FromProto(job.spec());
  if (!job.cpu_capability().empty()) spec.cpu_capability = job.cpu_capability();
  PACELINE_ASSIGN_OR_RETURN(ParsedJob changed,
                            ChangeJob(spec, options.source.sets));
  JobSpec read = changed.spec;
  read.model.weights.clear();  // the checkpoint has newer ones
  v1::Inputs inputs;
  if (!options.accept_changed_data) {
    inputs = InputsToResume(job.inputs(), spec, changed.spec);
  }
  PACELINE_RETURN_IF_ERROR(LookForFiles(mesh, read, nullptr, inputs));
  absl::c_move(
      ResumeNotes(job, changed.spec, options.from_step, options.source.sets),
      std::back_inserter(changed.warnings));
  const auto before = DescribeModel(spec), after = DescribeModel(changed.spec);
  std::vector<std::string> notes;
  if (before.ok() && after.ok()) {
    // The coordinator says of the rest that it is an error.
    CheckMadeWith(before->made_with, after->made_with, /*reset_head=*/true,
                  notes)
        .IgnoreError();
  }
  for (const std::string& note : notes) {
    changed.warnings.push_back(absl::StrCat("the checkpoint was ", note));
  }
  v1::ResumedFrom resume;
  resume.set_job(id);
  resume.set_step(options.from_step);
  resume.set_accept_changed_data(options.accept_changed_data);
  return Submit(call, std::move(changed), begin, std::move(resume));
}

Outcome ExportJob(const Call& call) {
  const ClientOptions& options = call.options;
  PACELINE_ASSIGN_OR_RETURN(const int64_t job,
                            ResolveJob(call.mesh->client, options.target));
  return ExportJobCommand(*call.mesh, call.tools.read_weights,
                          call.tools.read_tensors,
                          {job, options.export_file, options.export_form});
}

// With the score taylor on a mesh.
Outcome Prune(const Call& call) {
  const PruneOptions& prune = call.options.prune;
  PACELINE_ASSIGN_OR_RETURN(JobSpec spec, ReadJob(call, prune));
  spec.model.weights = prune.weights;  // may have been pruned before
  PACELINE_RETURN_IF_ERROR(FillInSizes(call.tools.read_metadata, spec.model));
  return PruneModelCommand(call.console, call.tools.load_weights, spec, prune,
                           call.mesh);
}

Outcome Study(const Call& call) {
  return StudyCommand(*call.mesh, call.options.study, call.tools.read_metadata,
                      call.tools.load_weights);
}

Outcome Doctor(const Call& call) {
  return DoctorCommand(*call.mesh, call.tools.open_trust,
                       {.coordinator = call.settings.coordinator,
                        .tls_folder = call.tls_folder});
}

Outcome Up(const Call& call) {
  UpOptions up = call.options.up;
  up.usual_coordinator = call.settings.coordinator;
  PACELINE_ASSIGN_OR_RETURN(up.mesh.coordinator_program,
                            FindProgram("paceline-coordinator"));
  PACELINE_ASSIGN_OR_RETURN(up.mesh.worker_program,
                            FindProgram("paceline-worker"));
  // The reader of our output may leave; the mesh stays.
  signal(SIGPIPE, SIG_IGN);
  SignalPauser pauser;
  return UpCommand(up, call.console, call.clock, pauser, call.tools.connect);
}

Outcome InspectModel(const Call& call) {
  const std::string& model = call.options.target;
  if (!IsModel(model) && LooksLikeWeightsFile(model)) {
    if (!call.options.source.sets.empty()) {
      return InvalidArgument("--set changes a model; ", model,
                             " is a file, and shows what it holds");
    }
    return InspectWeightsCommand(call.console, call.tools.read_weights, model);
  }
  PACELINE_ASSIGN_OR_RETURN(
      const ParsedJob job, ParseModelSettings(model, call.options.source.sets));
  call.console.NoteEach(kWarning, job.warnings);
  return InspectModelCommand(call.console, job.spec);
}

// Simulates a plan file, or the machines and layers that the flags describe.
Outcome SimulatePlan(const Call& call) {
  const SimulateFlags& flags = call.options.simulate;
  if (!call.options.plan_file.empty()) {
    PACELINE_ASSIGN_OR_RETURN(const PlanFile plan,
                              ReadPlanFile(call.options.plan_file));
    return SimulateCommand(call.console, flags, SimulationOf(plan));
  }
  std::optional<JobSpec> spec;
  if (!call.options.source.model.empty()) {
    PACELINE_ASSIGN_OR_RETURN(spec, ReadJob(call, call.options.source));
  }
  PACELINE_ASSIGN_OR_RETURN(
      SimulatedPlan plan,
      MakeSimulatedPlan(flags.machines, spec ? &*spec : nullptr));
  return SimulateCommand(call.console, flags, std::move(plan));
}

Outcome PrintCompletionScript(const Call& call) {
  call.console.Print(CompletionScript(call.options.target));
  return kExitOk;
}

// Prints a line for each job or node that is asked for: of jobs the newest.
Outcome Complete(const Call& call) {
  Completion completion = {.word = call.options.completion.word};
  if (call.options.completion.ask == "JOB") {
    PACELINE_ASSIGN_OR_RETURN(const v1::ListJobsResponse jobs,
                              call.mesh->client.ListJobs(/*limit=*/50));
    for (const v1::Job& job : jobs.jobs()) {
      completion.offers.push_back(
          {absl::StrCat(job.id()),
           absl::StrCat(Printable(job.spec().name()), ", ",
                        JobStateName(job.state()))});
    }
  } else {
    PACELINE_ASSIGN_OR_RETURN(const v1::ListWorkersResponse workers,
                              call.mesh->client.ListWorkers());
    for (const v1::Worker& worker : workers.workers()) {
      completion.offers.push_back(
          {Printable(worker.registration().name()), StateText(worker)});
    }
  }
  call.console.Print(CompletionText(completion));
  return kExitOk;
}

std::unique_ptr<TrustClient> OpenTrustOf(const Call& call) {
  return call.tools.open_trust(call.settings.coordinator, call.tls_folder);
}

Outcome CreateToken(const Call& call) {
  return CreateTokenCommand(*OpenTrustOf(call), call.console,
                            call.settings.coordinator, call.options.token);
}

Outcome Revoke(const Call& call) {
  return RevokeCommand(*OpenTrustOf(call), call.console,
                       call.options.token.role, call.options.target);
}

Outcome Login(const Call& call) {
  const std::string& user = call.options.user;
  return LoginCommand(*OpenTrustOf(call), call.console, call.named,
                      call.options.login_token,
                      user.empty() ? UserName() : user, UserSettingsFile());
}

Outcome CheckTls(const Call& call) {
  return CheckTlsCommand(*OpenTrustOf(call), call.console,
                         call.settings.coordinator);
}

template <bool events>
Outcome WaitForJob(const CommandContext& mesh, int64_t job,
                   std::optional<absl::Duration> timeout) {
  return WaitJobCommand(mesh, job, {.timeout = timeout, .events = events});
}

template <bool drain>
Outcome Drain(const CommandContext& mesh, const std::string& node) {
  return DrainNodeCommand(mesh, node, drain);
}

// Each calls `command` with these options, behind the console, the client for
// tokens and the console, the mesh, or the mesh and the job that is named.
template <auto command, auto... options>
Outcome Here(const Call& call) {
  return command(call.console, call.options.*options...);
}

template <auto command, auto... options>
Outcome OnTrust(const Call& call) {
  return command(*OpenTrustOf(call), call.console, call.options.*options...);
}

template <auto command, auto... options>
Outcome OnMesh(const Call& call) {
  return command(*call.mesh, call.options.*options...);
}

template <auto command, auto... options>
Outcome OnJob(const Call& call) {
  PACELINE_ASSIGN_OR_RETURN(const int64_t job,
                            ResolveJob(call.mesh->client, call.options.target));
  return command(*call.mesh, job, call.options.*options...);
}

using Of = ClientOptions;

constexpr CommandRow kCommands[] = {
    {"up", Needs::kSettings, Up},
    {"job submit", Needs::kMesh, SubmitJob},
    {"job list", Needs::kMesh,
     OnMesh<ListJobsCommand, &Of::filter, &Of::watch>},
    {"job show", Needs::kMesh, OnJob<ShowJobCommand, &Of::watch>},
    {"job logs", Needs::kMesh, OnJob<JobLogsCommand, &Of::follow>},
    {"job events", Needs::kMesh, OnJob<JobEventsCommand, &Of::follow>},
    {"job wait", Needs::kMesh, OnJob<WaitForJob<false>, &Of::timeout>},
    {"job watch", Needs::kMesh, OnJob<WaitForJob<true>, &Of::timeout>},
    {"job stop", Needs::kMesh, OnJob<StopJobCommand>},
    {"job export", Needs::kMesh, ExportJob},
    {"job resume", Needs::kMesh, ResumeJob},
    {"job delete", Needs::kMesh, OnJob<DeleteJobCommand>},
    {"job keys", Needs::kSettings, Here<JobKeysCommand, &Of::target>},
    {"node list", Needs::kMesh, OnMesh<ListNodesCommand, &Of::watch>},
    {"node show", Needs::kMesh, OnMesh<ShowNodeCommand, &Of::target>},
    {"node drain", Needs::kMesh, OnMesh<Drain<true>, &Of::target>},
    {"node undrain", Needs::kMesh, OnMesh<Drain<false>, &Of::target>},
    {"node forget", Needs::kMesh, OnMesh<ForgetNodeCommand, &Of::target>},
    {"model list", Needs::kSettings, Here<ListModelsCommand>},
    {"model inspect", Needs::kSettings, InspectModel},
    {"model prune --score l1", Needs::kSettings, Prune},
    {"model prune --score taylor", Needs::kMesh, Prune},
    {"report", Needs::kMesh, OnMesh<ReportCommand, &Of::report>},
    {"study", Needs::kMesh, Study},
    {"profile", Needs::kMesh, Profile},
    {"bench infer", Needs::kMesh, Bench},
    {"bench train", Needs::kMesh, Bench},
    {"plan", Needs::kMesh, Plan},
    {"predict --fit", Needs::kSettings, Here<PredictFitCommand, &Of::predict>},
    {"predict --model", Needs::kMesh, PredictModel},
    {"simulate", Needs::kSettings, SimulatePlan},
    {"token create", Needs::kTrust, CreateToken},
    {"token list", Needs::kTrust, OnTrust<ListTokensCommand>},
    {"token revoke", Needs::kTrust, OnTrust<RevokeTokenCommand, &Of::target>},
    {"login", Needs::kLogin, Login},
    {"tls revoke", Needs::kTrust, Revoke},
    {"tls check", Needs::kTrust, CheckTls},
    {"doctor", Needs::kDoctor, Doctor},
    {"context list", Needs::kContexts, Here<ListContextsCommand>},
    {"context set", Needs::kContexts,
     Here<SetContextCommand, &Of::target, &Of::host>},
    {"context use", Needs::kContexts, Here<UseContextCommand, &Of::target>},
    {"context delete", Needs::kContexts,
     Here<DeleteContextCommand, &Of::target>},
    {"top", Needs::kMesh, OnMesh<TopCommand>},
    {"completion", Needs::kNothing, PrintCompletionScript},
    {kCompleteCommand, Needs::kMesh, Complete},
};

}  // namespace

const CommandRow& RowOf(const ClientOptions& options) {
  const auto row = absl::c_find_if(kCommands, [&](const CommandRow& each) {
    return each.name == options.command;
  });
  PACELINE_CHECK(row != std::end(kCommands), "no such command");
  return *row;
}

std::string ProgramText(const ClientOptions& options) {
  return absl::StrCat(
      "paceline",
      options.context ? absl::StrCat(" --context ", *options.context) : "",
      options.coordinator
          ? absl::StrCat(" --coordinator ", *options.coordinator)
          : "");
}

}  // namespace paceline
